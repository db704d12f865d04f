"""The log of a session: one frozen value per event, in order.

The log only grows. Everything else (view, budget state, reports) is computed from it, so that replaying the events
gives the live state again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TypeAlias

from foldline.errors import InvalidInput
from foldline.messages import Message, Wire

__all__ = [
    "Branch",
    "BranchTree",
    "Entry",
    "Event",
    "Fold",
    "LeftBranch",
    "Limited",
    "Log",
    "Pin",
    "RentState",
    "Repair",
    "Seq",
    "Sources",
    "Unfold",
    "Usage",
    "active",
]

Seq: TypeAlias = int
"""The number of an entry in the log: from 0, without gaps, never reused."""

Sources: TypeAlias = tuple[Seq, ...]
"""The entries that a message shows, in order; none where it is one of ours."""


# Events are frozen: the view, the store and a replay hold the same objects, and none of them may change the past.


@dataclass(frozen=True, slots=True)
class Entry:
    """One message as recorded, counted once.

    `recorded` is the JSON that came in. `message` is what a request shows for it: the same JSON, unless it had to be
    repaired (`faults` says why); `hidden` when it is not for the model. `group` is the seq of the first entry of its
    group: an assistant message and all results of its calls.
    """

    seq: Seq
    group: Seq
    message: Message
    tokens: int
    recorded: Wire
    faults: tuple[str, ...] = ()
    hidden: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Fold:
    """A recorded decision: entries [start, stop) are shown as `shown` from here on.

    `tokens` is the size of `shown`, `before_tokens` that of what it replaced. `archive` is the key of the original. A
    commit sets the `id` (a proposal has -1) and `form`: whether it shows another form of one entry inside its group,
    and does not replace whole groups.
    """

    start: Seq
    stop: Seq
    shown: tuple[Message, ...]
    tokens: int
    reducer: str
    reason: str
    before_tokens: int = 0
    archive: str | None = None
    id: int = -1
    form: bool = False
    batch: int = -1


@dataclass(frozen=True, slots=True)
class Unfold:
    """The fold `fold` is undone: what it covered is shown again."""

    fold: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RentState:
    """The state of a policy that folds when it pays, at one request; the fields are those of `Rent` and `Rhythm`.

    `paid` and `spent` are whole tokens at the full price. A session that is opened again continues from it.
    """

    requests: int
    turns: int
    cold_turns: int = 0
    in_turn: int = 0
    newest_user: Seq | None = None
    paid: int = 0
    spent: int = 0


# Input with the cached tokens, for every provider: whether these stand inside the count or beside it is a matter of the
# API, settled once where a report is read (`usage.usage_of`).
@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What a provider reported for one request: `input_tokens` with cached ones, `request` its running number.

    `written_long_tokens` are those of `written_tokens` that a cache keeps for an hour, where that has its own price.
    `reported` is False where the provider reported nothing and the figures are our own count. `doubt` says why a report
    cannot be true of the request; such a report corrects nothing. `rent` is the state of the policy at that request.
    """

    input_tokens: int
    output_tokens: int = 0
    cached_tokens: int = 0
    written_tokens: int = 0
    written_long_tokens: int = 0
    request: int = 0
    estimated_tokens: int = 0
    current: bool = False
    reported: bool = True
    doubt: str = ""
    rent: RentState | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Limited:
    """The limits from here on: an error or the server named new ones."""

    window_tokens: int
    max_output_tokens: int
    max_input_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Pin:
    """The group of entry `seq` stays whole; with `pinned=False` it may be folded again."""

    seq: Seq
    pinned: bool = True


# An event, not a truncation: what was sent on the branch that was left stays in the log, and can be read there.
@dataclass(frozen=True, slots=True)
class Branch:
    """The session forked at `start`: entries [start, stop) are no longer sent.

    With a `tip` it went back to the branch that ends with that entry, which is sent again.
    """

    start: Seq
    stop: Seq
    tip: Seq | None = None


# `rule` is a word for programs (metrics, tests), `detail` a sentence for people, which may be worded anew.
@dataclass(frozen=True, slots=True)
class Repair:
    """A fault that is repaired in what is sent; the log keeps what came in."""

    seq: Seq
    rule: str
    detail: str


Event: TypeAlias = Entry | Fold | Unfold | Usage | Pin | Branch | Limited


@dataclass(frozen=True, slots=True)
class LeftBranch:
    """A branch that is no longer sent: its `messages` from entry `start` on, of which `tip` is the last."""

    start: Seq
    tip: Seq
    messages: int


class BranchTree:
    """The branches of a log: which entry each one follows, and what was in effect when a branch was left."""

    def __init__(self, events: Iterable[Event] = ()) -> None:
        self.entries: dict[Seq, Entry] = {}
        self.path: list[Seq] = []
        """The entries that are sent, in order."""
        self._before: dict[Seq, Seq] = {}
        self._folds: dict[int, Fold] = {}
        self._left: dict[Seq, tuple[Fold, ...]] = {}  # by tip
        for event in events:
            self.add(event)

    def add(self, event: Event) -> None:
        """Apply one event. O(1), and O(log) for a branch."""
        if isinstance(event, Entry):
            if self.path:
                self._before[event.seq] = self.path[-1]
            self.entries[event.seq] = event
            self.path.append(event.seq)
        elif isinstance(event, Fold):
            self._folds[event.id] = event
        elif isinstance(event, Unfold):
            self._folds.pop(event.fold, None)
        elif isinstance(event, Branch):
            # Entries are in order of their numbers, so that what is left is always at the end.
            if self.path and self.path[-1] >= event.start:
                self._left[self.path[-1]] = tuple(self._folds.values())
                while self.path and self.path[-1] >= event.start:
                    self.path.pop()
            if event.tip is not None:
                self.path = self.to(event.tip)

    def to(self, tip: Seq) -> list[Seq]:
        """The entries of the branch that ends with `tip`, from the first one on. O(its length)."""
        chain = [tip] if tip in self.entries else []
        while chain and chain[-1] in self._before:
            chain.append(self._before[chain[-1]])
        return chain[::-1]

    def folds_of(self, tip: Seq) -> tuple[Fold, ...]:
        """The folds that were in effect when a branch was left, in the order in which they were made."""
        return self._left.get(tip, ())

    @property
    def left(self) -> tuple[LeftBranch, ...]:
        """The branches that were left and that nothing went on from since, oldest first. O(their lengths)."""
        path, inner, found = set(self.path), set[Seq](), list[LeftBranch]()
        chains = {tip: self.to(tip) for tip in self._left if tip not in path}
        for chain in chains.values():
            inner.update(chain[:-1])
        for tip, chain in chains.items():
            if tip not in inner:
                own = [seq for seq in chain if seq not in path]
                found.append(LeftBranch(own[0], tip, len(own)))
        return tuple(found)


def active(events: Iterable[Event]) -> list[Entry]:
    """The entries of the current branch, in order. O(log)."""
    tree = BranchTree(events)
    return [tree.entries[seq] for seq in tree.path]


class Log:
    """Events, oldest first. It only grows, except that `release` drops events written down elsewhere.

    `total` counts every event ever appended, and `after` counts in the same numbers.
    """

    def __init__(self) -> None:
        self._events: list[Event] = []
        self.total = 0

    def append(self, event: Event) -> None:
        """Record one event. O(1)."""
        self._events.append(event)
        self.total += 1

    def extend(self, events: Iterable[Event]) -> None:
        """Record several events."""
        for event in events:
            self.append(event)

    def after(self, count: int) -> tuple[Event, ...]:
        """The events after the first `count`. O(new). Raises InvalidInput when one of them was released."""
        # Counted from the end: what `release` dropped is at the beginning, and keeps its numbers.
        new = self.total - count
        if not 0 <= new <= len(self._events):
            raise InvalidInput(f"must be from {self.total - len(self._events)} to {self.total}, not {count}")
        return tuple(self._events[len(self._events) - new :])

    def release(self, counts: Callable[[Event], bool]) -> None:
        """Keep the events for which `counts` is true, and usage summed up between them. O(events).

        Sums over usage stay the same from any kept event on.
        """
        # A session of months has more reports than anything else, and nobody looks at single ones again. The last
        # report stays by itself: figures show how full the window was at that request.
        last = next((event for event in reversed(self._events) if isinstance(event, Usage)), None)
        remaining: list[Event] = []
        for event in self._events:
            if not isinstance(event, Usage):
                if counts(event):
                    remaining.append(event)
            # Only neighbours are summed: a sum across an event that stays would move usage to its other side.
            elif remaining and isinstance(sofar := remaining[-1], Usage) and event is not last:
                remaining[-1] = replace(
                    event,
                    input_tokens=sofar.input_tokens + event.input_tokens,
                    output_tokens=sofar.output_tokens + event.output_tokens,
                )
            else:
                remaining.append(event)
        self._events = remaining

    def __iter__(self) -> Iterator[Event]:
        return iter(self._events)

    def __reversed__(self) -> Iterator[Event]:
        return reversed(self._events)

    def __len__(self) -> int:
        return len(self._events)
