"""The beginning of a stream, held back until it is an answer: up to there a refusal can be retried unseen."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Generic, TypeVar

__all__ = ["StreamEvents", "StreamReader"]

E = TypeVar("E")


def _nothing(event: object) -> None:
    """Of a framework that raises what goes wrong."""


@dataclass(frozen=True, slots=True)
class StreamEvents(Generic[E]):
    """What the events of a framework's streams mean.

    `begins` says whether an event holds a part of the answer (text, reasoning, a call), `usage_of` returns the
    provider's report in it, `failure_in` the error that it tells of; None where it holds none.
    """

    begins: Callable[[E], bool]
    usage_of: Callable[[E], object | None]
    failure_in: Callable[[E], object | None] = _nothing


@dataclass(slots=True)
class StreamReader(Generic[E]):
    """One attempt at a stream. `begun` is whether the caller has seen anything of it."""

    meaning: StreamEvents[E]
    begun: bool = False
    usage: object | None = None
    failed: object | None = None
    """The error in an event, where it came before the answer began."""
    _held: list[E] = field(default_factory=list)

    def passed(self, event: E) -> Iterator[E]:
        """The events that the caller may see now."""
        found = self.meaning.usage_of(event)
        self.usage = self.usage if found is None else found
        if self.begun:
            yield event
            return
        self._held.append(event)
        if self.failed is None:
            self.failed = self.meaning.failure_in(event)
        if self.failed is None and self.meaning.begins(event):
            yield from self.rest()

    def rest(self) -> Iterator[E]:
        """The events that were held back."""
        self.begun = True
        held, self._held = self._held, []
        yield from held
