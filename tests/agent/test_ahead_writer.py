"""Summaries that an agent writes beside its turns: nobody waits for them, and nothing depends on them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.agent.support import DIALECTS, Answers, agent_over
from tests.agent.test_continued_summaries import CHECKPOINT, is_prompt, is_question

from foldline.agent.events import Notice
from foldline.agent.loop import Agent
from foldline.engine.events import FoldFailed, FoldFinished, SummaryWritten
from foldline.providers.summariser import summariser
from foldline.testing import FakeProvider, FakeReply
from foldline.testing.script import Body
from foldline.view.transcript import Fold

every_dialect = pytest.mark.parametrize("dialect", DIALECTS)


def look(arguments: Mapping[str, Any]) -> str:
    return f"Part {arguments.get('what')}: " + " ".join(f"line {n} of it is in order," for n in range(40))


class Model:
    """Calls `look` for ever, `calls` times in a turn; a summary comes once its gate is open."""

    def __init__(self, calls: int, summary: FakeReply | str = CHECKPOINT, *, gate: asyncio.Event | None = None) -> None:
        self.calls, self.looked = calls, 0
        self.summary, self.gate = summary, gate
        self.summaries = self.pending = self.most_pending = 0

    def __call__(self, body: Body) -> FakeReply | str:
        if is_question(body) or is_prompt(body):
            self.summaries += 1
            self.pending += 1
            self.most_pending = max(self.most_pending, self.pending)

            async def slow(number: int) -> None:
                if number == 0 and self.gate is not None:
                    await self.gate.wait()
                if number == 1:
                    self.pending -= 1

            reply = self.summary if isinstance(self.summary, FakeReply) else FakeReply(text=self.summary)
            return replace(reply, gate=slow) if self.gate is not None else reply
        self.looked += 1
        if self.looked % self.calls == 0:
            return "All good."
        return FakeReply(text="On.", calls=(("look", {"what": str(self.looked)}),))


async def go(agent: Agent, turns: int) -> None:
    agent.summarize = summariser(agent.provider)
    for number in range(turns):
        await agent.run(f"Look at the next parts, {number}.")


def of(kind: type, heard: list[Any]) -> list[Any]:
    return [event for event in heard if isinstance(event, kind)]


@every_dialect
def test_each_summary_is_there_when_its_fold_is_due(dialect: str, tmp_path: Path) -> None:
    """No turn waits: every summary that was put in was written ahead, and its cost is counted."""

    async def run() -> list[Any]:
        heard: list[Any] = []
        fake = FakeProvider(Model(8))
        async with agent_over(
            fake, Answers(look), dialect=dialect, chosen="sliding", root=tmp_path, heard=heard, window=12_000
        ) as agent:
            await go(agent, 8)
            agent.session.save()
        assert not fake.refusals
        return heard

    heard = asyncio.run(run())
    written = of(SummaryWritten, heard)
    folds = [fold for event in of(FoldFinished, heard) for fold in event.folds if fold.reducer == "summarize"]
    assert len(folds) >= 2
    assert {(fold.start, fold.stop) for fold in folds} <= {(each.start, each.stop) for each in written}
    assert all(each.asked and each.asked[0].input_tokens > 0 for each in written)
    assert all(not event.asked for event in of(FoldFinished, heard))


def test_a_turn_goes_on_while_its_summary_is_written_and_waits_once_the_window_is_full() -> None:
    async def run() -> None:
        gate, heard = asyncio.Event(), list[Any]()
        model = Model(200, gate=gate)
        async with agent_over(
            FakeProvider(model), Answers(look), chosen="sliding", heard=heard, window=12_000, max_iterations=200
        ) as agent:
            turn = asyncio.create_task(go(agent, 1))
            while not model.summaries:
                await asyncio.sleep(0.01)
            begun = model.looked
            await asyncio.sleep(0.5)
            while (stopped := model.looked) and not await still(model):
                pass
            assert stopped > begun
            assert agent.session.context.view.tokens > 0.9 * agent.session.context.limits.input_tokens
            assert (model.summaries, model.most_pending) == (1, 1)
            gate.set()
            while model.looked < stopped + 5:
                await asyncio.sleep(0.01)
            assert model.most_pending == 1
            assert of(FoldFinished, heard)[0].folds[0].start == of(SummaryWritten, heard)[0].start
            turn.cancel()
            await asyncio.gather(turn, return_exceptions=True)

    asyncio.run(run())


async def still(model: Model) -> bool:
    """Whether the model is called no more."""
    before = model.looked
    await asyncio.sleep(0.3)
    return model.looked == before


def test_a_session_that_is_left_while_a_summary_is_written_is_as_it_was(tmp_path: Path) -> None:
    """Closed in the middle of it: nothing of it is in the log, no task is left, and the next process goes on."""

    async def run() -> tuple[str, list[Any], int]:
        heard: list[Any] = []
        model = Model(4, gate=asyncio.Event())
        async with agent_over(
            FakeProvider(model), Answers(look), chosen="sliding", root=tmp_path, heard=heard, window=12_000
        ) as agent:
            agent.summarize = summariser(agent.provider)
            while not model.summaries:
                await agent.run("On.")
            name = agent.session.stored.id if agent.session.stored is not None else ""
            count = agent.session.context.event_count
        await asyncio.sleep(0.1)
        assert asyncio.all_tasks() == {asyncio.current_task()}
        return name, heard, count

    name, heard, count = asyncio.run(run())
    assert not of(SummaryWritten, heard)

    async def again() -> None:
        model = Model(4)
        async with agent_over(
            FakeProvider(model), Answers(look), chosen="sliding", root=tmp_path, resume=name, window=12_000
        ) as agent:
            assert agent.session.context.event_count == count
            assert not [event for event in agent.session.context.events if isinstance(event, Fold)]
            await go(agent, 2)
            assert model.summaries

    asyncio.run(again())


def test_a_failure_is_told_once_and_the_turn_asks_as_it_always_did() -> None:
    async def run() -> list[Any]:
        heard: list[Any] = []
        model = Model(8, FakeReply(text="half of", finish_reason="length"))
        async with agent_over(
            FakeProvider(model), Answers(look), chosen="sliding", heard=heard, window=12_000
        ) as agent:
            await go(agent, 10)
        return heard

    heard = asyncio.run(run())
    assert not of(SummaryWritten, heard)
    assert len(of(FoldFailed, heard)) >= 2
    told = [event for event in of(Notice, heard) if "written ahead" in event.text]
    assert len(told) == 1
    assert any(event.folds for event in of(FoldFinished, heard))


def test_a_server_that_answers_one_at_a_time_writes_between_turns_alone() -> None:
    async def run() -> None:
        gate = asyncio.Event()
        model = Model(6, gate=gate)
        async with agent_over(
            FakeProvider(model), Answers(look), chosen="sliding", window=12_000, one_slot=True
        ) as agent:
            agent.summarize = summariser(agent.provider)
            while not model.summaries:
                asked = model.summaries
                turn = asyncio.create_task(agent.run("On."))
                while not turn.done():
                    assert model.summaries == asked
                    await asyncio.sleep(0)
                await asyncio.sleep(0.05)
            assert agent.session.context.ahead.state == "writing"
            # The next turn does not queue behind it.
            model.calls = 1
            ended = await asyncio.wait_for(agent.run("On."), 20)
            assert ended.reason == "done"

    asyncio.run(run())


def test_the_words_of_a_summary_are_in_no_log_before_its_fold(tmp_path: Path) -> None:
    """The log stays the only truth: what was prepared is lost with its process, and nothing refers to it."""

    async def run() -> Agent:
        async with agent_over(
            FakeProvider(Model(4)), Answers(look), chosen="sliding", root=tmp_path, window=12_000
        ) as agent:
            agent.summarize = summariser(agent.provider)
            while agent.session.context.ahead.state != "ready":
                await agent.run("On.")
                await asyncio.sleep(0.05)
            return agent

    asyncio.run(run())
    assert "Goal: look at all parts" not in json.dumps([p.read_text() for p in tmp_path.rglob("*.jsonl")])
    assert any(tmp_path.rglob("*.jsonl"))
