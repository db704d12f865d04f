"""Plain rules that many agents have built in: masking of old results, and cutting of each result when it arrives.

They need no package, and so no environment of their own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Final

from foldline.messages import Wire
from foldline_bench.systems import Count, MakeSystem, Summarise

__all__ = ["PACKAGES", "SYSTEMS"]

MASK: Final = "[earlier tool output removed]"
CUT: Final = "\n[... cut ...]\n"


class PlainRule:
    """A rule about the results of tools. The history is kept by its place: a result is looked at once."""

    def __init__(self, budget_tokens: int, count: Count, summarise: Summarise) -> None:
        del summarise
        self.budget_tokens = budget_tokens
        self.count = count

    def prepare(self, history: Sequence[Wire]) -> None:
        """Nothing: the messages are used as they are."""

    def view(self, history: Sequence[Wire]) -> list[Wire]:
        """The whole history."""
        return list(history)

    def finish(self, out: list[Wire]) -> list[Wire]:
        """The messages as they are."""
        return out


class Masking(PlainRule):
    """Masks all results but the first two and the last five, at each request."""

    first, last = 2, 5

    def view(self, history: Sequence[Wire]) -> list[Wire]:
        """The history with a notice in place of the results in the middle. O(messages)."""
        places = [place for place, wire in enumerate(history) if wire.get("role") == "tool"]
        masked = set(places[self.first : -self.last])
        return [{**wire, "content": MASK} if place in masked else wire for place, wire in enumerate(history)]


class MaskingInBatches(PlainRule):
    """Masks all results but the last three once the request is over the budget, so that the prefix stays until then."""

    last = 3

    def __init__(self, budget_tokens: int, count: Count, summarise: Summarise) -> None:
        super().__init__(budget_tokens, count, summarise)
        self.shown: list[Wire] = []
        self.tokens = 0

    def view(self, history: Sequence[Wire]) -> list[Wire]:
        """The history with notices in place of what was masked so far. O(messages)."""
        new = history[len(self.shown) :]
        self.shown += new
        self.tokens += sum(map(self.count, new))
        if self.tokens > self.budget_tokens:
            places = [place for place, wire in enumerate(self.shown) if wire.get("role") == "tool"]
            for place in places[: -self.last]:
                if self.shown[place].get("content") != MASK:
                    masked = {**self.shown[place], "content": MASK}
                    self.tokens += self.count(masked) - self.count(self.shown[place])
                    self.shown[place] = masked
        return list(self.shown)


class CuttingOnArrival(PlainRule):
    """Cuts each result to its beginning and its end when it arrives, and leaves it so."""

    def __init__(self, budget_tokens: int, count: Count, summarise: Summarise, *, chars: int) -> None:
        super().__init__(budget_tokens, count, summarise)
        self.chars = chars
        self.shown: list[Wire] = []

    def view(self, history: Sequence[Wire]) -> list[Wire]:
        """The history with each long result cut. O(new messages)."""
        self.shown += map(self._cut, history[len(self.shown) :])
        return list(self.shown)

    def _cut(self, wire: Wire) -> Wire:
        text = wire.get("content")
        if wire.get("role") != "tool" or not isinstance(text, str) or len(text) <= self.chars:
            return wire
        half = self.chars // 2
        return {**wire, "content": text[:half] + CUT + text[-half:]}


class CuttingAndMasking(CuttingOnArrival):
    """Cuts each result when it arrives, and masks as `MaskingInBatches` does what is over the budget then."""

    def __init__(self, budget_tokens: int, count: Count, summarise: Summarise, *, chars: int) -> None:
        super().__init__(budget_tokens, count, summarise, chars=chars)
        self.masking = MaskingInBatches(budget_tokens, count, summarise)

    def view(self, history: Sequence[Wire]) -> list[Wire]:
        """The history with each long result cut, and the old ones masked. O(messages)."""
        return self.masking.view(super().view(history))


class CuttingAndDropping(CuttingOnArrival):
    """Cuts each result when it arrives; over the budget, the oldest messages leave until half of it is used.

    The system text and the first message of a user stay. What follows them begins with no result of a call that left.
    """

    def __init__(self, budget_tokens: int, count: Count, summarise: Summarise, *, chars: int) -> None:
        super().__init__(budget_tokens, count, summarise, chars=chars)
        self.start = self.seen = self.tokens = 0

    def view(self, history: Sequence[Wire]) -> list[Wire]:
        """The beginning, and what has not left yet, cut. O(messages)."""
        shown = super().view(history)
        head = next((place + 1 for place, wire in enumerate(shown) if wire.get("role") == "user"), 0)
        self.tokens += sum(map(self.count, shown[self.seen :]))
        self.seen = len(shown)
        if self.tokens > self.budget_tokens:
            start, tokens = len(shown), sum(map(self.count, shown[:head]))
            for place in range(len(shown) - 1, head - 1, -1):
                tokens += self.count(shown[place])
                if tokens > self.budget_tokens // 2 and start < len(shown):
                    break
                if shown[place].get("role") != "tool":
                    start, self.tokens = place, tokens
            self.start = start
        return [*shown[:head], *shown[max(head, self.start) :]]


SYSTEMS: Final[Mapping[str, MakeSystem]] = MappingProxyType(
    {
        "mask (first 2, last 5)": Masking,
        "mask (in batches, last 3)": MaskingInBatches,
        "cut on arrival (2,000 characters)": partial(CuttingOnArrival, chars=2_000),
        "cut on arrival (8,000 characters)": partial(CuttingOnArrival, chars=8_000),
        "cut (8,000 characters) and mask": partial(CuttingAndMasking, chars=8_000),
        "cut (2,000 characters) and drop": partial(CuttingAndDropping, chars=2_000),
        "cut (8,000 characters) and drop": partial(CuttingAndDropping, chars=8_000),
    }
)
PACKAGES: Final = ()
