"""What a view is made of: units (blocks and folds), and spans of them."""

from __future__ import annotations

from dataclasses import dataclass, field

from foldline.messages import Message, Part, Reasoning, ToolResult
from foldline.transcript import Entry, Fold, Repair, Seq

__all__ = ["Span", "Unit", "entries_of", "own_words", "reasons", "speaks"]


@dataclass(slots=True)
class Unit:
    """One block or one fold, rendered. Reducers read it; only the view changes it."""

    start: Seq
    stop: Seq
    entries: list[Entry] = field(default_factory=list)
    fold: Fold | None = None
    forms: dict[Seq, Fold] = field(default_factory=dict)
    """Entries of a block that are shown in a shorter form."""
    under: list[Unit] = field(default_factory=list)
    messages: tuple[Message, ...] = ()
    weights: tuple[int, ...] = ()
    contents: tuple[int, ...] = ()
    """Bytes of what each message says."""
    tokens: int = 0
    size_bytes: int = 0
    repairs: tuple[Repair, ...] = ()
    waiting: bool = False
    pinned: bool = False

    @property
    def system(self) -> bool:
        """Whether it holds system text."""
        return any(entry.message.role == "system" for entry in self.entries)

    def form(self, entry: Entry) -> Message:
        """How an entry of this block is shown now."""
        fold = self.forms.get(entry.seq)
        return entry.message if fold is None else fold.shown[0]

    def form_tokens(self, entry: Entry) -> int:
        """Size of an entry as it is shown now."""
        fold = self.forms.get(entry.seq)
        return entry.tokens if fold is None else fold.tokens


@dataclass(frozen=True, slots=True)
class Span:
    """Units [first, last) of a view that may be folded as one; entries [start, stop)."""

    first: int
    last: int
    start: Seq
    stop: Seq
    tokens: int


def speaks(message: Message) -> bool:
    """Whether a message is a user's own words: a user message with anything but results in it."""
    return (
        message.role == "user"
        and message.agent_visible
        and not message.kind
        and any(not isinstance(part, ToolResult) for part in message.parts)
    )


def entries_of(unit: Unit) -> list[Entry]:
    if unit.fold is None:
        return unit.entries
    out: list[Entry] = []
    waiting = [*reversed(unit.under)]
    while waiting:  # not recursive: folds over folds may be nested as deep as a session is long
        inner = waiting.pop()
        if inner.fold is None:
            out += inner.entries
        else:
            waiting += reversed(inner.under)
    return out


def reasons(message: Message) -> bool:
    return bool(message.parts) and isinstance(message.parts[0], Reasoning) and message.parts[0].signed


def own_words(message: Message) -> list[Part]:
    return [part for part in message.parts if not isinstance(part, ToolResult)]
