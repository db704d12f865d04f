"""Results of replays, kept as they come: a run that was ended goes on where it was.

One line of JSON each, in `runs.jsonl` of a folder that only its owner can read. No word of a session is in it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any, Final

from foldline.errors import InvalidInput
from foldline.store.files import file_lock, make_private_folder
from foldline_bench.tuning.values import Setting, TrialOutcome

__all__ = ["FILE", "TrialStore", "open_trial_store", "trial_count"]

FILE: Final = "runs.jsonl"
_FORM: Final = 2
_LOCK_SECONDS: Final = 0.2


class TrialStore:
    """Known results, and the file to which new ones are appended. `fresh` ignores what was known."""

    def __init__(self, file: IO[bytes], known: dict[str, TrialOutcome]) -> None:
        self._file = file
        self._known = known

    def get(self, key: str) -> TrialOutcome | None:
        """The result under a key. O(1)."""
        return self._known.get(key)

    def add(self, key: str, setting: Setting, outcome: TrialOutcome) -> None:
        """Keep a result; when this returns, the end of this process does not take it away. Raises OSError."""
        self._known[key] = outcome
        record = {"v": _FORM, "key": key, "setting": setting.as_json(), "outcome": asdict(outcome)}
        self._file.write(json.dumps(record, separators=(",", ":")).encode() + b"\n")
        self._file.flush()


@contextmanager
def open_trial_store(folder: Path, *, fresh: bool = False) -> Iterator[TrialStore]:
    """The results in a folder, for one tuning at a time. A half line at the end (a crash) is cut off.

    Raises InvalidInput for what is no folder, or while another process uses it, and OSError.
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
        known = _read(file)
        yield TrialStore(file, {} if fresh else known)


def trial_count(folder: Path) -> int:
    """How many results there are in a folder. O(size). Raises OSError."""
    path = folder / FILE
    if not path.exists():
        return 0
    with path.open("rb") as file:
        return sum(line.endswith(b"\n") for line in file)


def _read(file: IO[bytes]) -> dict[str, TrialOutcome]:
    """The results in a file, which is left at the end of its last whole line."""
    known: dict[str, TrialOutcome] = {}
    end = 0
    for line in file:
        if not line.endswith(b"\n"):
            break
        end += len(line)
        found = _result(line)
        if found is not None:
            known[found[0]] = found[1]
    file.truncate(end)
    file.seek(end)
    return known


def _result(line: bytes) -> tuple[str, TrialOutcome] | None:
    """The result in a line; None for a damaged line or another form, whose replay is run again."""
    try:
        record: Any = json.loads(line)
        if record["v"] != _FORM:
            return None
        return str(record["key"]), TrialOutcome.from_json(record["outcome"])
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
