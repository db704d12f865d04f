"""The JSON values of a file and their places in it: the items of a list, one object, or one value per line.

A file of another program may be damaged: cut off by a crash, with a page of zero bytes, with a line that two processes
wrote at once. `FileReading` decides between two answers: refuse the file, or read what is whole and report the rest.
"""

from __future__ import annotations

import gzip
import io
import json
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, NoReturn

from foldline.errors import InvalidInput
from foldline.messages import Json

__all__ = [
    "FileReading",
    "Unread",
    "Value",
    "json_type",
    "text_in",
    "values_in",
]

_GZIP_MAGIC: Final = b"\x1f\x8b"
_GZIP_BLOCK_BYTES: Final = 65_536
_UTF_16: Final = (b"\xff\xfe", b"\xfe\xff")
_BLANK: Final = " \t\r\n\0"  # a power cut leaves zeros
_SEPARATORS: Final = tuple(" \t\r\n,")  # between the items of a list

# A list of messages, alone or in an object whose other fields come first. Bounded, for the search starts at the front
# of any file.
_MESSAGES: Final = re.compile(r'\s*(?:\[|\{.{0,4000}?"(?:messages|input)"\s*:\s*\[)', re.DOTALL)
_MAX_DAMAGES: Final = 50  # in one list; behind each, the search for the next message reads on to the end

# The beginning of a message behind damage. Nearly every writer puts the role first; searching for any brace would take
# the objects inside a message for messages.
_MESSAGE: Final = re.compile(r'\{\s*"role"\s*:')


@dataclass(frozen=True, slots=True)
class Unread:
    """Something that was not read, or not as written, and why."""

    place: str
    reason: str

    def __str__(self) -> str:
        return f"{self.place}: {self.reason}"


@dataclass(frozen=True, slots=True)
class Value:
    """One JSON value of a file and its place there."""

    place: str
    value: Json


@dataclass(slots=True)
class FileReading:
    """The treatment of damage: refuse it or, when `lenient`, collect it in `unread` and read on."""

    lenient: bool = False
    unread: list[Unread] = field(default_factory=list)

    def fault(self, error: InvalidInput) -> None:
        """Record an error when lenient; raise it otherwise."""
        if not self.lenient:
            raise error
        self.unread.append(Unread(error.place or "", error.reason))


def text_in(data: bytes, place: str, reading: FileReading) -> str:
    """The text of a file, decompressed. Raises InvalidInput. O(size)."""
    data = _decompressed(data, place, reading)
    # Some editors on Windows save UTF-16; a strict reader refuses it as it refuses any other encoding.
    if reading.lenient and data.startswith(_UTF_16):
        return data.decode("utf-16", "replace")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        if not reading.lenient:
            raise InvalidInput(f"not UTF-8 text ({error.reason})", place=f"{place}: byte {error.start}") from error
    lines = []
    for number, line in enumerate(data.removeprefix(b"\xef\xbb\xbf").split(b"\n"), 1):
        try:
            lines.append(line.decode())
        except UnicodeDecodeError as error:
            lines.append(line.decode(errors="replace"))
            why = f"not UTF-8 text ({error.reason} at byte {error.start} of the line); those bytes are replaced"
            reading.unread.append(Unread(f"{place}: line {number}", why))
    return "\n".join(lines)


def values_in(text: str, place: str, reading: FileReading) -> list[Value]:
    """All JSON values of a file. Raises InvalidInput, also when nothing of a damaged file can be read. O(size)."""
    if not text.strip(_BLANK):
        raise InvalidInput("is empty", place=place)
    try:
        return _whole(text, place)
    except InvalidInput as error:
        if not reading.lenient:
            raise
        refused = error
    # Damage may hide which of the two forms the file has: the one that yields more values is taken.
    by_line, lost_lines = _intact_lines(text, place)
    in_list, lost_items = _intact_items(text, place)
    found, lost = (in_list, lost_items) if len(in_list) > len(by_line) else (by_line, lost_lines)
    if not found:
        raise refused
    reading.unread += lost
    return found


def _decompressed(data: bytes, place: str, reading: FileReading) -> bytes:
    if not data.startswith(_GZIP_MAGIC):
        return data
    # In blocks: of a file that is cut off, everything before the end of the data can still be read.
    out = bytearray()
    cause: Exception
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as file:
            while block := file.read1(_GZIP_BLOCK_BYTES):
                out += block
    except EOFError as error:
        fault, cause = InvalidInput(f"the gzip data is cut off after {len(data):,} bytes", place=place), error
    except (gzip.BadGzipFile, zlib.error) as error:
        fault, cause = InvalidInput(f"the gzip data is damaged ({error})", place=place), error
    else:
        return bytes(out)
    if not out:
        raise fault from cause
    try:
        reading.fault(fault)
    except InvalidInput:
        raise fault from cause
    return bytes(out)


def _whole(text: str, place: str) -> list[Value]:
    # The content decides between the two forms, not the name of the file: recordings are renamed and repacked.
    start = len(text) - len(text.lstrip())
    # One value and nothing after it is the whole file; otherwise there is one value per line.
    value, stop = _scan(text, start, place)
    rest = text[stop:]
    if not rest.strip():
        if isinstance(value, list):
            if not value:
                raise InvalidInput("holds an empty list, no messages", place=place)
            return [Value(f"{place}: message {index}", item) for index, item in enumerate(value)]
        return [Value(place, value)]
    if not rest.lstrip(" \t\r").startswith("\n"):
        raise InvalidInput("not JSON: more text after the end of the value", place=_at(text, stop, place))
    out = []
    for number, start, line in _lines(text):
        if line.strip():
            out.append(_line(text, number, start, line, place))
    return out


def _lines(text: str) -> Iterator[tuple[int, int, str]]:
    """Each line with its number and offset. `splitlines` would also split at U+2028 and others, legal in JSON text."""
    start = 0
    for number, line in enumerate(text.split("\n"), 1):
        yield number, start, line
        start += len(line) + 1


def _line(text: str, number: int, start: int, line: str, place: str) -> Value:
    value, stop = _scan(text, start + len(line) - len(line.lstrip()), place)
    if stop > start + len(line) or text[stop : start + len(line)].strip():
        raise InvalidInput("not one JSON value on this line", place=f"{place}: line {number}")
    return Value(f"{place}: line {number}", value)


def _intact_lines(text: str, place: str) -> tuple[list[Value], list[Unread]]:
    """The lines that hold one JSON object each, and the others."""
    found: list[Value] = []
    lost: list[Unread] = []
    for number, _, line in _lines(text):
        where = f"{place}: line {number}"
        if not line.strip(_BLANK):
            # Zeros where a power cut left blocks without data: the place is reported, and the lines around it are read.
            if "\0" in line:
                lost.append(Unread(where, f"{line.count(chr(0)):,} zero bytes"))
            continue
        try:
            one = _line(line, 1, 0, line, place)
        except InvalidInput as error:
            lost.append(Unread(where, error.reason))
            continue
        if isinstance(one.value, dict):
            found.append(Value(where, one.value))
        else:
            lost.append(Unread(where, "not a JSON object"))
    return found, lost


def _intact_items(text: str, place: str) -> tuple[list[Value], list[Unread]]:
    """The messages of a list, or of the list in an object; after damage the next message that begins is found."""
    begun = _MESSAGES.match(text)
    if begun is None:
        return [], []
    found: list[Value] = []
    lost: list[Unread] = []
    at = begun.end()
    while True:
        while text[at : at + 1] in _SEPARATORS:
            at += 1
        if text[at : at + 1] in ("]", ""):
            break
        try:
            value, at = _scan(text, at, place)
            found.append(Value(f"{place}: message {len(found)}", value))
        except InvalidInput as error:
            lost.append(Unread(error.place or place, error.reason))
            again = _MESSAGE.search(text, at + 1) if len(lost) < _MAX_DAMAGES else None
            if again is None:
                break
            at = again.start()
    return found, lost


def _scan(text: str, start: int, place: str) -> tuple[Json, int]:
    try:
        return _DECODER.raw_decode(text, start)
    except json.JSONDecodeError as error:
        raise InvalidInput(f"not JSON: {error.msg.lower()}", place=_at(text, error.pos, place)) from error
    except RecursionError as error:
        raise InvalidInput("nested too deeply", place=_at(text, start, place)) from error
    except ValueError as error:
        raise InvalidInput(f"not JSON: {error}", place=_at(text, start, place)) from error


# Python reads NaN and Infinity by default. No provider sends them, and a request that holds one is refused.
def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant)


def _at(text: str, position: int, place: str) -> str:
    # Counted only for an error: keeping lines and columns while scanning would slow every file down.
    line = text.count("\n", 0, position) + 1
    column = position - text.rfind("\n", 0, position)
    return f"{place}: line {line} column {column}"


def json_type(value: Json) -> str:
    """The type of a JSON value, in words for an error."""
    for types, name in ((bool, "true or false"), (int | float, "a number"), (str, "text"), (list, "a list")):
        if isinstance(value, types):
            return name
    return "null" if value is None else "an object"
