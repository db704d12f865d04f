"""The halves of a pair are sent together or not at all, whatever is folded, undone, recovered or asked for."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from foldline.engine.context import Context, Request
from foldline.engine.one_shot import check, fit
from foldline.errors import DoesNotFit, SummaryError
from foldline.failures.failure import Failure
from tests.property.depth import dear
from tests.property.pairs import HISTORIES, broken_history, halves, history
from tests.property.sessions import POLICIES, Wire

policies = st.sampled_from(POLICIES)
PAIRED = st.sampled_from(sorted(HISTORIES))
STEPS = st.sampled_from(("prepare", "prepare", "prepare", "compact", "recover", "undo", "no"))


def good(messages: list[dict[str, str]], max_output_tokens: int) -> str:
    return f"Goal: go on. {len(messages)} texts were read."


def whole(sent: list[Any], dialect: str) -> None:
    """What goes out is valid, and has no half of a pair that the rest of it would have to be there for."""
    assert check(sent, dialect=dialect) == []
    opened, closed = halves(sent)
    assert not set(closed) - set(opened), "a result without its use"
    assert all(count == 1 for count in (*opened.values(), *closed.values()))


def stepped(context: Context, step: str) -> Request | None:
    if step == "no":
        return None
    with suppress(DoesNotFit, SummaryError):
        if step == "compact":
            context.compact(summarize=good)
        elif step == "recover":
            context.recover(Failure("prompt_overflow"))
        elif step == "undo":
            context.undo()
        return context.prepare()
    return None


@dear
@given(PAIRED.flatmap(lambda d: st.tuples(st.just(d), history(d))), policies, st.integers(200, 4_000), st.data())
def test_no_fold_separates_a_pair(case: tuple[str, list[Wire]], policy: str, window: int, data: st.DataObject) -> None:
    dialect, wires = case
    context = Context(dialect=dialect, policy=policy, window=window, max_output_tokens=0)
    for number, wire in enumerate(wires):
        context.append(wire)
        request = stepped(context, data.draw(STEPS))
        if request is None:
            continue
        assert not {repair.rule for repair in request.repairs} & {"orphan-result", "duplicate-result", "caller"}
        whole(request.messages, dialect)
        opened, closed = halves(wires[: number + 1])
        shown, answered = halves(request.messages)
        for pair in opened:
            if pair in closed:
                assert (pair in shown) == (pair in answered)


@dear
@given(PAIRED.flatmap(lambda d: st.tuples(st.just(d), history(d))), policies, st.integers(200, 4_000))
def test_a_request_of_the_whole_history_separates_no_pair(
    case: tuple[str, list[Wire]], policy: str, window: int
) -> None:
    dialect, wires = case
    with suppress(DoesNotFit):
        whole(fit(wires, max_tokens=window, dialect=dialect, policy=policy).messages, dialect)


@dear
@given(PAIRED.flatmap(lambda d: st.tuples(st.just(d), history(d))))
def test_what_is_legal_goes_out_as_it_came(case: tuple[str, list[Wire]]) -> None:
    dialect, wires = case
    assert check(wires, dialect=dialect) == []
    out = fit(wires, max_tokens=1_000_000, dialect=dialect)
    assert out.messages == wires
    assert out.repairs == ()


@dear
@given(PAIRED.flatmap(lambda d: st.tuples(st.just(d), broken_history(d))), policies, st.integers(200, 4_000), st.data())
def test_a_broken_history_goes_out_valid(
    case: tuple[str, list[Wire]], policy: str, window: int, data: st.DataObject
) -> None:
    dialect, wires = case
    context = Context(dialect=dialect, policy=policy, window=window, max_output_tokens=0)
    for wire in wires:
        context.append(wire)
        request = stepped(context, data.draw(STEPS))
        if request is not None:
            assert check(request.messages, dialect=dialect) == []
    replayed = Context.replay(context.events, dialect=dialect, policy=policy, window=window, max_output_tokens=0)
    assert [*replayed.view.shown()] == [*context.view.shown()]
