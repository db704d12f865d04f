"""The text of a PDF, taken out by a process of its own: a PDF is a program of sorts."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import BinaryIO, Final

from foldline.agent.tools.processes.isolated import TookTooLong, read_apart
from foldline.agent.workers import Stop
from foldline.errors import InvalidInput, MissingExtra

__all__ = ["pdf_text"]

MOST_SECONDS: Final = 30.0
_CHILD: Final = Path(__file__).with_name("pdf_child.py")


def pdf_text(file: BinaryIO, path: str, stop: Stop, *, most_seconds: float = MOST_SECONDS) -> str:
    """The text of an open PDF, page by page, each with its number; a page without any says so.

    Raises InvalidInput for one that is damaged, encrypted or takes too long, MissingExtra, and Cancelled. About half a
    second, and some hundredths per page.
    """
    if importlib.util.find_spec("pypdf") is None:
        raise MissingExtra("chat", "reading PDF files")
    try:
        found = read_apart(_CHILD, file, stop, most_seconds=most_seconds)
    except TookTooLong:
        told = f"is a PDF that cannot be read: it took more than {most_seconds:g} seconds"
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
