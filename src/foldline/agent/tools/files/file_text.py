"""The text of a file: its encoding, whether it is text at all, texts too large for memory, notebooks and PDFs.

A PDF is a program of sorts, so a process of its own extracts its text.
"""

from __future__ import annotations

import codecs
import importlib.util
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, BinaryIO, Final, NamedTuple, TypeVar

from foldline.agent.tools.isolated import ProcessTimedOut, read_isolated
from foldline.agent.workers import StopSignal
from foldline.display import size_text
from foldline.errors import InvalidInput, MissingExtra
from foldline.messages import Json

__all__ = [
    "HEAD_BYTES",
    "DecodedText",
    "LineRange",
    "decoded",
    "each_line",
    "is_pdf",
    "notebook_text",
    "part",
    "pdf_text",
    "refuse_binary",
    "streamed",
]

HEAD_BYTES: Final = 8_192
"""Bytes at the start of a file by which text is told from anything else."""
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
    # Latin-1 decodes any bytes and encodes them back unchanged, so that an edit alters nothing but its own place.
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
    # Incremental: a piece may end in the middle of a character.
    decoder = codecs.getincrementaldecoder(encoding)()
    while data := file.read(PIECE_BYTES):
        stop.check()
        yield decoder.decode(data)
    yield decoder.decode(b"", final=True)


def each_line(pieces: Iterator[str], max_chars: int) -> Iterator[str]:
    """Split pieces of a text into lines without ends, each cut to `max_chars`."""
    # Only the start of an unfinished line is held: a file may be one line of gigabytes.
    pending = ""
    for piece in pieces:
        *whole, rest = piece.split("\n")
        if whole:
            yield (pending + whole[0])[:max_chars]
            yield from (line[:max_chars] for line in whole[1:])
            pending = ""
        if len(pending) < max_chars:
            pending += rest
    if pending:
        yield pending[:max_chars]


class LineRange(NamedTuple):
    """Lines of a text, and its number of lines; None if it was not read to its end."""

    lines: list[str]
    total_lines: int | None


def part(pieces: Iterator[str], start: int, stop: int | None, max_chars: int) -> LineRange:
    """Return lines `start` to `stop` (None: the last) of a text in pieces, up to `max_chars` characters."""
    lines: list[str] = []
    number, chars, last = 1, 0, ""
    for piece in pieces:
        last = piece[-1:] or last
        ends = piece.count("\n")
        # Skipped without splitting: before the first line, and once enough is read, only line ends count.
        if number + ends < start or chars > max_chars:
            if chars > max_chars and stop is not None:
                return LineRange(lines, None)
            number += ends
            continue
        for at, line in enumerate(piece.split("\n")):
            # The first line of a piece continues the last one of the piece before.
            number += at > 0
            if number < start or chars > max_chars or (stop is not None and number > stop):
                continue
            if at == 0 and lines:
                lines[-1] += line
            else:
                lines.append(line)
            chars += len(line) + 1
        if stop is not None and number > stop:
            return LineRange(lines, None)
    # A line end at the end of the file begins no further line.
    total = number - (last == "\n" and number > 1)
    return LineRange(lines[: max(0, total - start + 1)], total)


MAX_PDF_SECONDS: Final = 30.0
_PDF_CHILD: Final = Path(__file__).with_name("pdf_child.py")


def pdf_text(file: IO[bytes], path: str, stop: StopSignal, *, max_seconds: float = MAX_PDF_SECONDS) -> str:
    """Return the text of an open PDF, page by page with numbers; a page without text says so.

    About half a second, and some hundredths per page. Raises InvalidInput for a damaged or encrypted PDF and for one
    that takes too long, MissingExtra, and WorkCancelled.
    """
    # Checked here: the child could only report an import error, and not the extra that is missing.
    if importlib.util.find_spec("pypdf") is None:
        raise MissingExtra("chat", "reading PDF files")
    try:
        found = read_isolated(_PDF_CHILD, file, stop, max_seconds=max_seconds)
    except ProcessTimedOut:
        reason = f"is a PDF that cannot be read: it took more than {max_seconds:g} seconds"
        raise InvalidInput(reason, place=path) from None
    error, pages, total = found.get("error"), found.get("pages"), found.get("total")
    if error or not isinstance(pages, list) or not isinstance(total, int):
        raise InvalidInput(f"is a PDF that cannot be read: {error or 'no pages were found'}", place=path)
    if not any(str(page).strip() for page in pages):
        return f"[a PDF with {_pages(total)} and no text: scanned pictures, most likely]\n"
    out = [f"[the text of a PDF with {_pages(total)}]"]
    for number, page in enumerate(pages, 1):
        out.append(f"--- Page {number} of {total} ---\n{str(page).strip() or '[no text: a picture, most likely]'}")
    if len(pages) < total:
        why = found.get("left_out") or "there is too much text"
        out.append(f"[pages {len(pages) + 1} to {total} are left out: {why}]")
    return "\n".join(out) + "\n"


def _pages(total: int) -> str:
    return "1 page" if total == 1 else f"{total:,} pages"


# Terminal colours in tracebacks (ECMA-48, section 5.4).
_TERMINAL: Final = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
# Formats of an output, best first.
_READABLE: Final = ("text/plain", "text/markdown", "text/latex", "application/json", "text/html")


def notebook_text(text: str) -> str:
    """Return the cells of a notebook (nbformat 3 and 4) as text. Raises InvalidInput for any other file."""
    try:
        book = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"is not JSON: {error}") from None
    cells = _cells(book)
    language = _language(book)
    out = [f"[a notebook with {len(cells)} cell{'s' * (len(cells) != 1)}, shown as text]"]
    for number, cell in enumerate(cells, 1):
        kind = str(cell.get("cell_type") or "unknown")
        # The second name of each pair is that of nbformat 3.
        count = cell.get("execution_count", cell.get("prompt_number"))
        ran = f" [{count}]" if isinstance(count, int) else ""
        out.append(f"--- Cell {number} ({f'code, {language}' if kind == 'code' else kind}){ran} ---")
        out.append(_joined(cell.get("source", cell.get("input"))).rstrip("\n"))
        shown = [line for output in _list(cell.get("outputs")) for line in _output(output)]
        if shown:
            out += [f"--- Output of cell {number} ---", *shown]
    return "\n".join(out) + "\n"


def _cells(book: Json) -> list[Mapping[str, Json]]:
    if isinstance(book, Mapping):
        if isinstance(book.get("cells"), list):
            return [cell for cell in book["cells"] if isinstance(cell, Mapping)]
        sheets = book.get("worksheets")
        if isinstance(sheets, list):  # nbformat 3
            return [
                c for s in sheets if isinstance(s, Mapping) for c in _list(s.get("cells")) if isinstance(c, Mapping)
            ]
    raise InvalidInput("has no list of cells")


def _language(book: Mapping[str, Json]) -> str:
    found = book.get("metadata")
    for key in ("language_info", "kernelspec"):
        inner = found.get(key) if isinstance(found, Mapping) else None
        name = inner.get("name" if key == "language_info" else "language") if isinstance(inner, Mapping) else None
        if isinstance(name, str):
            return name
    return "python"


def _list(value: Json) -> list[Json]:
    return value if isinstance(value, list) else []


def _joined(value: Json) -> str:
    """Join a text, which notebooks hold as one string or as a list of lines with ends."""
    return value if isinstance(value, str) else "".join(str(line) for line in _list(value))


def _output(output: Json) -> Iterator[str]:
    if not isinstance(output, Mapping):
        return
    kind = output.get("output_type")
    if kind == "stream":
        yield _joined(output.get("text")).rstrip("\n")
    elif kind in {"error", "pyerr"}:
        lines = [_TERMINAL.sub("", str(line)) for line in _list(output.get("traceback"))]
        yield "\n".join(lines) or f"{output.get('ename')}: {output.get('evalue')}"
    elif isinstance(output.get("data"), Mapping):
        yield from _data(output["data"])
    else:  # nbformat 3 keeps data next to the type, under short names
        names = {"png": "image/png", "jpeg": "image/jpeg", "svg": "image/svg+xml", "text": "text/plain"}
        yield from _data({long: output[short] for short, long in names.items() if short in output})


def _data(data: Mapping[str, Json]) -> Iterator[str]:
    for name, value in data.items():
        if name.startswith("image/"):
            content = _joined(value)
            # Base64 is 4 characters for 3 bytes; SVG is text.
            yield f"[{name}, {size_text(len(content) if 'svg' in name else len(content) * 3 // 4)}]"
    name = next((name for name in _READABLE if name in data), "")
    if name:
        value = data[name]
        text = json.dumps(value, ensure_ascii=False) if isinstance(value, Mapping) else _joined(value)
        yield _TERMINAL.sub("", text).rstrip("\n")
    elif data and not any(name.startswith("image/") for name in data):
        yield f"[{', '.join(sorted(data))}]"
