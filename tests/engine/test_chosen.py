"""What somebody chose is folded, and nothing beside it; and a way back to a message, as a branch."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.engine.wires import says, user
from tests.property.depth import costly
from tests.property.sessions import Wire, sessions
from tests.remembered import REMEMBERED

from foldline import Context, InvalidInput, SummaryError, check
from foldline.testing import ScriptedModel, session
from foldline.view.transcript import Branch, Entry, Fold, LeftBranch, active

SUMMARY = "Goal: fix it. Done: the files were read."


def of(rounds: int = 12, dialect: str = "openai-chat", **given: Any) -> Context:
    ctx = Context(dialect=dialect, window=60_000, max_output_tokens=500, **given)
    ctx.extend(session(rounds, result="This line is in order. " * 40, dialect=dialect))
    return ctx


def shown(ctx: Context) -> str:
    return str(ctx.prepare().messages)


@pytest.mark.parametrize("dialect", ["openai-chat", "openai-responses", "anthropic", "gemini"])
@pytest.mark.parametrize("model", [None, ScriptedModel([SUMMARY], repeat=True)], ids=["digest", "summary"])
def test_a_range_is_folded_in_whole_groups_and_comes_back(dialect: str, model: Any) -> None:
    ctx = of(dialect=dialect)
    before = ctx.view.shown()
    (fold,) = ctx.fold((4, 9), summarize=model)
    assert fold.start <= 4 and fold.stop >= 9
    assert (fold.start, fold.stop) == (3, 9)  # the call of the result that the range begins with
    request = ctx.prepare()
    assert not check(request.messages, dialect=dialect, system=request.system)
    assert all(not ctx.explain(seq) for seq in (0, 1, 2, 9, 10))
    assert (SUMMARY in str(request.messages)) is (model is not None)
    ctx.undo()
    assert ctx.view.shown() == before


def test_several_ranges_are_several_folds_and_one_undo() -> None:
    ctx = of()
    folds = ctx.fold((1, 5), (9, 13), summarize=ScriptedModel([SUMMARY], repeat=True))
    assert [(fold.start, fold.stop) for fold in folds] == [(1, 5), (9, 13)]
    ctx.undo()
    assert not ctx.explain(2) and not ctx.explain(10)


def test_what_is_pinned_stays_and_parts_the_range() -> None:
    ctx = of()
    ctx.pin(6)
    folds = ctx.fold((1, 13))
    assert [(fold.start, fold.stop) for fold in folds] == [(1, 5), (7, 13)]
    assert not ctx.explain(5) and not ctx.explain(6)


def test_words_of_the_newest_user_stay_until_they_are_answered() -> None:
    ctx = of(3)
    with pytest.raises(SummaryError, match="nothing to fold"):
        ctx.fold((0, 1))
    ctx.append(says("All is fixed. " * 60))
    ctx.append(user("Then deploy it, and say how it went. " * 30))
    ctx.fold((0, 8))
    assert "Then deploy it" in shown(ctx)


def test_a_failed_summary_changes_nothing() -> None:
    ctx = of()
    before = ctx.view.shown()
    with pytest.raises(SummaryError):
        ctx.fold((1, 5), (9, 13), summarize=ScriptedModel([SUMMARY, ""]))
    assert ctx.view.shown() == before


@pytest.mark.parametrize("ranges", [(), ((5, 5),), ((9, 4),), ((-1, 3),), ((0, 99),)])
def test_a_range_that_is_not_there_is_named(ranges: Any) -> None:
    ctx = of()
    with pytest.raises(InvalidInput, match="entries"):
        ctx.fold(*ranges)


@pytest.mark.parametrize("pair", [5, None, "ab", (1,), (1, 2, 3), ("0", "3"), (1.5, 3), (True, 3), (3, 3), (3, 1)])
def test_what_is_no_range_is_named_before_anything_is_done(pair: Any) -> None:
    context = Context(window=4_000)
    context.extend(session(6))
    with pytest.raises(InvalidInput, match=r"fold: must be \(start, stop\)"):
        context.fold(pair)
    assert not context.explain(0)


def test_instructions_reach_the_model() -> None:
    model = ScriptedModel([SUMMARY])
    of().fold((1, 9), instructions="the port", summarize=model)
    assert "pay special attention to this: the port" in model.calls[0].text


def test_going_back_is_a_branch_and_what_was_left_can_be_read() -> None:
    ctx = of()
    ctx.prepare()
    assert ctx.rewind(8) == 18  # from the call on that entry 8 answers
    ctx.append(user("Do it in another way."))
    request = ctx.prepare()
    assert not check(request.messages)
    assert request.messages[:7] == [entry.recorded for entry in ctx.events if isinstance(entry, Entry)][:7]
    assert len(request.messages) == 8
    (branch,) = (event for event in ctx.events if isinstance(event, Branch))
    assert (branch.start, branch.stop) == (7, 25)
    assert ctx.peek(8)
    again = Context.replay(ctx.events, window=60_000, max_output_tokens=500)
    assert again.view.shown() == ctx.view.shown()
    with pytest.raises(InvalidInput, match="no message 9 on this branch"):
        ctx.rewind(9)


def test_a_fold_that_reaches_beyond_the_branch_is_taken_back() -> None:
    ctx = of()
    ctx.fold((1, 13))
    ctx.rewind(9)
    assert not any(ctx.explain(seq) for seq in range(9))
    ctx.append(user("And?"))
    assert not check(ctx.prepare().messages)


@costly
@given(sessions(), st.data())
def test_whatever_is_chosen_the_request_is_valid_and_undo_gives_it_back(
    session: tuple[str, list[Wire], bool], data: st.DataObject
) -> None:
    dialect, wires, _ = session
    given: dict[str, Any] = {"dialect": dialect, "window": 400_000, "max_output_tokens": 0, "counter": REMEMBERED}
    ctx = Context(**given)
    ctx.extend(wires)
    before, size = ctx.view.shown(), ctx.view.tokens
    start = data.draw(st.integers(0, len(wires) - 1))
    stop = data.draw(st.integers(start + 1, len(wires)))
    model = ScriptedModel(["Goal: go on."], repeat=True) if data.draw(st.booleans()) else None
    try:
        folds = ctx.fold((start, stop), summarize=model)
    except SummaryError:
        assert ctx.view.shown() == before
        return
    assert folds and ctx.view.tokens < size
    request = Context.replay(ctx.events, **given).prepare()  # of another: it may fold, and `undo` is about these folds
    assert check(request.messages, dialect=dialect, system=request.system) == []
    assert [event.recorded for event in ctx.events if isinstance(event, Entry)] == wires
    assert {fold.id for fold in folds} <= {event.id for event in ctx.events if isinstance(event, Fold)}
    ctx.undo()
    assert ctx.view.shown() == before


# --- back on a branch that was left -----------------------------------------------------------------------------------


@pytest.mark.parametrize("dialect", ["openai-chat", "openai-responses", "anthropic", "gemini"])
def test_a_left_branch_comes_back_with_its_folds_and_the_other_is_left(dialect: str) -> None:
    ctx = of(dialect=dialect)
    ctx.fold((9, 15), summarize=ScriptedModel([SUMMARY]))
    whole = ctx.view.shown()
    left = ctx.rewind(8)
    ctx.append(session(1, dialect=dialect)[0])
    other = ctx.view.shown()
    (branch,) = ctx.branches.left
    assert (branch.tip, branch.messages) == (24, left)
    assert ctx.branches.go_back(branch.tip) == left
    assert ctx.view.shown() == whole
    assert SUMMARY in str(ctx.prepare().messages)
    assert [one.tip for one in ctx.branches.left] == [25]
    ctx.undo()  # the folds of the branch, in one batch
    assert SUMMARY not in str(ctx.prepare().messages)
    ctx.branches.go_back(25)
    assert ctx.view.shown() == other


def test_a_branch_that_was_gone_on_with_is_one_branch() -> None:
    ctx = of(4)
    ctx.rewind(3)
    ctx.append(user("In another way."))
    ctx.branches.go_back(8)
    ctx.append(user("And on."))
    assert ctx.branches.left == (LeftBranch(9, 9, 1),)
    ctx.branches.go_back(9)
    assert ctx.branches.left == (LeftBranch(3, 10, 7),)


def test_a_fold_that_was_taken_back_before_the_branch_was_left_stays_away() -> None:
    ctx = of()
    ctx.fold((9, 15), summarize=ScriptedModel([SUMMARY]))
    ctx.undo()
    ctx.rewind(8)
    ctx.branches.go_back(24)
    assert SUMMARY not in str(ctx.prepare().messages)


@pytest.mark.parametrize("tip", [-1, 3, 6, 8, 99])
def test_only_the_end_of_a_left_branch_leads_back(tip: int) -> None:
    ctx = of(4)
    ctx.rewind(5)
    before = ctx.view.shown(), ctx.event_count
    if tip == 8:
        assert ctx.branches.go_back(tip)
        return
    with pytest.raises(InvalidInput, match=f"no branch that was left ends with message {tip}"):
        ctx.branches.go_back(tip)
    assert (ctx.view.shown(), ctx.event_count) == before


@costly
@given(sessions(), st.data())
def test_wherever_one_goes_back_to_the_request_is_valid_and_the_log_leads_there(
    session: tuple[str, list[Wire], bool], data: st.DataObject
) -> None:
    """Whatever was said, folded, undone and left: a branch that comes back is as it was left."""
    dialect, wires, _ = session
    given: dict[str, Any] = {"dialect": dialect, "window": 400_000, "max_output_tokens": 0, "counter": REMEMBERED}
    ctx = Context(**given)
    model = ScriptedModel(["Goal: go on."], repeat=True)
    lengths: dict[int, int] = {}
    for wire in wires:
        ctx.append(wire)
        act = data.draw(st.sampled_from(["say", "say", "fold", "undo", "rewind", "back"]))
        path = [entry.seq for entry in active(ctx.events)]
        if act == "fold":
            with suppress(SummaryError):
                ctx.fold((data.draw(st.sampled_from(path)), path[-1] + 1), summarize=model)
        elif act == "undo":
            ctx.undo()
        elif act == "rewind" and len(path) > 1:
            lengths[path[-1]] = len(path)
            ctx.rewind(data.draw(st.sampled_from(path[1:])))
        elif act == "back" and ctx.branches.left:
            branch = data.draw(st.sampled_from(ctx.branches.left))
            lengths[path[-1]] = len(path)
            count = ctx.branches.go_back(branch.tip)
            now = [entry.seq for entry in active(ctx.events)]
            assert now[-1] == branch.tip and len(now) == lengths[branch.tip]
            assert count == branch.messages
        if any(active(ctx.events)):  # all of it may have been left
            # Not the view: what belongs to a request as a whole is settled last.
            request = Context.replay(ctx.events, **given).prepare()
            assert check(request.messages, dialect=dialect, system=request.system) == []
    assert [event.recorded for event in ctx.events if isinstance(event, Entry)] == wires
    again = Context.replay(ctx.events, **given)
    assert again.view.shown() == ctx.view.shown()
    assert again.event_count == ctx.event_count
    assert again.branches.left == ctx.branches.left
