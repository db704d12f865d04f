"""Conversations in a store: evicted, resumed, continued by another process, and read by no other client."""

from __future__ import annotations

import asyncio
import gc
import json
import re
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from threading import Barrier
from time import sleep
from typing import Any, cast

import pytest
from tests.conversations.clients import (
    Client,
    Wire,
    body_of,
    conversations,
    goes_on_from,
    judged,
    plan_request,
    session_of,
    steps,
    turns,
)
from tests.conversations.lossy_store import LossyStore
from tests.store.places import Places, store_at

from foldline.conversations.conversation_cache import PlannedRequest
from foldline.conversations.persistence import ConversationStore, LateArchive
from foldline.conversations.service import Conversations
from foldline.engine.context import Context, Request, SummarizeWith
from foldline.errors import InvalidInput
from foldline.failures.failure import Failure
from foldline.store.base import Store
from foldline.store.clock import now_utc
from foldline.store.folders import FileStore
from foldline.view.archive import MemoryArchive
from foldline.view.transcript import Entry

KINDS = ("files", "sqlite")
DIALECTS = ("openai-chat", "openai-responses", "anthropic")


def opened(place: str, *, shared: bool = False, max_bytes: int = 10**9) -> Conversations:
    """The conversations of one process, in the store at a place."""
    keeping = ConversationStore(store_at(place))
    return conversations(max_bytes, store=keeping, shared=shared, notice=_no_notice)


def _no_notice(line: str) -> None:
    if line.startswith("The store cannot be used"):
        raise AssertionError(line)


def run(work: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        await work()

    asyncio.run(main())


@pytest.mark.parametrize(
    ("kind", "dialect"), [("files", "openai-chat"), ("sqlite", "openai-responses"), ("sqlite", "anthropic")]
)
def test_a_new_process_goes_on_with_the_same_folds_to_the_byte(places: Places, kind: str, dialect: str) -> None:
    wires, place = turns(dialect, 11), places(kind)
    at = steps(wires)

    async def work() -> None:
        one = opened(place)
        client = Client(dialect, one, 2_500)
        holds = await client.grow(wires, at)
        last = max(number for number, hold in enumerate(holds) if hold.plan.new_folds)
        assert session_of(one, holds[-1])
        await one.aclose()
        for number in range(last, len(holds)):
            other = opened(place)
            hold = await Client(dialect, other, 2_500).send(wires[: at[number]])
            assert hold.plan.data == holds[number].plan.data and not hold.plan.new_folds
            assert hold.plan.folds == holds[number].plan.folds
            await other.aclose()

    run(work)


def test_it_folds_on_after_coming_back(places: Places) -> None:
    wires, place = turns("anthropic", 30), places("sqlite")
    at = steps(wires)

    async def work() -> None:
        before: PlannedRequest | None = None
        ids = set()
        for first in range(0, len(at), 20):
            service = opened(place)
            client = Client("anthropic", service, 2_500)
            for stop in at[first : first + 20]:
                hold = await client.send(wires[:stop])
                goes_on_from(before, hold)
                before = hold
            ids.add(session_of(service, hold))
            await service.aclose()
        assert len(ids) == 1, "it is one session in the store"
        store = store_at(place)
        recorded = [entry.recorded for entry in store.read(ids.pop()).events if hasattr(entry, "recorded")]
        assert recorded == wires[: len(recorded)] and len(recorded) > 90
        store.close()

    run(work)


@pytest.mark.parametrize("kind", KINDS[:1])
def test_what_had_to_go_from_memory_comes_back_with_its_folds(places: Places, kind: str) -> None:
    place = places(kind)
    by_mark = {mark: turns("openai-chat", 11, mark=mark) for mark in "ab"}

    async def work() -> None:
        service = opened(place, max_bytes=1)
        clients = {mark: Client("openai-chat", service, 2_500) for mark in by_mark}
        for number in range(len(steps(by_mark["a"]))):
            for mark, client in clients.items():  # one after the other: each sends the other one away
                wires = by_mark[mark]
                hold = await client.send(wires[: steps(wires)[number]])
                if client.holds[:-1]:
                    goes_on_from(client.holds[-2], hold)
                assert set(re.findall(r"\[([a-z])\d+\]", hold.plan.data.decode())) == {mark}
                assert len(service) == 1
        for client in clients.values():
            assert client.holds[-1].plan.folds
            assert sum(bool(hold.plan.new_folds) for hold in client.holds) < len(client.holds) / 3
        await service.aclose()
        store = store_at(place)
        assert len(store.names()) == 2
        store.close()

    run(work)


@pytest.mark.parametrize(("kind", "shared"), [("files", 1), ("files", 4), ("sqlite", 5)])
def test_those_with_one_beginning_come_back_each_with_its_own_folds(places: Places, kind: str, shared: int) -> None:
    place = places(kind)
    first = turns("openai-chat", 3)[:shared]
    by_mark = {mark: [*first, *turns("openai-chat", 11, mark=mark)[shared:]] for mark in "abc"}

    async def work() -> None:
        one = opened(place)
        last = {}
        for mark, wires in by_mark.items():
            last[mark] = (await Client("openai-chat", one, 2_500).grow(wires, steps(wires)))[-1]
            assert last[mark].plan.folds
        await one.aclose()
        other = opened(place)
        await Client("openai-chat", other, 2_500).send(first[:1])  # and one that has only begun
        for mark, wires in by_mark.items():
            hold = await Client("openai-chat", other, 2_500).send(wires[: steps(wires)[-1]])
            assert hold.plan.data == last[mark].plan.data, f"{mark} was folded anew"
        await other.aclose()

    run(work)


@pytest.mark.parametrize("kind", KINDS[:1])
def test_named_ones_come_back_by_their_names(places: Places, kind: str) -> None:
    place, wires = places(kind), turns("openai-chat", 13)
    at = steps(wires)

    async def work() -> None:
        one = opened(place)
        last = {}
        for name, window_tokens in (("ann", 2_500), ("bob", 3_500)):
            last[name] = (await Client("openai-chat", one, window_tokens, name=name).grow(wires, at))[-1]
        await one.aclose()
        assert last["ann"].plan.data != last["bob"].plan.data
        other = opened(place)
        for name, window_tokens in (("bob", 3_500), ("ann", 2_500)):
            hold = await Client("openai-chat", other, window_tokens, name=name).send(wires[: at[-1]])
            assert hold.plan.data == last[name].plan.data
        await other.aclose()

    run(work)


@pytest.mark.parametrize("kind", KINDS[1:])
def test_an_edit_of_what_was_let_go_of_forks(places: Places, kind: str) -> None:
    """In memory only the folds are left; the branch is made of what the store has."""
    place, wires, edited = places(kind), turns("anthropic", 14), turns("anthropic", 14, mark="e")

    async def work() -> None:
        service = opened(place)
        client = Client("anthropic", service, 2_500)
        first = (await client.grow(wires, steps(wires)))[-1]
        assert first.cached.conversation.context.released
        for keep in (8, 40):
            way = [*wires[:keep], *edited[keep:]]
            holds = await client.grow(way, [stop for stop in steps(way) if stop > keep])
            assert holds[0].session != first.session
        again = await client.send([*wires, turns("anthropic", 1, mark="z")[0]])
        assert again.session == first.session and "[e" not in again.plan.data.decode()
        await service.aclose()

    run(work)


def test_a_branch_of_one_whose_session_was_let_go_of_begins_with_all_of_its_messages(places: Places) -> None:
    """A source that is evicted before it is branched has no whole history in memory."""
    wires, edited = turns("openai-chat", 16), turns("openai-chat", 16, mark="e")

    async def work() -> None:
        service = opened(places("files"))
        first = (await Client("openai-chat", service, 2_500).grow(wires, steps(wires)))[-1]
        assert first.cached.conversation.context.released
        service._store.store.forget(first.cached.conversation)  # type: ignore[union-attr]
        way = [*wires[:8], *edited[8:12]]
        hold = await Client("openai-chat", service, 2_500).send(way)
        recorded = [e.recorded for e in hold.cached.conversation.context.events if isinstance(e, Entry)]
        assert recorded == way and hold.session != first.session
        await service.aclose()

    run(work)


@pytest.mark.parametrize("kind", KINDS)
def test_a_refusal_of_an_older_request_is_a_branch_of_what_was_let_go_of(places: Places, kind: str) -> None:
    place, wires = places(kind), turns("openai-chat", 11)
    at = steps(wires)

    async def work() -> None:
        service = opened(place)
        client = Client("openai-chat", service, 2_500)
        holds = await client.grow(wires, at)
        old = holds[-2]
        assert old.cached.conversation.context.released
        before = old.plan.tokens
        assert await service.recover(old, Failure("prompt_overflow"))
        assert old.plan.tokens < before
        judged(old)
        conversation = old.cached.conversation
        assert conversation.count == at[-2]
        name = session_of(service, old)
        await service.aclose()
        events = store_at(place).read(name).events
        assert [event.recorded for event in events if isinstance(event, Entry)] == wires[: at[-2]]

    run(work)


@pytest.mark.parametrize("kind", KINDS)
def test_a_recovery_is_remembered(places: Places, kind: str) -> None:
    place, wires = places(kind), turns("openai-chat", 20)

    async def work() -> None:
        one = opened(place)
        hold = await Client("openai-chat", one, 16_000).send(wires)
        assert not hold.plan.changed
        assert await one.recover(hold, Failure("prompt_overflow"))
        await one.aclose()
        other = opened(place)
        again = await Client("openai-chat", other, 16_000).send(wires)
        assert again.plan.data == hold.plan.data
        await other.aclose()

    run(work)


@pytest.mark.parametrize("kind", KINDS)
def test_one_that_was_overtaken_goes_on_with_what_the_other_wrote(places: Places, kind: str) -> None:
    """It does not look into the store before it writes, and finds there that another one has folded meanwhile."""
    place, wires = places(kind), turns("anthropic", 40)
    at = steps(wires)

    async def work() -> None:
        slow, quick = opened(place), opened(place, shared=True)
        late, early = Client("anthropic", slow, 2_500), Client("anthropic", quick, 2_500)
        number = await until_it_folds(late, wires, at, 0)
        number = await until_it_folds(early, wires, at, number)
        ours = await early.send(wires[: at[number]])
        number = await until_it_folds(late, wires, at, number)
        hold = late.holds[-1]
        assert not hold.warning
        assert session_of(slow, hold) == session_of(quick, ours), "one session in the store"
        await slow.aclose()
        await quick.aclose()
        again = opened(place)
        back = await Client("anthropic", again, 2_500).send(wires[: at[number - 1]])
        assert back.plan.data == hold.plan.data
        await again.aclose()

    run(work)


async def until_it_folds(client: Client, wires: list[Wire], at: list[int], number: int) -> int:
    """Send one turn after another until something is folded; the number of the next turn."""
    while True:
        hold = await client.send(wires[: at[number]])
        number += 1
        if hold.plan.new_folds:
            return number


def test_one_that_went_on_and_had_to_go_meanwhile_takes_no_others_words(places: Places) -> None:
    """Two answers to one history, at once, in a memory that holds one conversation."""
    place = places("files")
    stem = turns("openai-chat", 11)
    ways = {mark: [*stem, *turns("openai-chat", 2, mark=mark)] for mark in "abcd"}

    async def work() -> None:
        service = opened(place, max_bytes=1)
        await Client("openai-chat", service, 2_500).grow(stem, steps(stem))
        for turn in range(4):
            asked = {mark: way[: steps(way)[len(steps(stem)) + turn]] for mark, way in ways.items()}
            holds = await asyncio.gather(*(Client("openai-chat", service, 2_500).send(asked[mark]) for mark in ways))
            for mark, hold in zip(ways, holds, strict=True):
                assert set(re.findall(r"\[([a-z])\d+\]", hold.plan.data.decode())) == {mark}
                recorded = json.dumps([e.recorded for e in hold.cached.conversation.context.view.entries.values()])
                assert set(re.findall(r"\[([a-z])\d+\]", recorded)) == {mark}
        await service.aclose()

    run(work)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_two_processes_that_take_turns_send_one_stable_prefix(places: Places, dialect: str) -> None:
    wires, place = turns(dialect, 12), places("sqlite")

    async def work() -> None:
        both = [opened(place, shared=True) for _ in range(2)]
        clients = [Client(dialect, service, 2_500) for service in both]
        before: PlannedRequest | None = None
        ids = set()
        for number, stop in enumerate(steps(wires)):
            hold = await clients[number % 2].send(wires[:stop])
            assert not hold.warning
            goes_on_from(before, hold)
            before = hold
            ids.add(session_of(both[number % 2], hold))
        assert hold.plan.folds and len(ids - {""}) == 1
        assert [len(service) for service in both] == [1, 1], "each holds it once, however often it is read anew"
        for service in both:
            await service.aclose()

    run(work)


def test_two_processes_at_once_never_mix_and_never_fail(places: Places) -> None:
    place = places("sqlite")

    async def work() -> None:
        both = [opened(place, shared=True) for _ in range(2)]

        async def talk(mark: str) -> None:
            wires = [*turns("openai-chat", 1)[:1], *turns("openai-chat", 10, mark=mark)[1:]]
            clients = [Client("openai-chat", service, 2_500) for service in both]
            for number, stop in enumerate(steps(wires)):
                asked = [clients[number % 2].send(wires[:stop])]
                if number % 3 == 0:  # a client that asks again, and comes out at the other one
                    asked.append(clients[1 - number % 2].send(wires[:stop]))
                for hold in await asyncio.gather(*asked):
                    assert set(re.findall(r"\[([a-z])\d+\]", hold.plan.data.decode())) <= {mark}

        await asyncio.gather(*map(talk, "abc"))
        for service in both:
            await service.aclose()

    run(work)


@pytest.mark.parametrize("kind", KINDS)
def test_what_was_never_folded_is_nowhere_in_the_store(places: Places, kind: str) -> None:
    place = places(kind)

    async def work() -> None:
        service = opened(place)
        wires = turns("openai-chat", 2)
        hold = (await Client("openai-chat", service, 8_000).grow(wires, steps(wires)))[-1]
        assert session_of(service, hold) == ""
        await service.aclose()
        store = store_at(place)
        assert store.names() == [] and store.bindings() == {}
        store.close()

    run(work)


def test_a_dry_run_writes_nothing(places: Places) -> None:
    place, wires = places("files"), turns("openai-chat", 24)

    async def work() -> None:
        service = opened(place)
        hold = await plan_request(service, body_of("openai-chat", wires), 2_500, mode="look")
        assert hold.plan.folds and session_of(service, hold) == ""
        await service.aclose()
        store = store_at(place)
        assert store.names() == []
        store.close()

    run(work)


def test_one_that_could_not_be_used_leaves_no_trace_in_another(places: Places) -> None:
    """What is known of a conversation must not pass to another one that comes to stand in the same place of memory."""
    place, wires = places("files"), turns("openai-chat", 10, mark="a")
    unreadable = [*wires, {"content": "nobody said this"}]

    async def work() -> None:
        one = opened(place)
        hold = (await Client("openai-chat", one, 2_500).grow(wires, steps(wires)))[-1]
        session = session_of(one, hold)
        await one.aclose()
        other = opened(place)
        keeping = other._store.store  # type: ignore[union-attr]

        async def refused() -> bool:
            try:
                await plan_request(other, body_of("openai-chat", unreadable), 2_500)
            except InvalidInput:
                return True
            return False

        assert [await refused() for _ in range(5)] == [True] * 5
        gc.collect()
        assert len(list(keeping._sources)) <= 1, "the last one may still be on its way out of a thread"
        assert not list(keeping._sessions)
        await other.aclose()
        store = store_at(place)
        assert store.names() == [session]
        store.close()

    run(work)


@pytest.mark.parametrize("kind", KINDS)
def test_a_session_that_was_deleted_is_begun_anew(places: Places, kind: str) -> None:
    place, wires = places(kind), turns("openai-chat", 18)
    at = steps(wires)

    async def work() -> None:
        service = opened(place)
        client = Client("openai-chat", service, 2_500)
        middle = len(at) // 2
        first = (await client.grow(wires, at[:middle]))[-1]
        store = store_at(place)
        store.delete(session_of(service, first))
        for stop in at[middle:]:
            judged(await client.send(wires[:stop]))
        assert len(store.names()) == 1
        store.close()
        await service.aclose()

    run(work)


# --- the archive ------------------------------------------------------------------------------------------------------


def test_a_late_archive_holds_what_comes_until_it_has_a_store() -> None:
    late, store = LateArchive(), MemoryArchive()
    first = late.put(b"one")
    assert late.put(b"one") == first and first in late and late.get(first) == b"one"
    assert late.where(first) == store.where(first)
    with pytest.raises(KeyError):
        late.get("nothing")
    late.attach(store)
    assert store.get(first) == late.get(first) == b"one" and first in late
    second = late.put(b"two")
    assert second not in store and late.get(second) == b"two"
    late.attach(store)
    assert store.get(second) == b"two"
    with pytest.raises(KeyError):
        late.get("nothing")


class Full:
    """An archive that takes nothing more."""

    def put(self, data: bytes, /) -> str:
        raise OSError("the disk is full")

    def get(self, key: str, /) -> bytes:
        raise KeyError(key)

    def where(self, key: str, /) -> str:
        return key

    def __contains__(self, key: object, /) -> bool:
        return False


def test_a_late_archive_loses_nothing_to_a_full_disk() -> None:
    late = LateArchive()
    key = late.put(b"one")
    with pytest.raises(OSError, match="full"):
        late.attach(Full())
    assert late.get(key) == b"one"
    store = MemoryArchive()
    late.attach(store)
    assert store.get(key) == b"one"


def history(mark: str) -> list[Wire]:
    return turns("openai-chat", 2, mark=mark)


def test_keys_are_read_back_longest_first(places: Places) -> None:
    store: Any = store_at(places("files"))
    keeping = ConversationStore(store)
    with store.create(dialect="openai-chat") as one, store.create(dialect="openai-chat") as two:
        exact = [bytes([number]) * 16 for number in range(4)]
        tolerant = [bytes([100 + number]) * 16 for number in range(4)]
        store.bind_all(["proxy=" + exact[1].hex(), "proxy~" + tolerant[3].hex()], one.id)
        store.bind("proxy=" + exact[2].hex(), two.id)
        store.bind("proxy:ann", one.id)
        assert keeping.find(exact, tolerant) == ("proxy=" + exact[2].hex(), two.id)
        assert keeping.find(exact[:2], tolerant) == ("proxy=" + exact[1].hex(), one.id)
        assert keeping.find(exact[:1], tolerant) == ("proxy~" + tolerant[3].hex(), one.id)
        assert keeping.find(exact[:1], tolerant[:3]) is None
        assert keeping.session_named("ann") == one.id and keeping.session_named("bob") is None
    keeping.close()


def test_what_could_not_be_bound_is_bound_with_the_next_request(tmp_path: Path) -> None:
    """A fold whose session was written, but not the keys to it, would be unknown to all others until the next fold."""
    wires = turns("openai-chat", 16)
    at = steps(wires)
    store = LossyStore(FileStore(tmp_path, fsync=False))

    async def work() -> None:
        one = conversations(store=ConversationStore(cast("Store", store)))
        one._store._retry_seconds = 0.0  # type: ignore[union-attr]
        client = Client("openai-chat", one, 2_500)
        store.only = {"bind_all"}
        store.lost = True
        number = await until_it_folds(client, wires, at, 0)
        assert not FileStore(tmp_path).bindings()
        store.lost = False
        hold = await client.send(wires[: at[number + 1]])
        assert not hold.plan.new_folds
        assert set(FileStore(tmp_path).bindings().values()) == {session_of(one, hold)}
        await one.aclose()

    run(work)


@pytest.mark.parametrize(("minutes", "cold"), [(60, True), (1, False)])
def test_a_conversation_that_comes_back_after_an_hour_finds_the_cache_cold(
    tmp_path: Path, minutes: int, cold: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    wires = turns("anthropic", 14)
    at = steps(wires)
    pauses: list[float] = []

    class Pausing(Context):
        def prepare(self, summarize: SummarizeWith | None = None, *, idle_seconds: float = 0.0) -> Request:
            pauses.append(idle_seconds)
            return super().prepare(summarize, idle_seconds=idle_seconds)

    monkeypatch.setattr("foldline.conversations.conversation.Context", Pausing)

    async def work() -> None:
        then = FileStore(tmp_path, clock=lambda: now_utc() - timedelta(minutes=minutes))
        one = conversations(10**9, store=ConversationStore(then), shared=False, notice=_no_notice)
        await Client("anthropic", one, 2_500).grow(wires, at[:-1])
        await one.aclose()
        two = opened(str(tmp_path))
        hold = await Client("anthropic", two, 2_500).send(wires[: at[-1]])
        assert hold.cached.conversation.context._engine.cached_summary.is_cold(pauses[-1]) is cold
        await two.aclose()

    run(work)


def test_a_store_is_opened_once_however_many_threads_need_it_at_once(tmp_path: Path) -> None:
    opened: list[FileStore] = []
    together = Barrier(8)

    def opens() -> FileStore:
        opened.append(FileStore(tmp_path, fsync=False))
        sleep(0.02)
        return opened[-1]

    keeping = ConversationStore(opens)

    def asks(_: int) -> object:
        together.wait()
        return keeping.store

    with ThreadPoolExecutor(8) as threads:
        assert set(threads.map(asks, range(8))) == set(opened)
    assert len(opened) == 1
    assert keeping.open() is keeping.store is opened[0]
    keeping.close()
    keeping.close()
    with pytest.raises(InvalidInput):
        keeping.open()


def test_a_store_that_could_not_be_opened_is_tried_again(tmp_path: Path) -> None:
    failures = [OSError("away"), OSError("away")]

    def opens() -> FileStore:
        if failures:
            raise failures.pop()
        return FileStore(tmp_path, fsync=False)

    keeping = ConversationStore(opens)
    for _ in range(2):
        with pytest.raises(OSError, match="away"):
            keeping.open()
    assert keeping.open() is keeping.store
    keeping.close()
