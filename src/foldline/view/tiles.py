"""What a view is made of: tiles (blocks and folds), and spans of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from foldline.codecs.base import Codec
from foldline.codecs.limits import NO_AMOUNTS, ONE_MESSAGE, Amounts
from foldline.codecs.media import amounts_of
from foldline.messages import Message, Reasoning
from foldline.view.open_calls import RememberedCall
from foldline.view.pairing import pair_ids
from foldline.view.transcript import Entry, Fold, Repair, Seq, Sources
from foldline.view.user_words import words_of

if TYPE_CHECKING:
    from foldline.view.rendering import GrowingTurn

__all__ = [
    "AT_SERVER",
    "JOINT",
    "PROVIDER_SUMMARY",
    "Span",
    "Tile",
    "VisibleMessage",
    "begins_signed",
    "blocks_of",
    "entries_of",
    "fold_tile",
    "history",
    "joint_places",
    "leading_system_tokens",
    "total_amounts",
]


JOINT: Final = "joint"
"""The kind of a short assistant message between two user messages, of which we wrote at least one."""


# The kinds of messages that we write.
OURS: Final = frozenset({"notice", "summary", "digest", "tool_summary"})

PROVIDER_SUMMARY = "summary of the provider"
"""Why the newest summary by a provider is not folded: it may be encrypted, and all before it depends on it."""

AT_SERVER = "what the server holds"
"""Why a reference to a stored item is not folded: its words are at the server, so that nothing can stand for it."""


# The one mutable value of a view, since appending an entry to a long block must not copy it.
@dataclass(slots=True)
class Tile:
    """One block or one fold, rendered. Reducers read it; only the view changes it."""

    start: Seq
    stop: Seq
    entries: list[Entry] = field(default_factory=list)
    # A fold replaces the tile, a form only one entry of it: cutting a result must not cost the group its other results.
    fold: Fold | None = None
    forms: dict[Seq, Fold] = field(default_factory=dict)
    """Entries of a block that are shown in a shorter form."""
    inner: list[Tile] = field(default_factory=list)
    covered_counts: tuple[int, int] = (0, 0)
    """Of a fold: entries that it covers, and how many of them are visible to the agent; released ones count."""
    covers: tuple[range, ...] = ()
    """Of a fold: the numbers of those entries, in runs."""
    shown_sources: tuple[Sources, ...] = ()
    """Of a fold: for each message in it the entry whose words had to stay, or none."""
    messages: list[Message] = field(default_factory=list)
    sources: list[Sources] = field(default_factory=list)
    """The entries that each message shows."""
    weights: list[int] = field(default_factory=list)
    contents: list[int] = field(default_factory=list)
    """Content bytes of each message."""
    joints: int = 0
    """How many of the messages are joints."""
    tokens: int = 0
    content_bytes: int = 0
    """Sum of `contents`."""
    size_bytes: int = 0
    amounts: Amounts = NO_AMOUNTS
    """Images, pages and messages: what providers limit besides tokens."""
    rendered_repairs: tuple[Repair, ...] = ()
    """Repairs of the last rendering as a whole."""
    late: Seq | None = None
    """A result that came after a stand-in for it had been sent."""
    replied: bool = True
    """Of a fold: whether the assistant had the last word in what it covers, so that the user's turn came next."""
    late_calls: dict[Seq, Mapping[str, RememberedCall]] = field(default_factory=dict)
    """By message and by the id in its result: calls that are no longer shown, whose results are told in words."""
    left_out: set[str] = field(default_factory=set)
    """Opening halves of pairs whose answer is told in words."""
    waiting: bool = False
    """Whether it is incomplete: the result of a call, an approved action or the rest of a paused turn is missing."""
    ended: bool = False
    """Whether another group follows: then the provider continues nothing in it."""
    pinned: bool = False
    turn: GrowingTurn | None = field(default=None, compare=False, repr=False)
    """The state of a block of items that can grow without being rendered as a whole."""

    @property
    def repairs(self) -> tuple[Repair, ...]:
        """The repairs in it. O(repairs)."""
        return self.rendered_repairs if self.turn is None else self.turn.repairs

    @property
    def is_repaired(self) -> bool:
        """Whether there are repairs. O(1)."""
        return bool(self.rendered_repairs) if self.turn is None else self.turn.is_repaired

    @property
    def message_count(self) -> int:
        """Number of messages shown, without joints."""
        return len(self.messages) - self.joints

    @property
    def leading(self) -> Message | None:
        """The first message shown that is no joint."""
        return next((message for message in self.messages if message.kind != JOINT), None)

    @property
    def system(self) -> bool:
        """Whether it holds system text."""
        # No generator: that would be entered anew for each entry, several times a turn.
        if len(self.entries) == 1:
            return self.entries[0].message.role == "system"
        return "system" in [entry.message.role for entry in self.entries]

    def count(self) -> tuple[int, int]:
        """Entries covered, and how many of them are visible to the agent. O(entries of a block)."""
        if self.fold is not None:
            return self.covered_counts
        return len(self.entries), sum([entry.message.agent_visible for entry in self.entries])

    def entry_reformed_by(self, fold: Fold) -> Entry | None:
        """The entry whose form a fold replaces: same calls, same results; None when the fold is about whole tiles."""
        # Told apart by content, not by a flag of the proposal: a reducer of a user says only what is to be shown, and
        # an old log has no such flag.
        if self.fold is not None or fold.stop - fold.start != 1:
            return None
        entry = next((entry for entry in self.entries if entry.seq == fold.start), None)
        if entry is None or len(fold.shown) != 1:
            return None
        old, new = entry.message, fold.shown[0]
        ids = pair_ids(old)
        if pair_ids(new) != ids or new.role != old.role:
            return None
        # A notice in place of a block of one plain message looks like a form of it, and is a fold over the block.
        return entry if ids or len(self.entries) > 1 or not new.kind else None

    def form(self, entry: Entry) -> Message:
        """How an entry of this block is shown now."""
        fold = self.forms.get(entry.seq)
        return entry.message if fold is None else fold.shown[0]

    def form_tokens(self, entry: Entry) -> int:
        """Size of an entry as it is shown now."""
        fold = self.forms.get(entry.seq)
        return entry.tokens if fold is None else fold.tokens


# By tile and by entry: reducers walk tiles, and a fold names entries, whose numbers never change.
@dataclass(frozen=True, slots=True)
class Span:
    """Tiles [first, last) of a view that may be folded as one; entries [start, stop)."""

    first: int
    last: int
    start: Seq
    stop: Seq
    tokens: int


@dataclass(frozen=True, slots=True)
class VisibleMessage:
    """A message and who sees it: an entry as it was recorded, or one of ours (`entry` None) that stands for some.

    `kind` is "tool_result" or "tool_result_archived" for results, else that of the message.
    """

    entry: Entry | None
    message: Message
    agent_visible: bool
    user_visible: bool
    kind: str


def fold_tile(fold: Fold, inner: list[Tile], codec: Codec, *, newest: Entry | None, replied: bool) -> Tile:
    """The tile of a fold over these tiles. O(blocks among them, and their entries).

    `newest` is the newest user message, whose words the fold may show beside its own; `replied` is that of the tile.
    """
    # Counted now: `View.release` lets go of the inner tiles, and notices and requests name these numbers afterwards.
    counts = [tile.count() for tile in inner]
    covers: list[range] = []
    for tile in inner:
        for run in tile.covers or (range(entry.seq, entry.seq + 1) for entry in tile.entries):
            if covers and covers[-1].stop == run.start:
                covers[-1] = range(covers[-1].start, run.stop)
            else:
                covers.append(run)
    # By their content, whoever asked for the fold: a replay knows the messages of a fold, and not why each is there.
    inside = newest is not None and fold.start <= newest.seq < fold.stop
    words = words_of(codec, newest.message) if newest is not None and inside else None
    kept: Sources = (newest.seq,) if newest is not None else ()
    return Tile(
        fold.start,
        fold.stop,
        fold=fold,
        inner=inner,
        covered_counts=(sum(count for count, _ in counts), sum(seen for _, seen in counts)),
        covers=tuple(covers),
        shown_sources=tuple(kept if words is not None and message == words else () for message in fold.shown),
        replied=replied,
    )


def leading_system_tokens(tiles: Iterable[Tile]) -> int:
    """Tokens of the system text that the tiles begin with. O(tiles of system text)."""
    tokens = 0
    for tile in tiles:
        if not tile.system:
            break
        tokens += tile.tokens
    return tokens


def history(tiles: Sequence[Tile]) -> Iterator[VisibleMessage]:
    """Every entry of the session in order, folded or not, each fold's messages after its entries. O(log).

    A user goes on seeing results that were archived for the agent.
    """
    waiting: list[tuple[Tile, bool, bool, bool]] = [(tile, False, False, False) for tile in reversed(tiles)]
    while waiting:  # not recursive: folds over folds may be nested as deep as a session is long
        tile, hidden, archived, closing = waiting.pop()
        if tile.fold is None:
            for entry in tile.entries:
                message = entry.message
                kind = message.kind
                if message.results:
                    kind = "tool_result_archived" if archived else kind or "tool_result"
                yield VisibleMessage(entry, message, message.agent_visible and not hidden, message.user_visible, kind)
        elif closing:
            for message in tile.fold.shown:
                # Words that had to stay are among the entries already: there the user reads them.
                yield VisibleMessage(
                    None, message, not hidden, message.user_visible and bool(message.kind), message.kind
                )
        else:
            inside = archived or any(message.kind == "tool_summary" for message in tile.fold.shown)
            waiting.append((tile, hidden, archived, True))
            waiting += [(inner, True, inside, False) for inner in reversed(tile.inner)]


def joint_places(before: Message | None, messages: Iterable[Message], *, replied: bool = True) -> list[int]:
    """Where among `messages`, which follow `before`, a joint is needed so that roles alternate.

    Joints stand only between messages of which we wrote one. A history that does not alternate by itself is left as it
    is, and so is a user message that followed no words of the assistant in it (not `replied`).
    """
    # Mistral's and Gemma's templates refuse two user messages in a row. Only those that we caused are parted: to
    # rewrite what the client sent would change a prefix that its provider has in its cache.
    out: list[int] = []
    for at, message in enumerate(messages):
        if message.role == "user" and not message.results and before is not None:
            # Chat templates skip results: a message of ours after them would follow the user's words before them.
            answers = before.role == "tool" or bool(before.results)
            ours = message.kind in OURS or (before.kind in OURS and not answers and (replied or at > 0))
            if ours and (answers or before.role == "user"):
                out.append(at)
        before = message
    return out


def total_amounts(messages: Iterable[Message], before: Amounts = NO_AMOUNTS) -> Amounts:
    """The images, pages and number of messages, added to `before`. O(parts)."""
    # One message of plain text is by far the most common tile: it shares one value instead of making a new one.
    plain = 0
    for message in messages:
        amounts = amounts_of(message.parts)
        if amounts is ONE_MESSAGE:
            plain += 1
        else:
            before += amounts
    if plain == 1 and before is NO_AMOUNTS:
        return ONE_MESSAGE
    return Amounts(before.images, before.pages, before.messages + plain, before.large_images)


def blocks_of(tile: Tile) -> Iterator[Tile]:
    """The blocks that a tile covers, in order; released ones are not among them. O(covered)."""
    waiting = [tile]
    while waiting:  # not recursive: folds over folds may be nested as deep as a session is long
        inner = waiting.pop()
        if inner.fold is None:
            yield inner
        else:
            waiting += reversed(inner.inner)


def entries_of(tile: Tile) -> list[Entry]:
    """The entries that a tile covers, also under its fold, in order. O(covered)."""
    return tile.entries if tile.fold is None else [entry for leaf in blocks_of(tile) for entry in leaf.entries]


def begins_signed(message: Message) -> bool:
    """Whether a message begins with reasoning that its provider verifies (signed or encrypted)."""
    return bool(message.parts) and isinstance(message.parts[0], Reasoning) and message.parts[0].signed
