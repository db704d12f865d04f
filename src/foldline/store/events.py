"""The log of a session on disk: `events.jsonl`, one JSON object per line, only ever appended to."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from foldline.errors import InvalidInput
from foldline.messages import Json
from foldline.store.files import make_private_folder

if sys.platform != "win32":
    import fcntl

__all__ = ["ANOTHER_WRITER", "EventLog", "Torn", "read_events"]

ANOTHER_WRITER = "the log has another writer"
"""The reason that is given to whoever comes second."""

_BLOCK_BYTES = 65_536
_FLAGS = os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_BINARY", 0)


@dataclass(frozen=True, slots=True)
class Torn:
    """What a crash left of an event: the bytes behind the last whole line, and where they began in the file."""

    at_byte: int
    data: bytes

    def __str__(self) -> str:
        return f"a half-written event of {len(self.data):,} bytes at byte {self.at_byte:,}"


def read_events(path: Path | str) -> Iterator[dict[str, Json]]:
    """Yields the events of a log, oldest first, and changes nothing; O(size), one line in memory at a time.

    A last line that is torn, or that another process is writing at this moment, is no event yet and is left out. Raises
    FileNotFoundError, and InvalidInput (file and line named) for a line that is no JSON object.
    """
    with open(path, "rb") as file:
        yield from _events(file, Path(path))


class EventLog:
    """Appends events to a file and reads them back; the one writer of its file.

    Opening makes the file (0600) and its folder (0700) if need be. A crash may have left a torn last line: it is cut
    off, and `torn` is what it was, None otherwise. A last line that lacks only its line break is whole and is kept.
    Each call is one write, not buffered; with `fsync` it is on the disk before the call returns. Where the system
    knows locks, a second writer is refused with InvalidInput. Close it, or use it as a context manager.
    """

    def __init__(self, path: Path | str, *, fsync: bool = False) -> None:
        self._path = Path(os.path.abspath(path))
        self._fsync = fsync
        self._torn: Torn | None = None
        make_private_folder(self._path.parent)
        self._file = os.fdopen(os.open(self._path, _FLAGS, 0o600), "r+b", buffering=0)
        try:
            self._lock()
            if sys.platform != "win32":
                os.fchmod(self._file.fileno(), 0o600)  # it may have been made by someone less careful
            self._mend()
        except BaseException:
            self._file.close()
            raise

    @property
    def path(self) -> Path:
        """The file."""
        return self._path

    @property
    def torn(self) -> Torn | None:
        """The half event that was cut off when the log was opened."""
        return self._torn

    @property
    def size_bytes(self) -> int:
        """The size of the file. O(1)."""
        return os.fstat(self._file.fileno()).st_size

    def append(self, event: Mapping[str, Json]) -> None:
        """Appends one event; it is in the file whole, or not at all. O(size of the event). Raises as `extend` does."""
        self.extend((event,))

    def extend(self, events: Iterable[Mapping[str, Json]]) -> None:
        """Appends several events as one write, and one fsync where that is wanted: all of them or none. O(their size).

        A crash in between may leave the first of them. Raises InvalidInput when one is no JSON object, ValueError when
        the log is closed, and OSError (a full disk) after taking back what was written.
        """
        data = b"".join([_line(event) for event in events])
        if not data and not self._file.closed:
            return
        end = self._file.seek(0, os.SEEK_END)
        try:
            written = 0
            while written < len(data):
                written += self._file.write(data[written:]) or 0
            if self._fsync:
                os.fsync(self._file.fileno())
        except BaseException as error:
            self._file.truncate(end)
            if isinstance(error, OSError) and error.filename is None:
                error.filename = str(self._path)  # "No space left on device" alone does not say where
            raise

    def let_go(self) -> None:
        """Let another writer have the file, and hold nothing open; `take` has it back."""
        self._file.close()

    def take(self) -> None:
        """Have the file again, what stands at its path now. Raises InvalidInput (another writer has it; it is gone)."""
        try:
            while not self._reopened():
                pass
            self._mend()
        except FileNotFoundError:
            raise InvalidInput("there is no log any more", place=str(self._path)) from None

    def _reopened(self) -> bool:
        """Open and lock what stands at the path; False if another file was put there meanwhile (a repair)."""
        self._file.close()
        self._file = os.fdopen(os.open(self._path, _FLAGS & ~os.O_CREAT), "r+b", buffering=0)
        try:
            self._lock()
            return os.path.samestat(os.stat(self._path), os.fstat(self._file.fileno()))
        except BaseException:
            self._file.close()
            raise

    def __iter__(self) -> Iterator[dict[str, Json]]:
        """The events so far, oldest first."""
        return read_events(self._path)

    def close(self) -> None:
        """Lets go of the file. Closing again does nothing."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _lock(self) -> None:
        if sys.platform != "win32":
            try:
                fcntl.flock(self._file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise InvalidInput(ANOTHER_WRITER, place=str(self._path)) from None

    def _mend(self) -> None:
        """Cuts off what a crash left behind the last line break."""
        end = self._file.seek(0, os.SEEK_END)
        rest = b"".join(reversed(list(self._backwards(end))))
        at = end - len(rest)
        if not rest:
            return
        if _is_object(rest):  # an object ends with its own brace: only the line break is missing
            self._file.write(b"\n")
        else:
            self._file.truncate(at)
            self._torn = Torn(at, rest)
        if self._fsync:
            os.fsync(self._file.fileno())

    def _backwards(self, end: int) -> Iterator[bytes]:
        """What stands behind the last line break, block by block from the end of the file."""
        while end > 0:
            start = max(0, end - _BLOCK_BYTES)
            self._file.seek(start)
            block = b""
            while len(block) < end - start:  # one read may give less than was asked for
                part = self._file.read(end - start - len(block))
                if not part:
                    raise InvalidInput("the log became shorter while it was opened", place=str(self._path))
                block += part
            end = start
            yield block[block.rfind(b"\n") + 1 :]
            if b"\n" in block:
                return


def _line(event: Mapping[str, Json]) -> bytes:
    if not isinstance(event, Mapping):
        raise InvalidInput(f"an event is a JSON object, not {type(event).__name__}")
    try:
        text = json.dumps(dict(event), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        if not text.isascii():
            try:
                return text.encode() + b"\n"
            except UnicodeEncodeError:  # a lone surrogate, as half an emoji in a cut tool output: kept as an escape
                text = json.dumps(dict(event), allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(f"an event that is no JSON: {error}") from error
    return text.encode() + b"\n"


def _is_object(line: bytes) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def _events(file: IO[bytes], path: Path) -> Iterator[dict[str, Json]]:
    for number, line in enumerate(file, 1):
        if not line.endswith(b"\n") and not _is_object(line):
            return
        try:
            event = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise InvalidInput(f"no JSON: {error}", place=f"{path}, line {number}") from error
        if not isinstance(event, dict):
            raise InvalidInput(f"an event is a JSON object, not {type(event).__name__}", place=f"{path}, line {number}")
        yield event
