from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.property.depth import costly

from foldline_bench.tuning import Setting, SettingFigures, TrialOutcome
from foldline_bench.tuning.front import chosen, figures_of, front, layers, point_of, worth_a_row

POINT = st.tuples(st.floats(0, 2), st.floats(0, 1))


def outcome(session: str, usd: float | None, far: tuple[int, int] = (3, 4), **more: Any) -> TrialOutcome:
    plain: dict[str, Any] = {
        "requests": 5, "recorded_tokens": 9_000, "invalid": 0, "over_budget": 0, "refused": 0, "tokens": 4_000,
        "floor_tokens": 0, "limit_tokens": 0,
        "paid_tokens": (usd or 0.5) * 1e6, "input_usd": usd, "reply_usd": None if usd is None else 0.1, "folds": 1,
        "line": far, "far_tool": (0, 0), "near_line": (3, 4), "rereads": (1, 2), "reread_tokens": (0.0, 0.0),
    }  # fmt: skip
    return TrialOutcome(session=session, far=far, **{**plain, **more})


def figures(cost: float, far: float | None, name: str = "cost") -> SettingFigures:
    tally = (0, 0) if far is None else (round(far * 1000), 1000)
    one = [outcome("a", cost, tally)]
    return figures_of(Setting(name), one, {"a": outcome("a", 1.0, (1000, 1000))})


@costly
@given(st.lists(POINT, min_size=1, max_size=30))
def test_nothing_beats_a_point_of_the_front_and_something_comes_near_every_other(
    points: list[tuple[float, float]],
) -> None:
    best = [points[place] for place in front(points)]
    for one in best:
        assert not any(x <= one[0] and y < one[1] - 0.005 for x, y in points)
    for x, y in points:
        assert any(one[0] <= x and one[1] <= y + 0.005 for one in best)


@costly
@given(st.lists(POINT, max_size=30))
def test_every_point_is_in_one_layer(points: list[tuple[float, float]]) -> None:
    assert sorted(place for layer in layers(points) for place in layer) == list(range(len(points)))


def test_of_equal_points_the_first_stands() -> None:
    assert front([(0.5, 0.2), (0.5, 0.2), (0.4, 0.2), (0.6, 0.1)]) == [2, 3]


def test_cost_is_of_all_sessions_together_and_recall_of_those_that_have_enough() -> None:
    none = {"a": outcome("a", 1.0, (4, 4)), "b": outcome("b", 3.0, (1, 1))}
    found = figures_of(Setting("cost"), [outcome("a", 0.9, (1, 4)), outcome("b", 1.5, (0, 2))], none)
    assert found.cost.value == pytest.approx(2.4 / 4)
    assert found.median_cost == pytest.approx((0.9 + 0.5) / 2)
    assert found.far is not None
    assert (found.far.value, found.line, found.far_tool) == (0.25, 0.25, None)
    assert found.input_usd is not None
    assert found.input_usd.value == pytest.approx(2.4)
    assert found.reply_usd == pytest.approx(0.2)
    assert found.cost.low <= found.cost.value <= found.cost.high
    assert [found.cost.low, found.cost.high] == pytest.approx([0.5, 0.9])


def test_where_one_model_has_no_price_all_are_compared_in_tokens() -> None:
    none = {"a": outcome("a", 1.0), "b": outcome("b", None, paid_tokens=100.0)}
    both = [outcome("a", 0.5, paid_tokens=10.0), outcome("b", None, paid_tokens=50.0)]
    found = figures_of(Setting("cost"), both, {**none, "a": replace(none["a"], paid_tokens=20.0)})
    assert (found.input_usd, found.reply_usd) == (None, None)
    assert found.cost.value == pytest.approx(60 / 120)
    assert point_of(both, {**none, "a": replace(none["a"], paid_tokens=20.0)})[0] == pytest.approx(0.5)


def test_a_request_that_is_refused_invalid_or_too_large_makes_a_setting_unfit() -> None:
    none = {"a": outcome("a", 1.0)}
    assert figures_of(Setting("cost"), [outcome("a", 0.5)], none).fits
    fault: Any
    for fault in ("invalid", "over_budget", "refused"):
        assert not figures_of(Setting("cost"), [outcome("a", 0.5, (3, 4), **{fault: 1})], none).fits


def test_the_cheapest_with_enough_recall_is_chosen_else_the_knee() -> None:
    found = [figures(0.30, 0.40), figures(0.33, 0.80), figures(0.60, 0.90), figures(0.80, 0.95)]
    best, why = chosen(found, 0.85)
    assert (best, why) == (found[2], "the cheapest with a far recall of 0.85 or more")
    best, why = chosen(found, None)
    assert best is found[1]
    assert why.startswith("the knee")
    best, why = chosen(found, 0.99)
    assert best is found[1]
    assert why.startswith("none has a far recall of 0.99; the knee")


def test_recall_that_is_asked_for_counts_by_however_little_it_is_more() -> None:
    found = [figures(0.30, 0.848), figures(0.31, 0.852), figures(0.60, 0.90)]
    assert chosen(found, 0.85) == (found[1], "the cheapest with a far recall of 0.85 or more")
    assert chosen(found[:2], 0.85)[0] is found[1]
    assert worth_a_row(found) == [found[0], found[2]]


def test_recall_that_cannot_be_measured_is_not_said_to_be_enough() -> None:
    only = figures(0.3, None)
    why = "far recall cannot be measured in these sessions, so that only the cost decides"
    assert chosen([only], 0.9) == (only, why)


def test_without_a_knee_recall_decides() -> None:
    assert chosen([figures(0.3, 0.4)], None)[1] == "the only one"
    found = [figures(0.3, 0.4), figures(0.5, 0.9)]
    assert chosen(found, None)[0] is found[1]


@pytest.mark.parametrize(("count", "tells"), [(1, False), (4, False), (5, True)])
def test_the_ends_of_a_figure_tell_something_from_five_sessions_on(count: int, tells: bool) -> None:
    names = [str(number) for number in range(count)]
    none = {name: outcome(name, 1.0, (4, 4)) for name in names}
    found = figures_of(Setting("cost"), [outcome(name, 0.5, (3, 4)) for name in names], none)
    assert found.cost.is_conclusive is tells
    assert found.far is not None and found.far.is_conclusive is tells
    assert found.as_json()["cost"]["sessions"] == count
