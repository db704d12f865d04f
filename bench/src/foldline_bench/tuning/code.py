"""Which code a replay runs, as one hash: results of other code are no results of this."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import lru_cache
from hashlib import sha256
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Final

__all__ = ["code_sha256", "modules_of"]

_PACKAGE: Final = __name__.partition(".")[0]
_START: Final = f"{_PACKAGE}.bench.tuning.work"


@lru_cache(maxsize=1)
def code_sha256() -> str:
    """A hash over the source of all modules that a replay can run, of the package as it is now. Some 0.5 s, once.

    The version says less: in a checkout it stays while policies change.
    """
    whole = sha256()
    for name, text in sorted(modules_of(_START, files(_PACKAGE)).items()):
        whole.update(f"{name} {len(text)}\n".encode() + text)
    return whole.hexdigest()


def modules_of(start: str, package: Traversable) -> dict[str, bytes]:
    """A module and all of its package that it imports, by name, with their source; imports in functions count.

    Of packages only those that are imported by their own names: the others are run, but nothing is taken of them.
    """
    found: dict[str, bytes] = {}
    left = [start]
    while left:
        name = left.pop()
        text = None if name in found else _source(name, package)
        if text is not None:
            found[name] = text
            left += _imported(text)
    return found


def _source(name: str, package: Traversable) -> bytes | None:
    """The source of a module; None for a name that is none."""
    inner = "/".join(name.split(".")[1:])
    for path in (f"{inner}.py", f"{inner}/__init__.py".removeprefix("/")):
        file = package.joinpath(path)
        if file.is_file():
            return file.read_bytes()
    return None


def _imported(text: bytes) -> Iterator[str]:
    """What may be modules of the package in the imports of a source."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        else:
            continue
        yield from (name for name in names if name.partition(".")[0] == _PACKAGE)
