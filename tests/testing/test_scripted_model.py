"""The fakes that the package ships."""

from __future__ import annotations

import asyncio

import pytest
from tests.property.sessions import DIALECTS

from foldline.engine.context import Completion, Context
from foldline.engine.one_shot import check
from foldline.errors import SummaryError
from foldline.testing import Call, ScriptedModel, session

PROMPT = [{"role": "system", "content": "Write."}, {"role": "user", "content": "What happened"}]


def test_a_scripted_model_answers_in_order_and_remembers() -> None:
    model = ScriptedModel(["one", Completion("two", "length")])
    assert model(PROMPT, 50) == "one"
    assert model(PROMPT, 60) == Completion("two", "length")
    assert model.calls == [Call(PROMPT, 50), Call(PROMPT, 60)]
    assert model.calls[0].text == "Write.\nWhat happened"


def test_what_was_asked_is_kept_as_it_was_then() -> None:
    model = ScriptedModel(["one"])
    asked = [dict(message) for message in PROMPT]
    model(asked, 1)
    asked[0]["content"] = "changed"
    assert model.calls[0].messages == PROMPT


def test_an_exhausted_script_is_loud() -> None:
    model = ScriptedModel(["one"])
    model(PROMPT, 1)
    with pytest.raises(AssertionError, match="asked 2 times, its script has 1"):
        model(PROMPT, 1)
    with pytest.raises(AssertionError, match="its script has 0"):
        ScriptedModel([], repeat=True)(PROMPT, 1)


def test_the_last_reply_may_answer_everything_after_it() -> None:
    model = ScriptedModel(["one", "again"], repeat=True)
    assert [model(PROMPT, 1) for _ in range(4)] == ["one", "again", "again", "again"]


def test_an_exception_in_the_script_is_raised() -> None:
    with pytest.raises(ConnectionError):
        ScriptedModel([ConnectionError("gone")])(PROMPT, 1)


def test_a_function_in_the_script_sees_the_request() -> None:
    assert ScriptedModel([lambda messages, most: f"{len(messages)} {most}"])(PROMPT, 7) == "2 7"


def test_a_script_may_be_any_iterable() -> None:
    model = ScriptedModel(str(n) for n in range(3))
    assert [model(PROMPT, 1) for _ in range(3)] == ["0", "1", "2"]


def test_the_async_twin_answers_from_the_same_script() -> None:
    model = ScriptedModel(["one", "two"])
    assert asyncio.run(model.acall(PROMPT, 1)) == "one"
    assert model(PROMPT, 1) == "two"


def test_an_unexpected_call_reaches_whoever_compacts() -> None:
    context = Context(window=100_000)
    context.extend([*session(10, result="words " * 40), {"role": "assistant", "content": "done"}])
    with pytest.raises(SummaryError, match="asked 1 times"):
        context.compact(summarize=ScriptedModel([]))


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("rounds", [0, 1, 7])
def test_a_built_session_is_legal(dialect: str, rounds: int) -> None:
    wires = session(rounds, dialect=dialect, task="Do it.", result="done")
    assert len(wires) == 1 + 2 * rounds
    assert check(wires, dialect=dialect) == []
    assert "Do it." in str(wires[0])
    assert all("done" in str(wire) for wire in wires[2::2])
