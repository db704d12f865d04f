"""Sessions as actors: ordered within one, concurrent between several; nothing is lost when callers or processes end."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from tests.hosting.pools import session_pool, words
from tests.serving import Served, serve

from foldline.agent.events import Accepted, AgentEvent, Calling, TurnEnded
from foldline.errors import InvalidInput, SessionTaken, Stopping, TooManyWaiting
from foldline.hosting.actor_values import KeyReused
from foldline.hosting.session_actor import ActorLimits, SessionActor
from foldline.hosting.session_lease import DialectMismatch
from foldline.store.folders import FileStore
from foldline.store.session import FileSession
from foldline.testing import FakeProvider, FakeReply
from foldline.view.transcript import Event

ANTHROPIC = "model: {{dialect: anthropic, provider: anthropic, base_url: '{url}', name: fake-model, api_key_env: KEY}}"


@contextmanager
def held(first: str | FakeReply) -> Iterator[tuple[Served, Callable[[], None]]]:
    """A server whose first reply waits for the test, and whose others are "ok"."""
    gate = asyncio.Event()
    reply = FakeReply(first) if isinstance(first, str) else first
    with serve(FakeProvider([replace(reply, gate=gate), FakeReply("ok")], repeat=True)) as served:
        yield served, lambda: served.set(gate)


async def until(holds: Callable[[], bool]) -> None:
    """Wait until something holds."""
    async with asyncio.timeout(120):
        while not holds():
            await asyncio.sleep(0.01)


async def begun(actor: SessionActor, text: str) -> asyncio.Task[TurnEnded]:
    """A turn that has called the model."""
    calling = asyncio.Event()

    def hear(event: AgentEvent) -> None:
        if isinstance(event, Calling):
            calling.set()

    turn = asyncio.create_task(actor.run_turn(text, listener=hear))
    await calling.wait()
    return turn


def test_a_session_is_made_goes_on_and_is_found_by_its_id(tmp_path: Path) -> None:
    async def talk() -> list[str]:
        with serve(FakeProvider(["one", "two"])) as served:
            async with session_pool(served.url, tmp_path) as pool:
                actor = await pool.create(title="A")
                heard: list[AgentEvent] = []
                first = await actor.run_turn("1?", listener=heard.append)
                assert isinstance(heard[0], Accepted)
                assert isinstance(heard[-1], TurnEnded)
                again = await pool.actor(actor.id[:20])
                assert again is actor
                second = await again.run_turn("2?")
                assert (first.text, second.text) == ("one", "two")
                return words(tmp_path, actor.id)

    assert asyncio.run(talk()) == ["1?", "one", "2?", "two"]


def test_turns_of_one_session_wait_for_each_other_and_those_of_others_do_not(tmp_path: Path) -> None:
    async def talk() -> None:
        with held("slow") as (served, let):
            async with session_pool(served.url, tmp_path) as pool:
                slow, other = await pool.create(), await pool.create()
                first = await begun(slow, "a")
                second = asyncio.create_task(slow.run_turn("b"))
                assert (await other.run_turn("c")).text == "ok"
                assert slow.running
                assert slow.queued == 1
                let()
                assert [(await first).text, (await second).text] == ["slow", "ok"]
                assert words(tmp_path, slow.id) == ["a", "slow", "b", "ok"]

    asyncio.run(talk())


def test_a_key_that_was_there_runs_nothing_and_brings_the_same_answer(tmp_path: Path) -> None:
    fake = FakeProvider(["the answer", "another"])

    async def talk() -> None:
        with serve(fake) as served:
            async with session_pool(served.url, tmp_path) as pool:
                actor = await pool.create()
                first = await actor.run_turn("What?", key="k1")
                again = await actor.run_turn("What?", key="k1")
                assert (again.text, again.reason) == (first.text, "done")
                other = await actor.run_turn("What?", key="k2")
                assert other.text == "another"
                assert (
                    await actor.run_turn("Why?", key="k1")
                ).text == "the answer"  # of a file, in other words by then
                with pytest.raises(KeyReused):
                    await actor.run_turn("Why?", key="k1", same_text=True)
            async with session_pool(served.url, tmp_path) as pool:
                assert (await (await pool.actor(actor.id)).run_turn("What?", key="k1")).text == "the answer"

    asyncio.run(talk())
    assert fake.served == 2


@pytest.mark.parametrize(("setting", "reason"), [("pause", "paused"), ("continue", "done")])
def test_who_leaves_pauses_the_turn_or_lets_it_go_on_as_it_is_set(tmp_path: Path, setting: str, reason: str) -> None:
    yaml = f"session: {{on_disconnect: {setting}}}"

    async def talk() -> None:
        look = FakeReply("", calls=[("list_files", {})])
        with held(look) as (served, let):
            async with session_pool(served.url, tmp_path, yaml=yaml) as pool:
                actor = await pool.create()
                heard: list[AgentEvent] = []
                pool.subscribe(lambda _, event: heard.append(event))
                first = await begun(actor, "a")
                first.cancel()
                await asyncio.gather(first, return_exceptions=True)
                let()
                await until(lambda: not actor.busy)
                assert isinstance(heard[-1], TurnEnded)
                assert heard[-1].reason == reason

    asyncio.run(talk())


def test_who_leaves_before_the_turn_began_leaves_nothing(tmp_path: Path) -> None:
    async def talk() -> None:
        with held("slow") as (served, let):
            async with session_pool(served.url, tmp_path) as pool:
                actor = await pool.create()
                first = await begun(actor, "a")
                second = asyncio.create_task(actor.run_turn("b"))
                await until(lambda: actor.queued == 1)
                second.cancel()
                let()
                await first
                await until(lambda: not actor.busy)
                assert words(tmp_path, actor.id) == ["a", "slow"]

    asyncio.run(talk())


def test_a_turn_that_is_stopped_is_recorded_and_what_waits_goes_on(tmp_path: Path) -> None:
    async def talk() -> None:
        with held("slow") as (served, let):
            async with session_pool(served.url, tmp_path) as pool:
                actor = await pool.create()
                assert not actor.cancel()
                first = await begun(actor, "a")
                second = asyncio.create_task(actor.run_turn("b"))
                await until(lambda: actor.queued == 1)
                assert actor.cancel()
                assert (await first).reason == "cancelled"
                assert (await second).text == "ok"
                let()
                ends = [one["reason"] for one in FileStore(tmp_path / "sessions").records(actor.id) if "reason" in one]
                assert ends == ["cancelled", "done"]

    asyncio.run(talk())


def test_a_queue_that_is_full_and_words_that_are_none_are_refused(tmp_path: Path) -> None:
    async def talk() -> None:
        with held("slow") as (served, let):
            async with session_pool(served.url, tmp_path, limits=ActorLimits(queued=1)) as pool:
                actor = await pool.create()
                with pytest.raises(InvalidInput, match="text: there is nothing in it"):
                    await actor.run_turn("  ")
                first = await begun(actor, "a")
                second = asyncio.create_task(actor.run_turn("b"))
                await until(lambda: actor.queued == 1)
                with pytest.raises(TooManyWaiting, match="1 wait for this session"):
                    await actor.run_turn("c")
                let()
                assert [(await first).text, (await second).text] == ["slow", "ok"]

    asyncio.run(talk())


def test_a_turn_that_takes_too_long_is_stopped(tmp_path: Path) -> None:
    async def talk() -> None:
        with held("slow") as (served, let):
            async with session_pool(served.url, tmp_path, limits=ActorLimits(turn_seconds=0.2)) as pool:
                actor = await pool.create()
                ended = await actor.run_turn("a")
                assert (ended.reason, ended.message) == ("cancelled", "Stopped after 0 seconds.")
                let()
                assert (await actor.run_turn("b")).text == "ok"

    asyncio.run(talk())


@pytest.mark.parametrize("grace_seconds", [0.0, 20.0])
def test_a_stop_lets_the_turn_end_or_records_that_it_was_cut_off(tmp_path: Path, grace_seconds: float) -> None:
    async def talk() -> list[str]:
        with held("slow") as (served, let):
            async with session_pool(served.url, tmp_path) as pool:
                actor = await pool.create()
                first = await begun(actor, "a")
                waiting = asyncio.create_task(actor.run_turn("b"))
                await until(lambda: actor.queued == 1)
                stopping = asyncio.create_task(pool.stop(grace_seconds))
                with pytest.raises(Stopping):
                    await waiting
                if grace_seconds:
                    let()
                await stopping
                ended = await first
                assert ended.reason == ("done" if grace_seconds else "cancelled")
                with pytest.raises(Stopping):
                    await pool.create()
                let()
                return words(tmp_path, actor.id)

    said = asyncio.run(talk())
    assert "b" not in said
    assert said[0] == "a"
    with FileStore(tmp_path / "sessions").open("latest") as session:
        assert not session.tally.running


def test_a_session_that_another_process_writes_is_read_and_waited_for(tmp_path: Path) -> None:
    async def talk() -> None:
        with serve(FakeProvider("ok")) as served:
            async with session_pool(served.url, tmp_path, limits=ActorLimits(acquire_seconds=0.1)) as pool:
                actor = await pool.create()
                await actor.run_turn("a")
                other = FileStore(tmp_path / "sessions").open(actor.id)
                with pytest.raises(SessionTaken):
                    await actor.run_turn("b")
                assert await actor.inspect(lambda seen: len(seen.context.view.entries)) == 2
                assert len((await actor.whole()).view.entries) == 2
                other.change(title="By another.")
                other.close()
                await actor.run_turn("c")
                assert await actor.inspect(lambda seen: seen.header.title) == "By another."
                assert words(tmp_path, actor.id) == ["a", "ok", "c", "ok"]

    asyncio.run(talk())


def test_a_turn_whose_process_ended_is_recorded_as_interrupted(tmp_path: Path) -> None:
    store = FileStore(tmp_path / "sessions", fsync=False)

    async def talk() -> None:
        with serve(FakeProvider("ok")) as served:
            async with session_pool(served.url, tmp_path) as pool:
                actor = await pool.create()
                with store.open(actor.id) as other:
                    other.turn("begun")
                await actor.run_turn("a")
                turns = [one.get("reason", "") for one in store.records(actor.id) if one["type"] == "turn"]
                assert turns == ["", "interrupted", "", "done"]

    asyncio.run(talk())


def test_what_is_idle_leaves_memory_and_goes_on_where_it_was(tmp_path: Path) -> None:
    async def talk() -> None:
        limits = ActorLimits(idle_seconds=0.05)
        with serve(FakeProvider("ok")) as served:
            async with session_pool(served.url, tmp_path, limits=limits) as pool:
                actor = await pool.create()
                await actor.run_turn("a")
                await until(lambda: actor.id not in pool.actors)
                assert not actor.warm
                again = await pool.actor(actor.id)
                assert again is not actor
                await again.run_turn("b")
                assert words(tmp_path, actor.id) == ["a", "ok", "b", "ok"]

    asyncio.run(talk())


def test_no_more_sessions_than_are_wanted_stay_in_memory(tmp_path: Path) -> None:
    async def talk() -> None:
        with serve(FakeProvider("ok")) as served:
            async with session_pool(served.url, tmp_path, limits=ActorLimits(warm=1)) as pool:
                made = [await pool.create() for _ in range(3)]
                for actor in made:
                    await actor.run_turn("a")
                await until(lambda: [actor.warm for actor in made] == [False, False, True])

    asyncio.run(talk())


def test_a_key_has_one_session_until_it_is_renewed(tmp_path: Path) -> None:
    async def talk() -> None:
        with serve(FakeProvider("ok")) as served:
            async with session_pool(served.url, tmp_path) as pool:
                both = await asyncio.gather(pool.session_for_key("telegram:1"), pool.session_for_key("telegram:1"))
                assert both[0] is both[1]
                assert (await pool.session_for_key("telegram:2")).id != both[0].id
                new = await pool.renew("telegram:1")
                assert new.id != both[0].id
                assert await pool.session_for_key("telegram:1") is new
            async with session_pool(served.url, tmp_path) as pool:
                assert (await pool.session_for_key("telegram:1")).id == new.id

    asyncio.run(talk())


def test_a_session_of_another_dialect_is_gone_on_with_in_a_new_one(tmp_path: Path) -> None:
    async def talk() -> None:
        with serve(FakeProvider("ok")) as served:
            async with session_pool(served.url, tmp_path) as pool:
                old = await pool.session_for_key("k")
                await old.run_turn("Remember 42.")
            async with session_pool(
                served.url,
                tmp_path,
                yaml=ANTHROPIC.format(url=served.url),
                base_url=None,
                model=None,
                environ={"KEY": "k"},
            ) as pool:
                with pytest.raises(DialectMismatch, match="speaks openai-chat"):
                    await (await pool.actor(old.id)).run_turn("b")
                new = await pool.session_for_key("k")
                assert new.id != old.id
                await new.run_turn("And?")
                assert "Remember 42." in str(words(tmp_path, new.id)[0])

    asyncio.run(talk())


def test_a_session_that_is_deleted_is_gone_and_its_turn_is_stopped(tmp_path: Path) -> None:
    async def talk() -> None:
        with held("slow") as (served, let):
            async with session_pool(served.url, tmp_path) as pool:
                actor = await pool.create()
                first = await begun(actor, "a")
                await pool.delete(actor.id)
                let()
                await asyncio.gather(first, return_exceptions=True)
                with pytest.raises(InvalidInput, match="there is no session"):
                    await pool.actor(actor.id)
                assert FileStore(tmp_path / "sessions").names() == []

    asyncio.run(talk())


def test_what_waits_for_a_session_that_is_deleted_hears_that_it_is_gone(tmp_path: Path) -> None:
    async def talk() -> None:
        with held("slow") as (served, let):
            async with session_pool(served.url, tmp_path) as pool:
                actor = await pool.create()
                first = await begun(actor, "a")
                waits = asyncio.create_task(actor.run_turn("b"))
                await until(lambda: actor.queued == 1)
                await pool.delete(actor.id)
                let()
                await asyncio.gather(first, return_exceptions=True)
                with pytest.raises(InvalidInput, match="there is no session"):
                    await waits
                with pytest.raises(InvalidInput, match="there is no session"):  # by whoever found it before
                    await actor.run_turn("c")

    asyncio.run(talk())


def test_who_leaves_the_queue_makes_room_in_it(tmp_path: Path) -> None:
    async def talk() -> None:
        with held("slow") as (served, let):
            async with session_pool(served.url, tmp_path, limits=ActorLimits(queued=1)) as pool:
                actor = await pool.create()
                first = await begun(actor, "a")
                left = asyncio.create_task(actor.run_turn("b"))
                await until(lambda: actor.queued == 1)
                with pytest.raises(TooManyWaiting):
                    await actor.run_turn("c")
                left.cancel()
                await until(lambda: actor.queued == 0)
                stays = asyncio.create_task(actor.run_turn("d"))
                await asyncio.sleep(0)
                let()
                assert (await first).reason == (await stays).reason == "done"
                assert words(tmp_path, actor.id) == ["a", "slow", "d", "ok"]

    asyncio.run(talk())


def test_a_session_whose_deletion_was_given_up_can_still_be_used(tmp_path: Path) -> None:
    async def talk() -> None:
        with serve(FakeProvider("ok")) as served:
            async with session_pool(served.url, tmp_path) as pool:
                actor = await pool.create()
                async with actor._order_lock:  # something in a thread that takes long
                    deleting = asyncio.create_task(pool.delete(actor.id))
                    await asyncio.sleep(0.01)
                    deleting.cancel()
                    await asyncio.gather(deleting, return_exceptions=True)
                assert (await actor.run_turn("there?")).reason == "done"

    asyncio.run(talk())


def test_folds_are_made_taken_back_and_kept_off(tmp_path: Path) -> None:
    async def talk() -> None:
        with serve(FakeProvider("word " * 200)) as served:
            async with session_pool(served.url, tmp_path) as pool:
                actor = await pool.create()
                for number in range(4):
                    await actor.run_turn(f"{number}? " + "text " * 200)
                done = await actor.compact("briefly")
                assert done.after.used_tokens < done.before.used_tokens
                assert done.folds
                assert done.summary
                assert await actor.undo()
                assert await actor.undo() == ()
                await actor.pin(0)
                whole = await actor.whole()
                assert whole.view.tiles[whole.view.index(0)].pinned
                with pytest.raises(InvalidInput, match="no entry 99"):
                    await actor.pin(99)
                await actor.use_policy("cost")
                assert await actor.inspect(lambda seen: seen.context.policy.name) == "cost"
                with pytest.raises(InvalidInput):
                    await actor.use_policy("nonsense")

    asyncio.run(talk())


def test_who_waits_for_another_process_keeps_no_turn_from_others(tmp_path: Path) -> None:
    async def talk() -> None:
        with serve(FakeProvider("ok")) as served:
            async with session_pool(served.url, tmp_path, limits=ActorLimits(turns=1)) as pool:
                taken, free = await pool.create(), await pool.create()
                other = FileStore(tmp_path / "sessions").open(taken.id)
                waiting = asyncio.create_task(taken.run_turn("a"))
                await until(lambda: taken.busy)
                for _ in range(3):
                    assert (await free.run_turn("b")).text == "ok"
                assert not waiting.done()
                other.close()
                assert (await waiting).text == "ok"

    asyncio.run(talk())


class Slow(FileSession):
    """A session whose disk, or database, does not answer until it is let to."""

    answers = threading.Event()

    def append(self, events: Iterable[Event]) -> None:
        assert self.answers.wait(120)
        super().append(events)


class SlowStore(FileStore):
    """A store whose first session is slow."""

    def open(self, name: str) -> FileSession:
        folder = self.root / name
        return Slow(folder, self.agents(name)) if name == self.names()[0] else super().open(name)


def test_a_disk_that_does_not_answer_holds_up_one_session_and_no_other(tmp_path: Path) -> None:
    store = SlowStore(tmp_path / "sessions", fsync=False)
    names = []
    for _ in range(2):
        with store.create(dialect="openai-chat", model="fake-model") as session:
            names.append(session.id)
    slow, quick = sorted(names)

    async def talk() -> None:
        with serve(FakeProvider("ok")) as served:
            async with session_pool(served.url, tmp_path, store=store) as pool:
                heard: list[AgentEvent] = []
                waiting = asyncio.create_task((await pool.actor(slow)).run_turn("a", listener=heard.append))
                other = await pool.actor(quick)
                assert (await other.run_turn("b")).text == "ok"
                assert not any(isinstance(event, Accepted) for event in heard)
                Slow.answers.set()
                assert (await waiting).text == "ok"

    asyncio.run(talk())
    assert words(tmp_path, slow) == ["a", "ok"]
