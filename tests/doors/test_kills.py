"""`kill -9` under load, in files and in PostgreSQL: acknowledged messages are there once, and no turn stays open."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.doors.server_process import Door, door, events_of
from tests.real.postgresql import fresh_database
from tests.serving import serve

import foldline
from foldline.store.addresses import open_store
from foldline.store.base import Store
from foldline.testing import FakeProvider, FakeReply

SESSIONS = 8
LEASE = "lease_seconds=3"
"""Shorter than by default, else most of the time is waiting for the dead; longer than a busy machine stands still."""
KILLS = int(os.environ.get("FOLDLINE_KILLS", "300"))
_RANDOM = random.Random(20261128)


def answers(body: Mapping[str, Any]) -> FakeReply:
    """A model that looks around before it answers, now and then twice, and says enough to fill its window."""
    if body["messages"][-1]["role"] == "user" or _RANDOM.random() < 0.3:
        calls = [("list_files", {}), ("search_files", {"pattern": "x"})][: _RANDOM.randint(1, 2)]
        return FakeReply("Let me look.", calls=calls)
    return FakeReply("It is so. " + "word " * _RANDOM.randint(5, 150))


@dataclass(slots=True)
class Client:
    """One user of one session: says one thing after the other, each until its end is known, over any crash."""

    door: Door
    session: str
    acknowledged: dict[str, int] = field(default_factory=dict)
    said: list[str] = field(default_factory=list)
    ends: list[str] = field(default_factory=list)
    stop: bool = False

    async def run(self, client: httpx.AsyncClient) -> None:
        """Talk until told to stop."""
        while not self.stop:
            text = f"[{self.session[-8:]}:{len(self.said)}] " + "please " * 20
            self.said.append(text)
            while True:
                try:
                    reason = await self._turn(client, text)
                except httpx.HTTPError:  # also when it is told to stop: a turn that was cut off is asked for again
                    await asyncio.sleep(0.05)
                else:
                    if reason is not None:
                        self.ends.append(reason)
                        break

    async def _turn(self, client: httpx.AsyncClient, text: str) -> str | None:
        key = text.partition("]")[0]
        head = {"Idempotency-Key": key, "Accept": "text/event-stream"}
        url = f"{self.door.url}/v1/sessions/{self.session}/messages"
        async with client.stream("POST", url, json={"text": text}, headers=head) as reply:
            if reply.status_code in {409, 429, 503}:  # of another server, or one that starts
                await asyncio.sleep(0.05)
                return None
            assert reply.status_code == 200, (await reply.aread(), reply.status_code)
            async for name, data in events_of(reply):
                if name == "accepted":
                    self.acknowledged[text] = data["seq"]
                elif name == "turn_ended":
                    return str(data["reason"])
        return None


def checked(store: Store, client: Client) -> tuple[int, int]:
    """Messages that were acknowledged, and turns that were cut off, in one session; all is as it must be."""
    records = list(store.records(client.session))
    said = {one["seq"]: one["message"]["content"] for one in records if one.get("type") == "message"}
    assert sorted(said) == list(range(len(said)))
    for text, seq in client.acknowledged.items():
        assert said[seq] == text
    texts = [text for text in said.values() if isinstance(text, str) and text.startswith("[")]
    mine = [text for text in texts if "please" in text]
    assert len(mine) == len(set(mine)), "a message is there twice"
    assert mine == [text for text in client.said if text in set(mine)], "in the order in which they were said"
    turns = [one for one in records if one.get("type") == "turn"]
    open_turn = False
    for turn in turns:
        if turn["state"] == "ended":
            assert open_turn, "a turn ended that had not begun"
        open_turn = turn["state"] == "begun"
    assert not open_turn
    shown = store.read(client.session).replay().view.wires()[0]
    assert foldline.check(shown) == []
    return len(client.acknowledged), sum(turn.get("reason") == "interrupted" for turn in turns)


async def killing(fake: FakeProvider, folder: Path, place: str, kills: int) -> list[Client]:
    """Clients at work while their server is killed and started again."""
    moments = random.Random(7)
    with serve(fake) as served, door(served.url, folder, place, "--window", "4000") as one:
        async with httpx.AsyncClient(timeout=120) as client:
            made = [(await client.post(f"{one.url}/v1/sessions", json={})).json()["id"] for _ in range(SESSIONS)]
            clients = [Client(one, name) for name in made]
            tasks = [asyncio.create_task(each.run(client)) for each in clients]
            for _ in range(kills):
                await asyncio.sleep(moments.uniform(0.05, 1.5))
                await asyncio.to_thread(one.kill)
                await asyncio.to_thread(one.start)
            for each in clients:
                each.stop = True
            await asyncio.gather(*tasks)
    return clients


def hold(fake: FakeProvider, folder: Path, place: str, kills: int) -> None:
    clients = asyncio.run(killing(fake, folder, place, kills))
    store = open_store(place)
    try:
        found = [checked(store, each) for each in clients]
    finally:
        store.close()
    acknowledged, interrupted = sum(one for one, _ in found), sum(two for _, two in found)
    print(f"\n{kills} kills, {acknowledged} acknowledged, {interrupted} turns cut off, {fake.served} replies")  # noqa: T201
    assert set(fake.refusals) <= {"route"}, fake.refusals
    assert acknowledged > kills


def test_a_few_kills_in_files(tmp_path: Path) -> None:
    hold(FakeProvider(answers, window_tokens=4_000), tmp_path, str(tmp_path / "sessions"), 3)


def test_a_few_kills_in_postgresql(tmp_path: Path, postgresql_url: str) -> None:
    place = f"{fresh_database(postgresql_url)}&{LEASE}"
    hold(FakeProvider(answers, window_tokens=4_000), tmp_path, place, 3)


@pytest.mark.soak
def test_many_kills_in_files(tmp_path: Path) -> None:
    hold(FakeProvider(answers, window_tokens=4_000), tmp_path, str(tmp_path / "sessions"), KILLS)


@pytest.mark.soak
def test_many_kills_in_postgresql(tmp_path: Path, postgresql_url: str) -> None:
    place = f"{fresh_database(postgresql_url)}&lease_seconds=1"  # else most of the time is waiting for the dead
    hold(FakeProvider(answers, window_tokens=4_000), tmp_path, place, KILLS)


def test_another_server_takes_over_a_session_whose_server_was_killed_in_mid_turn(
    tmp_path: Path, postgresql_url: str
) -> None:
    place = f"{fresh_database(postgresql_url)}&{LEASE}"
    gate = asyncio.Event()
    fake = FakeProvider([FakeReply("never heard", gate=gate), FakeReply("Here I am.")], repeat=True)

    async def talk() -> None:
        (tmp_path / "b").mkdir()
        with (
            serve(fake) as served,
            door(served.url, tmp_path, place) as first,
            door(served.url, tmp_path / "b", place) as second,
        ):
            async with httpx.AsyncClient(timeout=120) as client:
                name = (await client.post(f"{first.url}/v1/sessions", json={})).json()["id"]
                lost = Client(first, name)
                turn = asyncio.create_task(lost._turn(client, "[1] please"))
                while not lost.acknowledged or not fake.requests:  # else its answer would be the heir's
                    await asyncio.sleep(0.02)
                first.kill()
                with pytest.raises(httpx.HTTPError):
                    await turn
                heir = Client(second, name)
                assert await heir._turn(client, "[2] please") == "done"
                history = (await client.get(f"{second.url}/v1/sessions/{name}/history")).json()["messages"]
                assert [one["text"] for one in history if one["role"] == "user"] == ["[1] please", "[2] please"]
                turns = (await client.get(f"{second.url}/v1/sessions/{name}/turns")).json()["turns"]
                assert [one["reason"] for one in turns] == ["interrupted", "done"]
                served.set(gate)

    asyncio.run(talk())
