"""Oldest groups leave."""

from __future__ import annotations

import pytest
from tests.joints import unjoined
from tests.property.sessions import BUILDERS, DIALECTS
from tests.reducers.views import LINE, applied, commit_all, context_of, folds_of, need_of, says, sent, user, view_of

from foldline.reducers.drop_groups import DropGroups, drop_fold, is_checkpoint, omitted, shortest
from foldline.testing import session
from foldline.view.transcript import Fold


def long(rounds: int = 20, dialect: str = "openai-chat") -> list[object]:
    return list(session(rounds, result=LINE * 12, dialect=dialect))


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("target", [200, 800, 1_600])
def test_the_oldest_leave_until_the_target_is_met(dialect: str, target: int) -> None:
    view = view_of(long(20, dialect), dialect)
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
    view = view_of(long())
    applied(DropGroups(), view, need_of(view, 1))
    assert sent(view).count("tool_call_id") == 1


def test_all_may_leave_where_that_is_wanted() -> None:
    view = view_of(long())
    applied(DropGroups(keep_groups=0), view, need_of(view, 1))
    assert len(unjoined(view.wires()[0])) == 2


def test_the_notice_says_how_many_are_gone() -> None:
    view = view_of([user("old " * 50), says("yes " * 50), user("next")])
    assert applied(DropGroups(), view, need_of(view, 1))[0]["content"] == omitted(2) == "[2 earlier messages omitted]"


def test_system_text_pins_and_the_newest_request_stay() -> None:
    # microsoft/semantic-kernel#12612: truncation dropped the system prompt.
    context = context_of([{"role": "system", "content": "rules"}, *long(6), says("done"), user("next")])
    context.pin(4)
    shown = applied(DropGroups(), context.view, need_of(context.view, 1))
    assert shown[0] == {"role": "system", "content": "rules"}
    assert shown[-1] == user("next")
    assert "src/1.py" in str(shown)


def test_of_a_running_loop_only_its_groups_leave() -> None:
    wires = [user("an old request " * 20), says("an old answer " * 20), *long(10)]
    view = view_of(wires)
    shown = unjoined(applied(DropGroups(loop_only=True), view, need_of(view, 1)))
    assert shown[:3] == wires[:3]
    assert len(shown) == 6


def test_without_need_nothing_leaves() -> None:
    view = view_of(long())
    assert folds_of(DropGroups(), view, need_of(view, 10**6)) == []
    assert folds_of(DropGroups(), view_of([])) == []


def test_dropping_again_at_the_same_need_changes_nothing() -> None:
    view = view_of(long())
    applied(DropGroups(), view, need_of(view, 600))
    assert folds_of(DropGroups(), view, need_of(view, 600)) == []


def test_a_notice_alone_is_not_dropped_again() -> None:
    view = view_of(long())
    applied(DropGroups(), view, need_of(view, 1))
    assert folds_of(DropGroups(), view, need_of(view, 1)) == []


def test_a_later_drop_takes_up_the_earlier_notice() -> None:
    context = context_of(long())
    commit_all(context.view, folds_of(DropGroups(), context.view, need_of(context.view, 900)))
    context.extend(session(30, result=LINE * 12)[-20:])
    commit_all(context.view, folds_of(DropGroups(), context.view, need_of(context.view, 900)))
    assert sent(context.view).count("earlier messages omitted") == 1


def test_a_checkpoint_is_known_as_such() -> None:
    context = context_of([*long(), says("done"), user("next")])
    note = context.view.codec.note("Goal", kind="summary")
    fold = Fold(start=0, stop=42, shown=(note,), tokens=5, reducer="summarize", reason="asked")
    context.view.commit(fold)
    assert [is_checkpoint(tile) for tile in context.view.tiles] == [True, False]


def test_the_shortest_span_that_holds_as_much() -> None:
    view = view_of(long())
    one = view.tiles[1].tokens
    assert shortest(view, 1, 10, 1) == view.span(1, 2)
    assert shortest(view, 1, 10, one + 1) == view.span(1, 3)
    assert shortest(view, 1, 10, 10**6) == view.span(1, 10)


def test_a_drop_that_would_not_shrink_is_none() -> None:
    view = view_of([user("a"), says("b"), user("next")])
    assert drop_fold(view, view.span(0, 1), reducer="r", reason="why") is None
