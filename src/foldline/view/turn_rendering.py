"""How the rendering of one model turn grows, item by item, where each item is a message of its own.

In such dialects a turn is a run of items, and the results of its calls follow it. `pairing.arrange` puts a whole block
in order; this says what one more item changes in that, so that a long run is not put in order again at each item.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TypeAlias

from foldline.codecs.base import Codec
from foldline.messages import Message
from foldline.view.pairing import arrange, is_paired, is_reasoning
from foldline.view.transcript import Entry, Repair, Seq

__all__ = ["Edit", "Growth", "grown"]

Edit: TypeAlias = tuple[int, int, tuple[Message, ...]]
"""At a place among the rendered messages, so many of them give way to others."""


@dataclass(slots=True)
class Growth:
    """A block that is one model turn and results of it: its items, then results, then answers that stand in for some.

    `turn_items` and `results` count what is shown; `held` is reasoning at the end of the turn, which is not shown until
    something follows it; `open` has the calls that an answer stands in for, in order.
    """

    codec: Codec
    turn_items: int = 0
    results: int = 0
    held: list[tuple[Message, Repair]] = field(default_factory=list)
    open: dict[str, Repair] = field(default_factory=dict)
    _faults: list[Repair] = field(default_factory=list)
    _first: Seq | None = None

    @property
    def repairs(self) -> tuple[Repair, ...]:
        """What had to be repaired, in the order of `arrange`. O(repairs)."""
        return (*self._faults, *(repair for _, repair in reversed(self.held)), *self.open.values())

    @property
    def is_repaired(self) -> bool:
        """Whether something had to be repaired. O(1)."""
        return bool(self._faults or self.held or self.open)

    def take(self, entry: Entry) -> tuple[Edit, ...] | None:
        """What one more entry changes, last place first; None when it is no item of the turn and no result of it.

        After None this is of no use any more. O(size of the message + open calls).
        """
        message = entry.message
        self._faults += (Repair(entry.seq, "message", fault) for fault in entry.faults)
        if not message.agent_visible:
            return ()
        if is_paired(message):
            return None  # what becomes of it depends on what else is there
        if message.role == "assistant":
            return None if self.results else self._item(entry.seq, message)
        return self._result(message)

    def _item(self, seq: Seq, message: Message) -> tuple[Edit, ...] | None:
        if self._first is None:
            self._first = seq
        reasoning = is_reasoning(message)
        shown, repairs = arrange(self.codec, [(seq if reasoning else self._first, message)])
        if reasoning:
            self.held.append((message, repairs[0]))
            return ()
        ids = [call.id for call in message.calls]
        if any(call_id in self.open for call_id in ids) or len(set(ids)) < len(shown) - 1:
            return None
        new = (*(earlier for earlier, _ in self.held), message)
        end = self.turn_items + len(self.open)
        edits = ((end, 0, shown[1:]), (self.turn_items, 0, new))
        self.turn_items += len(new)
        self.held.clear()
        self.open.update(zip(ids, repairs, strict=True))
        return edits

    def _result(self, message: Message) -> tuple[Edit, ...] | None:
        ids = [result.call_id for result in message.results]
        if len(ids) != 1 or len(message.parts) != 1 or ids[0] not in self.open:
            return None
        end = self.turn_items + self.results
        first = next(iter(self.open)) == ids[0]  # results come in the order of their calls most of the time
        answer = end + (0 if first else list(self.open).index(ids[0]))
        del self.open[ids[0]]
        self.results += 1
        return (answer, 1, ()), (end, 0, (message,))


def grown(codec: Codec, entries: Iterable[Entry]) -> Growth | None:
    """The state after these entries of one block; None when they are more than one turn with its results. O(block)."""
    growth = Growth(codec)
    return growth if all(growth.take(entry) is not None for entry in entries) else None
