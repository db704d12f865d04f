"""The command `foldline sessions export`: a stored session as messages, Markdown or events."""

from __future__ import annotations

import re
import sys
from typing import Final

import click

from foldline.cli.files import log
from foldline.hosting.session_choice import OpenedStore, select_session, store_options
from foldline.hosting.session_text import export_session, json_text, redacted
from foldline.store.files import check_writable
from foldline.text.formatting import plain

__all__ = ["FORMATS", "export"]

FORMATS: Final = ("messages", "markdown", "events")
_CONTROLS: Final = re.compile("[\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u206f\ufeff]")


@click.command()
@click.argument("session", metavar="ID")
@click.option("--format", "form", type=click.Choice(FORMATS), default="messages", show_default=True)
@click.option("-o", "--output", metavar="FILE", type=click.Path(), help="Write a file that only you can read.")
@click.option("--redact", is_flag=True, help="Leave out secrets of known shapes: keys, tokens, passwords.")
@store_options("--store")
def export(*, session: str, form: str, output: str | None, redact: bool, source: OpenedStore) -> None:
    """Print a session: its messages, a text for people, or its log.

    "messages" is what `foldline fit`, `check` and `replay` read: the messages of the branch that the session is on, in
    full, as they came in. "markdown" is the same for people. "events" is everything that happened, one JSON object per
    line, as it is kept.
    """
    if output is not None:
        check_writable(output)
    selected = select_session(source.store, session)
    recording = selected.read()
    if form == "events":
        records = selected.records(recording)
        text = "".join(f"{json_text(redacted(record) if redact else record)}\n" for record in records)
    else:
        text = export_session(recording, form, redact=redact)
    data = text.encode("utf-8", "replace")  # the JSON in it is escaped where UTF-8 has no form for it
    if output is not None:
        _write(output, data)
        log(f"wrote {output}")
        return
    # A file keeps the text as recorded; a terminal would obey its control characters.
    if sys.stdout.isatty():
        data = (plain(text) if form == "markdown" else _CONTROLS.sub(_escape, text)).encode("utf-8", "replace")
    sys.stdout.flush()
    rest = memoryview(data)
    while rest:
        rest = rest[sys.stdout.buffer.write(rest) :]


def _escape(found: re.Match[str]) -> str:
    """A character that a terminal would obey, as a JSON escape: it occurs in strings only."""
    return f"\\u{ord(found[0]):04x}"


def _write(path: str, data: bytes) -> None:
    from pathlib import Path

    from foldline.store.files import write_atomic

    write_atomic(Path(path), [data])
