"""How far a figure over sessions could be off, had other sessions of the kind been recorded: bootstrap intervals."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from random import Random
from statistics import fmean
from typing import Final, TypeVar

from foldline_bench.values import Interval

__all__ = [
    "FEWEST",
    "RESAMPLES",
    "SEED",
    "SHARE",
    "enough",
    "interval",
    "is_conclusive",
    "mean_of",
    "median_of",
    "resamples",
]

FEWEST: Final = 5
"""Sessions from which on an interval is shown: of fewer it is too narrow, and of one it is a point, as if certain."""

RESAMPLES: Final = 2_000
SHARE: Final = 0.95
SEED: Final = 20_261_128
"""Fixed, so that the same sessions give the same interval. Any number would do."""

T = TypeVar("T")


def median_of(values: Sequence[float]) -> float:
    """The median. O(n log n)."""
    ranked = sorted(values)
    middle = len(ranked) // 2
    return ranked[middle] if len(ranked) % 2 else (ranked[middle - 1] + ranked[middle]) / 2


def mean_of(values: Sequence[float]) -> float:
    """The mean. O(n)."""
    return fmean(values)


@lru_cache(64)
def resamples(size: int) -> tuple[tuple[int, ...], ...]:
    """Draws of `size` out of `size` things, with replacement: the same ones each time. O(size), once."""
    chance = Random(SEED)  # no secret hangs on it
    return tuple(tuple(chance.choices(range(size), k=size)) for _ in range(RESAMPLES))


def enough(sessions: int) -> bool:
    """Whether these are sessions enough for the ends of an interval to be shown."""
    return sessions >= FEWEST


def is_conclusive(found: Interval | None) -> bool:
    """Whether there are sessions enough for the ends of an interval to be shown."""
    return found is not None and enough(found["sessions"])


def interval(values: Sequence[T], statistic: Callable[[Sequence[T]], float]) -> Interval | None:
    """The statistic, and the middle 95 % of its values over resamples (percentile bootstrap).

    None when there are no values. O(resamples · n log n).
    """
    if not values:
        return None
    drawn = sorted(statistic([values[index] for index in draw]) for draw in resamples(len(values)))
    low = drawn[int((1 - SHARE) / 2 * (len(drawn) - 1))]
    high = drawn[int((1 + SHARE) / 2 * (len(drawn) - 1) + 0.5)]
    return Interval(value=statistic(values), low=low, high=high, sessions=len(values))
