"""The chat gateway on a platform of paper: each stored message is answered once, in order, despite any failure."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.doors.gateway.gateways import PATIENT
from tests.doors.gateway.paper_gateway import PaperGateway, message
from tests.hosting.pools import session_pool
from tests.serving import Served, serve

from foldline.doors.gateway.base import Attachment, ChatPlace, Gateway
from foldline.doors.gateway.chat_gateway import ChatGateway
from foldline.store.folders import FileStore
from foldline.testing import FakeProvider, FakeReply


@asynccontextmanager
async def desk_over(
    paper: Gateway, url: str, folder: Path, *, grace_seconds: float = 5.0, **acted: Any
) -> AsyncIterator[tuple[ChatGateway, list[str]]]:
    """Run a gateway until the block ends; yield it and the notices for its owner."""
    notices: list[str] = []
    stopping = asyncio.Event()
    async with session_pool(url, folder, **acted) as pool:
        chat_gateway = ChatGateway(pool, paper, users=["7", "8"], notice=notices.append, pace=PATIENT)
        running = asyncio.create_task(chat_gateway.run(stopping, grace_seconds=grace_seconds))
        try:
            yield chat_gateway, notices
        finally:
            stopping.set()
            await running


def answers(texts: list[str]) -> list[str]:
    """The first line of each."""
    return [text.split("\n")[0] for text in texts]


def test_a_message_that_is_handed_over_again_is_answered_once(tmp_path: Path) -> None:
    fake = FakeProvider(["one", "two"])

    async def talk(served: Served) -> list[str]:
        paper = PaperGateway()
        first = message("1?", 1)
        async with desk_over(paper, served.url, tmp_path) as (chat_gateway, _):
            await chat_gateway.receive([first, first])
            await paper.texts(1)
            await chat_gateway.receive([first])
        async with desk_over(paper, served.url, tmp_path) as (chat_gateway, _):
            await chat_gateway.receive([first, message("2?", 2)])
            return await paper.texts(2)

    with serve(fake) as served:
        assert answers(asyncio.run(talk(served))) == ["one", "two"]
    assert fake.served == 2


def test_what_waits_when_it_is_stopped_is_answered_after_the_next_start(tmp_path: Path) -> None:
    gate = asyncio.Event()
    fake = FakeProvider([FakeReply("never heard", gate=gate), "two", "three"])

    async def talk(served: Served) -> list[str]:
        paper = PaperGateway()
        async with desk_over(paper, served.url, tmp_path, grace_seconds=0.1) as (chat_gateway, _):
            await chat_gateway.receive([message("1?", 1), message("2?", 2), message("3?", 3)])
            while not fake.requests:
                await asyncio.sleep(0.01)
        assert answers(await paper.texts(1)) == ["⏹ Stopped."]
        async with desk_over(paper, served.url, tmp_path):
            return await paper.texts(3)

    with serve(fake) as served:
        assert answers(asyncio.run(talk(served)))[1:] == ["two", "three"]


def test_a_turn_that_runs_when_it_is_stopped_ends_where_there_is_time(tmp_path: Path) -> None:
    gate = asyncio.Event()
    fake = FakeProvider([FakeReply("the whole answer", gate=gate)])

    async def talk(served: Served) -> list[str]:
        paper = PaperGateway()
        async with desk_over(paper, served.url, tmp_path, grace_seconds=20) as (chat_gateway, _):
            await chat_gateway.receive([message("1?", 1)])
            while not fake.requests:
                await asyncio.sleep(0.01)
            asyncio.get_running_loop().call_later(0.1, served.set, gate)
        return await paper.texts(1)

    with serve(fake) as served:
        [answer] = asyncio.run(talk(served))
    assert answer.startswith("the whole answer\n")
    assert "📊 Context: " in answer.splitlines()[-1]


def test_a_place_that_takes_no_message_ends_nothing(tmp_path: Path) -> None:
    async def talk(served: Served) -> tuple[list[str], list[str]]:
        gone = ChatPlace("2")
        paper = PaperGateway(closed={gone})
        async with desk_over(paper, served.url, tmp_path) as (chat_gateway, notices):
            await chat_gateway.receive(
                [message("1?", 1, where=gone), message("/help", 2, where=gone), message("2?", 3)]
            )
            texts = await paper.texts(1)
            while len(notices) < 2:
                await asyncio.sleep(0.01)
            return texts, notices

    with serve(FakeProvider("ok")) as served:
        texts, notices = asyncio.run(talk(served))
    assert answers(texts) == ["ok"]
    assert notices == ["Not delivered to user 7: it is closed"] * 2


def test_who_sends_more_than_may_wait_is_told_and_the_others_are_answered(tmp_path: Path) -> None:
    gate = asyncio.Event()

    async def talk(served: Served) -> list[str]:
        paper = PaperGateway()
        async with desk_over(paper, served.url, tmp_path) as (chat_gateway, _):
            await chat_gateway.receive([message(f"{n}?", n) for n in range(18)])
            refused = await paper.texts(1)
            served.set(gate)
            return refused + (await paper.texts(18))[1:]

    with serve(FakeProvider([FakeReply("ok", gate=gate), "ok"], repeat=True)) as served:
        refused, *rest = answers(asyncio.run(talk(served)))
    assert refused == "16 messages wait here already. Send it again when one of them is answered."
    assert rest == ["ok"] * 17


def test_one_person_does_not_wait_for_another(tmp_path: Path) -> None:
    gate = asyncio.Event()

    async def talk(served: Served) -> list[str]:
        paper = PaperGateway()
        async with desk_over(paper, served.url, tmp_path) as (chat_gateway, _):
            await chat_gateway.receive([message("slow", 1)])
            while len(fake.requests) < 1:
                await asyncio.sleep(0.01)
            await chat_gateway.receive([message("quick", 2, user="8")])
            first = await paper.texts(1)
            served.set(gate)
            return first + (await paper.texts(2))[1:]

    fake = FakeProvider([FakeReply("slow", gate=gate), "quick"])
    with serve(fake) as served:
        assert answers(asyncio.run(talk(served))) == ["quick", "slow"]


def test_a_command_that_a_crash_interrupted_is_not_done_a_second_time(tmp_path: Path) -> None:
    """The inbox as a crash leaves it: /undo was begun, and nobody knows whether it was done."""
    store = FileStore(tmp_path / "sessions")
    interrupted = {"message": message("/undo", 1).as_json(), "begun": True}
    store.save_state("paper:1:inbox", {"waiting": [interrupted], "seen": ["1"]})

    async def talk(served: Served) -> list[str]:
        paper = PaperGateway()
        async with desk_over(paper, served.url, tmp_path):
            return await paper.texts(1)

    with serve(FakeProvider("ok")) as served:
        texts = asyncio.run(talk(served))
    assert texts == ["⚠ /undo was interrupted by a restart. /context shows how things stand."]
    assert store.load_state("paper:1:inbox")["waiting"] == []


def test_who_is_no_longer_allowed_is_not_answered_after_a_restart(tmp_path: Path) -> None:
    store = FileStore(tmp_path / "sessions")
    left = {"message": message("Hello", 1, user="666").as_json(), "begun": False}
    store.save_state("paper:1:inbox", {"waiting": [left], "seen": ["1"]})

    async def talk(served: Served) -> list[str]:
        paper = PaperGateway()
        async with desk_over(paper, served.url, tmp_path) as (chat_gateway, _):
            await chat_gateway.receive([message("Hi", 2)])
            return await paper.texts(1)

    with serve(FakeProvider("ok")) as served:
        assert answers(asyncio.run(talk(served))) == ["ok"]
    assert store.load_state("paper:1:inbox")["waiting"] == []


def test_an_edit_runs_nothing_and_says_so(tmp_path: Path) -> None:
    fake = FakeProvider("ok")

    async def talk(served: Served) -> list[str]:
        paper = PaperGateway()
        async with desk_over(paper, served.url, tmp_path) as (chat_gateway, _):
            await chat_gateway.receive([message("Buy two", 1), message("Buy ten", 2, edited=True)])
            return await paper.texts(2)

    with serve(fake) as served:
        texts = asyncio.run(talk(served))
    assert "An edit changes nothing here: the first version counts. Send it as a new message." in texts
    assert fake.served == 1


def test_a_fault_of_the_model_is_one_sentence(tmp_path: Path) -> None:
    async def talk(served: Served) -> list[str]:
        paper = PaperGateway()
        async with desk_over(paper, served.url, tmp_path) as (chat_gateway, _):
            await chat_gateway.receive([message("Hi", 1), message("Again", 2)])
            return await paper.texts(2)

    with serve(FakeProvider([FakeReply(status=401), "better"])) as served:
        first, second = asyncio.run(talk(served))
    assert first.startswith("⚠ auth: ")
    assert len([line for line in first.split("\n") if line]) == 2  # with the figures
    assert second.startswith("better")


class Faulty(PaperGateway):
    """Fetches no file: its fault is none that a platform may have."""

    async def fetch(self, file: Attachment, max_bytes: int) -> bytes:
        raise RuntimeError("a fault of its own")


def test_an_unexpected_fault_is_reported_to_the_person_and_the_owner(tmp_path: Path) -> None:
    async def talk(served: Served) -> tuple[list[str], list[str]]:
        paper = Faulty()
        async with desk_over(paper, served.url, tmp_path) as (chat_gateway, notices):
            await chat_gateway.receive(
                [message("Read it", 1, files=(Attachment(id="a", name="a.txt"),)), message("Hi", 2)]
            )
            return await paper.texts(2), notices

    with serve(FakeProvider("ok")) as served:
        texts, notices = asyncio.run(talk(served))
    assert texts[0].startswith("⚠ Something unexpected went wrong here.")
    assert "a fault of its own" not in texts[0]
    assert answers(texts)[1:] == ["ok"]
    [notice] = notices
    assert notice.endswith("RuntimeError: a fault of its own\n")
    assert FileStore(tmp_path / "sessions").load_state("paper:1:inbox")["waiting"] == []


def test_a_tool_that_must_be_allowed_is_refused_and_the_person_is_told_how(tmp_path: Path) -> None:
    write = FakeReply("", calls=[("write_file", {"path": "x.txt", "content": "x"})])

    async def talk(served: Served) -> list[str]:
        paper = PaperGateway()
        async with desk_over(paper, served.url, tmp_path, allow=("write_file",)) as (chat_gateway, _):
            await chat_gateway.receive([message("Write", 1)])
            return await paper.texts(1)

    with serve(FakeProvider([write, "I may not."])) as served:
        [text] = asyncio.run(talk(served))
    assert text.startswith("I may not.")
    assert "--yes allows it" in text
    assert not (tmp_path / "x.txt").exists()


def test_a_session_that_another_process_holds_is_said_to_be_in_use(tmp_path: Path) -> None:
    from foldline.hosting.session_actor import ActorLimits

    async def talk(served: Served) -> list[str]:
        paper = PaperGateway()
        limits = ActorLimits(acquire_seconds=0.0)
        async with desk_over(paper, served.url, tmp_path, limits=limits) as (chat_gateway, _):
            await chat_gateway.receive([message("Hi", 1)])
            await paper.texts(1)
            store = FileStore(tmp_path / "sessions")
            other = await asyncio.to_thread(store.open, store.names()[0])
            try:
                await chat_gateway.receive([message("Hi again", 2)])
                return await paper.texts(2)
            finally:
                other.close()

    with serve(FakeProvider("ok")) as served:
        assert "in use elsewhere" in asyncio.run(talk(served))[1]


def test_a_full_disk_keeps_messages_with_the_platform(tmp_path: Path) -> None:
    """While the inbox cannot be written, no arrival is confirmed."""
    kept, aside = tmp_path / "sessions" / "remembered.json", tmp_path / "aside"

    async def talk(served: Served) -> tuple[list[str], list[str], bool]:
        paper = PaperGateway()
        async with desk_over(paper, served.url, tmp_path) as (chat_gateway, notices):
            await chat_gateway.receive([message("Hi", 1)])
            await paper.texts(1)
            while FileStore(kept.parent).load_state("paper:1:inbox")["waiting"]:
                await asyncio.sleep(0.01)
            kept.rename(aside)
            kept.mkdir()
            taking = asyncio.create_task(chat_gateway.receive([message("Hi again", 2)]))
            while not notices:
                await asyncio.sleep(0.01)
            waited = not taking.done()
            kept.rmdir()
            aside.rename(kept)
            await taking
            return await paper.texts(2), notices, waited

    with serve(FakeProvider("ok")) as served:
        texts, notices, waited = asyncio.run(talk(served))
    assert answers(texts) == ["ok", "ok"]
    assert waited
    assert notices[0].startswith("Messages wait, as they cannot be stored: ")
