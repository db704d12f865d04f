"""Numbers and checksums of records, so that a damaged log never passes for an intact one.

    {"type":"note", … ,"n":12,"crc":"1a2b3c4d"}

`n` is the position of the record in its log, from 0. `crc` is the CRC-32 of the bytes before it (number included),
XORed with that of the log's first record, so that a record of another log does not fit. CRC-32 detects every flipped
bit and every burst of up to 32 bits, and misses other damage once in 4,294,967,296. It guards against disks, crashes
and editors, not against forgery: anybody can compute a checksum.

Records of older versions have neither. The first sealed record after them also has `before`, the CRC-32 of all earlier
bytes, which guards them as one.
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
"""The fault of a record: it is no JSON object; it differs from what was written; it is in the wrong position; its
checksum is missing; something before it was altered; it is missing; it contradicts earlier records."""

# Matched at the end only: the text of a message may contain the same characters anywhere before. Eighteen digits, so
# that a damaged number still fits the 64 bits of a database column.
_FRAME: Final = re.compile(
    rb'(?:,|(?<=\{))(?:"before":"([0-9a-f]{8})",)?"n":(0|[1-9][0-9]{0,17})(,"crc":"([0-9a-f]{8})"\})\Z'
)
_FRAME_BYTES: Final = 96  # the end of a record that is searched: more than number and checksums take
_ENDS: Final = b" \t\r\n"  # an editor, or a copy by way of Windows, may have added these to a line

_BOM: Final = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class Damage:
    """A fault in a log and its place.

    `line` is the line of a file, from 1, or the number of a record in a table, from 0. `byte` is the offset of the
    line; None in a table.
    """

    line: int
    byte: int | None
    kind: DamageKind
    reason: str

    def __str__(self) -> str:
        where = f"record {self.line}" if self.byte is None else f"line {self.line}, byte {self.byte:,}"
        return f"{where}: {self.reason}"


@dataclass(frozen=True, slots=True)
class _Frame:
    """A record split at its frame: `body` without number and checksum, `data` the bytes that the checksum covers."""

    body: bytes
    data: bytes
    number: int
    crc: int
    before: int | None


def without_frame(line: bytes) -> bytes:
    """The JSON of a record without number and checksum, which are not verified."""
    line = line.strip(_ENDS)
    frame = _frame(line)
    return line if frame is None else frame.body


def root_of(lines: Iterable[bytes]) -> tuple[int | None, int]:
    """The root of a damaged log on which most of its records agree, and their number. O(log)."""
    # XOR is its own inverse: each record yields the root that it was sealed with, and damaged ones disagree at random.
    # Record 0 has no vote, for its checksum says nothing but what its own bytes say.
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
    """Verifies the records of a log in order, and seals those that follow. O(size of each).

    `number` is the number of the next record, `root` the value that all checksums are XORed with (None before the first
    record), `sealed` whether checksums have begun. Until then `before` is the CRC-32 of everything so far; None when
    unknown, as in the middle of a log.
    """

    number: int = 0
    root: int | None = None
    sealed: bool = False
    before: int | None = 0

    def body(self, line: bytes) -> bytes | tuple[DamageKind, str]:
        """The JSON of the next record, or its fault; then the state is unchanged.

        It is for the caller to check that it is JSON.
        """
        line = line.strip(_ENDS)
        if self.root is None:
            line = line.removeprefix(_BOM)
        frame = _frame(line)
        if frame is None:
            # Checksums never end once they have begun. Accepting a bare record here would let an edit pass that also
            # removes the checksum.
            if self.sealed:
                return "no-checksum", "it has no checksum: it was altered, or another program inserted it"
            if _half_sealed(line):
                return "checksum", "its number or checksum cannot be read: it was altered"
            self._advance(line)
            return line
        if (wrong := self._fault(frame)) is not None:
            return wrong
        self._advance(frame.data)
        self.sealed = True
        return frame.body

    def sealed_line(self, body: bytes) -> bytes:
        """The next record with its number and checksum; `body` is a JSON object."""
        # The first sealed record of a log from an older version vouches for everything before it.
        first = not self.sealed and self.number > 0
        before = b'"before":"%08x",' % (self.before or 0) if first else b""
        data = b'%b%b%b"n":%d' % (body[:-1], b"" if body == b"{}" else b",", before, self.number)
        line = b'%b,"crc":"%08x"}' % (data, crc32(data) ^ (self.root or 0))
        self._advance(data)
        self.sealed = True
        return line

    def fits(self, line: bytes) -> int | None:
        """The number of an intact record of this log, wherever it is; None for any other."""
        frame = _frame(line.strip(_ENDS))
        return frame.number if frame is not None and self._belongs(frame) else None

    def _fault(self, frame: _Frame) -> tuple[DamageKind, str] | None:
        if not self._belongs(frame):
            return "checksum", "its checksum does not match: it was altered, or belongs to another log"
        if frame.number > self.number:
            missing = frame.number - self.number
            gone = (
                f"record {self.number:,} is" if missing == 1 else f"records {self.number:,} to {frame.number - 1:,} are"
            )
            return "number", f"record {frame.number:,} is here, {gone} missing before it"
        if frame.number < self.number:
            return "number", f"record {frame.number:,} is here instead of {self.number:,}: doubled or moved"
        # From here on it is the first sealed record. Its `before` is checked where the reader began at record 0; in the
        # middle of a log nobody knows the bytes before.
        if self.sealed or not frame.number or self.before is None:
            return None
        if frame.before is None:
            return "before", "the records before it have lost their checksums: they were altered"
        if frame.before != self.before:
            return "before", "something before it was altered since: those records have no checksums of their own"
        return None

    def _belongs(self, frame: _Frame) -> bool:
        own = crc32(frame.data)
        # Record 0 is not XORed: it defines the root.
        if frame.number == 0:
            return frame.crc == own and self.root in (None, own)
        return self.root is not None and frame.crc == own ^ self.root

    def _advance(self, data: bytes) -> None:
        if self.root is None:
            self.root = crc32(data)
        if not self.sealed and self.before is not None:
            # With one line break each, whatever the line had: white space at its end carries no meaning.
            self.before = crc32(b"\n", crc32(data, self.before))
        self.number += 1


def _frame(line: bytes) -> _Frame | None:
    # Lines have up to megabytes, and `search` tries every position: only their end is looked at.
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
    """Whether a record has parts of a frame, but no valid one at its end."""
    # A cheap look first: decoding the JSON of a long record costs far more, and hardly any line needs it.
    if b'"n":' not in line[-_FRAME_BYTES:] and b'"crc":' not in line[-_FRAME_BYTES:]:
        return False
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return False
    return isinstance(record, dict) and ("n" in record or "crc" in record)
