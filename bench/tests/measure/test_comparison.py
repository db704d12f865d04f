from __future__ import annotations

from typing import Any

import pytest

from foldline_bench.measure.comparison import common_sessions, figures_over, mark_front
from foldline_bench.values import Price, SessionFigures, SummaryCosts, SystemRun

NOTHING = {"anthropic": Price(warm=0, cold=0)}
NO_SUMMARIES = SummaryCosts(calls=0, prompt_tokens=0, cached_tokens=0, output_tokens=0, cost=NOTHING)


def session(cost: float, far: tuple[int, int] = (1, 4), **changes: Any) -> SessionFigures:
    plain: dict[str, Any] = {
        "requests": 10,
        "refused": 0,
        "errors": 0,
        "first_error": None,
        "tokens": 1_000,
        "cached_tokens": 500,
        "peak_ratio": 0.5,
        "over_budget": 0,
        "invalid": 0,
        "hard": 0,
        "soft": 0,
        "rules": {},
        "hard_rules": {},
        "soft_rules": {},
        "cost": {"anthropic": Price(warm=cost, cold=2 * cost)},
        "summaries": NO_SUMMARIES,
        "recall": {
            "all": [8, 10],
            "beyond": [[2, 4], list(far), [0, 0]],
            "line": [0, far[1]],
            "far_tool": [0, 1],
            "near": [6, 6],
            "near_line": [4, 6],
            "near_feasible": [4, 5],
        },
        "rereads": {"messages": [1, 2], "cost": {"anthropic": [10, 20]}},
        "cpu_seconds": [0.001] * 9 + [0.1],
        "bound": None,
    }
    return SessionFigures(**{**plain, **changes})  # type: ignore[typeddict-item]


def test_cost_is_the_median_session_and_the_sum_against_no_management() -> None:
    base = [session(100), session(100), session(1_000)]
    figures = figures_over([session(50), session(80), session(900)], base)
    warm, cold = figures["cost"]["anthropic"]["warm"], figures["cost"]["anthropic"]["cold"]
    assert warm["ratio"] is not None
    assert (warm["ratio"]["value"], warm["ratio"]["low"], warm["ratio"]["high"]) == (0.8, 0.5, 0.9)
    assert warm["pooled_ratio"] == pytest.approx(1_030 / 1_200)
    assert (warm["tokens"], cold["tokens"]) == (1_030, 2_060)


def test_without_no_management_there_are_no_ratios() -> None:
    priced = figures_over([session(50)], None)["cost"]["anthropic"]["warm"]
    assert priced == {"tokens": 50, "pooled_ratio": None, "ratio": None}


def test_recall_is_pooled_and_the_mean_of_sessions_with_enough_references() -> None:
    own = [session(1, (4, 4)), session(1, (1, 4)), session(1, (0, 2))]
    far = figures_over(own, own)["recall"]["beyond"][1]
    assert (far["kept"], far["total"], far["pooled"]) == (5, 10, 0.5)
    assert far["per_session"] is not None
    assert (far["per_session"]["value"], far["per_session"]["sessions"]) == (0.625, 2)
    tool = figures_over(own, own)["recall"]["far_tool"]
    assert (tool["pooled"], tool["per_session"]) == (0.0, None)


def test_the_bill_with_re_reads_is_the_median_session_and_they_are_by_requests() -> None:
    base = [session(100), session(100), session(1_000)]
    again = figures_over([session(50), session(80), session(900)], base)["rereads"]
    assert again["low"]["ratio"] is not None
    assert again["high"]["ratio"] is not None
    assert (again["low"]["ratio"]["value"], again["high"]["ratio"]["value"]) == (0.9, 0.92)
    assert (again["low"]["tokens"], again["high"]["tokens"]) == (1_060, 1_090)
    assert (again["low_share"], again["high_share"]) == (0.1, 0.2)


def test_near_lines_have_the_most_that_is_feasible_beside_them() -> None:
    recall = figures_over([session(1)], None)["recall"]
    assert (recall["near"]["pooled"], recall["near_line"]["pooled"]) == (1.0, 4 / 6)
    assert (recall["near_feasible"]["kept"], recall["near_feasible"]["total"]) == (4, 5)


def test_shares_are_of_requests_and_one_fault_makes_a_system_unsound() -> None:
    good = session(1)
    figures = figures_over([good, session(1, hard=5, invalid=6, hard_rules={"empty": 5}, peak_ratio=3.0)], [good, good])
    assert (figures["hard_share"], figures["invalid_share"], figures["worst_ratio"]) == (0.25, 0.3, 3.0)
    assert figures["hard_rules"] == {"empty": 5}
    assert (figures["hit_share"], figures["sound"]) == (0.5, False)
    assert figures_over([good], [good])["sound"]
    for faulty in (session(1, hard=1), session(1, over_budget=1), session(1, errors=1), session(1, refused=1)):
        assert not figures_over([faulty], [good])["sound"]


def test_cpu_time_is_that_of_all_requests() -> None:
    cpu = figures_over([session(1), session(1)], None)["cpu"]
    assert (cpu["p50_seconds"], cpu["p95_seconds"]) == (0.001, 0.1)
    assert cpu["mean_seconds"] == pytest.approx(0.0109)


def test_the_front_is_whom_no_sound_one_beats_in_cost_and_recall() -> None:
    base = [session(100)]
    points = {"cheap": (30, 1), "good": (60, 4), "worse": (60, 3), "twin": (30, 1), "broken": (10, 4)}
    made = {
        name: figures_over([session(cost, (far, 4), hard=int(name == "broken"))], base)
        for name, (cost, far) in points.items()
    }
    mark_front(list(made.values()))
    assert [name for name, figures in made.items() if figures["front"]] == ["cheap", "good", "twin"]


def run(*finished: str, apart: bool = False) -> SystemRun:
    done = {name: session(1) for name in finished}
    return SystemRun(
        system="s",
        died=None,
        unfinished=[],
        apart=apart,
        sessions=done,
        figures=None,
        groups={},
        parts=[],
        part_means={},
        stress=None,
    )


def test_compared_is_what_all_finished_that_are_not_set_apart() -> None:
    runs = [run("a", "b", "c"), run("c", "b"), run("a", apart=True)]
    assert common_sessions(["a", "b", "c"], runs) == ["b", "c"]
