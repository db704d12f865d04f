"""No result takes more than its share of the window."""

from __future__ import annotations

import pytest
from tests.property.sessions import BUILDERS, DIALECTS
from tests.reducers.views import LINE, applied, call, context_of, folds_of, need_of, result, user, view_of

from foldline.reducers.result_share import TurnShare, cut_share, share_tokens
from foldline.tokens import ESTIMATE


@pytest.mark.parametrize(
    ("window", "used", "budget"), [(10_000, 0, 2_500), (10_000, 6_000, 2_000), (10_000, 10_000, 0), (10_000, 99_999, 0)]
)
def test_the_smaller_of_a_quarter_and_half_of_the_rest(window: int, used: int, budget: int) -> None:
    assert share_tokens(window, used) == TurnShare().budget_tokens(window, used) == budget


@pytest.mark.parametrize("budget", [-5, 0, 10, 300])
def test_a_result_over_its_budget_shows_both_ends(budget: int) -> None:
    words = "start " + "x y " * 3_000 + " end"
    out = cut_share(words, budget, ESTIMATE)
    assert out.startswith("start ")
    assert out.endswith(" end")
    assert f"the budget for it is ~{max(0, budget)}" in out
    assert len(out) < 1_300


def test_a_result_within_its_budget_stays() -> None:
    assert cut_share("words", 100, ESTIMATE) == "words"


def test_a_notice_longer_than_what_it_cuts_is_not_written() -> None:
    assert cut_share("a short result", 1, ESTIMATE) == "a short result"


@pytest.mark.parametrize("dialect", DIALECTS)
def test_the_budget_of_a_turn_is_shared_by_its_results(dialect: str) -> None:
    build = BUILDERS[dialect]
    wires = [*build.user("go", False), *build.turn(["a", "b", "c"], [LINE * 200] * 3, "w" * 6, None)]
    view = view_of(wires, dialect)
    applied(TurnShare(), view, need_of(view, window=10_000))
    assert view.estimated_tokens < 0.45 * 10_000


def test_sub_agents_pass_and_take_nothing() -> None:
    wires = [user("go"), call("a", name="spawn_agent"), result("a", LINE * 900), call("b"), result("b", LINE * 200)]
    assert folds_of(TurnShare(), view_of(wires), need_of(view_of(wires), window=20_000)) == []


def test_what_was_sent_before_is_left_alone() -> None:
    context = context_of([user("go"), call("a"), result("a", LINE * 900)])
    need = need_of(context.view, fresh=3, window=10_000)
    assert folds_of(TurnShare(), context.view, need) == []
