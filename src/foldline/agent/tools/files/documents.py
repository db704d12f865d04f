"""Documents as text: Jupyter notebooks with what their cells put out, and PDFs.

A PDF is a program of sorts, so that its text is taken out by a process of its own.
"""

from __future__ import annotations

import importlib.util
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import BinaryIO, Final

from foldline.agent.tools.processes.isolated import ProcessTimedOut, read_isolated
from foldline.agent.workers import StopSignal
from foldline.display import size_text
from foldline.errors import InvalidInput, MissingExtra
from foldline.messages import Json

__all__ = ["notebook_text", "pdf_text"]

MAX_SECONDS: Final = 30.0
_CHILD: Final = Path(__file__).with_name("pdf_child.py")


def pdf_text(file: BinaryIO, path: str, stop: StopSignal, *, max_seconds: float = MAX_SECONDS) -> str:
    """Return the text of an open PDF, page by page with numbers; a page without text says so.

    About half a second, and some hundredths per page. Raises InvalidInput for a damaged or encrypted PDF and for one
    that takes too long, MissingExtra, and WorkCancelled.
    """
    if importlib.util.find_spec("pypdf") is None:
        raise MissingExtra("chat", "reading PDF files")
    try:
        found = read_isolated(_CHILD, file, stop, max_seconds=max_seconds)
    except ProcessTimedOut:
        told = f"is a PDF that cannot be read: it took more than {max_seconds:g} seconds"
        raise InvalidInput(told, place=path) from None
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
