"""The cheapest folds in hindsight: exact, and never above what any other folds cost."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations, product
from math import inf
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.property.depth import costly

from foldline.catalog.models import CACHE_RULES
from foldline.catalog.prices import CacheRule, PriceStep, request_price
from foldline.errors import InvalidInput
from foldline_bench.bounds.schedule import CostTerms, ShownShares, best_schedule, least_price, schedule_cost_tokens

PLAIN = CacheRule(0.1, 1.25, 0, 1, 300)
STEPPED = replace(PLAIN, steps=(PriceStep(60, 2.0, 1.5), PriceStep(120, 3.0, 2.0)))
SMALL = replace(PLAIN, minimum_tokens=50)

rules = st.sampled_from([PLAIN, STEPPED, SMALL, replace(PLAIN, read_ratio=0.5, write_ratio=1.0)])
arrivals = st.lists(st.lists(st.integers(0, 40), min_size=0, max_size=2), min_size=1, max_size=5)


def terms(**given: Any) -> CostTerms:
    usual = {
        "fixed_tokens": 10,
        "budget_tokens": 10_000,
        "shown": ShownShares(((1.0, 0.2),)),
        "keep_tokens": 0,
        "rule": PLAIN,
    }
    return CostTerms(**{**usual, **given})


def every_schedule(requests: int, messages: int) -> Any:
    """All sequences of folds with rising cuts, at rising requests."""
    for count in range(min(requests, messages) + 1):
        for when, cuts in product(combinations(range(requests), count), combinations(range(1, messages + 1), count)):
            yield list(zip(when, cuts, strict=True))


all_terms = st.builds(
    terms,
    fixed_tokens=st.integers(0, 60),
    keep_tokens=st.integers(0, 30),
    budget_tokens=st.sampled_from([60, 100, 10_000]),
    rule=rules,
    cold=st.sets(st.integers(0, 4)),
    in_place=st.booleans(),
    shown_at=st.dictionaries(st.integers(1, 6), st.integers(0, 10).map(float), max_size=2),
    written_share=st.sampled_from([0.0, 0.4, 1.0]),
)


@costly
@given(arrivals, all_terms)
def test_it_is_the_least_of_all_schedules(new: list[list[int]], kept: CostTerms) -> None:
    count = sum(map(len, new))
    least = min(schedule_cost_tokens(new, folds, kept) for folds in every_schedule(len(new), count))
    if least == inf:
        with pytest.raises(InvalidInput, match="budget"):
            best_schedule(new, kept)
        return
    best = best_schedule(new, kept)
    assert best.cost_tokens == pytest.approx(least)
    assert schedule_cost_tokens(new, best.folds, kept) == pytest.approx(least)


@given(st.sampled_from([*CACHE_RULES.values(), STEPPED, SMALL]), *[st.integers(0, 5_000)] * 4)
def test_its_prices_are_never_above_those_of_larger_requests(
    rule: CacheRule, tokens: int, written: int, more: int, more_written: int
) -> None:
    written = min(written, tokens)
    larger = tokens + more
    fresh = min(larger, written + more_written)
    assert least_price(rule, tokens, written) <= request_price(rule, larger, larger - fresh) + 1e-6


STREAM = [[1_000], [500], *[[10]] * 60]


def test_in_a_long_session_the_first_fold_is_early_and_in_a_short_one_there_is_none() -> None:
    kept = terms(keep_tokens=500)
    assert best_schedule(STREAM[:3], kept).folds == ()
    assert best_schedule(STREAM, kept).folds[0] == (1, 1)


def test_cold_requests_are_where_folds_are_free() -> None:
    stream = [[1_000], [1_500], [1_500], *[[10]] * 8]
    kept = terms(keep_tokens=3_000)
    assert best_schedule(stream, kept).folds == ()
    assert best_schedule(stream, replace(kept, cold={6})).folds[0][0] == 6


def test_a_budget_forces_a_fold_at_the_request_that_would_be_over_it() -> None:
    assert [at for at, _ in best_schedule([[50]] * 4, terms(budget_tokens=170, keep_tokens=120)).folds] == [3]


def test_a_line_through_points_ascends_and_is_theirs_where_they_ascend() -> None:
    line = ShownShares.through([(100, 30), (200, 50)], 0.5)
    assert [line(x) for x in (0, 50, 100, 150, 200, 300)] == [0, 15, 30, 40, 50, 70]
    falling = ShownShares.through([(100, 60), (200, 20)], 0.5)
    assert falling(100) == falling(200) == 40
    assert ShownShares.through([], 0.5)(80) == 40
