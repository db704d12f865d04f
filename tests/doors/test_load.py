"""500 sessions of 2,000 messages behind one process, 50 turns at once: memory follows the windows, nothing is lost."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.doors.server_process import Door, door
from tests.hosting.pools import session_pool
from tests.real.postgresql import fresh_database
from tests.serving import serve

from foldline.store.addresses import open_store
from foldline.store.folders import FileStore
from foldline.testing import FakeProvider, FakeReply

pytestmark = pytest.mark.soak

SESSIONS, MESSAGES, AT_ONCE, TURNS = 500, 2_000, 50, 500
WINDOW = 8_000
WORDS = Path("README.md").read_text("utf-8").split()


class Model:
    """Answers with words of a real text, after a look around each second time."""

    def __init__(self) -> None:
        self.random = random.Random(1)

    def __call__(self, body: Mapping[str, Any]) -> FakeReply:
        if body["messages"][-1]["role"] == "user" and self.random.random() < 0.5:
            return FakeReply("", calls=[("list_files", {})])
        return FakeReply(" ".join(self.random.choices(WORDS, k=120)))


async def long_session(url: str, folder: Path) -> str:
    """A session of MESSAGES messages, by real turns."""
    folder.mkdir()
    chance = random.Random(2)
    async with session_pool(url, folder, window=WINDOW) as pool:
        actor = await pool.create()
        while await actor.inspect(lambda seen: seen.tally.messages) < MESSAGES:
            ended = await actor.run_turn(" ".join(chance.choices(WORDS, k=60)))
            assert ended.reason == "done", ended
        return actor.id


def copied(source: FileStore, name: str, place: str) -> list[str]:
    """That session SESSIONS times in another store."""
    records, originals = list(source.records(name)), list(source.originals(name))
    [snapshot] = [one.snapshot for one in source.sessions() if one.snapshot is not None]
    store = open_store(place)
    try:
        for number in range(SESSIONS):
            own = {**records[0], "id": f"{name[:15]}-{number:08x}"}
            store.import_session([own, *records[1:]], originals, snapshot=replace(snapshot, id=str(own["id"])))
        return store.names()
    finally:
        store.close()


async def talk(one: Door, names: list[str], sizes: list[float]) -> Counter[str]:
    """TURNS turns, AT_ONCE at a time, each in a session by chance; how many each session got."""
    chance, said, left = random.Random(3), Counter[str](), iter(range(TURNS))
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(timeout=600, limits=limits) as client:

        async def user() -> None:
            for number in left:
                name = chance.choice(names)
                text = f"[{number}] " + " ".join(chance.choices(WORDS, k=60))
                done = await client.post(f"{one.url}/v1/sessions/{name}/messages", json={"text": text})
                assert done.status_code == 200, done.text
                assert done.json()["reason"] == "done", done.text
                said[name] += 1
                sizes.append(one.rss_mib())

        await asyncio.gather(*(user() for _ in range(AT_ONCE)))
        listed = (await client.get(f"{one.url}/v1/sessions?limit=500")).json()["sessions"]
        assert len(listed) == min(SESSIONS, 500)
    return said


def hold(tmp_path: Path, place: str) -> None:
    fake = FakeProvider(Model(), window_tokens=WINDOW)
    with serve(fake) as served:
        name = asyncio.run(long_session(served.url, tmp_path / "made"))
        source = FileStore(tmp_path / "made" / "sessions")
        before = sum(record["type"] == "message" for record in source.records(name))
        names = copied(source, name, place)
        options = ("--window", str(WINDOW), "--turns", str(AT_ONCE), "--idle-seconds", "5", "--rate", "0")
        with door(served.url, tmp_path, place, *options) as one:
            sizes = [one.rss_mib()]
            started = time.monotonic()
            said = asyncio.run(talk(one, names, sizes))
            seconds = time.monotonic() - started
            time.sleep(15)
            idle = one.rss_mib()
        store = open_store(place)
        lost = 0
        for each in names:
            records = [record for record in store.records(each) if record["type"] == "message"]
            users = [one for one in records[before:] if str(one["message"].get("content", "")).startswith("[")]
            lost += len(users) != said[each]
            assert [record["seq"] for record in records] == list(range(len(records)))
        store.close()
    print(  # noqa: T201
        f"\n{len(names)} sessions of {before} messages, {TURNS} turns in {seconds:.0f} s, {AT_ONCE} at once: "
        f"{sizes[0]:.0f} MiB at the start, {max(sizes):.0f} at most, {idle:.0f} idle; {fake.refusals} refused"
    )
    assert set(fake.refusals) <= {"route"}, fake.refusals
    assert not lost
    assert max(sizes) < sizes[0] + 300


def test_500_sessions_in_files(tmp_path: Path) -> None:
    hold(tmp_path, str(tmp_path / "sessions"))


def test_500_sessions_in_postgresql(tmp_path: Path, postgresql_url: str) -> None:
    hold(tmp_path, fresh_database(postgresql_url))
