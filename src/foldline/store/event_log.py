"""The log of a session on disk: `events.jsonl`, one JSON object per line, only ever appended to.

Each line ends with its number and a checksum (`checksums`): what was altered, lost, doubled or moved is noticed by
whoever reads it.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from foldline.errors import InvalidInput
from foldline.messages import Json
from foldline.store.checksums import Damage, Verifier
from foldline.store.files import make_private_folder

if sys.platform != "win32":
    import fcntl

__all__ = [
    "ANOTHER_WRITER",
    "EventLog",
    "Torn",
    "line_of",
    "parse_object",
    "read_events",
    "read_events_with_ends",
    "scan_lines",
]

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
    FileNotFoundError, and InvalidInput (file, line and byte named) where the log is damaged.
    """
    for event, _ in read_events_with_ends(path):
        yield event


def read_events_with_ends(path: Path | str) -> Iterator[tuple[dict[str, Json], int]]:
    """As `read_events`, and with each event the byte at which its line ends."""
    with open(path, "rb") as file:
        for found, end in scan_lines(file):
            if isinstance(found, Damage):
                why = f"damaged at byte {found.byte:,}: {found.reason}"
                raise InvalidInput(why, place=f"{path}, line {found.line}")
            yield found, end


def scan_lines(file: IO[bytes], checks: Verifier | None = None) -> Iterator[tuple[dict[str, Json] | Damage, int]]:
    """Each event of a log, or what is wrong with its line, and the byte at which the line ends. Its end if torn."""
    checks, end = Verifier() if checks is None else checks, 0
    for number, read in enumerate(file, 1):
        line, start, end = read, end, end + len(read)
        if not line.endswith(b"\n") and not _is_object(line):
            line = line[:-1]
            if checks.fits(line) != checks.number:  # else it is whole, but for its line break
                return
        body = checks.body(line)
        event = parse_object(line if isinstance(body, tuple) else body)
        if isinstance(event, str):
            yield Damage(number, start, "not-json", event), end
        elif isinstance(body, tuple):
            yield Damage(number, start, *body), end
        else:
            yield event, end


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
        self._checks: Verifier | None = None
        """What seals the next event; None for a log that is damaged, which takes none."""
        make_private_folder(self._path.parent)
        self._file = os.fdopen(os.open(self._path, _FLAGS, 0o600), "r+b", buffering=0)
        try:
            self._lock()
            if sys.platform != "win32":
                os.fchmod(self._file.fileno(), 0o600)  # it may have been made by someone less careful
            self._resume()
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

        A crash in between may leave the first of them. Raises InvalidInput when one is no JSON object or the log is
        damaged, ValueError when the log is closed, and OSError (a full disk) after taking back what was written.
        """
        checks = self._checks
        if checks is None:
            raise InvalidInput(
                "nothing is written behind damaged events; they are to be repaired", place=str(self._path)
            )
        checks = replace(checks)
        data = b"".join([line_of(event, checks) for event in events])
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
        self._checks = checks

    def release(self) -> None:
        """Let another writer have the file, and hold nothing open; `acquire` has it back."""
        self._file.close()

    def acquire(self) -> None:
        """Have the file again, what stands at its path now. Raises InvalidInput (another writer has it; it is gone)."""
        try:
            while not self._reopened():
                pass
            self._resume()
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

    def _resume(self) -> None:
        """Mend the end, and find what the next event is sealed with. O(last event), O(size) for an older log."""
        self._file.seek(0)
        head = Verifier()
        head.body(self._file.read(_BLOCK_BYTES).partition(b"\n")[0])  # a longer one: then all of it is looked at
        self._mend(head)
        end = self._file.seek(0, os.SEEK_END)
        last = b"" if end == 0 else b"".join(reversed(list(self._backwards(end - 1))))
        number = head.fits(last)
        if number is not None:
            self._checks = Verifier(number + 1, head.root, sealed=True)
            return
        checks = Verifier()
        with open(self._path, "rb") as file:
            whole = not any(isinstance(found, Damage) for found, _ in scan_lines(file, checks))
        self._checks = checks if whole else None

    def _mend(self, head: Verifier) -> None:
        """Cuts off what a crash left behind the last line break."""
        end = self._file.seek(0, os.SEEK_END)
        rest = b"".join(reversed(list(self._backwards(end))))
        at = end - len(rest)
        if not rest:
            return
        if _is_object(rest):  # an object ends with its own brace: only the line break is missing
            self._file.write(b"\n")
        else:
            whole = len(rest) - 1 if head.fits(rest[:-1]) is not None else 0  # something else than a line break ends it
            self._torn = Torn(at + whole, rest[whole:])
            self._file.truncate(at + whole)
            self._file.write(b"\n" if whole else b"")
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


def line_of(event: Mapping[str, Json], checks: Verifier) -> bytes:
    """The line of an event that `checks` seals next. Raises InvalidInput for what is no JSON object; then it is not."""
    return checks.sealed_line(_json(event)) + b"\n"


def _json(event: Mapping[str, Json]) -> bytes:
    if not isinstance(event, Mapping):
        raise InvalidInput(f"an event is a JSON object, not {type(event).__name__}")
    try:
        text = json.dumps(dict(event), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        if not text.isascii():
            try:
                return text.encode()
            except UnicodeEncodeError:  # a lone surrogate, as half an emoji in a cut tool output: kept as an escape
                text = json.dumps(dict(event), allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(f"an event that is no JSON: {error}") from error
    return text.encode()


def _is_object(line: bytes) -> bool:
    return not isinstance(parse_object(line), str)


def parse_object(line: bytes) -> dict[str, Json] | str:
    """The JSON object in a line, or why there is none."""
    try:
        event = json.loads(line.decode("utf-8", "surrogatepass"))
    except (ValueError, RecursionError) as error:
        return f"no JSON: {error}"
    return event if isinstance(event, dict) else f"an event is a JSON object, not {type(event).__name__}"
