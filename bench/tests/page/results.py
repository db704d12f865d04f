"""Results of a bench for tests of its page, computed by the bench from a few invented sessions."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from functools import cache

from foldline_bench.measure.comparison import figures_over, mark_front
from foldline_bench.prices import RULES
from foldline_bench.values import BenchResult, BudgetResult, Price, SessionFigures, Stress, SystemRun

__all__ = ["budget", "result", "system_run"]

DISTANCES = [2_000, 8_000, 32_000]


def session(cost: float, kept: int, *, over: int = 0, hard: int = 0, error: str | None = None) -> SessionFigures:
    """Twenty requests with this cost, and this many of their twenty far references shown."""
    price: Price = {"warm": cost, "cold": cost * 1.3}
    pair = [kept, 20]
    return {
        "requests": 20,
        "refused": 0,
        "errors": int(error is not None),
        "first_error": error,
        "tokens": 10_000,
        "cached_tokens": 5_000,
        "peak_ratio": 1.4 if over else 0.9,
        "over_budget": over,
        "invalid": hard,
        "hard": hard,
        "soft": 0,
        "rules": {},
        "hard_rules": {"orphan-result": hard} if hard else {},
        "soft_rules": {},
        "cost": dict.fromkeys(RULES, price),
        "summaries": {
            "calls": 0,
            "prompt_tokens": 0,
            "cached_tokens": 0,
            "output_tokens": 0,
            "cost": {rule: {"warm": 0.0, "cold": 0.0} for rule in RULES},
        },
        "recall": {
            "all": pair,
            "beyond": [[min(kept + 2, 20), 20], pair, [kept // 2, 20]],
            "line": pair,
            "far_tool": pair,
            "near": pair,
            "near_line": pair,
            "near_feasible": pair,
        },
        "rereads": {"messages": [1, 2], "cost": {rule: [cost / 10, cost / 5] for rule in RULES}},
        "cpu_seconds": [0.001] * 20,
        "bound": None,
        "pays_from": dict.fromkeys(RULES, 12_000),
    }


def stress(seconds: float) -> Stress:
    sizes = (250, 1_000, 4_000, 8_000)
    return {
        "window_tokens": 8_000,
        "lengths": [
            {"messages": size, "turns": 100, "p50_seconds": seconds * size, "p95_seconds": 2 * seconds * size}
            for size in sizes
        ],
    }


def system_run(system: str, sessions: Mapping[str, SessionFigures], base: Mapping[str, SessionFigures]) -> SystemRun:
    figures = figures_over(list(sessions.values()), list(base.values()))
    return {
        "system": system,
        "died": None,
        "unfinished": [],
        "apart": False,
        "sessions": dict(sessions),
        "figures": figures,
        "groups": {"coding": figures},
        "parts": [],
        "part_means": {},
        "stress": stress(1e-7),
    }


def budget(tokens: int = 16_000, *, others: int = 1) -> BudgetResult:
    """`balanced` and `dear` are on the front, `peer N` are beaten, `careless` is cheap, keeps much and is not sound."""
    names = ["one", "two", "three"]
    runs = deepcopy(_runs(tuple(names), others))
    return {"budget_tokens": tokens, "sessions": names, "too_small": [], "common": names, "parts": None, "runs": runs}


@cache
def _runs(names: tuple[str, ...], others: int) -> list[SystemRun]:
    """Worked out once: thousands of resamples stand behind each figure."""
    made = {
        "none": [session(100, 20, over=10) for _ in names],
        "balanced": [session(cost, 12) for cost in (30, 40, 50)],
        "dear": [session(cost, 18) for cost in (70, 80, 90)],
        "careless": [session(10, 19, over=3, hard=2, error="ValueError: no") for _ in names],
        **{f"peer {number}": [session(90 + number, 5) for _ in names] for number in range(others)},
    }
    base = dict(zip(names, made["none"], strict=True))
    runs = [system_run(system, dict(zip(names, sessions, strict=True)), base) for system, sessions in made.items()]
    mark_front([run["figures"] for run in runs if run["figures"] is not None])
    return runs


def result(*budgets: BudgetResult) -> BenchResult:
    given = list(budgets or (budget(),))
    systems = list(dict.fromkeys(run["system"] for each in given for run in each["runs"]))
    own = {"none", "balanced"}
    return {
        "schema": 1,
        "partial": False,
        "made": {
            "date": "2026-11-28T17:26:59+00:00",
            "foldline": "0.1.0",
            "python": "3.11.7",
            "platform": "Linux",
            "cores": 2,
            "seconds": 110.5,
        },
        "counter": "cl100k_base",
        "own_counter": False,
        "told_rule": "anthropic",
        "rules": {},
        "cold_every": 20,
        "distances": DISTANCES,
        "enough": 3,
        "least_ratio": 1.2,
        "repeat": 3,
        "time_cap_seconds": 240.0,
        "intervals": {"resamples": 2_000, "share": 0.95, "seed": 1},
        "sessions": [],
        "left_out": [],
        "systems": [
            {
                "name": name,
                "peer": None if name in own else "peer",
                "packages": {} if name in own else {"peer": "1.2.3"},
            }
            for name in systems
        ],
        "absent": [],
        "budgets": given,
    }
