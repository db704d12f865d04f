from __future__ import annotations

from collections import Counter
from itertools import product
from statistics import mean, median

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.property.depth import costly

from foldline_bench.measure.intervals import RESAMPLES, interval, is_conclusive, mean_of, median_of, resamples

VALUES = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=12)


@given(VALUES)
def test_the_statistics_are_those_of_the_standard_library(values: list[float]) -> None:
    assert median_of(values) == median(values)
    assert mean_of(values) == pytest.approx(mean(values))


@costly  # each example makes 2,000 resamples
@given(VALUES)
def test_an_interval_holds_its_figure_and_stays_within_what_was_measured(values: list[float]) -> None:
    found = interval(values, median_of)
    assert found is not None
    assert min(values) <= found["low"] <= found["high"] <= max(values)
    assert (found["value"], found["sessions"]) == (median(values), len(values))


def test_one_value_or_none() -> None:
    assert interval([0.5], mean_of) == {"value": 0.5, "low": 0.5, "high": 0.5, "sessions": 1}
    assert interval([], mean_of) is None


def test_an_interval_tells_nothing_below_five_sessions() -> None:
    found = [is_conclusive(interval([0.1 * n for n in range(count)], mean_of)) for count in (0, 1, 4, 5, 9)]
    assert found == [False, False, False, True, True]


def test_two_values_have_the_interval_that_all_their_resamples_have() -> None:
    # A quarter of the resamples of (0, 1) have the mean 0 and a quarter the mean 1: 2.5 % and 97.5 % lie in these.
    assert interval([0.0, 1.0], mean_of) == {"value": 0.5, "low": 0.0, "high": 1.0, "sessions": 2}


def test_the_interval_of_a_mean_is_near_the_exact_one() -> None:
    values = [0.1, 0.2, 0.4, 0.7, 1.1]
    means = sorted(mean(draw) for draw in product(values, repeat=len(values)))  # all 3,125 resamples
    low, high = means[int(0.025 * len(means))], means[int(0.975 * len(means))]
    found = interval(values, mean_of)
    assert found is not None
    assert found["low"] == pytest.approx(low, abs=0.04)
    assert found["high"] == pytest.approx(high, abs=0.04)


def test_the_same_values_give_the_same_interval() -> None:
    values = [3.0, 1.0, 4.0, 1.0, 5.0]
    resamples.cache_clear()
    first = interval(values, median_of)
    resamples.cache_clear()
    assert interval(values, median_of) == first


def test_each_thing_is_drawn_about_as_often() -> None:
    drawn = Counter(index for draw in resamples(4) for index in draw)
    assert sum(drawn.values()) == 4 * RESAMPLES
    assert all(abs(count / RESAMPLES - 1) < 0.1 for count in drawn.values())
