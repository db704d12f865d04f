"""What a replay measured, request by request."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import Final

from foldline.errors import Part

__all__ = ["DISTANCES", "NONE", "Asked", "Mark", "Recall", "Replay", "Tally", "Turn", "percentile"]

NONE: Final = "none"
"""The name that stands for no management: every request is the whole history so far."""

DISTANCES: Final = (2_000, 8_000, 32_000)
"""Tokens that a fact must last have stood back to be counted in `Recall.beyond`; the second is what "far" means."""


@dataclass(frozen=True, slots=True)
class Tally:
    """How many of `total` things were `kept`."""

    kept: int = 0
    total: int = 0

    @property
    def share(self) -> float | None:
        """Kept by total, None when there was nothing to keep."""
        return self.kept / self.total if self.total else None

    def __add__(self, other: Tally) -> Tally:
        return Tally(self.kept + other.kept, self.total + other.total)


@dataclass(frozen=True, slots=True)
class Recall:
    """References that the recorded replies make, and how many of them the requests still showed.

    `far`: last said at least 8,000 tokens and 4 messages back. `line`: the far ones whose whole line is there too.
    `far_tool`: the far ones that never stood outside of tool results. `beyond`: those last said at least so far back as
    each of `DISTANCES` says, and 4 messages; the second is `far`.
    """

    all: Tally = Tally()
    far: Tally = Tally()
    line: Tally = Tally()
    far_tool: Tally = Tally()
    beyond: tuple[Tally, ...] = (Tally(),) * len(DISTANCES)

    def __add__(self, other: Recall) -> Recall:
        return Recall(
            self.all + other.all,
            self.far + other.far,
            self.line + other.line,
            self.far_tool + other.far_tool,
            tuple(one + two for one, two in zip(self.beyond, other.beyond, strict=True)),
        )


@dataclass(frozen=True, slots=True)
class Mark:
    """A fold as it is shown to people: what was folded, by which reducer, why, and what it saved."""

    start: int
    stop: int
    reducer: str
    reason: str
    before_tokens: int
    tokens: int


@dataclass(frozen=True, slots=True)
class Asked:
    """One call of a model for a summary: its whole prompt, how much of that was in the cache, and what it wrote."""

    prompt_tokens: int
    cached_tokens: int
    output_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One request of a replay.

    `recorded_tokens` is the size of all that was recorded before it, `tokens` what was sent, `cached_tokens` how much
    of that was the beginning of the request before. `asked` are the calls of a model for summaries before it.
    `cost_tokens` is the price of all of them in tokens at the full input price.
    A refused turn (`DoesNotFit`) sent nothing; `refused` holds the parts that were too large, as text for people.
    `rules` are the names of the rules that `violations` tells of.
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
    recall: Recall = Recall()
    cpu_seconds: float = 0.0
    asked: tuple[Asked, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """One session under one policy. `limit_tokens` is the window without what is kept free for the answer.

    `kept_tokens` is the limit that `Context` kept to: that, less its margin for errors of the count; None under no
    management.
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
        """Requests that were due: one for every recorded reply."""
        return len(self.turns)

    @property
    def invalid(self) -> int:
        """Requests that the provider would have refused for their form."""
        return sum(bool(turn.violations) for turn in self.turns)

    @property
    def over_budget(self) -> int:
        """Requests larger than the limit."""
        return sum(turn.over_budget for turn in self.turns)

    @property
    def refused(self) -> int:
        """Requests that were not made, since what may not be folded is larger than the limit."""
        return sum(bool(turn.refused) for turn in self.turns)

    @property
    def tokens(self) -> int:
        """Tokens sent, summed over the requests."""
        return sum(turn.tokens for turn in self.turns)

    @property
    def cached_tokens(self) -> int:
        """Tokens that began as the request before did, summed over the requests."""
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
        """Folds committed."""
        return sum(len(turn.folds) for turn in self.turns)

    @property
    def recall(self) -> Recall:
        """References met, over all requests."""
        return sum((turn.recall for turn in self.turns), Recall())

    def cpu_seconds(self, share: float) -> float:
        """The CPU time that this share of the turns stays within; 0.5 is the median."""
        return percentile([turn.cpu_seconds for turn in self.turns], share)


def percentile(values: Iterable[float], share: float) -> float:
    """The value that `share` of them stay within (nearest rank), 0 when there are none. O(n log n)."""
    ranked: Sequence[float] = sorted(values)
    return ranked[max(0, ceil(share * len(ranked)) - 1)] if ranked else 0.0
