"""The engine under every policy: when it folds, what it asks, and what it leaves when something goes wrong."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from tests.engine.wires import says, user

from foldline.engine.context import Context
from foldline.engine.events import ContextEvent, FoldFailed, FoldFinished, FoldStarted
from foldline.engine.one_shot import check
from foldline.engine.policy import Policy
from foldline.engine.presets import POLICIES
from foldline.errors import DoesNotFit, SummaryError
from foldline.reducers.base import Ask, span_fold
from foldline.testing import ScriptedModel, session
from foldline.view.budget import Need, Pressure, Trigger
from foldline.view.transcript import Branch, Entry, Fold, Pin, Unfold, Usage
from foldline.view.view import View

LINE = "a line of a result that was read\n"


@dataclass
class Noting:
    """A reducer that notes each need it was asked for, and proposes what it is given."""

    moves: Iterable[Fold | Ask] = ()
    needs: list[Need] = field(default_factory=list)
    name: str = "noting"

    def propose(self, view: View, need: Need, /) -> Iterable[Fold | Ask]:
        self.needs.append(need)
        return self.moves


@dataclass
class Asking:
    """A reducer that asks for a summary of the first span, in as many calls as it is told."""

    calls: int = 1
    name: str = "asking"

    def propose(self, view: View, need: Need, /) -> Iterable[Ask]:
        for span in view.spans(view.tail(60))[:1]:
            yield self.ask(view, span.start, span.stop, self.calls)

    def ask(self, view: View, start: int, stop: int, left: int) -> Ask:
        def finish(text: str) -> Fold | Ask:
            if left > 1:
                return self.ask(view, start, stop, left - 1)
            fold = span_fold(view, start, stop, (view.codec.note(text),), reducer=self.name, reason="asked")
            if fold is None:
                raise SummaryError("not smaller")
            return fold

        prompt = ({"role": "user", "content": f"{left} left"},)
        return Ask(prompt=prompt, max_output_tokens=100, finish=finish, reducer=self.name, start=start, stop=stop)


def plan(**changes: Any) -> Policy:
    return replace(POLICIES["confirm"], name="plan", guard=(), consent_at=None, **changes)


def context_of(policy: Policy, rounds: int = 30, **settings: Any) -> Context:
    context = Context(window=4_000, max_output_tokens=0, policy=policy, **settings)
    context.extend(session(rounds, result=LINE * 10))
    return context


# --- when -------------------------------------------------------------------------------------------------------------


def test_reducers_run_when_the_trigger_is_reached_and_not_before() -> None:
    noting = Noting()
    context = context_of(plan(trigger=Trigger(fraction=0.5), reducers=(noting,)), rounds=5)
    context.prepare()
    assert noting.needs == []
    context.extend(session(20, result=LINE * 10)[1:])
    context.prepare()
    assert [need.pressure for need in noting.needs] == [Pressure.SOFT]


def test_the_need_says_where_the_request_should_land() -> None:
    noting = Noting()
    context = context_of(plan(trigger=Trigger(fraction=0.5), landing=0.4, reducers=(noting,)), rounds=25)
    context.prepare()
    (need,) = noting.needs
    assert need.limit_tokens == 3_600
    assert need.window_tokens == 4_000
    assert need.target_tokens == pytest.approx(0.4 * 3_600, abs=1)
    assert need.used_tokens == context.view.estimated_tokens


def test_what_must_fit_is_hard() -> None:
    noting = Noting()
    context_of(plan(reducers=(noting,)), rounds=60).prepare()
    assert noting.needs[0].pressure is Pressure.HARD


def test_need_and_target_are_in_the_tokens_of_the_view() -> None:
    noting = Noting()
    context = context_of(plan(trigger=Trigger(fraction=0.9), landing=0.5, reducers=(noting,)), rounds=22)
    size = context.prepare().tokens
    context.observe({"prompt_tokens": int(1.25 * size)})
    context.append(user("go on"))
    context.prepare()
    need = noting.needs[-1]
    assert need.excess_tokens == pytest.approx(need.used_tokens - 0.5 * 3_600 / 1.25, rel=0.01)


def test_guards_see_only_what_has_just_come_in() -> None:
    noting = Noting()
    context = context_of(replace(plan(), guard=(noting,)), rounds=2)
    context.prepare()
    context.append(user("more"))
    context.prepare()
    assert [need.fresh for need in noting.needs] == [0, 5]


def test_guards_always_and_reducers_run_in_this_order() -> None:
    order: list[str] = []

    @dataclass
    class Named:
        name: str

        def propose(self, view: View, need: Need, /) -> Iterable[Fold]:
            order.append(self.name)
            return ()

    policy = replace(
        plan(trigger=Trigger(tokens=1)),
        guard=(Named("guard"),),
        always=(Named("always"),),
        reducers=(Named("reducer"),),
    )
    context_of(policy, rounds=1).prepare()
    assert order == ["guard", "always", "reducer"]


def test_a_reducer_that_has_landed_is_not_followed_by_the_next() -> None:
    noting = Noting()
    policy = plan(trigger=Trigger(fraction=0.5), landing=0.5, reducers=(Asking(), noting))
    context = context_of(policy)
    context.prepare(ScriptedModel(["Goal"]))
    assert noting.needs == []


def test_the_last_rung_needs_no_model_and_no_policy() -> None:
    context = context_of(plan(), rounds=100)
    request = context.prepare()
    assert request.tokens <= 3_600
    assert check(request.messages) == []


# --- asking -----------------------------------------------------------------------------------------------------------


def test_without_a_model_nobody_is_asked() -> None:
    context = context_of(plan(trigger=Trigger(fraction=0.5), reducers=(Asking(),)))
    assert not [fold for fold in context.prepare().folds if isinstance(fold, Fold) and fold.reducer == "asking"]


def test_an_ask_may_take_several_calls() -> None:
    model = ScriptedModel(["one", "two", "Goal: three"])
    context = context_of(plan(trigger=Trigger(fraction=0.5), reducers=(Asking(calls=3),)))
    request = context.prepare(model)
    assert [call.text for call in model.calls] == ["3 left", "2 left", "1 left"]
    assert "Goal: three" in json.dumps(request.messages)


def test_an_ask_that_fails_halfway_changes_nothing_and_is_told() -> None:
    heard: list[ContextEvent] = []
    policy = plan(trigger=Trigger(fraction=0.5), reducers=(Asking(calls=3),))
    context = context_of(policy, rounds=25, on_event=heard.append)
    before = json.dumps(context.view.wires()[0])
    context.prepare(ScriptedModel(["one", ConnectionError("gone")]))
    assert json.dumps(context.view.wires()[0]) == before
    assert [type(event) for event in heard] == [FoldStarted, FoldFailed, FoldFinished]
    assert "gone" in heard[1].reason  # type: ignore[union-attr]


def test_after_a_rejected_summary_the_model_is_asked_again_once_the_session_has_grown() -> None:
    model = ScriptedModel([ConnectionError("gone"), "Goal: go on"])
    policy = plan(trigger=Trigger(fraction=0.5), landing=0.4, reducers=(Asking(),))
    context = context_of(policy, rounds=25)
    grown = 0
    for wire in session(20, result=LINE * 10)[1:]:
        context.prepare(model)
        if len(model.calls) == 2:
            break
        grown += context.append(wire).tokens
    assert len(model.calls) == 2
    assert grown >= 0.1 * 3_600


def test_an_earlier_fold_survives_a_later_failure() -> None:
    policy = plan(trigger=Trigger(fraction=0.2), landing=0.01, reducers=(Asking(), Asking()))
    context = context_of(policy, rounds=25)
    request = context.prepare(ScriptedModel(["Goal: a first summary", ConnectionError("gone")]))
    assert "Goal: a first summary" in json.dumps(request.messages)


# --- committing -------------------------------------------------------------------------------------------------------


def test_an_illegal_proposal_is_refused_and_told_and_the_request_stays_valid() -> None:
    heard: list[ContextEvent] = []
    context = context_of(plan(), rounds=5, on_event=heard.append)
    note = context.view.codec.note("x")
    bad = [
        Fold(start=0, stop=2, shown=(note,), tokens=5, reducer="bad", reason="through a group"),
        Fold(start=0, stop=1, shown=(note,), tokens=5, reducer="bad", reason="the newest user message"),
        Fold(start=1, stop=3, shown=(note,) * 99, tokens=5, reducer="bad", reason="grows"),
        Fold(start=7, stop=99, shown=(note,), tokens=5, reducer="bad", reason="outside"),
    ]
    worse = Context(
        window=4_000,
        max_output_tokens=0,
        policy=plan(trigger=Trigger(tokens=1), landing=None, reducers=(Noting(bad),)),
        on_event=heard.append,
    )
    worse.extend(session(5, result=LINE * 10))
    request = worse.prepare()
    assert request.messages == list(session(5, result=LINE * 10))
    assert request.folds == ()
    assert len([event for event in heard if isinstance(event, FoldFailed) and event.reducer == "bad"]) == 4


def test_a_fold_that_lies_about_its_size_does_not_break_the_figures() -> None:
    note = Context(window=1_000).view.codec.note("words " * 200)
    liar = Fold(start=1, stop=3, shown=(note,), tokens=1, reducer="liar", reason="says that it is small")
    context = context_of(plan(trigger=Trigger(tokens=1), landing=None, reducers=(Noting([liar]),)), rounds=3)
    request = context.prepare()
    shown = sum(context.view.count(context.view.codec.read(message)) for message in request.messages)
    assert request.tokens == shown
    assert request.folds == ()


def test_folds_get_numbers_and_their_place_in_the_log() -> None:
    context = context_of(plan(trigger=Trigger(fraction=0.2), landing=0.01, reducers=(Asking(),)), rounds=25)
    request = context.prepare(ScriptedModel(["Goal"]))
    folds = [event for event in context.events if isinstance(event, Fold)]
    assert [fold.id for fold in folds] == list(range(len(folds)))
    assert request.folds == tuple(folds)


def test_every_kind_of_event_is_in_the_log_in_order() -> None:
    context = Context(window=4_000, max_output_tokens=0)
    wires = [*session(8, result=LINE * 10), says("done")]
    context.sync(wires)
    context.pin(1)
    context.compact(summarize=ScriptedModel(["Goal: go on."] * 2))
    context.prepare()
    context.observe({"prompt_tokens": 600})
    context.undo()
    context.sync([*wires[:-1], says("another way")])
    kinds = [type(event) for event in context.events if not isinstance(event, Entry)]
    assert kinds[0] is Pin
    assert {Fold, Usage, Unfold, Branch} <= set(kinds)
    assert kinds.index(Fold) < kinds.index(Usage) < kinds.index(Unfold) < kinds.index(Branch)


def test_one_batch_is_one_undo() -> None:
    context = context_of(POLICIES["balanced"], rounds=60)
    before = json.dumps(context.view.wires()[0])
    assert len(context.prepare().folds) > 1
    context.undo()
    assert json.dumps(context.view.wires()[0]) == before
    assert context.undo() == ()


def test_an_undo_in_between_does_not_break_a_batch_that_is_being_made() -> None:
    context = context_of(plan(trigger=Trigger(fraction=0.2), landing=0.01, reducers=(Asking(), Asking())), rounds=25)
    context.compact(summarize=ScriptedModel(["Goal: the first"], repeat=True))
    context.extend([says("done"), user("next"), *session(25, result=LINE * 10)[1:]])

    def undoing(messages: list[dict[str, str]], most: int) -> str:
        context.undo()
        return "Goal: the second"

    request = context.prepare(undoing)
    assert check(request.messages) == []
    assert request.tokens <= 3_600
    context.undo()
    assert check(context.prepare().messages) == []


# --- does not fit -----------------------------------------------------------------------------------------------------


def test_the_floor_is_checked_before_any_model_is_asked() -> None:
    model = ScriptedModel([])
    context = Context(window=500, max_output_tokens=0, policy=plan(reducers=(Asking(),)))
    context.extend([*session(10, result=LINE * 10), says("done"), user("words " * 1_000)])
    with pytest.raises(DoesNotFit):
        context.prepare(model)
    assert model.calls == []


def test_what_did_not_fit_may_fit_later() -> None:
    context = Context(window=500, max_output_tokens=0)
    context.append(user("words " * 1_000))
    with pytest.raises(DoesNotFit):
        context.prepare()
    context.append(says("I see"))
    context.append(user("so?"))
    request = context.prepare()
    assert request.tokens <= 450
    assert request.messages[-1] == user("so?")


def test_a_session_that_does_not_fit_keeps_its_log() -> None:
    context = Context(window=100, max_output_tokens=0)
    context.extend([*session(3, result=LINE), says("done"), user("words " * 400)])
    with pytest.raises(DoesNotFit) as info:
        context.prepare()
    assert info.value.floor_tokens > info.value.limit
    assert len([event for event in context.events if isinstance(event, Entry)]) == 9


@pytest.mark.parametrize("policy", POLICIES)
def test_no_policy_makes_a_session_unusable(policy: str) -> None:
    """S3.09: no growth makes a call fail that could be made to fit."""
    context = Context(window=3_000, max_output_tokens=0, policy=policy)
    model = ScriptedModel(["Goal: go on. Done: much."], repeat=True)
    for number, wire in enumerate(session(150, result=LINE * 12)):
        context.append(wire)
        if number % 2 == 0:
            request = context.prepare(model if number % 4 else None)
            assert request.tokens <= 2_700
    assert check(request.messages) == []


def test_folding_costs_no_more_calls_than_the_growth_asks_for() -> None:
    model = ScriptedModel(["Goal: go on. Done: much."], repeat=True)
    context = Context(window=3_000, max_output_tokens=0, policy="sliding")
    for wire in session(150, result=LINE * 12):
        context.append(wire)
        context.prepare(model)
    taken = sum(event.tokens for event in context.events if isinstance(event, Entry))
    assert len(model.calls) <= taken / (0.15 * 2_700)
