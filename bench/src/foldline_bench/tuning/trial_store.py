"""Stored results of replays, so that an interrupted tuning continues; and the hash of the code that they depend on.

Each result is a line of JSON in `runs.jsonl`, in a folder that only its owner can read. It holds no text of a session.
"""

from __future__ import annotations

import ast
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from functools import lru_cache
from hashlib import sha256
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import IO, Any, Final

from foldline.errors import InvalidInput
from foldline.store.files import file_lock, make_private_folder
from foldline_bench.tuning.values import Setting, TrialOutcome

__all__ = ["FILE", "TrialStore", "code_sha256", "modules_of", "open_trial_store", "trial_count"]


FILE: Final = "runs.jsonl"
# Goes up when the meaning of a stored figure changes: older results are then ignored.
_FORM: Final = 3
# Long enough for a process that is just ending; another tuning holds the lock for minutes, and waiting is no use.
_LOCK_SECONDS: Final = 0.2


class TrialStore:
    """Stored results, and the file to which new ones are appended."""

    def __init__(self, file: IO[bytes], stored: dict[str, TrialOutcome]) -> None:
        self._file = file
        self._stored = stored

    def get(self, key: str) -> TrialOutcome | None:
        """Return the result under a key. O(1)."""
        return self._stored.get(key)

    def add(self, key: str, setting: Setting, outcome: TrialOutcome) -> None:
        """Store a result; once this returns, it survives the end of this process. Raises OSError."""
        self._stored[key] = outcome
        record = {"v": _FORM, "key": key, "setting": setting.as_json(), "outcome": asdict(outcome)}
        self._file.write(json.dumps(record, separators=(",", ":")).encode() + b"\n")
        # Handed to the system, not synced to the disk: a lost power supply costs a replay, a sync after each one more.
        self._file.flush()


@contextmanager
def open_trial_store(folder: Path, *, fresh: bool = False) -> Iterator[TrialStore]:
    """Open the results in a folder, for one tuning at a time. With `fresh`, stored results are ignored.

    Half a line at the end, left by a crash, is cut off. Raises InvalidInput if this is not a folder or another process
    uses it, and OSError.
    """
    if folder.exists() and not folder.is_dir():
        raise InvalidInput("is no folder: results cannot be kept in it", place=str(folder))
    make_private_folder(folder)
    path = folder / FILE
    with ExitStack() as stack:
        try:
            stack.enter_context(file_lock(folder / f".{FILE}.lock", seconds=_LOCK_SECONDS))
        except BlockingIOError:
            raise InvalidInput("another tuning uses this folder; name one with --state", place=str(folder)) from None
        file = stack.enter_context(os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, 0o600), "r+b"))
        # Read even if they are ignored: that finds the end of the last whole line.
        stored = _read(file)
        yield TrialStore(file, {} if fresh else stored)


def trial_count(folder: Path) -> int:
    """Return the number of results in a folder. O(size). Raises OSError."""
    path = folder / FILE
    if not path.exists():
        return 0
    with path.open("rb") as file:
        return sum(line.endswith(b"\n") for line in file)


def _read(file: IO[bytes]) -> dict[str, TrialOutcome]:
    """Read the results in a file, and leave it at the end of its last whole line."""
    stored: dict[str, TrialOutcome] = {}
    end = 0
    for line in file:
        if not line.endswith(b"\n"):
            break
        end += len(line)
        found = _result(line)
        if found is not None:
            stored[found[0]] = found[1]
    file.truncate(end)
    file.seek(end)
    return stored


def _result(line: bytes) -> tuple[str, TrialOutcome] | None:
    """Parse the result in a line; None if it is damaged or of another form, so that the replay runs again."""
    try:
        record: Any = json.loads(line)
        if record["v"] != _FORM:
            return None
        return str(record["key"]), TrialOutcome.from_json(record["outcome"])
    except (ValueError, TypeError, KeyError, RecursionError):
        return None


_PACKAGES: Final = ("foldline", "foldline_bench")
_START: Final = "foldline_bench.tuning.trials"


@lru_cache(maxsize=1)
def code_sha256() -> str:
    """Return a hash over the source of all modules that a replay can run. Takes 0.5 s, once."""
    # Results of other code are no results of this. The version says less: in a checkout it stays while policies change.
    whole = sha256()
    for name, text in sorted(modules_of(_START, {name: files(name) for name in _PACKAGES}).items()):
        whole.update(f"{name} {len(text)}\n".encode() + text)
    return whole.hexdigest()


def modules_of(start: str, packages: Mapping[str, Traversable]) -> dict[str, bytes]:
    """Return a module and all modules of these packages that it imports, by name, with their source.

    Imports inside functions count. A package counts only if it is imported by its own name.
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
    """Return the source of a module; None if there is no such module."""
    top, _, rest = name.partition(".")
    package, inner = packages[top], rest.replace(".", "/")
    for path in (f"{inner}.py", f"{inner}/__init__.py".removeprefix("/")):
        file = package.joinpath(path)
        if file.is_file():
            return file.read_bytes()
    return None


def _imported(text: bytes) -> Iterator[str]:
    """Yield the names in the imports of a source that may be modules."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        else:
            continue
        yield from names
