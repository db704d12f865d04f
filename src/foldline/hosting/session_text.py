"""A session for people: as text, as JSON messages, as Markdown, and as the rows of its next request.

Secrets are removed on request.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Final

from foldline.codecs import codec as codec_for
from foldline.engine.context import Context
from foldline.errors import InvalidInput
from foldline.messages import Document, Image, Json, Message, Opaque, Part, Reasoning, Text, ToolCall, ToolResult
from foldline.text.formatting import plain_line
from foldline.text.redaction import redact as redact_text
from foldline.tokens import system_tokens, tools_tokens
from foldline.view.transcript import Entry, Event, Fold, Seq, active
from foldline.view.view import LEAD

if TYPE_CHECKING:
    from foldline.store.recording import Recording

__all__ = [
    "RequestRow",
    "author_of",
    "entries_of",
    "export_session",
    "folds_of",
    "json_text",
    "local_time",
    "message_text",
    "parts_of",
    "redacted",
    "rows_of",
    "seq_range",
]


def entries_of(events: Iterable[Event]) -> dict[Seq, Entry]:
    """Every recorded message, by its number."""
    return {event.seq: event for event in events if isinstance(event, Entry)}


def folds_of(events: Iterable[Event]) -> dict[int, Fold]:
    """Every recorded fold, by its id."""
    return {event.id: event for event in events if isinstance(event, Fold)}


def local_time(text: str, form: str = "%Y-%m-%d %H:%M") -> str:
    """A time of the log in local time; other text unchanged."""
    try:
        return datetime.fromisoformat(text).astimezone().strftime(form)
    except ValueError:
        return plain_line(text, 24)


def seq_range(start: Seq, stop: Seq) -> str:
    """The message numbers [start, stop): "4" or "4–9"."""
    return f"{start}" if stop - start == 1 else f"{start}–{stop - 1}"


def author_of(message: Message) -> str:
    """The author of a message: system, user, assistant, tool; or its kind if nobody wrote it."""
    if message.results:
        return "tool"
    return message.kind or message.role


def message_text(message: Message) -> str:
    """A whole message as text: words, calls after an arrow, results after a reversed one, names for what is no text."""
    # Parts without text (a signature, an empty block) would only leave empty lines.
    pieces = [piece for part in message.parts if (piece := _piece(part))]
    return "\n".join([*pieces, *([f"(cited) {message.cited}"] if message.cited else [])])


def _piece(part: Part) -> str:
    match part:
        case Text(text=text):
            return text
        case Reasoning(text=text):
            return f"(thinking) {text}" if text else "(thinking)"
        case ToolCall(name=name, arguments=arguments):
            return f"→ {name} {arguments}"
        case ToolResult():
            inner = "\n".join(piece for each in part.parts if (piece := _piece(each)))
            return f"← {'error: ' if part.is_error else ''}{inner}"
        case Image():
            return "[image]"
        case Document(text=text, media_type=media_type):
            return text or f"[document {media_type}]"
        case Opaque():
            return _provided(part) or f"[{part.type}]"


def _provided(part: Opaque) -> str:
    """The arguments and results of a tool that the provider ran."""
    provided = part.words
    call = f"→ {provided.name} {provided.arguments}".rstrip() if provided.name else ""
    result = f"← {'error: ' if provided.failed else ''}{provided.result}" if provided.result else ""
    return "\n".join(piece for piece in (call, result) if piece)


_FENCE: Final = re.compile(r"^`{3,}", re.MULTILINE)


def export_session(recording: Recording, form: str, *, redact: bool = False) -> str:
    """Render a session as "messages" (one JSON object) or "markdown". Raises InvalidInput if it is empty. O(log)."""
    # Entries of abandoned branches and hidden ones were never part of the conversation as it stands.
    entries = [entry for entry in active(recording.events) if not entry.hidden]
    header = recording.header
    if not entries:
        raise InvalidInput("nothing has been said in it yet", place=header.id)
    if form == "messages":
        wires = [entry.recorded for entry in entries]
        header_fields = {
            "id": header.id,
            "dialect": header.dialect,
            **({"model": header.model} if header.model else {}),
        }
        return json_text({**header_fields, "messages": redacted(wires) if redact else wires}, indent=2) + "\n"
    title = header.title or recording.tally.title or header.id
    about = f"{header.id}, {header.dialect}, model {header.model or 'unknown'}, begun {header.created}"
    text = f"# {plain_line(title)}\n\n{about}\n" + "".join(_markdown(entry.message) for entry in entries)
    return redact_text(text) if redact else text


def redacted(value: Json, name: str = "") -> Json:
    """Remove secrets of known shapes from a JSON value; a field's name reveals some of them. O(size)."""
    if isinstance(value, str):
        # A rule such as "password: …" needs the name with the value to recognise it.
        before = f"{name}: "
        found = redact_text(before + value) if name else value
        return found.removeprefix(before) if name and found.startswith(before) else redact_text(value)
    if isinstance(value, Mapping):
        return {key: redacted(inner, str(key)) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [redacted(inner, name) for inner in value]
    return value


def json_text(value: Json, indent: int | None = None) -> str:
    """Dump JSON that UTF-8 can encode: half a surrogate pair makes all of it ASCII with escapes."""
    # Tried first without escapes: an export is read by people, and not all of them write in ASCII.
    text = json.dumps(value, ensure_ascii=False, indent=indent)
    try:
        text.encode()
    except UnicodeEncodeError:
        text = json.dumps(value, indent=indent)
    return text


def _markdown(message: Message) -> str:
    return f"\n## {author_of(message)}\n\n" + "\n\n".join(_blocks(message.parts)) + "\n"


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
                yield _fenced(json_text(other.raw, indent=2), "json")


def _fenced(text: str, language: str = "") -> str:
    """A code block that no fence in the text can close."""
    # Markdown closes a fence with a longer one, so the outer fence must be the longest.
    longest = max((len(found) for found in _FENCE.findall(text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}{language}\n{text}\n{fence}"


# --- the rows of the next request -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestRow:
    """A message of the next request, and the session messages [start, stop) that it stands for (-1: none).

    `fold` is the id of the fold that made it, None for an unchanged message.
    """

    start: int
    stop: int
    tokens: int
    message: Message
    mark: str
    """As in `foldline sessions show`: "-" stands for folded messages, "~" marks a shortened one."""
    fold: int | None = None
    state: str = "shown"
    """"shown", "shortened", "pinned" or "repaired". A message that stands for others is "shown"."""


def rows_of(context: Context) -> Iterator[RequestRow]:
    """Yield each message of the next request, in order. Changes nothing. O(shown)."""
    view = context.view
    if view.has_lead:  # a first user message that is supplied
        yield RequestRow(
            start=-1, stop=0, tokens=view.lead_tokens, message=codec_for(context.dialect).note(LEAD), mark=" "
        )
    for tile in view.tiles:
        repaired = {repair.seq for repair in tile.repairs}
        for message, tokens in zip(tile.messages, tile.weights, strict=True):
            # A tile shows originals, shortened forms and repairs side by side; only identity tells which entry a
            # message is.
            found = next((entry for entry in tile.entries if tile.form(entry) is message), None)
            start, stop = (tile.start, tile.stop) if found is None else (found.seq, found.seq + 1)
            form = None if found is None else tile.forms.get(found.seq)
            fold = tile.fold or form
            state = "shortened" if form is not None else "pinned" if tile.pinned else "shown"
            if state == "shown" and tile.fold is None and (found is None or found.seq in repaired):
                state = "repaired"
            yield RequestRow(
                start=start,
                stop=stop,
                tokens=tokens,
                message=message,
                mark="-" if tile.fold is not None else "~" if form is not None else " ",
                fold=None if fold is None else fold.id,
                state=state,
            )


def parts_of(rows: Iterable[RequestRow], system: Json, tools: Json) -> dict[str, int]:
    """Count the tokens of each part of a request: system text, tools, folded messages, other messages."""
    rows = tuple(rows)
    return {
        "system": system_tokens(system),
        "tools": tools_tokens(tools),
        "folded": sum(row.tokens for row in rows if row.mark != " "),
        "messages": sum(row.tokens for row in rows if row.mark == " "),
    }
