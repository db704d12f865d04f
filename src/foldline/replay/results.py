"""The results of a replay: each request with its measures, their sums and price, and a row per policy over sessions.

To add a column to `foldline replay`: a field of `PolicyRow`, computed in `_row`; then the cell in `cli/replay.py` and,
for the page, in `report/replay_page.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import ceil
from statistics import mean, median
from typing import Any, Final

from foldline.catalog.prices import CacheRule, request_price
from foldline.errors import Part

__all__ = [
    "DISTANCES",
    "ENOUGH",
    "NONE",
    "OUTPUT_RATIO",
    "HitCount",
    "Mark",
    "PolicyRow",
    "RecallCounts",
    "Replay",
    "SummaryCall",
    "Turn",
    "bill_tokens",
    "percentile",
    "rows",
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


OUTPUT_RATIO: Final = 5
"""The price of an output token, in tokens of input: that of all models of Anthropic since 2024."""


def bill_tokens(turns: Iterable[Turn], rule: CacheRule, *, cold_every: int | None = None) -> float:
    """The price of these requests and of their summaries under any rule, in tokens at the full input price.

    Each request finds a warm cache. With `cold_every` every such request (20: the 20th, the 40th …) comes after the
    cache has expired, and so do its summaries. O(turns).
    """
    # A cold cache costs twice: nothing is read at the low price, and all is written at the high one. `request_price`
    # has both.
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


# --- one row per policy -----------------------------------------------------------------------------------------------
# Pooled figures are sums over all requests, so one very long session can decide them. Figures per session give each
# session one vote. Where they differ, read both.

ENOUGH: Final = 3
"""References a session needs for a recall of its own: a share of one or two is all or nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyRow:
    """The figures of one policy over all sessions.

    `cost_ratio` is the median over the sessions of its cost divided by the cost of no management, `pooled_cost_ratio`
    the ratio of the sums; None unless no management was replayed too. `far`, `line`, `far_tool` are means over the
    sessions with three or more such references, None when there is none; `recall` is pooled.
    """

    policy: str
    sessions: int
    requests: int
    invalid: int
    over_budget: int
    refused: int
    tokens: int
    cached_tokens: int
    cost_tokens: float
    cost_ratio: float | None
    pooled_cost_ratio: float | None
    recall: RecallCounts
    far: float | None
    line: float | None
    far_tool: float | None
    sessions_with_far: int
    sessions_with_far_tool: int
    prefix_breaks: int
    folds: int
    peak_share: float
    cpu_p50_seconds: float
    cpu_p95_seconds: float

    def as_json(self) -> dict[str, Any]:
        """The figures as JSON values; shares of recall are numbers or null."""
        plain = {name: getattr(self, name) for name in self.__dataclass_fields__ if name != "recall"}
        pooled = {name: getattr(self.recall, name) for name in ("all", "far", "line", "far_tool")}
        shares = {
            name: {"kept": tally.kept, "total": tally.total, "share": tally.share} for name, tally in pooled.items()
        }
        return {**plain, "recall": shares}


def rows(replays: Iterable[Replay]) -> list[PolicyRow]:
    """One row per policy: no management first, then in the order of replay. O(turns)."""
    # A dict keeps the order of insertion, and `sorted` is stable: policies stay in the order of replay.
    by_policy: dict[str, list[Replay]] = {}
    for replay in replays:
        by_policy.setdefault(replay.policy, []).append(replay)
    # By name: a session appears once per policy.
    base = {replay.session: replay.cost_tokens for replay in by_policy.get(NONE, ())}
    names = sorted(by_policy, key=lambda name: name != NONE)
    return [_row(name, by_policy[name], base) for name in names]


def _row(policy: str, replays: Sequence[Replay], base: dict[str, float]) -> PolicyRow:
    turns = [turn for replay in replays for turn in replay.turns]
    # Only sessions that were also replayed without management can be compared.
    compared = [(replay.cost_tokens, base[replay.session]) for replay in replays if base.get(replay.session)]
    recalls = [replay.recall for replay in replays]
    return PolicyRow(
        policy=policy,
        sessions=len(replays),
        requests=len(turns),
        invalid=sum(replay.invalid for replay in replays),
        over_budget=sum(replay.over_budget for replay in replays),
        refused=sum(replay.refused for replay in replays),
        tokens=sum(replay.tokens for replay in replays),
        cached_tokens=sum(replay.cached_tokens for replay in replays),
        cost_tokens=sum(replay.cost_tokens for replay in replays),
        cost_ratio=median(cost / none for cost, none in compared) if compared else None,
        pooled_cost_ratio=sum(c for c, _ in compared) / sum(n for _, n in compared) if compared else None,
        recall=sum(recalls, RecallCounts()),
        far=_per_session(recall.far for recall in recalls),
        line=_per_session(recall.line for recall in recalls),
        far_tool=_per_session(recall.far_tool for recall in recalls),
        sessions_with_far=sum(recall.far.total >= ENOUGH for recall in recalls),
        sessions_with_far_tool=sum(recall.far_tool.total >= ENOUGH for recall in recalls),
        prefix_breaks=sum(replay.prefix_breaks for replay in replays),
        folds=sum(replay.folds for replay in replays),
        peak_share=max((replay.peak_tokens / replay.limit_tokens for replay in replays), default=0.0),
        cpu_p50_seconds=percentile((turn.cpu_seconds for turn in turns), 0.5),
        cpu_p95_seconds=percentile((turn.cpu_seconds for turn in turns), 0.95),
    )


def _per_session(tallies: Iterable[HitCount]) -> float | None:
    # Sessions with too few references have no vote here; their references still count in the pooled `recall`.
    shares = [tally.kept / tally.total for tally in tallies if tally.total >= ENOUGH]
    return mean(shares) if shares else None
