"""Run as a process of its own by `pdf.py`: reads a PDF on standard input, writes its text as JSON.

It imports nothing of this package, so that it starts fast and works however the package was found.
"""

from __future__ import annotations

import json
import logging
import sys

from pypdf import PdfReader
from pypdf.errors import DependencyError, PyPdfError

try:
    import resource
except ImportError:  # Windows has no such limits; the time limit of the caller holds there too
    resource = None  # type: ignore[assignment]

__all__ = ["main"]

MOST_MEMORY_BYTES = 2 * 1024**3
MOST_CPU_SECONDS = 120
MOST_CHARS = 8_000_000
# What pypdf lets out of damaged files, beside its own errors.
DAMAGE = (PyPdfError, ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError, OSError)


def main() -> None:
    """Write {"pages": [text, …], "total": n} or {"error": reason}."""
    if resource is not None:
        resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY_BYTES, MOST_MEMORY_BYTES))
        resource.setrlimit(resource.RLIMIT_CPU, (MOST_CPU_SECONDS, MOST_CPU_SECONDS))
    logging.disable()
    try:
        answer = read()
    except DependencyError:
        answer = {"error": "it is encrypted, in a way that needs the package cryptography"}
    except DAMAGE as error:
        answer = {"error": f"it is damaged ({type(error).__name__}: {error})"}
    sys.stdout.buffer.write(json.dumps(answer).encode("ascii"))


def read() -> dict[str, object]:
    """The answer for the file on standard input."""
    reader = PdfReader(sys.stdin.buffer)
    if reader.is_encrypted and not reader.decrypt(""):
        return {"error": "it is encrypted, and needs a password"}
    pages: list[str] = []
    total = len(reader.pages)
    chars = 0
    while len(pages) < total and chars < MOST_CHARS:
        try:
            text = reader.pages[len(pages)].extract_text()
        except DAMAGE as error:
            text = f"[this page is damaged: {type(error).__name__}: {error}]"
        pages.append(text)
        chars += len(text)
    return {"pages": pages, "total": total}


if __name__ == "__main__":
    main()
