"""Bootstrap intervals: how far a figure would differ if other sessions of the same kind had been recorded."""

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
"""The fewest sessions with an interval: with fewer it is too narrow, and with one it is a point, as if certain."""

# Sessions are resampled, not requests: requests of one session depend on each other, and would make intervals far too
# narrow.
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
    """Return draws of `size` out of `size` things, with replacement. O(size), once."""
    # Cached and seeded: all systems are resampled with the same draws, so that a difference between them is none of
    # chance. The generator needs no cryptographic quality.
    chance = Random(SEED)
    return tuple(tuple(chance.choices(range(size), k=size)) for _ in range(RESAMPLES))


def enough(sessions: int) -> bool:
    """Whether these are enough sessions for an interval."""
    return sessions >= FEWEST


def is_conclusive(found: Interval | None) -> bool:
    """Whether an interval is of enough sessions to be shown."""
    return found is not None and enough(found["sessions"])


def interval(values: Sequence[T], statistic: Callable[[Sequence[T]], float]) -> Interval | None:
    """Return the statistic, and the middle 95 % of its values over resamples; None if there are no values.

    O(resamples · n log n).
    """
    # The percentile bootstrap (Efron & Tibshirani, "An Introduction to the Bootstrap", 1993, chapter 13): it needs no
    # assumption on the distribution, and works for a median as for a mean. Corrected forms (BCa) gain little at this
    # size.

    if not values:
        return None
    drawn = sorted(statistic([values[index] for index in draw]) for draw in resamples(len(values)))
    low = drawn[int((1 - SHARE) / 2 * (len(drawn) - 1))]
    high = drawn[int((1 + SHARE) / 2 * (len(drawn) - 1) + 0.5)]
    return Interval(value=statistic(values), low=low, high=high, sessions=len(values))
