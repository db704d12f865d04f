"""The results of a replay: each request with its measures, their sums and price."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import Final

from foldline.catalog.prices import CacheRule, request_price
from foldline.errors import Part

__all__ = [
    "DISTANCES",
    "ENOUGH",
    "NONE",
    "OUTPUT_RATIO",
    "HitCount",
    "Mark",
    "RecallCounts",
    "Replay",
    "Rereads",
    "SummaryCall",
    "Turn",
    "bill_tokens",
    "percentile",
    "reread_tokens",
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

    `far`: last occurred at least 8,000 tokens and 4 messages back; `near`: the others. `line`, `near_line`: those of
    them whose whole line is shown. `near_feasible` compares `near_line` with the most that a request within the limit
    could show (`recall.most_near_lines`), and not with all: a limit may be too small for what one reply refers to.
    `far_tool`: the far ones that never occurred outside tool results. `beyond`: those at least as far back as each of
    `DISTANCES`, and 4 messages; the second is `far`.
    """

    all: HitCount = HitCount()
    far: HitCount = HitCount()
    line: HitCount = HitCount()
    far_tool: HitCount = HitCount()
    beyond: tuple[HitCount, ...] = (HitCount(),) * len(DISTANCES)
    near: HitCount = HitCount()
    near_line: HitCount = HitCount()
    near_feasible: HitCount = HitCount()

    def __add__(self, other: RecallCounts) -> RecallCounts:
        return RecallCounts(
            self.all + other.all,
            self.far + other.far,
            self.line + other.line,
            self.far_tool + other.far_tool,
            tuple(one + two for one, two in zip(self.beyond, other.beyond, strict=True)),
            self.near + other.near,
            self.near_line + other.near_line,
            self.near_feasible + other.near_feasible,
        )


@dataclass(frozen=True, slots=True)
class Rereads:
    """The sizes in tokens of earlier messages that the agent has to read again before a reply.

    `low`: those that held a fact which the request does not show at all; a name alone may be enough. `high`: those that
    held it in a line which the request does not show; the agent saw all of that line. The truth lies between. A size is
    at most half of the limit: no sensible agent reads more at once. What a user wrote counts like a result: to ask
    again costs a request too.
    """

    low: tuple[int, ...] = ()
    high: tuple[int, ...] = ()


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
    `cost_tokens` is the price of them and of the request, `reread_tokens` that of `rereads`, low and high; both in
    tokens at the full input price. A refused request
    (`DoesNotFit`) was not sent; `refused` lists the parts that were too large. `rules` are the names of the rules in
    `violations`. `idle_seconds` is the pause before the request: a cache may have expired in it.
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
    rereads: Rereads = Rereads()
    reread_tokens: tuple[float, float] = (0.0, 0.0)
    idle_seconds: float = 0.0


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
    # Not in the repr: a session has thousands, and a failed assertion would print them all.
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
    def with_rereads_tokens(self) -> tuple[float, float]:
        """`cost_tokens` and the price of all that has to be read again, low and high."""
        cost = self.cost_tokens
        low, high = (sum(turn.reread_tokens[end] for turn in self.turns) for end in (0, 1))
        return cost + low, cost + high

    @property
    def rereads(self) -> tuple[int, int]:
        """How many messages have to be read again, low and high; a message that two requests lack counts twice."""
        return sum(len(turn.rereads.low) for turn in self.turns), sum(len(turn.rereads.high) for turn in self.turns)

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
    # Nearest rank: it is a time that was measured. Interpolation would invent one between a fast and a slow request.
    ranked: Sequence[float] = sorted(values)
    return ranked[max(0, ceil(share * len(ranked)) - 1)] if ranked else 0.0


ENOUGH: Final = 3
"""References a session needs for a recall of its own: a share of one or two is all or nothing."""

OUTPUT_RATIO: Final = 5
"""The price of an output token, in tokens of input: that of all models of Anthropic since 2024."""


def bill_tokens(turns: Iterable[Turn], rule: CacheRule, *, cold_every: int | None = None) -> float:
    """The price of these requests and of their summaries under any rule, in tokens at the full input price.

    Each request finds a warm cache, but after a pause in which it expired. With `cold_every` it is expired at every
    such request too (20: the 20th, the 40th …). The summaries of a request find what it finds. O(turns).
    """
    # A cold cache costs twice: nothing is read at the low price, and all is written at the high one. `request_price`
    # has both.
    total = 0.0
    for turn in turns:
        warm = not rule.expired(turn.idle_seconds) and (not cold_every or (turn.index + 1) % cold_every != 0)
        total += request_price(rule, turn.tokens, turn.cached_tokens * warm)
        total += sum(_summary_call_tokens(call, rule, warm) for call in turn.summary_calls)
    return total


def reread_tokens(turns: Iterable[Turn], rule: CacheRule) -> tuple[float, float]:
    """The price of all that has to be read again, low and high, in tokens at the full input price. O(re-reads).

    Each message costs one more request: the one that lacked it, from the cache, and the message, which is written. That
    later requests carry it along is not counted, nor is what the model writes to ask for it.
    """

    def price(turn: Turn, sizes: Iterable[int]) -> float:
        return sum(request_price(rule, turn.tokens + size, turn.tokens) for size in sizes)

    each = [(price(turn, turn.rereads.low), price(turn, turn.rereads.high)) for turn in turns]
    return sum(low for low, _ in each), sum(high for _, high in each)


def _summary_call_tokens(call: SummaryCall, rule: CacheRule, warm: bool) -> float:
    """The price of one call for a summary."""
    step = rule.step(call.prompt_tokens)
    written = call.output_tokens * OUTPUT_RATIO * step.output_ratio
    # A prompt of its own is sent once, so it sets no cache points: nobody would read them. A call that continues the
    # session carries the session's cache points, and pays for writing what it does not read.
    if not call.cached_tokens:
        return call.prompt_tokens * step.input_ratio + written
    return request_price(rule, call.prompt_tokens, call.cached_tokens * warm) + written
