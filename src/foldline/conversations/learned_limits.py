"""What an upstream taught about the sizes that it takes: each client for itself.

A refusal names a limit, an answer shows that there is room. What one credential was told is not the truth for another:
keys have limits of their own, and a refusal may repeat what its client wrote.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from time import monotonic
from typing import Final, TypeAlias, TypeVar

from foldline.failures import believable

__all__ = ["Taught"]

_MOST: Final = 10_000
"""Names of models that are remembered, of all clients. Who makes names up displaces the longest unused."""

_TOOK_SECONDS: Final = 3_600.0
"""A server may have been started anew with a smaller window: what it took before then says nothing any more."""

_OF_COUNT: Final = 0.75, 1.25
"""What is believed of a size that was taken, as shares of our own count: the lower one where nothing was reported, for
the count is an estimate; at most the upper one of what was, for some servers add up several requests."""

T = TypeVar("T")
Name: TypeAlias = tuple[bytes, str]
"""A client and the name of a model, or of a window."""


@dataclass(slots=True)
class Taught:
    """What was learned in this process, by client and name. Bounded; all methods O(1)."""

    clock: Callable[[], float] = monotonic
    most: int = _MOST
    _windows: OrderedDict[Name, int] = field(default_factory=OrderedDict)
    _outputs: OrderedDict[Name, int] = field(default_factory=OrderedDict)
    _taken: OrderedDict[Name, tuple[int, float]] = field(default_factory=OrderedDict)

    def window_tokens(self, client: bytes, name: str, otherwise: int) -> int:
        """The smaller one of a window that is known from elsewhere and of the one that a refusal named."""
        return min(otherwise, self._windows.get((client, name), otherwise))

    def learn_window(self, client: bytes, name: str, tokens: int) -> None:
        """Take a window that a refusal named."""
        _put(self._windows, (client, name), tokens, self.most)

    def most_output_tokens(self, client: bytes, model: str) -> int | None:
        """The largest output cap that a model takes, if a refusal named it."""
        return self._outputs.get((client, model))

    def learn_output(self, client: bytes, model: str, tokens: int) -> None:
        """Take an output cap that a refusal named."""
        _put(self._outputs, (client, model), tokens, self.most)

    def took(self, client: bytes, name: str, counted_tokens: int, reported_tokens: int | None) -> None:
        """A request of this size was answered, by our count and by what the upstream reported (None: nothing)."""
        low, high = (int(share * counted_tokens) for share in _OF_COUNT)
        tokens = min(reported_tokens, high) if reported_tokens else low
        now = self.clock()
        before, at = self._taken.get((client, name), (0, now))
        if tokens >= before or now - at > _TOOK_SECONDS:
            _put(self._taken, (client, name), (tokens, now), self.most)

    def doubts(self, client: bytes, name: str, limit_tokens: int) -> bool:
        """Whether a limit is far below what the same client was answered to within the last hour."""
        tokens, at = self._taken.get((client, name), (0, 0.0))
        return not believable(limit_tokens, tokens) and self.clock() - at <= _TOOK_SECONDS


def _put(kept: OrderedDict[Name, T], name: Name, value: T, most: int) -> None:
    kept[name] = value
    kept.move_to_end(name)
    if len(kept) > most:
        kept.popitem(last=False)
