"""Oldest groups leave."""

from __future__ import annotations

from typing import Any

import pytest
from tests.joints import unjoined
from tests.property.sessions import BUILDERS, DIALECTS
from tests.reducers.views import (
    LINE,
    applied,
    commit_all,
    context_of,
    folds_of,
    need_of,
    says,
    sent,
    tool_loop,
    user,
    view_of,
)

from foldline.reducers.drop import (
    DropGroups,
    HistoryBudget,
    SlidingWindow,
    drop_fold,
    history_budget,
    is_checkpoint,
    omitted,
    shortest,
    truncated,
)
from foldline.testing import session
from foldline.view.budget import Trigger
from foldline.view.transcript import Fold


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("target", [200, 800, 1_600])
def test_the_oldest_leave_until_the_target_is_met(dialect: str, target: int) -> None:
    view = view_of(tool_loop(20, dialect), dialect)
    shown = applied(DropGroups(), view, need_of(view, target))
    assert view.estimated_tokens <= max(target, 200)
    assert "src/19.py" in str(shown)
    assert view.estimated_tokens > 0.7 * target, "no more than needed"


def test_a_call_and_its_results_leave_together() -> None:
    build = BUILDERS["openai-chat"]
    wires = [user("go")]
    for n in range(8):
        wires += build.turn([f"a{n}", f"b{n}"], [LINE * 5] * 2, "words", None)
    for target in range(60, 1_500, 70):
        view = view_of(wires)
        applied(DropGroups(), view, need_of(view, target))


def test_the_newest_group_stays() -> None:
    view = view_of(tool_loop())
    applied(DropGroups(), view, need_of(view, 1))
    assert sent(view).count("tool_call_id") == 1


def test_all_may_leave_where_that_is_wanted() -> None:
    view = view_of(tool_loop())
    applied(DropGroups(keep_groups=0), view, need_of(view, 1))
    assert len(unjoined(view.wires()[0])) == 2


def test_the_notice_says_how_many_are_gone() -> None:
    view = view_of([user("old " * 50), says("yes " * 50), user("next")])
    assert applied(DropGroups(), view, need_of(view, 1))[0]["content"] == omitted(2) == "[2 earlier messages omitted]"


def test_system_text_pins_and_the_newest_request_stay() -> None:
    # microsoft/semantic-kernel#12612: truncation dropped the system prompt.
    context = context_of([{"role": "system", "content": "rules"}, *tool_loop(6), says("done"), user("next")])
    context.pin(4)
    shown = applied(DropGroups(), context.view, need_of(context.view, 1))
    assert shown[0] == {"role": "system", "content": "rules"}
    assert shown[-1] == user("next")
    assert "src/1.py" in str(shown)


def test_of_a_running_loop_only_its_groups_leave() -> None:
    wires = [user("an old request " * 20), says("an old answer " * 20), *tool_loop(10)]
    view = view_of(wires)
    shown = unjoined(applied(DropGroups(loop_only=True), view, need_of(view, 1)))
    assert shown[:3] == wires[:3]
    assert len(shown) == 6


def test_without_need_nothing_leaves() -> None:
    view = view_of(tool_loop())
    assert folds_of(DropGroups(), view, need_of(view, 10**6)) == []
    assert folds_of(DropGroups(), view_of([])) == []


def test_dropping_again_at_the_same_need_changes_nothing() -> None:
    view = view_of(tool_loop())
    applied(DropGroups(), view, need_of(view, 600))
    assert folds_of(DropGroups(), view, need_of(view, 600)) == []


def test_a_notice_alone_is_not_dropped_again() -> None:
    view = view_of(tool_loop())
    applied(DropGroups(), view, need_of(view, 1))
    assert folds_of(DropGroups(), view, need_of(view, 1)) == []


def test_a_later_drop_takes_up_the_earlier_notice() -> None:
    context = context_of(tool_loop())
    commit_all(context.view, folds_of(DropGroups(), context.view, need_of(context.view, 900)))
    context.extend(session(30, result=LINE * 12)[-20:])
    commit_all(context.view, folds_of(DropGroups(), context.view, need_of(context.view, 900)))
    assert sent(context.view).count("earlier messages omitted") == 1


def test_a_checkpoint_is_known_as_such() -> None:
    context = context_of([*tool_loop(), says("done"), user("next")])
    note = context.view.codec.note("Goal", kind="summary")
    fold = Fold(start=0, stop=42, shown=(note,), tokens=5, reducer="summarize", reason="asked")
    context.view.commit(fold)
    assert [is_checkpoint(tile) for tile in context.view.tiles] == [True, False]


def test_the_shortest_span_that_holds_as_much() -> None:
    view = view_of(tool_loop())
    one = view.tiles[1].tokens
    assert shortest(view, 1, 10, 1) == view.span(1, 2)
    assert shortest(view, 1, 10, one + 1) == view.span(1, 3)
    assert shortest(view, 1, 10, 10**6) == view.span(1, 10)


def test_a_drop_that_would_not_shrink_is_none() -> None:
    view = view_of([user("a"), says("b"), user("next")])
    assert drop_fold(view, view.span(0, 1), reducer="r", reason="why") is None


FREE = 10**9


def turns(count: int, dialect: str = "openai-chat") -> list[Any]:
    build = BUILDERS[dialect]
    out: list[Any] = []
    for n in range(count):
        out += build.user(f"turn {n} " + "words " * 20, False)
        out += build.turn([f"c{n}"], [LINE * 4], "w" * 6, None)
        out += build.says(f"answer {n}", None)
    return [*out, *build.user("the newest request", False)]


def roles(messages: list[Any]) -> list[str]:
    return [message.get("role", message.get("type")) for message in messages]


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("target", [150, 500, 1_000])
def test_tokens_hold_after_the_oldest_turns_have_left(dialect: str, target: int) -> None:
    view = view_of(turns(10, dialect), dialect)
    shown = applied(SlidingWindow(), view, need_of(view, target))
    assert view.estimated_tokens <= target
    assert roles(shown)[0] == "user"
    assert "the newest request" in str(shown[-1])


@pytest.mark.parametrize("most", [3, 8, 15, 40])
def test_messages_hold(most: int) -> None:
    view = view_of(turns(10))
    applied(SlidingWindow(trigger=Trigger(messages=most)), view, need_of(view, FREE))
    assert view.message_count < most or view.message_count == 41 < most


@pytest.mark.parametrize("most", [2, 4, 8])
def test_turns_hold(most: int) -> None:
    view = view_of(turns(10))
    applied(SlidingWindow(trigger=Trigger(turns=most)), view, need_of(view, FREE))
    assert view.turn_count < most


def test_what_follows_a_drop_is_a_user_message() -> None:
    for target in range(100, 1_400, 90):
        view = view_of(turns(10))
        shown = applied(SlidingWindow(), view, need_of(view, target))
        assert roles(shown)[:2] in (["user", "user"], ["user", "assistant"])


def test_system_text_and_pins_stay() -> None:
    context = context_of([{"role": "system", "content": "rules"}, *turns(10)])
    context.pin(6)
    shown = applied(SlidingWindow(), context.view, need_of(context.view, 1))
    assert shown[0] == {"role": "system", "content": "rules"}
    assert "'id': 'c1'" in str(shown)


def test_a_turn_longer_than_the_window_leaves_its_oldest_groups() -> None:
    view = view_of(session(30, result=LINE * 12))
    shown = applied(SlidingWindow(), view, need_of(view, 900))
    assert view.estimated_tokens <= 900
    assert roles(shown)[:4] == ["user", "assistant", "user", "assistant"], "the roles go on to alternate"


def test_sliding_again_at_the_same_need_changes_nothing() -> None:
    view = view_of(turns(10))
    applied(SlidingWindow(), view, need_of(view, 500))
    assert folds_of(SlidingWindow(), view, need_of(view, 500)) == []


def test_a_window_that_slid_does_not_slide_with_every_message() -> None:
    context = context_of(turns(10))
    reducer = SlidingWindow(trigger=Trigger(messages=20))
    applied(reducer, context.view, need_of(context.view, FREE))
    for _ in range(2):
        context.extend([says("ok"), user("and?")])
        assert folds_of(reducer, context.view, need_of(context.view, FREE)) == []


@pytest.mark.parametrize("wires", [[], [user("hi")], [{"role": "system", "content": "s"}], [says("hi")]])
def test_edge_cases_leave_a_request_as_it_is(wires: list[Any]) -> None:
    view = view_of(wires)
    applied(SlidingWindow(trigger=Trigger(messages=1, turns=1)), view, need_of(view, 1))
    assert view.wires()[0] == wires


def test_why_is_said_with_figures() -> None:
    view = view_of(turns(10))
    (fold,) = folds_of(SlidingWindow(trigger=Trigger(messages=20)), view, need_of(view, 600))
    assert "tokens too many" in fold.reason
    assert "messages too many" in fold.reason


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


def test_system_text_and_pins_stay_outside_the_window() -> None:
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
