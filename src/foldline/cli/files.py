"""Input and output of the commands."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from foldline.errors import InvalidInput
from foldline.recorded.files import parse_session, read_session
from foldline.recorded.sessions import Session

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["STDIN", "json_out", "log", "read_history", "sessions_in", "terminal", "write_whole"]

STDIN = "-"

# Damaged places of one file that are named; the rest are counted.
_MOST_NAMED: Final = 20

_ENDINGS: Final = (".json", ".jsonl", ".ndjson", ".json.gz", ".jsonl.gz", ".ndjson.gz")


def read_history(path: str, dialect: str | None, *, lenient: bool = False) -> Session:
    """Read a history from a file, or from standard input for "-". Raises InvalidInput with the file named.

    With `lenient`, the sound parts of a damaged file are read, and the others named on standard error.
    """
    if path == STDIN:
        data = sys.stdin.buffer.read()
        session = parse_session(data, place="standard input", dialect=dialect, lenient=lenient)
    else:
        session = read_session(path, dialect=dialect, lenient=lenient)
    for one in session.unread[:_MOST_NAMED]:
        log(f"left out: {one}")
    if len(session.unread) > _MOST_NAMED:
        log(f"left out of {path}: {len(session.unread) - _MOST_NAMED:,} more")
    return session


def sessions_in(folder: str) -> list[str]:
    """The files of recorded sessions in a folder and its subfolders, sorted by path.

    Raises InvalidInput if there is none.
    """
    files = [
        os.path.join(parent, file)
        for parent, _, files in os.walk(folder)
        for file in files
        if file.endswith(_ENDINGS) and not file.startswith(".")
    ]
    if not files:
        raise InvalidInput(f"holds no session: no file that ends in {', '.join(_ENDINGS)}", place=folder)
    return sorted(files)


def json_out(value: Any) -> None:
    """Print JSON on standard output as UTF-8. A text with half a surrogate pair makes all of it ASCII with escapes."""
    text = json.dumps(value, ensure_ascii=False, indent=2)
    try:
        data = text.encode()
    except UnicodeEncodeError:
        data = json.dumps(value, indent=2).encode()
    rest = memoryview(data + b"\n")
    while rest:  # an unbuffered stream (PYTHONUNBUFFERED) may write a part only, also when the reader goes away
        rest = rest[sys.stdout.buffer.write(rest) :]


def terminal(*, to_stderr: bool = False) -> Console:
    """The console for tables and progress bars: as wide as the terminal, 80 columns without one."""
    from rich.console import Console

    # rich swallows a broken pipe and exits with 1; the exit code of this program is 141.
    class Terminal(Console):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError  # to be met where all commands meet it (cli.py)

    console = Terminal(stderr=to_stderr, highlight=False, markup=False)
    if console.is_dumb_terminal:  # rich assumes 80 columns for it, however wide it is
        with suppress(OSError, ValueError):
            size = os.get_terminal_size(console.file.fileno())
            console.size = (size.columns or console.width, size.lines or console.height)
    return console


def log(line: str) -> None:
    """Print one line for people on standard error."""
    click.echo(f"foldline: {line}", err=True)


def write_whole(path: str, text: str) -> None:
    """Write a file atomically: a concurrent reader sees the old one. Raises InvalidInput."""
    folder = os.path.dirname(path) or "."
    try:
        # In the same folder: a rename is atomic within one file system only.
        handle, name = tempfile.mkstemp(prefix=f".{os.path.basename(path)}.", dir=folder)
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(text)
            os.chmod(name, 0o666 & ~_mask())  # mkstemp makes it private; a page is as readable as any other file
            os.replace(name, path)
        finally:
            Path(name).unlink(missing_ok=True)  # after an error; once replaced, the name is gone
    except OSError as error:
        raise InvalidInput(f"cannot be written: {error.strerror or error}", place=path) from None


def _mask() -> int:
    """The umask of this process, which can only be read by setting it."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
