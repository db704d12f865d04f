"""The log of one session in memory: every event, or what still counts of those that were written down elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from foldline.errors import InvalidInput
from foldline.view.transcript import Event, Usage

__all__ = ["Log"]


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
