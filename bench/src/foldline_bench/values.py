"""The result of a bench as it is written: one JSON object, and the meaning of each part.

Sizes are tokens by one neutral counter; prices are tokens at the full input price.
"""

from __future__ import annotations

from typing import Final, TypedDict

from foldline_bench.bounds.figures import BoundFigures
from foldline_bench.weeks import WeekRow

__all__ = [
    "LEAST_RATIO",
    "SCHEMA",
    "AtLength",
    "BenchResult",
    "Bootstrap",
    "BudgetParts",
    "BudgetResult",
    "Interval",
    "MetReferences",
    "MissingPeer",
    "Price",
    "Provenance",
    "RecallFigures",
    "RequestSeconds",
    "RereadFigures",
    "Rereading",
    "SessionFigures",
    "SessionRecall",
    "SessionRow",
    "Stress",
    "SummaryCosts",
    "SystemFigures",
    "SystemPrice",
    "SystemRow",
    "SystemRun",
    "UnreadFile",
]

SCHEMA: Final = 1
"""Goes up when a field changes its meaning or goes away."""

LEAST_RATIO: Final = 1.2
"""A session takes part at a budget when it is so many times as large: below, there is next to nothing to do."""


class Price(TypedDict):
    """A price with warm caches at each request, and with cold ones now and then."""

    warm: float
    cold: float


class SummaryCosts(TypedDict):
    """Calls of a model for summaries, and their share of the cost, by rule."""

    calls: int
    prompt_tokens: int
    cached_tokens: int
    output_tokens: int
    cost: dict[str, Price]


class SessionRecall(TypedDict):
    """[kept, total] of the references of one session; `beyond` by distance, its second is "far".

    `near` are those that are not far, `line` and `near_line` the whole lines of both. `near_feasible` is `near_line` by
    what any request in the budget could show.
    """

    all: list[int]
    beyond: list[list[int]]
    line: list[int]
    far_tool: list[int]
    near: list[int]
    near_line: list[int]
    near_feasible: list[int]


class Rereading(TypedDict):
    """Messages to read again, as `foldline.replay.Rereads` has them: their number and price by rule, [low, high]."""

    messages: list[int]
    cost: dict[str, list[float]]


class SessionFigures(TypedDict):
    """One session under one system. All but prices, ratios and times are counts of requests or of tokens.

    `refused`: not made, since it could not fit; `errors`: the system raised. `hard`: requests that every provider
    refuses, `soft`: that some do, `invalid`: hard ones, or that break any rule of `foldline.check`. The dictionaries
    count by rule.
    `peak_ratio` is the largest request by the budget, `cpu_seconds` one time per request, the median of the repeats.
    `bound` is there for policies of ours that no model helps, under the prices that they were told. `pays_from` is, by
    rule, the size in tokens from which on the bill with re-reads (high) stays below that of no management; None: never.
    """

    requests: int
    refused: int
    errors: int
    first_error: str | None
    tokens: int
    cached_tokens: int
    peak_ratio: float
    over_budget: int
    invalid: int
    hard: int
    soft: int
    rules: dict[str, int]
    hard_rules: dict[str, int]
    soft_rules: dict[str, int]
    cost: dict[str, Price]
    summaries: SummaryCosts
    recall: SessionRecall
    rereads: Rereading
    cpu_seconds: list[float]
    bound: BoundFigures | None
    pays_from: dict[str, int | None]


class Interval(TypedDict):
    """A figure over so many sessions, and the interval that resampling them gives."""

    value: float
    low: float
    high: float
    sessions: int


class SystemPrice(TypedDict):
    """A price over all sessions: their sum, by that of no management, and the median session's ratio to it."""

    tokens: float
    pooled_ratio: float | None
    ratio: Interval | None


class MetReferences(TypedDict):
    """References met over all sessions, and the mean over the sessions that make enough of them."""

    kept: int
    total: int
    pooled: float | None
    per_session: Interval | None


class RecallFigures(TypedDict):
    """References met, by kind; `beyond` by distance, its second is "far"."""

    all: MetReferences
    beyond: list[MetReferences]
    line: MetReferences
    far_tool: MetReferences
    near: MetReferences
    near_line: MetReferences
    near_feasible: MetReferences


class RereadFigures(TypedDict):
    """What has to be read again, low and high: messages by requests, and the bill that includes them.

    The bill is that of FRONT_RULE with warm caches.
    """

    low_share: float
    high_share: float
    low: SystemPrice
    high: SystemPrice


class RequestSeconds(TypedDict):
    """CPU seconds of one request."""

    mean_seconds: float
    p50_seconds: float
    p95_seconds: float


class SystemFigures(TypedDict):
    """One system over some sessions. Shares are of requests; `worst_ratio` is the largest request by the budget.

    `sound`: nothing that every provider refuses, nothing over budget, no error, nothing left unsent. `front`: on the
    Pareto front of cost against far recall, among the sound. `bound` is the median session's ratio to the cheapest
    folds in hindsight, `anew_bound` to those that write their digests anew, `needs_bound` to the least at the same far
    recall for one who knows what will be needed. `stages_bound` and `alone_bound` are the ratios of the bill with
    re-reads to the least with the best stage of each message, in folds like the policy's own and by itself. The worst
    are those of the session furthest from it. None for systems that have none.
    """

    sessions: int
    requests: int
    tokens: int
    hit_share: float
    hard_share: float
    soft_share: float
    invalid_share: float
    over_share: float
    worst_ratio: float
    errors: int
    first_error: str | None
    refused: int
    sound: bool
    front: bool
    rules: dict[str, int]
    hard_rules: dict[str, int]
    soft_rules: dict[str, int]
    cost: dict[str, dict[str, SystemPrice]]
    recall: RecallFigures
    rereads: RereadFigures
    cpu: RequestSeconds
    summaries: SummaryCosts
    bound: Interval | None
    worst_bound: float | None
    anew_bound: Interval | None
    worst_anew_bound: float | None
    needs_bound: Interval | None
    worst_needs_bound: float | None
    stages_bound: Interval | None
    worst_stages_bound: float | None
    alone_bound: Interval | None
    worst_alone_bound: float | None


class AtLength(TypedDict):
    """CPU seconds of a request in a session that has reached so many messages."""

    messages: int
    turns: int
    p50_seconds: float
    p95_seconds: float


class Stress(TypedDict):
    """One long session of short turns; lengths that were not reached in time are left out."""

    window_tokens: int
    lengths: list[AtLength]


class SystemRun(TypedDict):
    """One system at one budget. `died` is the last line of a process that ended early.

    `apart`: it finished fewer than half of the sessions, and is left out of the comparison. Figures are over the
    sessions in common; those of a system set apart over what it finished itself. `parts` are the figures of each part
    of the budget's `parts`, `part_means` their means (`measure.comparison.part_means`); one set apart has none.
    """

    system: str
    died: str | None
    unfinished: list[str]
    apart: bool
    sessions: dict[str, SessionFigures]
    figures: SystemFigures | None
    groups: dict[str, SystemFigures]
    parts: list[SystemFigures]
    part_means: dict[str, Interval | None]
    stress: Stress | None


class BudgetParts(TypedDict):
    """The compared sessions in parts: their names and sources, and in words how the parts were made."""

    about: str
    by: str
    sessions: list[list[str]]
    sources: list[list[str]]


class BudgetResult(TypedDict):
    """All systems at one budget: the sessions that are large enough for it, the others, and those that are compared.

    `parts` is None unless parts were asked for.
    """

    budget_tokens: int
    sessions: list[str]
    too_small: list[str]
    common: list[str]
    parts: BudgetParts | None
    runs: list[SystemRun]


class SessionRow(TypedDict):
    """One session that took part; `sha256` is that of its files. A session that was joined is a `week`.

    `origin` is its source, or what its file's name says of it: sessions of one origin stay together in parts.
    """

    name: str
    source: str
    origin: str
    group: str
    sha256: str
    tokens: int
    messages: int
    requests: int
    week: WeekRow | None


class UnreadFile(TypedDict):
    """A file of a folder that holds no session that can be read, and why."""

    file: str
    reason: str


class SystemRow(TypedDict):
    """One system: of which peer (None: ours), and the versions of its packages."""

    name: str
    peer: str | None
    packages: dict[str, str]


class MissingPeer(TypedDict):
    """A peer that could not be run, and why."""

    peer: str
    reason: str


class Provenance(TypedDict):
    """When and where it was measured."""

    date: str
    foldline: str
    python: str
    platform: str
    cores: int
    seconds: float


class Bootstrap(TypedDict):
    """How the intervals were made."""

    resamples: int
    share: float
    seed: int


class BenchResult(TypedDict):
    """A whole bench. `partial`: it was stopped, and requested systems or budgets are missing.

    `schema` is SCHEMA. `made`: when and where. `counter` is the name of the neutral counter, by which all sizes are
    told; with `own_counter` each system that has a counter decided by that. `told_rule` is the cache rule that policies
    were told which weigh prices and have none in their names; `rules` are the figures of all, by name.
    In the second prices each request of number `cold_every` finds no cache. `distances` are the tokens of
    `RecallFigures.beyond`. A session has a recall of its own from `enough` references on; it takes part at a budget
    when it is `least_ratio` times as large. Times are the median of `repeat` runs; a system has `time_cap_seconds` of
    its own work for a budget, and what is not done then is unfinished. `intervals`: how those were made.
    `sessions` are those that took part at a budget, `left_out` files of a folder that hold none that can be used,
    `systems` all that were asked for and could be run, `absent` peers that could not, and `budgets` the results, the
    smallest budget first.
    """

    schema: int
    partial: bool
    made: Provenance
    counter: str
    own_counter: bool
    told_rule: str
    rules: dict[str, dict[str, float]]
    cold_every: int
    distances: list[int]
    enough: int
    least_ratio: float
    repeat: int
    time_cap_seconds: float
    intervals: Bootstrap
    sessions: list[SessionRow]
    left_out: list[UnreadFile]
    systems: list[SystemRow]
    absent: list[MissingPeer]
    budgets: list[BudgetResult]
