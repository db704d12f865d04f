"""The text of a PDF, taken out by a process of its own.

A PDF is a program of sorts, and a reader of damaged ones can run for very long or take all memory. In its own process
it has limits of time and memory, ends with the call, sees no secrets of this one, and costs the start of the agent
nothing.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import BinaryIO, Final

from foldline.agent.tools.threads import Stop
from foldline.errors import InvalidInput, MissingExtra

__all__ = ["pdf_text"]

MOST_SECONDS: Final = 60.0
_LOOK_SECONDS: Final = 0.2
_CHILD: Final = Path(__file__).with_name("pdf_child.py")
_KEPT: Final = ("PATH", "PYTHONPATH", "PYTHONHOME", "LD_LIBRARY_PATH", "SYSTEMROOT", "TEMP", "TMPDIR")
"""What of the environment a Python needs to start: no keys are among it."""


def pdf_text(file: BinaryIO, path: str, stop: Stop, *, most_seconds: float = MOST_SECONDS) -> str:
    """The text of an open PDF, page by page, each with its number; a page without any says so.

    Raises InvalidInput for one that is damaged, encrypted or takes too long, MissingExtra, and Cancelled. About half a
    second, and some hundredths per page.
    """
    if importlib.util.find_spec("pypdf") is None:
        raise MissingExtra("chat", "reading PDF files")
    os.lseek(file.fileno(), 0, os.SEEK_SET)
    found = _answer(*_run(file, path, stop, most_seconds))
    error, pages, total = found.get("error"), found.get("pages"), found.get("total")
    if error or not isinstance(pages, list) or not isinstance(total, int):
        raise InvalidInput(f"is a PDF that cannot be read: {error or 'no pages were found'}", place=path)
    if not any(str(page).strip() for page in pages):
        return f"[a PDF with {_pages(total)} and no text: scanned pictures, most likely]\n"
    out = [f"[the text of a PDF with {_pages(total)}]"]
    for number, page in enumerate(pages, 1):
        out.append(f"--- Page {number} of {total} ---\n{str(page).strip() or '[no text: a picture, most likely]'}")
    if len(pages) < total:
        out.append(f"[pages {len(pages) + 1} to {total} are left out: there is too much text]")
    return "\n".join(out) + "\n"


def _pages(total: int) -> str:
    return "1 page" if total == 1 else f"{total:,} pages"


def _run(file: BinaryIO, path: str, stop: Stop, most_seconds: float) -> tuple[bytes, bytes]:
    environment = {name: os.environ[name] for name in _KEPT if name in os.environ}
    ends = time.monotonic() + most_seconds
    command = [sys.executable, "-P", str(_CHILD)]
    with subprocess.Popen(
        command, stdin=file, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
    ) as process:
        try:
            while True:
                try:
                    return process.communicate(timeout=_LOOK_SECONDS)
                except subprocess.TimeoutExpired:
                    stop.check()
                    if time.monotonic() > ends:
                        raise InvalidInput(
                            f"is a PDF that cannot be read: it took more than {most_seconds:g} seconds", place=path
                        ) from None
        finally:
            if process.poll() is None:
                process.kill()


def _answer(out: bytes, errors: bytes) -> dict[str, object]:
    """What the process wrote; where it broke, the last line of its errors, which names the exception."""
    try:
        found = json.loads(out)
    except ValueError:
        said = errors.decode("utf-8", "replace").strip().rpartition("\n")[2]
        return {"error": said or "its reader was ended, by the limit of its memory or of its time"}
    return found if isinstance(found, dict) else {}
