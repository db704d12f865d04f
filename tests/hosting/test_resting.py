"""Sessions of a pool that rest: folded just before the cache expires, by the process that had them last."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.agent.test_continued_summaries import CHECKPOINT, is_question
from tests.agent.test_resting_sessions import BRIEF, LONG
from tests.hosting.pools import session_pool
from tests.serving import serve

from foldline.hosting.session_actor import SessionActor
from foldline.hosting.session_pool import SessionPool
from foldline.store.folders import FileStore
from foldline.testing import FakeProvider, FakeReply
from foldline.testing.script import Body
from foldline.view.transcript import Fold

TURNS = 14
REST_SECONDS = 1.3
"""A cache of `BRIEF` lives for a second."""


def words(body: Body) -> str:
    return CHECKPOINT if is_question(body) else LONG


async def talked(actor: SessionActor) -> None:
    """A long session whose last turn ends with a cache that lives for a second."""
    for number in range(TURNS):
        if number == TURNS - 1:
            await actor.inspect(lambda look: look.context.use_cache_rule(BRIEF))
        await actor.run_turn(f"Tell me of part {number}. " + "It is about this and that. " * 20)


async def folds_of(actor: SessionActor) -> list[Fold]:
    return [event for event in (await actor.whole()).events if isinstance(event, Fold)]


def with_pools(
    folder: Path, act: Callable[..., Awaitable[Any]], script: Any = words, *, count: int = 1
) -> FakeProvider:
    """Run `act` with pools of processes that share one store."""
    fake = FakeProvider(script, window_tokens=200_000, keep=200)

    async def run(url: str) -> None:
        async with AsyncExitStack() as stack:
            opened = [session_pool(url, folder, window=200_000) for _ in range(count)]
            await act(*[await stack.enter_async_context(one) for one in opened])

    with serve(fake) as served:
        asyncio.run(run(served.url))
    return fake


def asked(fake: FakeProvider) -> int:
    return sum(is_question(request.body) for request in fake.requests)


def test_it_is_folded_and_stored_and_the_next_turn_is_small(tmp_path: Path) -> None:
    async def act(pool: SessionPool) -> None:
        actor = await pool.create()
        await talked(actor)
        before = await actor.inspect(lambda look: look.context.view.tokens)
        assert not await folds_of(actor)
        await asyncio.sleep(REST_SECONDS)
        (fold,) = await folds_of(actor)
        assert fold.reducer == "summarize"
        assert await actor.inspect(lambda look: look.context.view.tokens) < 0.6 * before
        events = FileStore(tmp_path / "sessions").read(actor.id).events
        assert [event for event in events if isinstance(event, Fold)] == [fold]
        assert (await actor.run_turn("And now?")).reason == "done"

    assert asked(with_pools(tmp_path, act)) == 1


def test_a_session_that_another_process_has_gone_on_with_is_left_to_it(tmp_path: Path) -> None:
    async def act(one: SessionPool, other: SessionPool) -> None:
        actor = await one.create()
        await talked(actor)
        elsewhere = await other.actor(actor.id)
        await elsewhere.run_turn("Go on over there.")
        await asyncio.sleep(REST_SECONDS)
        assert not await folds_of(actor)

    assert asked(with_pools(tmp_path, act, count=2)) == 0


def test_a_turn_that_comes_meanwhile_does_not_wait(tmp_path: Path) -> None:
    begun = threading.Event()

    def slow(body: Body) -> Any:
        if not is_question(body):
            return LONG
        begun.set()

        async def never(number: int) -> None:
            await asyncio.sleep(60)

        return FakeReply(CHECKPOINT, gate=never)

    async def act(pool: SessionPool) -> None:
        actor = await pool.create()
        await talked(actor)
        assert await asyncio.to_thread(begun.wait, 20)
        state = await asyncio.wait_for(actor.inspect(lambda look: look.context.view.tokens), 5)
        assert state > 0
        ended = await asyncio.wait_for(actor.run_turn("And now?"), 20)
        assert ended.reason == "done"
        assert not await folds_of(actor)

    with_pools(tmp_path, act, slow)


@pytest.mark.parametrize("end", ["delete", "stop"])
def test_nothing_is_asked_once_it_is_over(tmp_path: Path, end: str) -> None:
    async def act(pool: SessionPool) -> None:
        actor = await pool.create()
        await talked(actor)
        await (pool.delete(actor.id) if end == "delete" else pool.stop(1.0))
        await asyncio.sleep(REST_SECONDS)

    assert asked(with_pools(tmp_path, act)) == 0


def test_what_was_undone_is_not_folded_again_while_nobody_looks(tmp_path: Path) -> None:
    async def act(pool: SessionPool) -> None:
        actor = await pool.create()
        await talked(actor)
        await actor.undo()
        await asyncio.sleep(REST_SECONDS)
        assert not await folds_of(actor)

    assert asked(with_pools(tmp_path, act)) == 0
