"""What the log holds: one frozen value per event, in the order in which things happened.

The log only grows. Everything else (view, budget state, reports) is computed from it, so replaying the events gives the
live state again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TypeAlias

from foldline.errors import InvalidInput
from foldline.messages import Message, Wire

__all__ = [
    "Branch",
    "Entry",
    "Event",
    "Fold",
    "Limited",
    "Log",
    "Pin",
    "RentState",
    "Repair",
    "Seq",
    "Unfold",
    "Usage",
    "active",
]

Seq: TypeAlias = int
"""Place of an entry in the log: 0-based, dense, never used twice."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One message as recorded, counted once.

    `recorded` is the JSON that came in; `message` is what stands for it in a request (the same JSON unless it had to be
    repaired, then `faults` says why; `hidden` if the model was never to see it). `group` is the seq of the first entry
    of its group: an assistant message and all results of its calls go together.
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

    `tokens` is the size of `shown`, `before_tokens` the size of what it replaced. `archive` is the key under which the
    original can be read. When it is committed it gets its `id` (a proposal has -1) and `form`: whether it shows one
    entry in another form of the same message, inside its group, and does not stand for whole groups.
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
    """The fold `fold` is taken back: what it covered is shown again."""

    fold: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RentState:
    """What a policy that folds when it pays knew as a request went out; the fields are those of `Rent` and `Rhythm`.

    `paid` and `spent` are whole tokens at the full price. With it in the log, a session that is opened anew goes on
    reckoning from there.
    """

    requests: int
    turns: int
    cold_turns: int = 0
    in_turn: int = 0
    newest_user: Seq | None = None
    paid: int = 0
    spent: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What a provider reported for one request: `input_tokens` with cached ones, `request` its running number.

    `written_long_tokens` are those of `written_tokens` that a cache keeps for an hour, where that has its own price.
    `reported` is False where it reported nothing and the figures are our own count; `doubt` says why what it reported
    cannot be true of the request, then nothing is measured by it. `rent` is no report of a provider:
    it stands here because it belongs to the same request.
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
    """The limits from here on: an error or the server named others than those that held until then."""

    window_tokens: int
    max_output_tokens: int
    max_input_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Pin:
    """The group of entry `seq` stays whole (or may be folded again, with `pinned=False`)."""

    seq: Seq
    pinned: bool = True


@dataclass(frozen=True, slots=True)
class Branch:
    """The session went on from `start`: entries [start, stop) were left and are no longer sent."""

    start: Seq
    stop: Seq


@dataclass(frozen=True, slots=True)
class Repair:
    """Something that came in broken and is sent repaired; the log keeps it as it came."""

    seq: Seq
    rule: str
    detail: str


Event: TypeAlias = Entry | Fold | Unfold | Usage | Pin | Branch | Limited


def active(events: Iterable[Event]) -> list[Entry]:
    """The messages of the branch that the session is on, in order; those of branches that were left are not. O(log)."""
    out: list[Entry] = []
    for event in events:
        if isinstance(event, Entry):
            out.append(event)
        elif isinstance(event, Branch):
            while out and out[-1].seq >= event.start:
                out.pop()
    return out


class Log:
    """Events, oldest first. It only grows, but for what `release` lets go of.

    `total` counts every event ever appended; so does `after`.
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
        new = self.total - count
        if not 0 <= new <= len(self._events):
            raise InvalidInput(f"must be from {self.total - len(self._events)} to {self.total}, not {count}")
        return tuple(self._events[len(self._events) - new :])

    def release(self, counts: Callable[[Event], bool]) -> None:
        """Keep the events that still count, and usage as one sum between them; the last report stays by itself. O(n).

        Totals stay what they were, wherever between two kept events one begins to add up.
        """
        last = next((event for event in reversed(self._events) if isinstance(event, Usage)), None)
        kept: list[Event] = []
        for event in self._events:
            if not isinstance(event, Usage):
                if counts(event):
                    kept.append(event)
            elif kept and isinstance(sofar := kept[-1], Usage) and event is not last:
                kept[-1] = replace(
                    event,
                    input_tokens=sofar.input_tokens + event.input_tokens,
                    output_tokens=sofar.output_tokens + event.output_tokens,
                )
            else:
                kept.append(event)
        self._events = kept

    def __iter__(self) -> Iterator[Event]:
        return iter(self._events)

    def __reversed__(self) -> Iterator[Event]:
        return reversed(self._events)

    def __len__(self) -> int:
        return len(self._events)
