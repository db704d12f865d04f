"""The results of a replay: each request with its measures, their sums, and their price."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import Final

from foldline.catalog.prices import CacheRule, request_price
from foldline.errors import Part

__all__ = [
    "DISTANCES",
    "NONE",
    "OUTPUT_RATIO",
    "HitCount",
    "Mark",
    "RecallCounts",
    "Replay",
    "SummaryCall",
    "Turn",
    "bill_tokens",
    "percentile",
]

NONE: Final = "none"
"""The policy name of no management: every request is the whole history so far."""

DISTANCES: Final = (2_000, 8_000, 32_000)
"""Distances in tokens of `RecallCounts.beyond`; the second is what "far" means."""


@dataclass(frozen=True, slots=True)
class HitCount:
    """How many of `total` references were `kept`: still shown by the request."""

    kept: int = 0
    total: int = 0

    @property
    def share(self) -> float | None:
        """Kept divided by total; None when there was nothing to keep."""
        return self.kept / self.total if self.total else None

    def __add__(self, other: HitCount) -> HitCount:
        return HitCount(self.kept + other.kept, self.total + other.total)


@dataclass(frozen=True, slots=True)
class RecallCounts:
    """References in the recorded replies, and how many of them the requests still showed.

    `far`: last occurred at least 8,000 tokens and 4 messages back. `line`: the far ones whose whole line is shown.
    `far_tool`: the far ones that never occurred outside tool results. `beyond`: those at least as far back as each of
    `DISTANCES`, and 4 messages; the second is `far`.
    """

    all: HitCount = HitCount()
    far: HitCount = HitCount()
    line: HitCount = HitCount()
    far_tool: HitCount = HitCount()
    beyond: tuple[HitCount, ...] = (HitCount(),) * len(DISTANCES)

    def __add__(self, other: RecallCounts) -> RecallCounts:
        return RecallCounts(
            self.all + other.all,
            self.far + other.far,
            self.line + other.line,
            self.far_tool + other.far_tool,
            tuple(one + two for one, two in zip(self.beyond, other.beyond, strict=True)),
        )


@dataclass(frozen=True, slots=True)
class Mark:
    """A fold for display: the messages, the reducer, the reason, and the size before and after."""

    start: int
    stop: int
    reducer: str
    reason: str
    before_tokens: int
    tokens: int


@dataclass(frozen=True, slots=True)
class SummaryCall:
    """One model call for a summary: its whole prompt, the cached part of it, and the output."""

    prompt_tokens: int
    cached_tokens: int
    output_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One request of a replay.

    `recorded_tokens` is the size of all messages recorded before it, `tokens` the size of the request, `cached_tokens`
    the part that equals the beginning of the last request. `summary_calls` are the calls for summaries made for it, and
    `cost_tokens` is the price of them and of the request, in tokens at the full input price. A refused request
    (`DoesNotFit`) was not sent; `refused` lists the parts that were too large. `rules` are the names of the rules in
    `violations`.
    """

    index: int
    messages: int
    recorded_tokens: int
    tokens: int = 0
    cached_tokens: int = 0
    cost_tokens: float = 0.0
    violations: tuple[str, ...] = ()
    rules: frozenset[str] = frozenset()
    refused: tuple[Part, ...] = ()
    over_budget: bool = False
    prefix_broken: bool = False
    folds: tuple[Mark, ...] = ()
    repairs: int = 0
    recall: RecallCounts = RecallCounts()
    cpu_seconds: float = 0.0
    summary_calls: tuple[SummaryCall, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """One session under one policy. `limit_tokens` is the window less the room for the answer.

    `kept_tokens` is the limit that `Context` observed: `limit_tokens` less a margin for errors of the count; None
    without management.
    """

    session: str
    policy: str
    dialect: str
    window: int
    limit_tokens: int
    kept_tokens: int | None = None
    counter: str
    recorded_tokens: int
    turns: tuple[Turn, ...] = field(repr=False)

    @property
    def requests(self) -> int:
        """The number of requests: one for every recorded reply."""
        return len(self.turns)

    @property
    def invalid(self) -> int:
        """Requests that the provider would refuse for their form."""
        return sum(bool(turn.violations) for turn in self.turns)

    @property
    def over_budget(self) -> int:
        """Requests larger than the limit."""
        return sum(turn.over_budget for turn in self.turns)

    @property
    def refused(self) -> int:
        """Requests not made, because the parts that may not be folded exceed the limit."""
        return sum(bool(turn.refused) for turn in self.turns)

    @property
    def tokens(self) -> int:
        """Tokens sent, summed over the requests."""
        return sum(turn.tokens for turn in self.turns)

    @property
    def cached_tokens(self) -> int:
        """Tokens shared with the beginning of the last request, summed over the requests."""
        return sum(turn.cached_tokens for turn in self.turns)

    @property
    def cost_tokens(self) -> float:
        """Price of all requests, in tokens at the full input price."""
        return sum(turn.cost_tokens for turn in self.turns)

    @property
    def peak_tokens(self) -> int:
        """Size of the largest request."""
        return max((turn.tokens for turn in self.turns), default=0)

    @property
    def prefix_breaks(self) -> int:
        """Requests that did not begin with the whole request before."""
        return sum(turn.prefix_broken for turn in self.turns)

    @property
    def folds(self) -> int:
        """The number of folds."""
        return sum(len(turn.folds) for turn in self.turns)

    @property
    def recall(self) -> RecallCounts:
        """Recall summed over all requests."""
        return sum((turn.recall for turn in self.turns), RecallCounts())

    def cpu_seconds(self, share: float) -> float:
        """The CPU time of a request at this quantile; 0.5 is the median."""
        return percentile([turn.cpu_seconds for turn in self.turns], share)


def percentile(values: Iterable[float], share: float) -> float:
    """The quantile `share` of the values by nearest rank; 0 when there are none. O(n log n)."""
    ranked: Sequence[float] = sorted(values)
    return ranked[max(0, ceil(share * len(ranked)) - 1)] if ranked else 0.0


OUTPUT_RATIO: Final = 5
"""The price of an output token, in tokens of input: that of all models of Anthropic since 2024."""


def bill_tokens(turns: Iterable[Turn], rule: CacheRule, *, cold_every: int | None = None) -> float:
    """The price of these requests and of their summaries under any rule, in tokens at the full input price.

    Each request finds a warm cache. With `cold_every` every such request (20: the 20th, the 40th …) comes after the
    cache has expired, and so do its summaries. O(turns).
    """
    total = 0.0
    for turn in turns:
        warm = not cold_every or (turn.index + 1) % cold_every != 0
        total += request_price(rule, turn.tokens, turn.cached_tokens * warm)
        total += sum(_summary_call_tokens(call, rule, warm) for call in turn.summary_calls)
    return total


def _summary_call_tokens(call: SummaryCall, rule: CacheRule, warm: bool) -> float:
    """The price of one call for a summary."""
    step = rule.step(call.prompt_tokens)
    written = call.output_tokens * OUTPUT_RATIO * step.output_ratio
    # A prompt of its own is sent once, so it sets no cache points: nobody would read them. A call that continues the
    # session carries the session's cache points, and pays for writing what it does not read.
    if not call.cached_tokens:
        return call.prompt_tokens * step.input_ratio + written
    return request_price(rule, call.prompt_tokens, call.cached_tokens * warm) + written
