"""History has a budget of its own, filled from the newest message back."""

from __future__ import annotations

import pytest
from tests.property.sessions import BUILDERS, DIALECTS
from tests.reducers.views import LINE, applied, context_of, folds_of, need_of, says, user, view_of

from foldline.reducers.render_budget import HistoryBudget, history_budget, truncated
from foldline.testing import session


def talk(count: int = 30, dialect: str = "openai-chat") -> list[dict[str, object]]:
    build = BUILDERS[dialect]
    out: list[dict[str, object]] = []
    for n in range(count):
        out += build.user(f"question {n} " + "words " * 20, False)
        out += build.says(f"answer {n} " + "words " * 20, None)
    return [*out, *build.user("the newest request", False)]


@pytest.mark.parametrize(
    ("given", "budget"),
    [
        ((128_000, 1_000, 2_000, 4_000, 0), 108_200),
        ((128_000, 1_000, 2_000, 4_000, 20_000), 20_000),
        ((10_000, 4_000, 4_000, 1_000, 20_000), 0),
        ((10_000, 0, 0, 0, 50_000), 9_000),
    ],
)
def test_the_budget_is_what_the_rest_leaves(given: tuple[int, int, int, int, int], budget: int) -> None:
    limit, system, tools, output, cap = given
    assert history_budget(limit, system, tools, output, cap) == budget


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("cap", [150, 400, 900])
def test_the_newest_messages_fill_it(dialect: str, cap: int) -> None:
    view = view_of(talk(30, dialect), dialect)
    shown = applied(HistoryBudget(max_history_tokens=cap), view)
    assert view.estimated_tokens <= cap + 25
    assert "the newest request" in str(shown[-1])
    assert "conversation truncated" in str(shown[0])
    assert view.estimated_tokens > 0.6 * cap


def test_the_notice_counts_what_was_left_out() -> None:
    view = view_of(talk())
    shown = applied(HistoryBudget(max_history_tokens=400), view)
    left = len(shown) - 1
    assert (
        shown[0]["content"] == truncated(61 - left) == f"[conversation truncated — {61 - left} older messages omitted]"
    )
    assert shown[0]["role"] == "system"


def test_within_the_budget_nothing_leaves() -> None:
    view = view_of(talk())
    assert folds_of(HistoryBudget(), view) == []
    assert folds_of(HistoryBudget(), view_of([])) == []
    assert folds_of(HistoryBudget(max_history_tokens=1), view_of([says("hi")])) == []


def test_the_running_tool_loop_is_not_history() -> None:
    view = view_of(session(30, result=LINE * 12))
    assert folds_of(HistoryBudget(max_history_tokens=100), view) == []


def test_the_newest_request_stays_even_over_the_budget() -> None:
    wires = [*talk(3)[:-1], user("the newest request " * 100)]
    shown = applied(HistoryBudget(max_history_tokens=50), view_of(wires))
    assert shown[-1] is wires[-1]


def test_system_text_and_pins_stay() -> None:
    context = context_of([{"role": "system", "content": "rules"}, *talk()])
    context.pin(5)
    shown = applied(HistoryBudget(max_history_tokens=200), context.view)
    assert shown[0] == {"role": "system", "content": "rules"}
    assert "question 2 " in str(shown)


def test_a_later_turn_takes_up_the_earlier_notice() -> None:
    context = context_of(talk())
    applied(HistoryBudget(max_history_tokens=400), context.view)
    context.extend([says("answer " + "words " * 60), user("and now?")])
    shown = applied(HistoryBudget(max_history_tokens=400), context.view)
    assert str(shown).count("conversation truncated") == 1
    left = len(shown) - 1
    assert shown[0]["content"] == truncated(63 - left)


def test_within_a_turn_the_prefix_does_not_move() -> None:
    context = context_of(talk())
    reducer = HistoryBudget(max_history_tokens=400)
    applied(reducer, context.view)
    context.extend(session(5, result=LINE * 12)[1:])
    assert folds_of(reducer, context.view, need_of(context.view)) == []
