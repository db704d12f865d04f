"""A large history is read in a thread where others share the loop, and they see the session as it stands meanwhile."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from tests.agent.test_session_context import Watched as WatchedCounter

from foldline.agent.session import AgentSession
from foldline.agent.session_context import RunSettings
from foldline.engine.context import Context
from foldline.engine.presets import policy
from foldline.reducers.base import Move
from foldline.store.files import FileArchive
from foldline.store.folders import FileStore
from foldline.store.session import FileSession
from foldline.view.budget import Need
from foldline.view.transcript import Fold
from foldline.view.view import View

LOOP = threading.main_thread()
LARGE = "\n".join(f"ok {number}" for number in range(200_000))


@dataclass(slots=True)
class Watched:
    """Proposes nothing; notes the threads that ask it, and keeps each waiting until it is let go."""

    threads: list[threading.Thread] = field(default_factory=list)
    asked: threading.Event = field(default_factory=threading.Event)
    goes_on: threading.Event = field(default_factory=threading.Event)
    name: str = "watched"

    def propose(self, view: View, need: Need, /) -> Iterable[Move]:
        self.threads.append(threading.current_thread())
        self.asked.set()
        if threading.current_thread() is not LOOP:
            assert self.goes_on.wait(60)
        return ()


def session_with(watched: Watched, text: str, *, shared: bool) -> AgentSession:
    """A session whose newest result is a text."""
    chosen = policy("balanced")
    chosen = replace(chosen, guard=(watched, *chosen.guard))
    under = RunSettings(
        dialect="openai-chat", model="m", policy=chosen, window=64_000, max_output_tokens=500, system=None, tools=None
    )
    session = AgentSession(under)
    session.writes_in_thread = shared
    call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    session.record([
        {"role": "user", "content": "Look."},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": text},
    ])  # fmt: skip
    return session


def seen(context: Context) -> Any:
    """What a reader finds in a session."""
    return (
        context.view.tokens,
        context.view.shown(),
        context.figures,
        context.view.entries_and_folds,
        context.event_count,
    )


@pytest.mark.parametrize(("text", "shared"), [("small", True), (LARGE, False)])
def test_a_small_history_and_one_that_nobody_shares_are_read_where_they_are(text: str, shared: bool) -> None:
    watched = Watched()
    asyncio.run(session_with(watched, text, shared=shared).prepare())
    assert watched.threads == [LOOP]


def test_while_a_large_history_is_read_the_loop_goes_on_and_the_session_stays_as_it_is() -> None:
    watched = Watched()
    session = session_with(watched, LARGE, shared=True)

    async def prepared() -> Any:
        before = seen(session.context)
        preparing = asyncio.create_task(session.prepare())
        while not watched.asked.is_set() and not preparing.done():
            await asyncio.sleep(0.001)
        during = [seen(session.context) for _ in range(3)]
        assert not preparing.done()
        watched.goes_on.set()
        request = await preparing
        assert during == [before] * 3
        return request

    request = asyncio.run(prepared())
    assert LOOP not in watched.threads
    assert [fold.reducer for fold in request.folds if isinstance(fold, Fold)] == ["truncate"]
    alone = asyncio.run(session_with(Watched(), LARGE, shared=False).prepare())
    assert alone.messages == request.messages


def test_a_cancellation_waits_for_what_is_read_and_changes_nothing() -> None:
    watched = Watched()
    session = session_with(watched, LARGE, shared=True)

    async def cancelled() -> None:
        before = seen(session.context)
        preparing = asyncio.create_task(session.prepare())
        while not watched.asked.is_set() and not preparing.done():
            await asyncio.sleep(0.001)
        preparing.cancel()
        for _ in range(20):
            await asyncio.sleep(0)
        assert not preparing.done()  # what reads the view must have ended before anything may change it
        watched.goes_on.set()
        with pytest.raises(asyncio.CancelledError):
            await preparing
        assert seen(session.context) == before
        request = await session.prepare()
        assert len(request.folds) == 1

    asyncio.run(cancelled())


def test_a_compaction_of_a_large_history_is_read_in_a_thread_too() -> None:
    watched = Watched()
    watched.goes_on.set()
    session = session_with(watched, "small", shared=True)
    asked: list[str] = []

    async def compacted() -> None:
        session.record([{"role": "assistant", "content": LARGE}, {"role": "user", "content": "And now?"}])
        folding = asyncio.create_task(session.compact(None, None))
        while not folding.done():
            asked.append("tick")
            await asyncio.sleep(0)
        assert (await folding)[0].before_tokens > 100_000

    asyncio.run(compacted())
    assert len(asked) > 3


class WatchedArchive(FileArchive):
    """Notes in which thread an original is put in place."""

    threads: list[threading.Thread]

    def put(self, data: bytes, /) -> str:
        self.threads.append(threading.current_thread())
        return super().put(data)


class WatchedSession(FileSession):
    """A session on a disk whose archive is watched."""

    @property
    def archive(self) -> WatchedArchive:
        watched = WatchedArchive(super().archive.root)
        watched.threads = self.__dict__.setdefault("threads", [])
        return watched


def under_counter(counter: Any) -> RunSettings:
    chosen = policy("balanced")
    return RunSettings(
        dialect="openai-chat",
        model="m",
        policy=chosen,
        window=16_000,
        max_output_tokens=500,
        system=None,
        tools=None,
        counter=counter,
    )


def test_what_a_user_says_at_length_is_counted_in_a_thread_where_others_share_the_loop() -> None:
    watched = WatchedCounter()
    session = AgentSession(under_counter(watched))
    session.writes_in_thread = True

    async def tokens_of_session() -> int:
        await session.count_in_background(LARGE)
        return session.add_user_message(LARGE).tokens

    tokens = asyncio.run(tokens_of_session())
    long = [thread for thread, chars in watched.counted if chars == len(LARGE)]
    assert len(long) == 1
    assert long[0] is not LOOP
    alone = AgentSession(under_counter(WatchedCounter()))
    assert alone.add_user_message(LARGE).tokens == tokens


def test_originals_are_put_in_place_in_a_thread_before_the_log_tells_of_their_fold(tmp_path: Path) -> None:
    made = FileStore(tmp_path).create(dialect="openai-chat")
    made.close()
    with closing(WatchedSession(made.folder, FileStore(made.folder / "agents"), fsync=False)) as stored:
        session = AgentSession(under_counter(WatchedCounter()), stored=stored)
        session.writes_in_thread = True

        async def folded() -> list[Fold]:
            session.add_user_message(f"Look. {LARGE}")
            session.record([{"role": "assistant", "content": "Done."}, {"role": "user", "content": "And now?"}])
            request = await session.prepare()
            return [fold for fold in request.folds if isinstance(fold, Fold)]

        folds = asyncio.run(folded())
        assert folds
        threads: list[threading.Thread] = stored.__dict__["threads"]
        assert threads and LOOP not in threads
        assert all(fold.archive is not None and fold.archive in FileArchive(stored.archive.root) for fold in folds)
