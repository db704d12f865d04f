"""The state of each call that may fold: calls overlap, and none takes what is another's."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from foldline.engine.context import Context
from foldline.engine.drivers import Completion
from foldline.engine.events import ContextEvent, FoldFinished
from foldline.engine.presets import POLICIES
from foldline.errors import InvalidInput, SummaryError
from foldline.reducers.base import Ask, span_fold
from foldline.testing import ScriptedModel, session
from foldline.view.budget import Need
from foldline.view.transcript import Fold, Usage
from foldline.view.view import View


@dataclass(frozen=True)
class Piecewise:
    """A reducer that asks for a summary of each ten tiles by itself."""

    name: str = "piecewise"

    def propose(self, view: View, need: Need, /) -> Iterable[Ask]:
        del need
        for first in range(1, len(view.tiles) - 20, 10):
            span = view.span(first, first + 10)
            yield self._ask(view, span.start, span.stop)

    def _ask(self, view: View, start: int, stop: int) -> Ask:
        def finish(text: str) -> Fold:
            fold = span_fold(view, start, stop, (view.codec.note(text),), reducer=self.name, reason="asked")
            if not text or fold is None:
                raise SummaryError("not smaller")
            return fold

        prompt = ({"role": "user", "content": f"{start} to {stop}"},)
        return Ask(prompt=prompt, max_output_tokens=100, finish=finish, reducer=self.name, start=start, stop=stop)


POLICY = replace(POLICIES["sliding"], name="pieces", guard=(), always=(), reducers=(Piecewise(),), after_compact=())
SETTINGS: dict[str, Any] = {"window": 6_000, "max_output_tokens": 0, "policy": POLICY}


def full(**settings: Any) -> Context:
    context = Context(**(SETTINGS | settings))
    context.extend(
        [*session(60, result="a line of a result that was read\n" * 12), {"role": "user", "content": "now?"}]
    )
    return context


class Slow:
    """A summariser that waits for a test to say what it answers."""

    def __init__(self, context: Context) -> None:
        self._next: asyncio.Future[str | Completion] | None = None
        self.call = asyncio.create_task(context.prepare_async(self))

    async def __call__(self, messages: list[dict[str, str]], most: int) -> str | Completion:
        self._next = asyncio.get_running_loop().create_future()
        return await self._next

    async def says(self, *answers: str | Completion) -> None:
        """Answer so many questions, and go on to the next one."""
        for answer in answers:
            await asyncio.sleep(0)
            assert self._next is not None and not self._next.done()
            self._next.set_result(answer)
            for _ in range(4):
                await asyncio.sleep(0)

    async def ends(self) -> None:
        """Answer nothing to what else is asked."""
        while not self.call.done():
            if self._next is not None and not self._next.done():
                self._next.set_result("")
            await asyncio.sleep(0)


def batches(context: Context) -> list[int]:
    return [event.batch for event in context.events if isinstance(event, Fold)]


def test_folds_of_calls_that_overlap_are_taken_back_call_by_call_live_and_replayed() -> None:
    async def go() -> Context:
        context = full()
        one = Slow(context)
        await asyncio.sleep(0)
        two = Slow(context)
        await one.says("what the first call found, at some length")
        await two.says("the second, shorter")
        await one.says("what the first call found in what follows")
        await two.ends()
        await one.ends()
        return context

    context = asyncio.run(go())
    assert batches(context)[:3] == [0, 1, 0]
    again = Context.replay(context.events, **SETTINGS)
    taken = context.undo()
    assert again.undo() == taken
    while taken:
        assert again.view.shown() == context.view.shown()
        taken = context.undo()
        assert again.undo() == taken
    assert context.view.shown() == full().view.shown()


def test_an_undo_while_a_model_writes_takes_back_what_its_call_has_folded_so_far() -> None:
    async def go() -> Context:
        context = full()
        one = Slow(context)
        await one.says("what was found first")
        again = Context.replay(context.events, **SETTINGS)
        taken = context.undo()
        assert len(taken) == 1 and again.undo() == taken
        await one.says("of what is no longer so")
        await one.ends()
        assert one.call.result().tokens <= context.limits.input_tokens
        return context

    context = asyncio.run(go())
    assert Context.replay(context.events, **SETTINGS).view.shown() == context.view.shown()


def test_each_call_tells_of_its_own_folds_and_usage() -> None:
    told: list[ContextEvent] = []

    async def go() -> None:
        context = full(on_event=told.append)
        one = Slow(context)
        await asyncio.sleep(0)
        two = Slow(context)
        await one.says(Completion("what the first call found, at some length", usage=Usage(input_tokens=700)))
        await two.says(Completion("the second, shorter", usage=Usage(input_tokens=800)))
        await two.ends()
        await one.ends()
        assert [usage.input_tokens for usage in two.call.result().asked] == [800]
        assert [usage.input_tokens for usage in one.call.result().asked] == [700]

    asyncio.run(go())
    by_two, by_one = (event for event in told if isinstance(event, FoldFinished))
    assert [usage.input_tokens for usage in by_two.asked] == [800]
    assert [usage.input_tokens for usage in by_one.asked] == [700]
    assert {fold.batch for fold in by_one.folds} == {0} and {fold.batch for fold in by_two.folds} == {1}


def test_what_was_proposed_before_a_fork_is_not_folded_after_it() -> None:
    async def go() -> Context:
        context = full()
        one = Slow(context)
        await asyncio.sleep(0)
        context.sync([entry.recorded for entry in list(context.view.entries.values())[:30]])
        context.append({"role": "user", "content": "another way"})
        await one.says("of what was left")
        await one.ends()
        return context

    context = asyncio.run(go())
    assert batches(context) == []


def test_an_undo_after_a_release_takes_back_nothing_however_often_it_is_tried() -> None:
    context = full()
    context.prepare(ScriptedModel(["what was found"], repeat=True))
    context.release()
    shown = context.view.shown()
    for _ in range(2):
        with pytest.raises(InvalidInput, match="released"):
            context.undo()
        assert context.view.shown() == shown


def test_a_session_whose_every_message_was_folded_and_released_is_sent_on() -> None:
    context = Context(window=4_000, max_output_tokens=0)
    context.extend(session(12, result="a line of a result that was read\n" * 12)[1:])
    context.compact(summarize=ScriptedModel(["what was found"], repeat=True))
    shown = context.view.shown()
    assert context.release() == 24
    assert context.prepare().messages == shown


def test_a_requested_compaction_folds_an_answered_message_in_a_view_that_is_read_in_a_thread_too() -> None:
    async def go() -> Context:
        context = Context(window=100_000, max_output_tokens=0)
        context.in_thread = asyncio.to_thread
        context.extend(
            [{"role": "user", "content": "read this: " + "word " * 30_000}, {"role": "assistant", "content": "Done."}]
        )
        await context.compact_async(summarize=None)
        return context

    view = asyncio.run(go()).view
    assert [fold.start for fold in view.entries_and_folds if isinstance(fold, Fold)] == [0]
    assert view.content_bytes < 50_000
