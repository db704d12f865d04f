"""What is about to be left out is summed up first."""

from __future__ import annotations

from tests.reducers.views import LINE, asks_of, commit_all, context_of, need_of, says, sent, user, view_of

from foldline.reducers.drop_groups import DropGroups
from foldline.reducers.render_budget import HistoryBudget
from foldline.reducers.sum_up import SumUp
from foldline.reducers.summarize import Summarize
from foldline.testing import session
from foldline.view.transcript import Fold


def test_the_spans_that_would_leave_are_asked_for() -> None:
    view = view_of(session(30, result=LINE * 12))
    need = need_of(view, 900)
    drop = DropGroups(loop_only=True)
    asks = asks_of(SumUp(drop=drop, summarize=Summarize()), view, need)
    assert [(ask.start, ask.stop) for ask in asks] == [
        (span.start, span.stop) for span in drop.leaving(view, need, spare=False)
    ]


def test_the_answer_stands_for_what_would_have_left() -> None:
    context = context_of(session(30, result=LINE * 12))
    (ask,) = asks_of(SumUp(drop=DropGroups(loop_only=True)), context.view, need_of(context.view, 900))
    fold = ask.finish("Goal: go on.")
    assert isinstance(fold, Fold)
    commit_all(context.view, [fold])
    assert "Goal: go on." in sent(context.view)
    assert context.view.estimated_tokens <= 900


def test_what_is_within_its_budget_is_not_asked_for() -> None:
    view = view_of([user("hi"), says("ho"), user("next")])
    assert asks_of(SumUp(drop=HistoryBudget()), view) == []


def test_small_spans_leave_without_a_model() -> None:
    view = view_of([user("hi " * 20), says("ho " * 20), user("next")])
    assert asks_of(SumUp(drop=HistoryBudget(max_history_tokens=10)), view) == []


def test_a_checkpoint_alone_is_not_summed_up_again() -> None:
    context = context_of([user("old " * 400), says("yes " * 400), user("next")])
    reducer = SumUp(drop=HistoryBudget(max_history_tokens=10))
    (ask,) = asks_of(reducer, context.view)
    fold = ask.finish("Goal: " + "the next step. " * 80)
    assert isinstance(fold, Fold)
    commit_all(context.view, [fold])
    assert asks_of(reducer, context.view) == []
