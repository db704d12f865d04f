"""The two drivers that pay for what an engine asks."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Generator
from typing import Any

import pytest

from foldline.engine.drivers import Completion, drive, drive_async
from foldline.engine.folding import Reading
from foldline.errors import DoesNotFit, SummaryError
from foldline.reducers.base import Ask
from foldline.testing import ScriptedModel
from foldline.view.transcript import Fold


def never(text: str) -> Fold:
    raise AssertionError("nobody finishes this")


def ask(words: str, most: int = 10) -> Ask:
    prompt = ({"role": "user", "content": words},)
    return Ask(prompt=prompt, max_output_tokens=most, finish=never, reducer="test", start=0, stop=1)


class Steps:
    """Asks for two texts and notes how it went."""

    def __init__(self) -> None:
        self.got: list[str | SummaryError] = []
        self.closed = False

    def __call__(self) -> Generator[Ask, str, str]:
        try:
            for words in ("first", "second"):
                try:
                    self.got.append((yield ask(words)))
                except SummaryError as error:
                    self.got.append(error)
            return "done"
        finally:
            self.closed = True


def reading(threads: list[threading.Thread]) -> Generator[Ask | Reading, Any, tuple[str, str]]:
    """Has something read twice, and says what it was sent."""

    def read() -> str:
        threads.append(threading.current_thread())
        return f"read {len(threads)}"

    first = yield Reading(read)
    second = yield Reading(read)
    return first, second


def test_what_is_read_is_sent_back_and_read_where_the_driver_wants_it() -> None:
    here, elsewhere = list[threading.Thread](), list[threading.Thread]()
    assert drive(reading(here), None) == ("read 1", "read 2")
    assert asyncio.run(drive_async(reading(here), None)) == ("read 3", "read 4")
    assert set(here) == {threading.current_thread()}
    assert asyncio.run(drive_async(reading(elsewhere), None, None, asyncio.to_thread)) == ("read 1", "read 2")
    assert threading.current_thread() not in elsewhere


def run(steps: Steps, summarize: Any, *, twin: bool) -> str:
    if twin:
        return asyncio.run(drive_async(steps(), summarize))
    return drive(steps(), summarize)


@pytest.mark.parametrize("twin", [False, True])
def test_each_ask_is_answered_with_its_prompt(twin: bool) -> None:
    steps, model = Steps(), ScriptedModel(["one", Completion("two")])
    assert run(steps, model, twin=twin) == "done"
    assert steps.got == ["one", "two"]
    assert [(call.text, call.max_output_tokens) for call in model.calls] == [("first", 10), ("second", 10)]


@pytest.mark.parametrize("twin", [False, True])
def test_an_error_is_thrown_in_as_a_summary_error_with_its_cause(twin: bool) -> None:
    steps = Steps()
    cause = ConnectionError("gone")
    assert run(steps, ScriptedModel([cause, "two"]), twin=twin) == "done"
    assert isinstance(steps.got[0], SummaryError)
    assert steps.got[0].__cause__ is cause
    assert "ConnectionError: gone" in str(steps.got[0])
    assert steps.got[1] == "two"


@pytest.mark.parametrize("twin", [False, True])
@pytest.mark.parametrize("reason", ["length", "max_tokens", "refusal", "content_filter"])
def test_a_reply_that_did_not_end_well_is_an_error(twin: bool, reason: str) -> None:
    steps = Steps()
    run(steps, ScriptedModel([Completion("half a", reason), "two"]), twin=twin)
    assert isinstance(steps.got[0], SummaryError)


@pytest.mark.parametrize("twin", [False, True])
def test_a_summary_error_of_the_summariser_is_passed_on_as_it_is(twin: bool) -> None:
    steps, error = Steps(), SummaryError("no model today")
    run(steps, ScriptedModel([error, "two"]), twin=twin)
    assert steps.got[0] is error


@pytest.mark.parametrize("twin", [False, True])
def test_without_a_summariser_the_answer_is_empty(twin: bool) -> None:
    steps = Steps()
    run(steps, None, twin=twin)
    assert steps.got == ["", ""]


@pytest.mark.parametrize("twin", [False, True])
def test_steps_are_closed_when_something_else_goes_wrong(twin: bool) -> None:
    def interrupted(messages: list[dict[str, str]], most: int) -> str:
        raise KeyboardInterrupt

    steps = Steps()
    with pytest.raises(KeyboardInterrupt):
        run(steps, interrupted, twin=twin)
    assert steps.closed
    assert steps.got == []


@pytest.mark.parametrize("twin", [False, True])
def test_an_error_of_the_steps_comes_through(twin: bool) -> None:
    def failing() -> Generator[Ask, str, str]:
        yield ask("first")
        raise DoesNotFit(10, 5, ())

    model = ScriptedModel(["one"])
    with pytest.raises(DoesNotFit):
        assert asyncio.run(drive_async(failing(), model)) if twin else drive(failing(), model)


def test_a_coroutine_and_a_plain_text_will_both_do() -> None:
    async def later(messages: list[dict[str, str]], most: int) -> str:
        await asyncio.sleep(0)
        return "one"

    first, second = Steps(), Steps()
    asyncio.run(drive_async(first(), later))
    asyncio.run(drive_async(second(), lambda messages, most: "one"))
    assert first.got == second.got == ["one", "one"]


def test_a_cancellation_closes_the_steps_and_propagates() -> None:
    async def forever(messages: list[dict[str, str]], most: int) -> str:
        await asyncio.sleep(3_600)
        return ""

    async def go(steps: Steps) -> None:
        task = asyncio.create_task(drive_async(steps(), forever))
        await asyncio.sleep(0)
        task.cancel()
        await task

    steps = Steps()
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(go(steps))
    assert steps.closed
    assert steps.got == []


def test_the_prompt_that_is_handed_out_may_be_changed() -> None:
    def vandal(messages: list[dict[str, str]], most: int) -> str:
        messages.clear()
        return "one"

    steps = Steps()
    assert drive(steps(), vandal) == "done"
