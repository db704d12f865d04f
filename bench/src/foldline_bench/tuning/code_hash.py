"""Which code a replay runs, as one hash: results of other code are no results of this."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from functools import lru_cache
from hashlib import sha256
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Final

__all__ = ["code_sha256", "modules_of"]

_PACKAGES: Final = ("foldline", "foldline_bench")
_START: Final = "foldline_bench.tuning.trials"


@lru_cache(maxsize=1)
def code_sha256() -> str:
    """A hash over the source of all modules that a replay can run, of both packages as they are now. Some 0.5 s, once.

    The version says less: in a checkout it stays while policies change.
    """
    whole = sha256()
    for name, text in sorted(modules_of(_START, {name: files(name) for name in _PACKAGES}).items()):
        whole.update(f"{name} {len(text)}\n".encode() + text)
    return whole.hexdigest()


def modules_of(start: str, packages: Mapping[str, Traversable]) -> dict[str, bytes]:
    """A module and all of these packages that it imports, by name, with their source; imports in functions count.

    Of packages only those that are imported by their own names: the others are run, but nothing is taken of them.
    """
    found: dict[str, bytes] = {}
    left = [start]
    while left:
        name = left.pop()
        text = None if name in found else _source(name, packages)
        if text is not None:
            found[name] = text
            left += [inner for inner in _imported(text) if inner.partition(".")[0] in packages]
    return found


def _source(name: str, packages: Mapping[str, Traversable]) -> bytes | None:
    """The source of a module; None for a name that is none."""
    top, _, rest = name.partition(".")
    package, inner = packages[top], rest.replace(".", "/")
    for path in (f"{inner}.py", f"{inner}/__init__.py".removeprefix("/")):
        file = package.joinpath(path)
        if file.is_file():
            return file.read_bytes()
    return None


def _imported(text: bytes) -> Iterator[str]:
    """Names in the imports of a source that may be modules."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        else:
            continue
        yield from names
