"""A session that rests: folded just before the provider's cache expires, where that pays."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.agent.support import agent_over
from tests.agent.test_ahead_writer import Model, of
from tests.agent.test_breaking_off import room
from tests.agent.test_continued_summaries import CHECKPOINT, is_question

from foldline.agent.events import Notice
from foldline.agent.loop import Agent
from foldline.catalog.models import CACHE_RULES
from foldline.engine.events import FoldFinished
from foldline.engine.presets import policy
from foldline.providers.summariser import summariser
from foldline.testing import FakeProvider
from foldline.testing.script import Body
from foldline.view.transcript import Fold

# Anthropic's prices, with a cache that lives for a second.
BRIEF = replace(CACHE_RULES["anthropic"], lifetime_seconds=1)
LONG = "This is how it went with it, from the beginning to the end. " * 250


def words(body: Body) -> str:
    return CHECKPOINT if is_question(body) else LONG


async def talked(agent: Agent, turns: int = 14) -> None:
    agent.summarize = summariser(agent.provider)
    for number in range(turns):
        await agent.run(f"Tell me of part {number}. " + "It is about this and that. " * 20)


def folds_of(agent: Agent) -> list[Fold]:
    return [event for event in agent.session.context.events if isinstance(event, Fold)]


def session_of(
    act: Callable[[Agent], Any], *, heard: list[Any] | None = None, answer: Any = words, rule: Any = BRIEF, **given: Any
) -> Any:
    async def run() -> Any:
        async with agent_over(
            FakeProvider(answer, window_tokens=200_000, keep=200),
            window=200_000,
            max_output_tokens=4_000,
            chosen=replace(policy("balanced"), ahead=0.0),
            cache_rule=rule,
            heard=heard,
            rests=True,
            **given,
        ) as agent:
            return await act(agent)

    return asyncio.run(run())


def test_it_is_folded_before_the_cache_is_cold_and_the_next_request_is_small(tmp_path: Path) -> None:
    heard: list[Any] = []

    async def act(agent: Agent) -> None:
        await talked(agent)
        before = agent.session.context.view.tokens
        assert not folds_of(agent)
        told = len(heard)
        await asyncio.sleep(0.95)
        (fold,) = folds_of(agent)
        assert fold.reducer == "summarize"
        assert agent.session.stored is not None
        assert [event for event in agent.session.stored.events() if isinstance(event, Fold)] == [fold]
        assert agent.session.context.view.tokens < 0.6 * before
        # Nobody follows its events while the prompt waits: they come with the next turn.
        assert len(heard) == told
        await agent.run("And now?")
        assert any(event.folds == (fold,) and event.asked for event in of(FoldFinished, heard))

    session_of(act, heard=heard, root=tmp_path)


def test_a_full_disk_meanwhile_is_told_with_the_next_turn_and_nothing_is_lost(tmp_path: Path) -> None:
    heard: list[Any] = []
    unseen: list[Any] = []

    async def act(agent: Agent) -> None:
        asyncio.get_running_loop().set_exception_handler(lambda loop, found: unseen.append(found))
        await talked(agent)
        assert agent.session.stored is not None
        with room(0):
            await asyncio.sleep(0.95)
        assert (await agent.run("And now?")).reason == "done"
        gc.collect()
        assert list(agent.session.stored.events()) == list(agent.session.context.events)

    session_of(act, heard=heard, root=tmp_path)
    assert [event.text for event in of(Notice, heard) if "while it rested: [Errno" in event.text]
    assert unseen == []


def test_a_session_that_goes_on_in_time_is_not_folded() -> None:
    async def act(agent: Agent) -> None:
        agent.summarize = summariser(agent.provider)
        for number in range(8):
            await agent.run(f"Tell me of part {number}.")
            await asyncio.sleep(0.15)
        assert not folds_of(agent)

    session_of(act)


def test_a_small_session_is_left_as_it_is() -> None:
    """The summary would cost more than the next request saves."""

    async def act(agent: Agent) -> None:
        await talked(agent, 1)
        await asyncio.sleep(1.2)
        assert not folds_of(agent)

    session_of(act)


def test_a_server_without_a_cache_that_expires_has_nothing_to_save() -> None:
    async def act(agent: Agent) -> None:
        await talked(agent)
        await asyncio.sleep(0.3)
        assert not folds_of(agent)

    session_of(act, rule=CACHE_RULES["none"])


def test_a_turn_that_begins_in_the_middle_of_it_finds_the_session_in_order() -> None:
    model = Model(10**6, gate=asyncio.Event())

    async def act(agent: Agent) -> None:
        await talked(agent)
        while not model.summaries:
            await asyncio.sleep(0.01)
        ended = await asyncio.wait_for(agent.run("And now?"), 20)
        assert ended.reason == "done"
        assert not folds_of(agent)

    def answer(body: Body) -> Any:
        return model(body) if is_question(body) else LONG

    session_of(act, answer=answer)


def test_closing_leaves_no_task_behind() -> None:
    async def run() -> None:
        async with agent_over(FakeProvider(words), cache_rule=BRIEF, rests=True, window=200_000) as agent:
            await talked(agent, 1)
        await asyncio.sleep(0.05)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(run())
