"""What a view is made of: units (blocks and folds), and spans of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from foldline.codecs.caps import NOTHING, Amounts
from foldline.codecs.media import amounts_of
from foldline.growing import Growth
from foldline.messages import Message, Part, Reasoning, ToolResult
from foldline.transcript import Entry, Fold, Repair, Seq

__all__ = [
    "Seen",
    "Span",
    "Unit",
    "entries_of",
    "held_by",
    "history",
    "own_words",
    "reasons",
    "released_count",
    "speaks",
]


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
    gone: tuple[int, int] = (0, 0)
    """Entries under this fold that were let go of, and how many of them the model was to see."""
    messages: tuple[Message, ...] = ()
    weights: tuple[int, ...] = ()
    contents: tuple[int, ...] = ()
    """Bytes of what each message says."""
    tokens: int = 0
    content_bytes: int = 0
    """Sum of `contents`."""
    size_bytes: int = 0
    amounts: Amounts = NOTHING
    """Images and what else its messages hold that is limited."""
    repairs: tuple[Repair, ...] = ()
    late: Seq | None = None
    """A result that came when an answer in its place had been sent already."""
    waiting: bool = False
    pinned: bool = False
    growth: Growth | None = field(default=None, compare=False, repr=False)
    """How far a block of items has come, while it can grow without being rendered again."""

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


@dataclass(frozen=True, slots=True)
class Seen:
    """A message and who sees it: an entry as it was recorded, or one of ours (`entry` None) that stands for some.

    `kind` is "tool_result" or "tool_result_archived" for results, else that of the message.
    """

    entry: Entry | None
    message: Message
    agent_visible: bool
    user_visible: bool
    kind: str


def history(units: Iterable[Unit]) -> Iterator[Seen]:
    """Every entry of the session in order, folded or not; what stands for folded ones follows them. O(log)."""
    for unit in units:
        yield from _seen(unit, hidden=False, archived=False)


def _seen(unit: Unit, *, hidden: bool, archived: bool) -> Iterator[Seen]:
    if unit.fold is None:
        for entry in unit.entries:
            message = entry.message
            kind = message.kind
            if message.results:
                kind = "tool_result_archived" if archived else kind or "tool_result"
            yield Seen(entry, message, message.agent_visible and not hidden, message.user_visible, kind)
        return
    shown = unit.fold.shown
    archived = archived or any(message.kind == "tool_summary" for message in shown)
    for inner in unit.under:
        yield from _seen(inner, hidden=True, archived=archived)
    for message in shown:
        # Words that had to stay are among the entries already: there the user reads them.
        yield Seen(None, message, not hidden, message.user_visible and bool(message.kind), message.kind)


def held_by(messages: Iterable[Message], before: Amounts = NOTHING) -> Amounts:
    """What messages hold that is limited besides tokens, and what was held before. O(parts)."""
    return sum((amounts_of(message.parts) for message in messages), before)


def speaks(message: Message) -> bool:
    """Whether a message is a user's own words: a user message with anything but results in it."""
    return (
        message.role == "user"
        and message.agent_visible
        and not message.kind
        and any(not isinstance(part, ToolResult) for part in message.parts)
    )


def entries_of(unit: Unit) -> list[Entry]:
    """The entries that a unit covers, those under its fold too, in order. O(covered)."""
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


def released_count(unit: Unit, *, seen: bool) -> int:
    """How many entries under a unit were let go of, inner folds included; with `seen` those the model was to see."""
    count = 0
    waiting = [unit]
    while waiting:  # as above
        inner = waiting.pop()
        count += inner.gone[1 if seen else 0]
        waiting += inner.under
    return count


def reasons(message: Message) -> bool:
    """Whether a message begins with reasoning that its provider verifies."""
    return bool(message.parts) and isinstance(message.parts[0], Reasoning) and message.parts[0].signed


def own_words(message: Message) -> list[Part]:
    """The parts of a message that are no tool results."""
    return [part for part in message.parts if not isinstance(part, ToolResult)]
