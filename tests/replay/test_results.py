from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.property.depth import costly

from foldline.catalog.models import CACHE_RULES
from foldline.catalog.prices import CacheRule, PriceStep, request_price
from foldline.errors import Part
from foldline.replay import NONE, HitCount, Mark, RecallCounts, Replay, Rereads, SummaryCall, Turn
from foldline.replay.results import bill_tokens, percentile, reread_tokens
from foldline.replay.rows import rows


def test_the_share_of_nothing_is_not_a_number() -> None:
    assert HitCount().share is None
    assert HitCount(1, 4).share == 0.25


def test_recalls_add_up() -> None:
    one = RecallCounts(all=HitCount(3, 4), far=HitCount(1, 2), line=HitCount(0, 2), far_tool=HitCount(0, 1))
    total = one + one
    assert (total.all, total.far, total.line, total.far_tool) == (
        HitCount(6, 8),
        HitCount(2, 4),
        HitCount(0, 4),
        HitCount(0, 2),
    )


def test_a_replay_counts_its_turns() -> None:
    mark = Mark(1, 3, "mask", "trigger", 100, 10)
    recall = RecallCounts(all=HitCount(1, 2))
    turns = (
        Turn(index=0, messages=2, recorded_tokens=50, tokens=50, cost_tokens=62.5, cpu_seconds=0.001, recall=recall),
        Turn(
            index=1,
            messages=4,
            recorded_tokens=150,
            tokens=120,
            cached_tokens=40,
            cost_tokens=104.0,
            violations=("bad", "worse"),
            over_budget=True,
            prefix_broken=True,
            folds=(mark, mark),
            cpu_seconds=0.003,
            recall=recall,
        ),
        Turn(index=2, messages=6, recorded_tokens=900, refused=(Part("system text", 500),), cpu_seconds=0.002),
    )
    replay = Replay(
        session="s",
        policy="p",
        dialect="openai-chat",
        window=100,
        limit_tokens=100,
        counter="estimate",
        recorded_tokens=900,
        turns=turns,
    )
    assert (replay.requests, replay.invalid, replay.over_budget, replay.refused) == (3, 1, 1, 1)
    assert (replay.tokens, replay.cached_tokens, replay.cost_tokens, replay.peak_tokens) == (170, 40, 166.5, 120)
    assert (replay.prefix_breaks, replay.folds, replay.recall.all) == (1, 2, HitCount(2, 4))
    assert replay.cpu_seconds(0.5) == pytest.approx(0.002)


def test_no_values_have_the_percentile_zero() -> None:
    assert percentile([], 0.5) == 0.0


@pytest.mark.parametrize(
    ("count", "share", "rank"),
    [(1, 0.5, 1), (2, 0.5, 1), (3, 0.5, 2), (20, 0.95, 19), (100, 0.95, 95), (7, 1.0, 7), (7, 0.0, 1)],
)
def test_a_percentile_is_the_smallest_value_that_holds(count: int, share: float, rank: int) -> None:
    assert percentile(range(count, 0, -1), share) == rank


@given(st.lists(st.floats(0, 1e6), min_size=1), st.floats(0, 1))
def test_a_percentile_is_one_of_the_values(values: list[float], share: float) -> None:
    found = percentile(values, share)
    assert found in values
    assert sum(value <= found for value in values) >= share * len(values)


@pytest.mark.parametrize(
    ("tokens", "cached", "cost"),
    [
        (2_000, 0, 2_500.0),
        (2_000, 1_023, 2_500.0),
        (2_000, 1_024, 1_024 * 0.1 + 976 * 1.25),
        (2_000, 1_100, 1_024 * 0.1 + 976 * 1.25),
        (2_000, 1_152, 1_152 * 0.1 + 848 * 1.25),
    ],
)
def test_the_cached_part_is_rounded_as_the_provider_does(tokens: int, cached: int, cost: float) -> None:
    rule = CacheRule(0.1, 1.25, minimum_tokens=1_024, block_tokens=128, lifetime_seconds=300)
    assert request_price(rule, tokens, cached) == pytest.approx(cost)


# (cached read, cache write, minimum prefix, block), and the arithmetic, as an outside judge of such replays has them.
JUDGE = {"anthropic": (0.10, 1.25, 1024, 1), "openai": (0.10, 1.00, 1024, 128), "deepseek": (0.10, 1.00, 64, 64)}


def judged(total: int, hit: int, price: tuple[float, float, int, int]) -> float:
    read, write, floor, block = price
    hit = (hit // block) * block
    if hit < floor:
        hit = 0
    return hit * read + (total - hit) * write


SIZES = st.integers(1_024, 300_000).flatmap(lambda total: st.tuples(st.just(total), st.integers(0, total)))


@pytest.mark.parametrize("provider", JUDGE)
@costly
@given(sizes=st.lists(SIZES, max_size=50))
def test_a_bill_equals_an_independent_computation(provider: str, sizes: list[tuple[int, int]]) -> None:
    turns = [Turn(index=n, messages=n, recorded_tokens=0, tokens=t, cached_tokens=c) for n, (t, c) in enumerate(sizes)]
    expected = sum(judged(tokens, cached, JUDGE[provider]) for tokens, cached in sizes)
    assert bill_tokens(turns, CACHE_RULES[provider]) == pytest.approx(expected)
    cold = [judged(t, 0 if (n + 1) % 20 == 0 else c, JUDGE[provider]) for n, (t, c) in enumerate(sizes)]
    assert bill_tokens(turns, CACHE_RULES[provider], cold_every=20) == pytest.approx(sum(cold))


def test_the_bill_includes_summaries_with_their_output() -> None:
    asked = (SummaryCall(10_000, 8_000, 500), SummaryCall(4_000, 0, 100))
    turn = Turn(index=0, messages=2, recorded_tokens=0, tokens=2_000, summary_calls=asked)
    summaries = 8_000 * 0.1 + 2_000 * 1.25 + 5 * 500 + 4_000 + 5 * 100  # the second marks nothing for the cache
    assert bill_tokens([turn], CACHE_RULES["anthropic"]) == pytest.approx(2_000 * 1.25 + summaries)
    cold = 10_000 * 1.25 + 5 * 500 + 4_000 + 5 * 100
    assert bill_tokens([turn], CACHE_RULES["anthropic"], cold_every=1) == pytest.approx(2_000 * 1.25 + cold)


def test_long_requests_are_billed_by_the_step_that_they_pass() -> None:
    rule = CacheRule(0.1, 1.25, 1_024, 1, 300, steps=(PriceStep(200_000, 2.0, 1.5),))
    turn = Turn(index=0, messages=1, recorded_tokens=0, tokens=250_000, summary_calls=(SummaryCall(300_000, 0, 100),))
    assert bill_tokens([turn], rule) == pytest.approx(2 * 1.25 * 250_000 + 2 * 300_000 + 1.5 * 5 * 100)


def test_what_is_read_again_costs_one_more_request_each() -> None:
    again = Rereads(low=(500,), high=(500, 3_000))
    turn = Turn(index=0, messages=2, recorded_tokens=0, tokens=2_000, rereads=again)
    low = 2_000 * 0.1 + 500 * 1.25
    assert reread_tokens([turn], CACHE_RULES["anthropic"]) == pytest.approx((low, low + 2_000 * 0.1 + 3_000 * 1.25))
    assert reread_tokens([], CACHE_RULES["anthropic"]) == (0.0, 0.0)


# --- one row per policy -----------------------------------------------------------------------------------------------

FOLD = Mark(0, 2, "mask", "trigger", 90, 10)


def replayed(session: str, policy: str, *turns: dict[str, Any]) -> Replay:
    made = tuple(Turn(**{"index": n, "messages": n, "recorded_tokens": 100, **turn}) for n, turn in enumerate(turns))
    return Replay(
        session=session,
        policy=policy,
        dialect="openai-chat",
        window=100,
        limit_tokens=100,
        counter="estimate",
        recorded_tokens=100,
        turns=made,
    )


def costing(session: str, policy: str, cost: float) -> Replay:
    return replayed(session, policy, {"tokens": 10, "cost_tokens": cost})


def test_the_cost_is_the_median_over_sessions_and_the_ratio_of_sums() -> None:
    replays = [costing("a", NONE, 100), costing("b", NONE, 100), costing("c", NONE, 1_000)]
    replays += [costing("a", "p", 50), costing("b", "p", 80), costing("c", "p", 900)]
    base, row = rows(replays)
    assert (base.cost_ratio, base.pooled_cost_ratio) == (1.0, 1.0)
    assert row.cost_ratio == 0.8
    assert row.pooled_cost_ratio == pytest.approx(1_030 / 1_200)


def test_without_no_management_there_is_no_ratio() -> None:
    [row] = rows([costing("a", "p", 50)])
    assert row.cost_ratio is None
    assert row.pooled_cost_ratio is None


def test_no_management_is_first_and_the_others_keep_their_order() -> None:
    order = [row.policy for row in rows([costing("a", "z", 1), costing("a", NONE, 1), costing("a", "b", 1)])]
    assert order == [NONE, "z", "b"]


def test_recall_per_session_leaves_out_those_with_too_few_references() -> None:
    def far(kept: int, total: int) -> dict[str, Any]:
        tally = HitCount(kept, total)
        return {"recall": RecallCounts(all=tally, far=tally, line=HitCount(0, total), far_tool=HitCount(0, 1))}

    [row] = rows([replayed("a", "p", far(4, 4)), replayed("b", "p", far(1, 4)), replayed("c", "p", far(0, 2))])
    assert row.far == pytest.approx((1.0 + 0.25) / 2)
    assert row.line == 0.0
    assert row.far_tool is None
    assert (row.sessions_with_far, row.sessions_with_far_tool) == (2, 0)
    assert row.recall.far == HitCount(5, 10)


def test_re_reads_are_by_requests_and_their_bill_is_of_the_median_session() -> None:
    def again(low: int, high: int) -> dict[str, Any]:
        sizes = Rereads(low=(9,) * low, high=(9,) * high)
        return {"cost_tokens": 50, "rereads": sizes, "reread_tokens": (10.0 * low, 10.0 * high)}

    replays = [costing(name, NONE, 100) for name in "abc"]
    replays += [replayed("a", "p", again(0, 1)), replayed("b", "p", again(1, 2)), replayed("c", "p", again(2, 3))]
    none, row = rows(replays)
    assert (none.with_rereads_low, none.with_rereads_high, none.rereads_high) == (1.0, 1.0, 0.0)
    assert (row.with_rereads_low, row.with_rereads_high) == (0.6, 0.7)
    assert (row.rereads_low, row.rereads_high) == (1.0, 2.0)
    [alone] = rows(replays[3:4])
    assert (alone.with_rereads_low, alone.with_rereads_high, alone.rereads_high) == (None, None, 1.0)


def test_near_lines_are_the_mean_over_sessions_by_what_is_feasible() -> None:
    def near(kept: int, feasible: int) -> dict[str, Any]:
        counts = RecallCounts(near_line=HitCount(kept, 9), near_feasible=HitCount(kept, feasible))
        return {"recall": counts}

    [row] = rows([replayed("a", "p", near(4, 4)), replayed("b", "p", near(2, 4)), replayed("c", "p", near(0, 2))])
    assert row.near_line == 0.75
    assert row.as_json()["recall"]["near_line"] == {"kept": 6, "total": 27, "share": 6 / 27}


def test_faults_folds_and_sizes_are_summed() -> None:
    turns = (
        {"tokens": 150, "over_budget": True, "violations": ("bad",), "cpu_seconds": 0.001},
        {"tokens": 80, "cached_tokens": 20, "folds": (FOLD, FOLD), "prefix_broken": True, "cpu_seconds": 0.009},
        {"refused": (Part("tools", 200),), "cpu_seconds": 0.002},
    )
    [row] = rows([replayed("a", "p", *turns), replayed("b", "p", *turns)])
    assert (row.sessions, row.requests) == (2, 6)
    assert (row.invalid, row.over_budget, row.refused) == (2, 2, 2)
    assert (row.tokens, row.cached_tokens, row.folds, row.prefix_breaks) == (460, 40, 4, 2)
    assert (row.peak_share, row.cpu_p50_seconds, row.cpu_p95_seconds) == (1.5, 0.002, 0.009)


def test_a_row_is_plain_json() -> None:
    [row] = rows([replayed("a", "p", {"tokens": 10, "recall": RecallCounts(all=HitCount(1, 2))})])
    plain = json.loads(json.dumps(row.as_json()))
    assert plain["policy"] == "p"
    assert plain["cost_ratio"] is None
    assert plain["recall"]["all"] == {"kept": 1, "total": 2, "share": 0.5}
    assert plain["recall"]["far"]["share"] is None


def test_no_replays_give_no_rows() -> None:
    assert rows([]) == []
