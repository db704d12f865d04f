"""Runs as a process of its own (`tools/isolated.py`): reads a PDF on standard input, writes its text as JSON.

It imports nothing of this package, so that it starts fast and works however the package was found.
"""

from __future__ import annotations

import json
import logging
import sys
import time

from pypdf import PdfReader
from pypdf.errors import DependencyError, PyPdfError

__all__ = ["main"]

# No page is begun after this time; those read so far are shown.
MAX_SECONDS = 20.0
MAX_PAGES = 5_000
MAX_CHARS = 8_000_000
# What pypdf raises for damaged files, besides its own errors.
DAMAGE = (PyPdfError, ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError, OSError)


def main() -> None:
    """Write {"pages": [text, …], "total": n, "left_out": why} or {"error": reason}."""
    # pypdf warns of each fault it works around; on stderr that would pass for the reason of a failure.
    logging.disable()
    try:
        answer = read()
    except DependencyError:
        answer = {"error": "it is encrypted, in a way that needs the package cryptography"}
    except MemoryError:
        answer = {"error": "it takes too much memory"}
    except DAMAGE as error:
        answer = {"error": f"it is damaged ({type(error).__name__}: {error})"}
    sys.stdout.buffer.write(json.dumps(answer).encode("ascii"))


def read() -> dict[str, object]:
    """Read the file on standard input."""
    reader = PdfReader(sys.stdin.buffer)
    # Many PDFs are encrypted with an empty password, to forbid printing and not reading.
    if reader.is_encrypted and not reader.decrypt(""):
        return {"error": "it is encrypted, and needs a password"}
    pages: list[str] = []
    total = len(reader.pages)
    chars = 0
    ends = time.monotonic() + MAX_SECONDS
    left_out = ""
    while len(pages) < total and not left_out:
        try:
            text = reader.pages[len(pages)].extract_text()
        except DAMAGE as error:
            text = f"[this page is damaged: {type(error).__name__}: {error}]"
        pages.append(text[: MAX_CHARS - chars])
        chars += len(text)
        if len(pages) >= MAX_PAGES:
            left_out = "there are too many"
        elif chars >= MAX_CHARS:
            left_out = "there is too much text"
        elif time.monotonic() > ends:
            left_out = "reading them takes too long"
    return {"pages": pages, "total": total, "left_out": left_out}


if __name__ == "__main__":
    main()
