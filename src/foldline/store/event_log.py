"""The log of a session on disk: `events.jsonl`, one JSON object per line, append-only.

Each line ends with its number and a checksum (`checksums`), so that every reader detects lines that were altered, lost,
doubled or moved.
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
from foldline.store.file_locks import try_lock
from foldline.store.files import make_private_folder

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
"""The reason of the error for a second writer."""

# The unit in which a log is read from its end. A record has 400 to 2,000 bytes, so one block nearly always holds the
# last.
_BLOCK_BYTES = 65_536
# O_APPEND: every write goes to the end of the file, wherever the descriptor was last read.
_FLAGS = os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_BINARY", 0)


@dataclass(frozen=True, slots=True)
class Torn:
    """A partial event that a crash left: the bytes after the last whole line, and their offset in the file."""

    at_byte: int
    data: bytes

    def __str__(self) -> str:
        return f"a half-written event of {len(self.data):,} bytes at byte {self.at_byte:,}"


def read_events(path: Path | str) -> Iterator[dict[str, Json]]:
    """Yield the events of a log, oldest first, without changing it. O(size), one line in memory at a time.

    A partial last line, which another process may be writing at this moment, is omitted. Raises FileNotFoundError, and
    InvalidInput (with file, line and byte) for a damaged log.
    """
    for event, _ in read_events_with_ends(path):
        yield event


def read_events_with_ends(path: Path | str) -> Iterator[tuple[dict[str, Json], int]]:
    """As `read_events`, each event with the offset at which its line ends."""
    with open(path, "rb") as file:
        for result, end in scan_lines(file):
            if isinstance(result, Damage):
                why = f"damaged at byte {result.byte:,}: {result.reason}"
                raise InvalidInput(why, place=f"{path}, line {result.line}")
            yield result, end


def scan_lines(file: IO[bytes], checks: Verifier | None = None) -> Iterator[tuple[dict[str, Json] | Damage, int]]:
    """Each event of a log, or the damage of its line, with the offset of the line's end; stops at a partial line."""
    checks, end = Verifier() if checks is None else checks, 0
    for number, read in enumerate(file, 1):
        line, start, end = read, end, end + len(read)
        if not line.endswith(b"\n") and not _is_object(line):
            line = line[:-1]
            # Whole after all if its checksum fits: another byte took the place of its line break. Anything else is no
            # damage: a writer may be in the middle of this line, or died there before anybody was told of it.
            if checks.fits(line) != checks.number:
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

    Opening creates the file (0600) and its folder (0700) unless they exist. A partial last line, left by a crash, is
    cut off and available as `torn`; a last line that lacks only its line break is kept. Each call is one unbuffered
    write; with `fsync` it is on disk on return. A second writer gets InvalidInput. Close
    it, or use it as a context manager.
    """

    def __init__(self, path: Path | str, *, fsync: bool = False) -> None:
        self._path = Path(os.path.abspath(path))
        self._fsync = fsync
        self._torn: Torn | None = None
        self._checks: Verifier | None = None  # None for a damaged log, to which nothing is appended
        make_private_folder(self._path.parent)
        self._file = os.fdopen(os.open(self._path, _FLAGS, 0o600), "r+b", buffering=0)
        try:
            # Lock first: `_resume` cuts off a partial line, which without the lock could be another writer's current
            # one.
            self._lock()
            if sys.platform != "win32":
                os.fchmod(self._file.fileno(), 0o600)  # it may exist with a wider mode
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
        """The partial event that was cut off when the log was opened."""
        return self._torn

    @property
    def size_bytes(self) -> int:
        """The size of the file. O(1)."""
        return os.fstat(self._file.fileno()).st_size

    def append(self, event: Mapping[str, Json]) -> None:
        """Append one event, whole or not at all. O(its size). Raises as `extend` does."""
        self.extend((event,))

    def extend(self, events: Iterable[Mapping[str, Json]]) -> None:
        """Append events, all or none, with one write and at most one fsync. O(their size).

        A crash in between may leave the first of them. Raises InvalidInput when one is no JSON object or the log is
        damaged, ValueError when the log is closed, and OSError (a full disk) after undoing the write.
        """
        checks = self._checks
        if checks is None:
            raise InvalidInput("nothing is appended to a damaged log; repair it first", place=str(self._path))
        checks = replace(checks)  # a copy: it counts only once the write has succeeded
        data = b"".join([line_of(event, checks) for event in events])
        if not data and not self._file.closed:
            return
        end = self._file.seek(0, os.SEEK_END)
        # One write, so that a crash leaves a beginning of the data and never a gap. Records within it that are whole
        # stay in the log; the rest is a partial line, which the next opening cuts off.
        try:
            written = 0
            while written < len(data):
                written += self._file.write(data[written:]) or 0
            if self._fsync:
                os.fsync(self._file.fileno())
        except BaseException as error:
            # The caller is told that nothing was written, so nothing may stay. That holds for a failed fsync too: Linux
            # marks the lost pages clean, and a second fsync would report success for data that is not on the disk.
            self._file.truncate(end)
            if isinstance(error, OSError) and error.filename is None:
                error.filename = str(self._path)  # "No space left on device" alone does not say where
            raise
        self._checks = checks

    def release(self) -> None:
        """Close the file, so that another writer may open it, until `acquire`."""
        self._file.close()

    def acquire(self) -> None:
        """Open the file that is now at the path. Raises InvalidInput (another writer has it; it was deleted)."""
        try:
            while not self._reopened():
                pass
            self._resume()
        except FileNotFoundError:
            raise InvalidInput("the log no longer exists", place=str(self._path)) from None

    def _reopened(self) -> bool:
        """Open and lock the file at the path; False if it was replaced meanwhile (a repair)."""
        self._file.close()
        # Without O_CREAT: a session that was deleted meanwhile must not come back as an empty log.
        self._file = os.fdopen(os.open(self._path, _FLAGS & ~os.O_CREAT), "r+b", buffering=0)
        try:
            self._lock()
            # Between `open` and the lock a repair may have renamed a new log into place. Then this lock is on a file
            # that has no name any more, and guards nothing.
            return os.path.samestat(os.stat(self._path), os.fstat(self._file.fileno()))
        except BaseException:
            self._file.close()
            raise

    def __iter__(self) -> Iterator[dict[str, Json]]:
        """The events so far, oldest first."""
        return read_events(self._path)

    def close(self) -> None:
        """Close the file. Idempotent."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _lock(self) -> None:
        # Not waiting: a writer keeps a session for a whole turn.
        if not try_lock(self._file.fileno()):
            raise InvalidInput(ANOTHER_WRITER, place=str(self._path))

    def _resume(self) -> None:
        """Fix the end of the file and find the checksum state. O(last event), O(size) for a log of an older version."""
        # The first and the last record are enough to append: they give the root of the checksums and the next number.
        # What lies between is verified by whoever reads it, and opening a session does.
        self._file.seek(0)
        head = Verifier()
        # A first line beyond one block gives no root; then the whole log is read below.
        head.body(self._file.read(_BLOCK_BYTES).partition(b"\n")[0])
        self._fix_end(head)
        end = self._file.seek(0, os.SEEK_END)
        last = b"" if end == 0 else b"".join(reversed(list(self._backwards(end - 1))))
        number = head.fits(last)
        if number is not None:
            self._checks = Verifier(number + 1, head.root, sealed=True)
            return
        # The last record does not fit: the log is damaged, or of a version without checksums. Only all of it can tell,
        # and only all of it gives the checksum `before` that the first sealed record needs.
        checks = Verifier()
        with open(self._path, "rb") as file:
            whole = not any(isinstance(result, Damage) for result, _ in scan_lines(file, checks))
        self._checks = checks if whole else None

    def _fix_end(self, head: Verifier) -> None:
        """Complete or cut off what follows the last line break."""
        end = self._file.seek(0, os.SEEK_END)
        rest = b"".join(reversed(list(self._backwards(end))))
        at = end - len(rest)
        if not rest:
            return
        if _is_object(rest):  # an object ends with its own brace: only the line break is missing
            self._file.write(b"\n")
        else:
            # A line may be whole although another byte replaced its line break: its checksum tells.
            whole = len(rest) - 1 if head.fits(rest[:-1]) is not None else 0
            self._torn = Torn(at + whole, rest[whole:])
            self._file.truncate(at + whole)
            self._file.write(b"\n" if whole else b"")
        # Synced before anything is appended: a power cut must not bring the partial line back in front of new records.
        if self._fsync:
            os.fsync(self._file.fileno())

    def _backwards(self, end: int) -> Iterator[bytes]:
        """The bytes after the last line break, in blocks from the end of the file."""
        while end > 0:
            start = max(0, end - _BLOCK_BYTES)
            self._file.seek(start)
            block = b""
            while len(block) < end - start:  # one read may return less than requested
                part = self._file.read(end - start - len(block))
                if not part:
                    raise InvalidInput("the log was truncated while it was opened", place=str(self._path))
                block += part
            end = start
            yield block[block.rfind(b"\n") + 1 :]
            if b"\n" in block:
                return


def line_of(event: Mapping[str, Json], checks: Verifier) -> bytes:
    """The line of an event, numbered and sealed by `checks`. Raises InvalidInput for anything but a JSON object."""
    return checks.sealed_line(_json(event)) + b"\n"


def _json(event: Mapping[str, Json]) -> bytes:
    if not isinstance(event, Mapping):
        raise InvalidInput(f"an event is a JSON object, not {type(event).__name__}")
    try:
        # Not in ASCII: people read the log, and escapes take two to three times the bytes of other scripts than Latin.
        text = json.dumps(dict(event), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        if not text.isascii():
            try:
                return text.encode()
            except UnicodeEncodeError:  # a lone surrogate (half an emoji in a cut tool output) becomes an escape
                text = json.dumps(dict(event), allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(f"an event is not JSON: {error}") from error
    return text.encode()


def _is_object(line: bytes) -> bool:
    return not isinstance(parse_object(line), str)


def parse_object(line: bytes) -> dict[str, Json] | str:
    """The JSON object in a line, or the reason why there is none."""
    try:
        # "surrogatepass": an editor or an older version may have written a lone surrogate as three bytes.
        event = json.loads(line.decode("utf-8", "surrogatepass"))
    except (ValueError, RecursionError) as error:
        return f"no JSON: {error}"
    return event if isinstance(event, dict) else f"an event is a JSON object, not {type(event).__name__}"
