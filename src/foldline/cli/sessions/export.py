"""The command that takes a kept session out of the store, and the forms in which it leaves."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

import click

from foldline.cli.files import can_hold, log
from foldline.errors import InvalidInput
from foldline.hosting.session_choice import Where, choose, where_option
from foldline.hosting.session_words import who
from foldline.messages import Document, Image, Json, Message, Part, Reasoning, Text, ToolCall, ToolResult
from foldline.text.printable import plain, plain_line
from foldline.text.redaction import redact as redact_text
from foldline.view.transcript import active

if TYPE_CHECKING:
    from foldline.store.recording import Recording

__all__ = ["FORMATS", "export", "exported", "redacted"]

FORMATS: Final = ("messages", "markdown", "events")
_FENCE: Final = re.compile(r"^`{3,}", re.MULTILINE)
_CONTROLS: Final = re.compile("[\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u206f\ufeff]")


@click.command()
@click.argument("session", metavar="ID")
@click.option("--format", "form", type=click.Choice(FORMATS), default="messages", show_default=True)
@click.option("-o", "--output", metavar="FILE", type=click.Path(), help="Write a file that only you can read.")
@click.option("--redact", is_flag=True, help="Leave out secrets of known shapes: keys, tokens, passwords.")
@where_option("--store")
def export(*, session: str, form: str, output: str | None, redact: bool, where: Where) -> None:
    """Print a session: its messages, a text for people, or its log.

    "messages" is what `foldline fit`, `check` and `replay` read: the messages of the branch that the session is on, in
    full, as they came in. "markdown" is the same for people. "events" is everything that happened, one JSON object per
    line, as it is kept.
    """
    if output is not None:
        can_hold(output)
    chosen = choose(where.store, session)
    recording = chosen.read()
    if form == "events":
        records = chosen.records(recording)
        text = "".join(f"{_json(redacted(record) if redact else record)}\n" for record in records)
    else:
        text = exported(recording, form, redact=redact)
    data = text.encode("utf-8", "replace")  # the JSON in it is escaped where UTF-8 has no form for it
    if output is not None:
        _write(output, data)
        log(f"wrote {output}")
        return
    if sys.stdout.isatty():
        data = (plain(text) if form == "markdown" else _CONTROLS.sub(_escape, text)).encode("utf-8", "replace")
    sys.stdout.flush()
    rest = memoryview(data)
    while rest:
        rest = rest[sys.stdout.buffer.write(rest) :]


def exported(recording: Recording, form: str, *, redact: bool = False) -> str:
    """A session as "messages" (one JSON object) or "markdown". Raises InvalidInput when nothing was said. O(log)."""
    entries = [entry for entry in active(recording.events) if not entry.hidden]
    header = recording.header
    if not entries:
        raise InvalidInput("nothing has been said in it yet", place=header.id)
    if form == "messages":
        wires = [entry.recorded for entry in entries]
        beside = {"id": header.id, "dialect": header.dialect, **({"model": header.model} if header.model else {})}
        return _json({**beside, "messages": redacted(wires) if redact else wires}, indent=2) + "\n"
    title = header.title or recording.tally.title or header.id
    about = f"{header.id}, {header.dialect}, model {header.model or 'unknown'}, begun {header.created}"
    text = f"# {plain_line(title)}\n\n{about}\n" + "".join(_markdown(entry.message) for entry in entries)
    return redact_text(text) if redact else text


def redacted(value: Json, name: str = "") -> Json:
    """A JSON value without secrets of known shapes; the name of a field tells some. O(size)."""
    if isinstance(value, str):
        before = f"{name}: "
        found = redact_text(before + value) if name else value
        return found.removeprefix(before) if name and found.startswith(before) else redact_text(value)
    if isinstance(value, Mapping):
        return {key: redacted(inner, str(key)) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [redacted(inner, name) for inner in value]
    return value


def _json(value: Json, indent: int | None = None) -> str:
    text = json.dumps(value, ensure_ascii=False, indent=indent)
    try:
        text.encode()
    except UnicodeEncodeError:  # half a surrogate pair
        text = json.dumps(value, indent=indent)
    return text


def _escape(found: re.Match[str]) -> str:
    """What a terminal would obey, as JSON may write it: it stands in strings only."""
    return f"\\u{ord(found[0]):04x}"


def _write(path: str, data: bytes) -> None:
    from pathlib import Path

    from foldline.store.files import write_whole

    write_whole(Path(path), [data])


def _markdown(message: Message) -> str:
    return f"\n## {who(message)}\n\n" + "\n\n".join(_blocks(message.parts)) + "\n"


def _blocks(parts: Iterable[Part]) -> Iterator[str]:
    for part in parts:
        match part:
            case Text(text=text):
                yield text
            case Reasoning(text=text):
                yield "*(thinking)*" if not text else "> " + text.replace("\n", "\n> ")
            case ToolCall(name=name, arguments=arguments):
                yield f"Calls `{name}`:\n\n{_fenced(arguments, 'json')}"
            case ToolResult():
                inner = "\n\n".join(_blocks(part.parts))
                yield f"{'Error' if part.is_error else 'Result'}:\n\n{_fenced(inner)}"
            case Image():
                yield "*(image)*"
            case Document(text=text, media_type=media_type):
                yield text or f"*(document {media_type})*"
            case other:
                yield _fenced(_json(other.raw, indent=2), "json")


def _fenced(text: str, language: str = "") -> str:
    """A block that no fence in the text can end."""
    longest = max((len(found) for found in _FENCE.findall(text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}{language}\n{text}\n{fence}"
