"""How each record of a log carries its number and a checksum, so that a damaged log is never taken for a whole one.

    {"type":"note", … ,"n":12,"crc":"1a2b3c4d"}

`n` is the place of the record in its log, from 0. `crc` is the CRC-32 of the record's bytes before it (number and all),
XORed with that of the log's first record: a record of another log does not fit in here. CRC-32 finds each flipped bit
and each burst of up to 32 bits for certain, anything else but once in 4,294,967,296; it guards against disks, crashes
and editors, not against people who want to deceive, who could write any checksum anew.

A log that an older version began has records without these. The first one behind them has `before` too, the CRC-32 of
all bytes before it, so that from then on they are guarded as one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias
from zlib import crc32

__all__ = ["Damage", "DamageKind", "Verifier", "root_of", "without_frame"]

DamageKind: TypeAlias = Literal["not-json", "checksum", "number", "no-checksum", "before", "missing", "contradiction"]
"""What is wrong with a record: it is no JSON object, or not what was written; it stands in the wrong place; it has lost
its checksum; something before it was altered; it is not there; it does not fit to those before it."""

_FRAME: Final = re.compile(
    rb'(?:,|(?<=\{))(?:"before":"([0-9a-f]{8})",)?"n":(0|[1-9][0-9]{0,17})(,"crc":"([0-9a-f]{8})"\})\Z'
)
_FRAME_BYTES: Final = 96
"""More than number and checksums can take: only so much of a record's end is looked at."""

_ENDS: Final = b" \t\r\n"
"""What an editor, or a copy by way of Windows, may have put at the end of a line: it means nothing."""

_BOM: Final = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class Damage:
    """What is wrong in a log, and where: in which line of a file and at which byte, or in which record of a table."""

    line: int
    """Of a file from 1 on; in a table the number of the record, from 0 on."""

    byte: int | None
    """Where the line begins; None in a table."""

    kind: DamageKind
    reason: str

    def __str__(self) -> str:
        where = f"record {self.line}" if self.byte is None else f"line {self.line}, byte {self.byte:,}"
        return f"{where}: {self.reason}"


@dataclass(frozen=True, slots=True)
class _Frame:
    """What stands at the end of a record; `data` are the bytes that the checksum is about, `body` is the rest."""

    body: bytes
    data: bytes
    number: int
    crc: int
    before: int | None


def without_frame(line: bytes) -> bytes:
    """The JSON of a record as it was given to be written, without number and checksum, which are not checked."""
    line = line.strip(_ENDS)
    frame = _frame(line)
    return line if frame is None else frame.body


def root_of(lines: Iterable[bytes]) -> tuple[int | None, int]:
    """What the checksums of a damaged log have in common, by the most of its records, and how many those are."""
    found: dict[int, int] = {}
    for line in lines:
        frame = _frame(line.strip(_ENDS))
        if frame is not None and frame.number:
            root = frame.crc ^ crc32(frame.data)
            found[root] = found.get(root, 0) + 1
    most = max(found, key=found.__getitem__, default=None)
    return most, 0 if most is None else found[most]


@dataclass(slots=True)
class Verifier:
    """Checks the records of a log one after the other, and makes those that follow. O(size of each).

    `number` is that of the next record, `root` what all checksums are XORed with (None before the first record),
    `sealed` whether checksums have begun. `before` is the CRC-32 of everything so far, as long as they have not; None
    where that is not known, as in the middle of a log.
    """

    number: int = 0
    root: int | None = None
    sealed: bool = False
    before: int | None = 0

    def body(self, line: bytes) -> bytes | tuple[DamageKind, str]:
        """The JSON of the next record as it was given to be written; or what is wrong with it, then nothing changes.

        Whether it is JSON at all is the caller's to see.
        """
        line = line.strip(_ENDS)
        if self.root is None:
            line = line.removeprefix(_BOM)
        frame = _frame(line)
        if frame is None:
            if self.sealed:
                return "no-checksum", "it has no checksum: it was altered, or put in by something else"
            if _half_sealed(line):
                return "checksum", "its number or its checksum cannot be read: it was altered"
            self._take(line)
            return line
        if (wrong := self._wrong(frame)) is not None:
            return wrong
        self._take(frame.data)
        self.sealed = True
        return frame.body

    def sealed_line(self, body: bytes) -> bytes:
        """A record with its number and checksum, to be written next; `body` is a JSON object."""
        first = not self.sealed and self.number > 0
        before = b'"before":"%08x",' % (self.before or 0) if first else b""
        data = b'%b%b%b"n":%d' % (body[:-1], b"" if body == b"{}" else b",", before, self.number)
        line = b'%b,"crc":"%08x"}' % (data, crc32(data) ^ (self.root or 0))
        self._take(data)
        self.sealed = True
        return line

    def fits(self, line: bytes) -> int | None:
        """The number of a record that is whole and of this log, wherever it stands; None for any other."""
        frame = _frame(line.strip(_ENDS))
        return frame.number if frame is not None and self._own(frame) else None

    def _wrong(self, frame: _Frame) -> tuple[DamageKind, str] | None:
        if not self._own(frame):
            return "checksum", "its checksum does not fit: it was altered, or is of another log"
        if frame.number > self.number:
            missing = frame.number - self.number
            gone = (
                f"record {self.number:,} is" if missing == 1 else f"records {self.number:,} to {frame.number - 1:,} are"
            )
            return "number", f"record {frame.number:,} stands here, {gone} missing before it"
        if frame.number < self.number:
            return "number", f"record {frame.number:,} stands here, where {self.number:,} should: doubled or moved"
        if self.sealed or not frame.number or self.before is None:
            return None
        if frame.before is None:
            return "before", "the records before it have lost their checksums: they were altered"
        if frame.before != self.before:
            return "before", "something before it was altered since: those records have no checksums of their own"
        return None

    def _own(self, frame: _Frame) -> bool:
        own = crc32(frame.data)
        if frame.number == 0:
            return frame.crc == own and self.root in (None, own)
        return self.root is not None and frame.crc == own ^ self.root

    def _take(self, data: bytes) -> None:
        if self.root is None:
            self.root = crc32(data)
        if not self.sealed and self.before is not None:
            self.before = crc32(b"\n", crc32(data, self.before))
        self.number += 1


def _frame(line: bytes) -> _Frame | None:
    tail = line[-_FRAME_BYTES:]
    found = _FRAME.search(tail)
    if found is None:
        return None
    start, mark = len(line) - len(tail) + found.start(), len(line) - len(tail) + found.start(3)
    before, number, _, crc = found.groups()
    return _Frame(
        line[:start] + b"}", line[:mark], int(number), int(crc, 16), None if before is None else int(before, 16)
    )


def _half_sealed(line: bytes) -> bool:
    """Whether a record has a number or a checksum, and not both where they belong."""
    if b'"n":' not in line[-_FRAME_BYTES:] and b'"crc":' not in line[-_FRAME_BYTES:]:
        return False
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return False
    return isinstance(record, dict) and ("n" in record or "crc" in record)
