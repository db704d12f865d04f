"""A lost store costs a warning: requests go on, none waits, and none is mixed up with another."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event
from tests.conversations.clients import (
    Client,
    body_of,
    conversations,
    goes_on_from,
    plan_request,
    session_of,
    steps,
    turns,
)
from tests.conversations.lossy_store import LossyStore

from foldline.conversations.persistence import ConversationStore, LateArchive
from foldline.conversations.service import Conversations
from foldline.conversations.store_guard import STORE_LOST, StoreGuard
from foldline.errors import InvalidInput
from foldline.failures.failure import Failure
from foldline.store import FileStore
from foldline.store.sql.store import SqlStore
from foldline.view.transcript import Entry


def run(work: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        await work()

    asyncio.run(main())


def opened(line: LossyStore, lines: list[str], **options: Any) -> Conversations:
    """Conversations over a store behind a line."""
    return conversations(store=ConversationStore(line), notice=lines.append, **options)


def line_to(folder: Path) -> LossyStore:
    return LossyStore(FileStore(folder, fsync=False))


@pytest.mark.parametrize(
    ("dialect", "shared"), [("openai-chat", False), ("openai-responses", True), ("anthropic", True)]
)
def test_a_store_that_is_lost_stops_nothing(tmp_path: Path, dialect: str, shared: bool) -> None:
    wires = turns(dialect, 18)
    at = steps(wires)

    async def work() -> None:
        line, lines = line_to(tmp_path), list[str]()
        service = opened(line, lines, shared=shared)
        client = Client(dialect, service, 2_500)
        await client.grow(wires, at[:20])
        assert not lines and service.store_up
        line.lost = True
        holds = await client.grow(wires, at[20:])
        assert not service.store_up and len(lines) == 1 and "cannot be used" in lines[0]
        assert holds[-1].plan.folds
        assert all(hold.warning in ("", STORE_LOST) for hold in holds) and STORE_LOST in {
            hold.warning for hold in holds
        }
        line.lost = False
        await service.aclose()

    run(work)


def test_what_nobody_can_look_up_goes_on_as_it_came(tmp_path: Path) -> None:
    """Another process may have folded it: to fold it in another way is no better than to let it pass."""
    wires = turns("openai-chat", 24)

    async def work() -> None:
        line, lines = line_to(tmp_path), list[str]()
        line.lost = True
        service = opened(line, lines, shared=True)
        hold = await plan_request(service, body_of("openai-chat", wires), 2_500)
        assert hold.plan.data == hold.plan.body.raw and hold.warning == STORE_LOST
        line.lost = False
        await service.aclose()

    run(work)


def test_a_lost_store_is_left_alone_for_a_while(tmp_path: Path) -> None:
    wires = turns("openai-chat", 24)

    async def work() -> None:
        line, lines = line_to(tmp_path), list[str]()
        line.lost = True
        service = opened(line, lines, shared=True)
        client = Client("openai-chat", service, 100_000)
        for stop in steps(wires)[1:]:
            assert (await client.send(wires[:stop])).warning == STORE_LOST
        assert len(line.calls) == 1, "no request waits for it meanwhile"
        line.lost = False
        await service.aclose()

    run(work)


@pytest.mark.parametrize("operation", ["create", "append", "bind_all"])
def test_what_could_not_be_written_is_written_later(tmp_path: Path, operation: str) -> None:
    wires = turns("anthropic", 27)
    at = steps(wires)

    async def work() -> None:
        line, lines = line_to(tmp_path), list[str]()
        service = opened(line, lines)
        service._store._retry_seconds = 0.0  # type: ignore[union-attr]
        client = Client("anthropic", service, 2_500)
        line.only, line.lost = {operation}, operation == "create"
        holds = await client.grow(wires, at[:18])
        line.lost = True
        holds += await client.grow(wires, at[18:36])
        assert lines and not service.store_up
        line.lost = False
        later = await client.grow(wires, at[36:])
        goes_on_from(holds[-1], later[0])
        assert service.store_up and lines[-1] == "The store answers again."
        session = session_of(service, later[-1])
        await service.aclose()
        again = opened(line_to(tmp_path), lines)
        hold = await Client("anthropic", again, 2_500).send(wires[: at[-1]])
        assert hold.plan.data == later[-1].plan.data and session_of(again, hold) == session
        await again.aclose()

    run(work)


def test_a_session_that_is_damaged_is_told_and_the_conversation_begins_anew(tmp_path: Path) -> None:
    wires = turns("openai-chat", 24)

    async def work() -> None:
        lines: list[str] = []
        one = opened(line_to(tmp_path), lines)
        hold = (await Client("openai-chat", one, 2_500).grow(wires, steps(wires)))[-1]
        session = session_of(one, hold)
        await one.aclose()
        logs = [path for path in tmp_path.rglob("*.jsonl") if session in str(path)]
        assert logs
        for log in logs:
            text = log.read_text().splitlines()
            log.write_text("\n".join([*text[:3], "{nonsense", *text[4:]]) + "\n")
        other = opened(line_to(tmp_path), lines)
        client = Client("openai-chat", other, 2_500)
        first = await plan_request(other, body_of("openai-chat", wires[: steps(wires)[-1]]), 2_500)
        assert lines and first.warning and first.plan.data == first.plan.body.raw
        second = await client.send(wires[: steps(wires)[-1]])
        assert second.plan.folds and second.session == first.session
        await other.aclose()

    run(work)


def test_what_is_evicted_while_the_store_is_lost_is_another_conversation_later(tmp_path: Path) -> None:
    async def work() -> None:
        line, lines = line_to(tmp_path), list[str]()
        service = opened(line, lines, max_bytes=1)
        for mark in "ab":
            wires = turns("openai-chat", 12, mark=mark)
            await Client("openai-chat", service, 2_500).grow(wires, steps(wires)[:-4])
        line.lost = True
        for mark in "ab":
            wires = turns("openai-chat", 12, mark=mark)
            for stop in steps(wires)[-4:]:
                hold = await plan_request(service, body_of("openai-chat", wires[:stop]), 2_500)
                assert set(re.findall(r"\[([a-z])\d+\]", hold.plan.data.decode())) == {mark}
        line.lost = False
        await service.aclose()

    run(work)


def test_an_edit_while_the_store_is_lost_begins_anew(tmp_path: Path) -> None:
    """Released messages are in the store only; the rest in memory cannot be continued."""
    wires, edited = turns("openai-chat", 30), turns("openai-chat", 30, mark="e")

    async def work() -> None:
        line, lines = line_to(tmp_path), list[str]()
        service = opened(line, lines)
        client = Client("openai-chat", service, 2_500)
        first = (await client.grow(wires, steps(wires)))[-1]
        assert first.cached.conversation.context.released
        line.lost = True
        hold = await plan_request(client.all, body_of("openai-chat", [*wires[:60], *edited[60:]]), 2_500)
        conversation = hold.cached.conversation
        recorded = [event.recorded for event in conversation.context.events if isinstance(event, Entry)]
        assert recorded == [*wires[:60], *edited[60:]] and hold.session != first.session
        refused = await client.send(wires[: steps(wires)[-1]])
        await client.send(wires)
        assert await service.recover(refused, Failure("prompt_overflow"))
        recorded = [e.recorded for e in refused.cached.conversation.context.events if isinstance(e, Entry)]
        assert recorded == wires[: steps(wires)[-1]]
        line.lost = False
        await service.aclose()

    run(work)


async def inline(work: Callable[[], Any], /) -> Any:
    return work()


def test_an_answer_after_a_loss_is_told_once(tmp_path: Path) -> None:
    async def work() -> None:
        line, lines = line_to(tmp_path), list[str]()
        at_hand = StoreGuard(
            ConversationStore(line),
            shared=False,
            run=inline,
            notice=lines.append,
            retry_seconds=0.0,
        )
        links = [b"x" * 16]
        assert await at_hand.find(links, links, name="", own=None) == (None, "")
        line.lost = True
        for _ in range(2):
            assert await at_hand.find(links, links, name="", own=None) == (None, STORE_LOST)
            assert not at_hand.up
        line.lost = False
        for _ in range(2):
            assert await at_hand.find(links, links, name="", own=None) == (None, "")
            assert at_hand.up
        assert [text.split(":")[0] for text in lines] == ["The store cannot be used"] * 2 + ["The store answers again."]
        await at_hand.aclose()

    run(work)


def test_a_fault_of_the_data_is_no_loss_of_the_store(tmp_path: Path) -> None:
    class Damaged(FileStore):
        def read(self, name: str) -> Any:
            raise InvalidInput("a line is no JSON", place="log:4")

    async def work() -> None:
        lines: list[str] = []
        store = Damaged(tmp_path, fsync=False)
        at_hand = StoreGuard(ConversationStore(store), shared=False, run=inline, notice=lines.append)
        links = [b"x" * 16]
        with store.create(dialect="openai-chat") as session:
            store.bind("proxy=" + links[0].hex(), session.id)
        assert await at_hand.find(links, links, name="", own=None) == (None, STORE_LOST)
        assert at_hand.up and "log:4" in lines[0]
        await at_hand.aclose()

    run(work)


def test_originals_that_waited_for_a_database_are_written_in_one_transaction(tmp_path: Path) -> None:
    """Each commit waits for the disk, and a fold may have dozens of originals."""
    commits: list[object] = []
    with closing(SqlStore.at(f"sqlite:///{tmp_path / 'kept.db'}")) as store, store.create(dialect="openai-chat") as one:
        event.listen(store._database._engine, "commit", commits.append)
        late = LateArchive()
        keys = [late.put(bytes([number])) for number in range(5)]
        late.attach(one.archive)
        late.attach(one.archive)
        assert len(commits) == 1
        assert [store.archive(one.id).get(key) for key in keys] == [bytes([number]) for number in range(5)]
