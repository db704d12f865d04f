"""Messages and folds of a recorded session, in the words in which commands show them."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from foldline.messages import Document, Image, Message, Opaque, Part, Reasoning, Text, ToolCall, ToolResult
from foldline.text.printable import plain_line
from foldline.view.transcript import Entry, Event, Fold, Seq

__all__ = ["entries_of", "folds_of", "local_time", "said", "seqs", "who"]


def entries_of(events: Iterable[Event]) -> dict[Seq, Entry]:
    """Every message that was ever recorded, by its number."""
    return {event.seq: event for event in events if isinstance(event, Entry)}


def folds_of(events: Iterable[Event]) -> dict[int, Fold]:
    """Every fold that was ever made, by its id."""
    return {event.id: event for event in events if isinstance(event, Fold)}


def local_time(text: str, form: str = "%Y-%m-%d %H:%M") -> str:
    """A time of the log in the time of this place; what is no time as it stands."""
    try:
        return datetime.fromisoformat(text).astimezone().strftime(form)
    except ValueError:
        return plain_line(text, 24)


def seqs(start: Seq, stop: Seq) -> str:
    """The numbers of messages [start, stop): "4" or "4–9"."""
    return f"{start}" if stop - start == 1 else f"{start}–{stop - 1}"


def who(message: Message) -> str:
    """Whose words they are: system, user, assistant, tool; a kind of ours where they are nobody's."""
    if message.results:
        return "tool"
    return message.kind or message.role


def said(message: Message) -> str:
    """All of a message as text: words, calls after an arrow, results after one back, names for what is no text."""
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
    """What a tool that the provider ran was asked, and what it brought."""
    told = part.saying
    call = f"→ {told.name} {told.arguments}".rstrip() if told.name else ""
    brought = f"← {'error: ' if told.failed else ''}{told.brought}" if told.brought else ""
    return "\n".join(piece for piece in (call, brought) if piece)
