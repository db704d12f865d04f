"""The sliding window, row by row."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.joints import unjoined
from tests.property.depth import costly

from foldline import POLICIES, Completion, Context, Fold, InvalidInput, check, fit
from foldline.engine.events import ContextEvent, FoldFailed, FoldFinished
from foldline.engine.policy import Policy
from foldline.engine.presets import sliding
from foldline.messages import Wire
from foldline.reducers.digest import FallbackDigest
from foldline.reducers.drop import SlidingWindow, omitted
from foldline.reducers.summarize import SUMMARY_PREFIX, Summarize
from foldline.testing import ScriptedModel, session
from foldline.view.budget import Need, Pressure, TokenLimits, Trigger
from foldline.view.view import View

SYSTEM = {"role": "system", "content": "You are a coding agent."}


def user(text: str) -> Wire:
    return {"role": "user", "content": text}


def says(text: str) -> Wire:
    return {"role": "assistant", "content": text}


def called(*ids: str) -> Wire:
    calls = [
        {"id": i, "type": "function", "function": {"name": "read", "arguments": json.dumps({"id": i})}} for i in ids
    ]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def result(call_id: str, text: str = "a result of some words") -> Wire:
    return {"role": "tool", "tool_call_id": call_id, "content": text}


def turns(count: int, *, tools: int = 0, parallel: int = 1, words: int = 12, start: int = 0) -> list[Wire]:
    """Turns of a question, `tools` rounds of calls with results, and an answer."""
    out: list[Wire] = []
    for turn in range(start, start + count):
        out.append(user(f"Question {turn}. " + "please say more " * words))
        for round_number in range(tools):
            ids = [f"c{turn}-{round_number}-{n}" for n in range(parallel)]
            out += [called(*ids), *(result(i, f"found {i} " + "among other things " * words) for i in ids)]
        out.append(says(f"Answer {turn}. " + "there is more to it " * words))
    return out


def window_only(trigger: Trigger) -> Policy:
    """A policy that does nothing but slide."""
    return replace(POLICIES["sliding"], trigger=trigger, reducers=(SlidingWindow(trigger),))


def opened(wires: Sequence[Wire], policy: Policy | str = "sliding", **settings: Any) -> Context:
    context = Context(policy=policy, **({"window": 128_000, "max_output_tokens": 0} | settings))
    context.extend(wires)
    return context


def first_but_system(messages: Sequence[Wire]) -> Wire:
    return next(message for message in messages if message["role"] != "system")


def view_of(wires: Sequence[Wire]) -> View:
    return opened(wires).view


# --- S1.01 ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("trigger", "due"),
    [
        (Trigger(tokens=1_000), True),
        (Trigger(messages=20), True),
        (Trigger(turns=10), True),
        (Trigger(tokens=1_000, messages=10**6, turns=10**6), True),
        (Trigger(tokens=10**6, messages=20, turns=10**6), True),
        (Trigger(tokens=10**6, messages=10**6, turns=10), True),
        (Trigger(tokens=10**6, messages=10**6, turns=10**6), False),
        (Trigger(), False),
    ],
)
def test_s1_01_any_threshold_that_is_reached_makes_compaction_due(trigger: Trigger, due: bool) -> None:
    view = view_of(turns(10))
    assert view.message_count == 20
    assert view.turn_count == 10
    assert view.tokens > 1_000
    assert trigger.due(view, view.tokens, TokenLimits(10**6, 0)) is due


@pytest.mark.parametrize("given", [{"tokens": 900}, {"messages": 16}, {"turns": 8}])
def test_s1_01_a_session_compacts_at_each_threshold(given: dict[str, int]) -> None:
    policy = sliding(**given)
    context = opened([], policy)
    for wire in turns(20):
        context.append(wire)
        request = context.prepare()
        assert not policy.trigger.due(context.view, request.tokens, context.limits), "it stays below"
        assert check(request.messages) == []
    assert any(isinstance(event, Fold) for event in context.events)


def test_s1_01_below_all_thresholds_nothing_happens() -> None:
    wires = turns(9)
    assert opened(wires, sliding(tokens=10**5, messages=20, turns=10)).prepare().messages == wires


@pytest.mark.parametrize("given", [{"tokens": 1}, {"messages": 1}, {"turns": 1}, {"turns": 0}, {"messages": -3}])
def test_s1_01_a_threshold_that_can_never_hold_is_refused(given: dict[str, int]) -> None:
    with pytest.raises(InvalidInput, match=f"{next(iter(given))}: must be 2 or more"):
        sliding(**given)


def test_s1_01_the_policy_can_be_put_together_by_hand() -> None:
    trigger = Trigger(messages=40, turns=10)
    policy = replace(
        POLICIES["sliding"],
        trigger=trigger,
        reducers=(Summarize(keep_messages=6, first_only=True), SlidingWindow(trigger)),
    )
    model = ScriptedModel(["what was said"], repeat=True)
    context = opened(turns(12), policy)
    request = context.prepare(summarize=model)
    assert context.view.turn_count < 10
    assert context.view.message_count < 40
    assert len(model.calls) == 1
    assert check(request.messages) == []


# --- S1.02 ------------------------------------------------------------------------------------------------------------


def test_s1_02_the_oldest_compressible_sequence_is_summarised_first() -> None:
    model = ScriptedModel(["what was said before"])
    wires = [SYSTEM, *turns(12)]
    messages = unjoined(opened(wires, sliding(messages=24)).prepare(summarize=model).messages)
    assert messages[0] == SYSTEM
    assert messages[1]["content"] == f"{SUMMARY_PREFIX}\nwhat was said before"
    assert messages[2:] == wires[-6:], "the retention window stays as it came"
    assert "Question 0." in model.calls[0].text
    assert "Question 9." not in model.calls[0].text


def test_s1_02_of_several_sequences_the_oldest_one_comes_first() -> None:
    model = ScriptedModel(["first part", "second part"])
    wires = turns(20)
    context = opened(wires, sliding(messages=30))
    context.pin(20)
    messages = unjoined(context.prepare(summarize=model).messages)
    assert len(model.calls) == 1, "the second sequence is not touched: the threshold holds again"
    assert messages[0]["content"] == f"{SUMMARY_PREFIX}\nfirst part"
    assert messages[1:] == wires[20:]


def test_s1_02_the_window_slides_only_where_there_is_nothing_to_summarise() -> None:
    model = ScriptedModel([])
    wires = turns(12)
    context = opened(wires, sliding(messages=24, retention_messages=24))
    request = context.prepare(summarize=model)
    assert model.calls == [], "all of it is inside the retention window"
    assert {fold.reducer for fold in request.folds if isinstance(fold, Fold)} == {"window"}
    assert request.messages[0] == user(omitted(8))
    assert unjoined(request.messages)[1:] == wires[8:]


def test_s1_02_summaries_leave_when_nothing_else_is_left_to_summarise() -> None:
    model = ScriptedModel(["what was said"], repeat=True)
    policy = sliding(tokens=400, retention_messages=4)
    context = opened(turns(4, words=30), policy)
    request = context.prepare(summarize=model)
    first, *others = [fold.reducer for fold in request.folds if isinstance(fold, Fold)]
    assert first == "summarize"
    assert set(others) == {"window"}
    assert check(request.messages) == []


@pytest.mark.parametrize(
    "reply", [None, RuntimeError("down"), "", "I cannot help with that.", Completion("half", "length"), "x " * 9_000]
)
def test_s1_02_without_a_summary_the_sequence_becomes_a_digest(reply: str | Completion | Exception | None) -> None:
    model = None if reply is None else ScriptedModel([reply])
    wires = turns(12)
    request = opened(wires, sliding(messages=24)).prepare(summarize=model)
    assert [fold.reducer for fold in request.folds if isinstance(fold, Fold)] == ["digest"]
    assert unjoined(request.messages)[1:] == wires[-6:]


# --- S1.03 ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tools", [0, 1, 3])
@pytest.mark.parametrize("threshold", [11, 14, 20])
def test_s1_03_after_a_drop_the_first_message_is_from_the_user(tools: int, threshold: int) -> None:
    wires = [SYSTEM, *turns(10, tools=tools)]
    context = opened(wires, window_only(Trigger(messages=threshold)))
    assert context.prepare().messages[1]["role"] == "user"
    messages = unjoined(context.prepare().messages)
    assert messages[0] == SYSTEM
    assert messages[1]["role"] == "user"
    assert messages[2]["role"] == "user", "behind the notice a turn begins"
    assert messages[2:] == wires[len(wires) - len(messages) + 2 :]
    assert check(messages) == []


def test_s1_03_it_does_not_stop_at_the_user_message_it_stands_on() -> None:
    wires = turns(10)
    assert wires[0]["role"] == "user"
    context = opened(wires, window_only(Trigger(messages=10)))
    assert len(context.prepare().messages) < 10


def test_s1_03_system_messages_stay_wherever_they_are() -> None:
    late = {"role": "system", "content": "From now on answer in German."}
    wires = [SYSTEM, *turns(8), late, *turns(8, start=8)]
    messages = opened(wires, window_only(Trigger(messages=12))).prepare().messages
    assert [m for m in messages if m["role"] == "system"] == [SYSTEM, late]
    assert first_but_system(messages)["role"] == "user"
    assert len(messages) < 12


def test_s1_03_the_first_message_is_the_users_when_a_summary_stands_for_the_rest() -> None:
    model = ScriptedModel(["what was said"], repeat=True)
    context = opened([SYSTEM], sliding(turns=6))
    for wire in turns(30, tools=1):
        context.append(wire)
        messages = context.prepare(summarize=model).messages
        assert messages[0] == SYSTEM
        assert len(messages) == 1 or messages[1]["role"] == "user"


# --- S1.04 ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("parallel", [1, 4])
@pytest.mark.parametrize("dialect", ["openai-chat", "anthropic", "openai-responses"])
def test_s1_04_calls_and_their_results_leave_together(parallel: int, dialect: str) -> None:
    wires = (
        [SYSTEM, *turns(8, tools=3, parallel=parallel)] if dialect == "openai-chat" else session(30, dialect=dialect)
    )
    for threshold in range(4, 24):
        messages = opened(wires, window_only(Trigger(messages=threshold)), dialect=dialect).prepare().messages
        assert check(messages, dialect=dialect) == []


def test_s1_04_a_group_goes_whole_even_if_less_would_do() -> None:
    ids = [f"c{n}" for n in range(6)]
    wires = [user("go"), says("first " * 30), called(*ids), *(result(i) for i in ids), says("done"), *turns(1)]
    messages = opened(wires, window_only(Trigger(messages=11))).prepare().messages
    assert not any(message["role"] == "tool" or message.get("tool_calls") for message in messages)
    assert check(messages) == []


# --- S1.05 ------------------------------------------------------------------------------------------------------------


def test_s1_05_dropping_repeats_until_every_threshold_holds() -> None:
    trigger = Trigger(tokens=600, messages=12, turns=5)
    context = opened([SYSTEM, *turns(40)], window_only(trigger))
    request = context.prepare()
    assert request.tokens < 600
    assert context.view.message_count < 12
    assert context.view.turn_count < 5


def test_s1_05_it_says_so_when_nothing_more_may_go_and_stops() -> None:
    heard: list[ContextEvent] = []
    wires = [dict(SYSTEM, content=f"Rule {n}.") for n in range(6)] + turns(3)
    context = opened(wires, sliding(messages=5), on_event=heard.append)
    request = context.prepare()
    failed = [event for event in heard if isinstance(event, FoldFailed)]
    assert [event.reason for event in failed] == [
        f"nothing more may go: {len(unjoined(request.messages))} messages of 5"
    ]
    (finished,) = [event for event in heard if isinstance(event, FoldFinished)]
    assert finished.error == failed[0].reason
    folds = [event for event in context.events if isinstance(event, Fold)]
    assert context.prepare().messages == request.messages
    assert [event for event in context.events if isinstance(event, Fold)] == folds, "no loop without progress"


def test_s1_05_tokens_that_cannot_be_met_are_said_too() -> None:
    heard: list[ContextEvent] = []
    context = opened([user("long " * 900)], sliding(tokens=500), on_event=heard.append)
    tokens = context.prepare().tokens
    failed = [event.reason for event in heard if isinstance(event, FoldFailed)]
    assert failed == [f"nothing more may go: {tokens:,} tokens of 500"]


def test_s1_05_a_window_lands_below_its_thresholds_and_rests() -> None:
    """A window that only just holds would slide with every message, and break the cached prefix each time."""
    context = opened([], window_only(Trigger(messages=40)))
    slides = 0
    for wire in turns(100):
        context.append(wire)
        slides += bool(context.prepare().folds)
    assert 0 < slides <= 200 // 8


histories = st.builds(
    turns, st.integers(0, 24), tools=st.integers(0, 3), parallel=st.integers(1, 3), words=st.integers(0, 20)
)


@costly
@given(histories, st.booleans(), st.integers(2, 30), st.integers(2, 12))
def test_s1_05_no_session_and_no_threshold_makes_it_loop_or_break(
    history: list[Wire], system: bool, messages: int, most: int
) -> None:
    wires = [*([SYSTEM] if system else []), *history, user("and now?")]
    context = opened(wires, sliding(messages=messages, turns=most))
    request = context.prepare()
    assert check(request.messages) == []
    assert first_but_system(request.messages)["role"] == "user"
    assert request.messages[-1] == wires[-1]
    assert context.prepare().messages == request.messages
    need = Need(Pressure.SOFT, context.view.estimated_tokens, context.view.estimated_tokens, 10**6, 10**6, 0)
    unmet = context.policy.trigger.unmet(context.view, request.tokens, context.limits)
    assert not unmet or list(SlidingWindow(context.policy.trigger).propose(context.view, need)) == []


# --- S1.06 ------------------------------------------------------------------------------------------------------------


def nothing_to_do(wires: Sequence[Wire]) -> bool:
    view = view_of(wires)
    need = Need(Pressure.HARD, view.tokens, 0, 1, 1, 0)
    trigger = Trigger(tokens=1, messages=1, turns=1)
    reducers = (Summarize(keep_messages=1), FallbackDigest(Summarize(keep_messages=1)), SlidingWindow(trigger))
    return not any(list(reducer.propose(view, need)) for reducer in reducers)


def test_s1_06_an_empty_history() -> None:
    assert nothing_to_do([])
    with pytest.raises(InvalidInput, match="no messages"):
        opened([]).prepare()
    with pytest.raises(InvalidInput):
        fit([], max_tokens=1_000, policy="sliding")


def test_s1_06_only_system_messages() -> None:
    wires = [dict(SYSTEM, content=f"Rule {n}. " + "mind it " * 50) for n in range(10)]
    assert nothing_to_do(wires)
    assert opened(wires, sliding(messages=2)).prepare().messages == wires


@pytest.mark.parametrize("dialect", ["openai-chat", "anthropic"])
def test_s1_06_no_user_message(dialect: str) -> None:
    wires = [says(f"Thought {n}. " + "on and on " * 20) for n in range(30)]
    context = opened(wires, sliding(messages=10, retention_messages=30), dialect=dialect)
    messages = context.prepare().messages
    assert len(messages) < 10
    assert messages[0]["role"] == "user", "the notice is it"
    assert messages[0] == user(omitted(30 - len(messages) + 1))
    assert check(messages, dialect=dialect) == []


def test_s1_06_one_turn_that_is_longer_than_the_window() -> None:
    wires = [SYSTEM, *session(60, result="found it " * 10)]
    context = opened(wires, window_only(Trigger(messages=20)))
    messages = unjoined(context.prepare().messages)
    assert messages[1] == wires[1], "the newest user message stays"
    assert messages[2]["role"] == "user"
    assert messages[3:] == wires[len(wires) - len(messages) + 3 :]
    assert len(messages) < 20
    assert check(messages) == []


def test_s1_06_a_very_large_history() -> None:
    wires = [SYSTEM, *turns(1_000, tools=1, words=1)]
    context = opened(wires, sliding(messages=50))
    request = context.prepare()
    assert context.view.message_count < 50
    assert request.messages[0] == SYSTEM
    assert request.messages[-6:] == wires[-6:]
    fitted = fit(wires, max_tokens=2_000, policy="sliding")
    assert fitted.tokens <= 2_000
    assert check(fitted.messages) == []
