from __future__ import annotations

import json
from typing import Any

import pytest

from foldline.errors import Part
from foldline.replay import NONE, HitCount, Mark, RecallCounts, Replay, Turn
from foldline.replay.rows import rows

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


def test_no_management_stands_first_and_the_others_as_they_came() -> None:
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
