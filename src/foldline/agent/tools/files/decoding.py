"""Bytes of a file as text: which encoding, whether it is text at all, and texts too large to be held at once."""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import BinaryIO, Final, NamedTuple, TypeVar

from foldline.agent.workers import StopSignal
from foldline.display import size_text
from foldline.errors import InvalidInput

__all__ = [
    "HEAD_BYTES",
    "DecodedText",
    "LineRange",
    "decoded",
    "each_line",
    "is_pdf",
    "part",
    "refuse_binary",
    "streamed",
]

HEAD_BYTES: Final = 8_192
"""What is looked at to tell text from anything else."""
PIECE_BYTES: Final = 1024 * 1024

LATIN_1_NOTE: Final = "[not valid UTF-8: read as Latin-1, so characters beyond ASCII may be wrong]"

# UTF-32 before UTF-16: the mark of the one begins with that of the other.
_MARKS: Final = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
# Only to name what is known not to be text (Gary Kessler's table of file signatures has them all).
_SIGNATURES: Final = (
    (b"\x89PNG", "a PNG image"),
    (b"\xff\xd8\xff", "a JPEG image"),
    (b"GIF8", "a GIF image"),
    (b"BM", "a bitmap image"),
    (b"RIFF", "a RIFF file: WebP, WAV or AVI"),
    (b"PK\x03\x04", "a ZIP archive, or a document in one: docx, xlsx, jar"),
    (b"\x1f\x8b", "a gzip archive"),
    (b"BZh", "a bzip2 archive"),
    (b"\xfd7zXZ", "an xz archive"),
    (b"(\xb5/\xfd", "a zstd archive"),
    (b"7z\xbc\xaf", "a 7z archive"),
    (b"\x7fELF", "an ELF program or library"),
    (b"MZ", "a Windows program or library"),
    (b"SQLite format 3", "an SQLite database"),
    (b"\xd0\xcf\x11\xe0", "an old Office document"),
    (b"OggS", "an Ogg recording"),
    (b"ID3", "an MP3 recording"),
)
_CONTROLS: Final = bytes(set(range(32)) - set(b"\t\n\r\f\b\x1b")) + b"\x7f"

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class DecodedText:
    """The text of a file, with the encoding and byte order mark to write it back in."""

    text: str
    encoding: str = "utf-8"
    mark: bytes = b""

    @property
    def note(self) -> str:
        """A note on an unusual encoding; "" for UTF-8 and its like."""
        return LATIN_1_NOTE if self.encoding == "latin-1" else ""

    def encode(self, text: str) -> bytes:
        """Encode another text alike. Raises UnicodeEncodeError for characters that the encoding does not have."""
        return self.mark + text.encode(self.encoding)


def is_pdf(head: bytes) -> bool:
    """Return whether a file is a PDF by its first bytes; some precede its header (ISO 32000-1, annex H)."""
    return head.startswith(b"%PDF-") or (b"%PDF-" in head[:1024] and b"\0" in head)


def refuse_binary(head: bytes, path: str, size_bytes: int) -> None:
    """Raise InvalidInput, naming kind and size, for a file whose first bytes are not text."""
    if _mark(head)[0] or not head:
        return
    strange = len(head) - len(head.translate(None, _CONTROLS))
    # Up to a twentieth of control characters: logs with some are text all the same.
    if b"\0" in head or strange > len(head) // 20:
        what = next((name for signature, name in _SIGNATURES if head.startswith(signature)), "of an unknown kind")
        raise InvalidInput(f"is a binary file ({what}; {size_text(size_bytes)}) and has no text to show", place=path)


def _mark(head: bytes) -> tuple[bytes, str]:
    return next(((mark, name) for mark, name in _MARKS if head.startswith(mark)), (b"", "utf-8"))


def decoded(data: bytes, path: str) -> DecodedText:
    """Decode a file. Raises InvalidInput for a binary file, and for a wrong byte order mark."""
    refuse_binary(data[:HEAD_BYTES], path, len(data))
    mark, encoding = _mark(data)
    body = data[len(mark) :]
    try:
        return DecodedText(body.decode(encoding), encoding, mark)
    except UnicodeDecodeError:
        _refuse_wide(encoding, path)
    return DecodedText(data.decode("latin-1"), "latin-1")


def streamed(file: BinaryIO, path: str, work: Callable[[Iterator[str]], T], stop: StopSignal) -> tuple[T, str]:
    """Run `work` over a file in pieces. Returns its result and a note on the encoding.

    `work` runs again, as Latin-1, if a later piece is not UTF-8. Only one piece is in memory. Raises InvalidInput as
    `decoded` does, and WorkCancelled.
    """
    head = file.read(HEAD_BYTES)
    mark, encoding = _mark(head)
    try:
        return work(_pieces(file, len(mark), encoding, stop)), ""
    except UnicodeDecodeError:
        _refuse_wide(encoding, path)
    return work(_pieces(file, 0, "latin-1", stop)), LATIN_1_NOTE


def _refuse_wide(encoding: str, path: str) -> None:
    if encoding != "utf-8":
        raise InvalidInput(f"begins like {encoding.upper()}, and is not: a binary file, or a damaged one", place=path)


def _pieces(file: BinaryIO, start: int, encoding: str, stop: StopSignal) -> Iterator[str]:
    file.seek(start)
    decoder = codecs.getincrementaldecoder(encoding)()
    while data := file.read(PIECE_BYTES):
        stop.check()
        yield decoder.decode(data)
    yield decoder.decode(b"", final=True)


def each_line(pieces: Iterator[str], max_chars: int) -> Iterator[str]:
    """Split pieces of a text into lines without ends, each cut to `max_chars`."""
    held = ""
    for piece in pieces:
        *whole, rest = piece.split("\n")
        if whole:
            yield (held + whole[0])[:max_chars]
            yield from (line[:max_chars] for line in whole[1:])
            held = ""
        if len(held) < max_chars:
            held += rest
    if held:
        yield held[:max_chars]


class LineRange(NamedTuple):
    """Lines of a text, and its number of lines; None if it was not read to its end."""

    lines: list[str]
    total_lines: int | None


def part(pieces: Iterator[str], start: int, stop: int | None, max_chars: int) -> LineRange:
    """Return lines `start` to `stop` (None: the last) of a text in pieces, up to `max_chars`."""
    lines: list[str] = []
    number, held, last = 1, 0, ""
    for piece in pieces:
        last = piece[-1:] or last
        ends = piece.count("\n")
        if number + ends < start or held > max_chars:
            if held > max_chars and stop is not None:
                return LineRange(lines, None)
            number += ends
            continue
        for at, line in enumerate(piece.split("\n")):
            number += at > 0
            if number < start or held > max_chars or (stop is not None and number > stop):
                continue
            if at == 0 and lines:
                lines[-1] += line
            else:
                lines.append(line)
            held += len(line) + 1
        if stop is not None and number > stop:
            return LineRange(lines, None)
    total = number - (last == "\n" and number > 1)
    return LineRange(lines[: max(0, total - start + 1)], total)
