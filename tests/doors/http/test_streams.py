"""Event streams: live for one session and for all, bounded for slow readers, ended for clients that disconnect."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import httpx
import pytest
from tests.doors.http.support import Api, events, serving

from foldline.agent.events import Notice
from foldline.doors.http.state import ServerLimits
from foldline.doors.http.streams import Broadcast, Outbox, encode_event
from foldline.providers.base import TextDelta


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    with serving(tmp_path_factory.mktemp("served"), "Hello there.", limits=ServerLimits(streams=4)) as served:
        yield served


def until(done: Callable[[], bool]) -> None:
    end = time.monotonic() + 120
    while not done():
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.01)


def names_in(data: bytes) -> list[str]:
    return [line[7:] for line in data.decode().splitlines() if line.startswith("event: ")]


# --- what waits for a reader -----------------------------------------------------------------------------------------


def test_what_waits_comes_in_order_and_ends() -> None:
    async def read() -> list[bytes | None]:
        outbox = Outbox()
        outbox.append(encode_event("a", {"n": 1}))
        outbox.append(encode_event("b", {"text": "two\nlines"}))
        first = await outbox.next()
        outbox.append(encode_event("c", {}), last=True)
        outbox.append(encode_event("d", {}))
        return [first, await outbox.next(), await outbox.next()]

    first, second, end = asyncio.run(read())
    assert first == b'event: a\ndata: {"n":1}\n\nevent: b\ndata: {"text":"two\\nlines"}\n\n'
    assert second == b"event: c\ndata: {}\n\n"
    assert end is None


def test_a_slow_reader_is_told_how_much_it_missed_and_memory_stays() -> None:
    async def read() -> tuple[bytes, int]:
        outbox = Outbox(max_bytes=1_000)
        for number in range(10_000):
            outbox.append(encode_event("text", {"text": f"{number:>50}"}))
        waiting = outbox._size_bytes
        outbox.append(encode_event("turn_ended", {}), last=True)
        data = b""
        while (piece := await outbox.next()) is not None:
            data += piece
        return data, waiting

    data, waiting = asyncio.run(read())
    assert waiting <= 1_000
    names = names_in(data)
    missed = json.loads(data.split(b"event: behind\ndata: ")[1].split(b"\n")[0])["missed"]
    assert names[-2:] == ["behind", "turn_ended"]
    assert names.count("text") + missed == 10_000


def test_one_event_that_is_larger_than_all_that_may_wait_is_sent() -> None:
    async def read() -> bytes | None:
        outbox = Outbox(max_bytes=10)
        outbox.append(encode_event("tool_finished", {"text": "x" * 1_000}))
        return await outbox.next()

    assert b"x" * 1_000 in (asyncio.run(read()) or b"")


def test_a_silent_stream_gives_signs_of_life() -> None:
    assert asyncio.run(Outbox(heartbeat_seconds=0.01).next()) == b": here\n\n"


def test_single_words_go_to_those_who_follow_the_session_alone() -> None:
    async def read() -> list[bytes | None]:
        broadcast = Broadcast()
        one, every = broadcast.follow("s"), broadcast.follow(None)
        broadcast.publish("s", TextDelta("word"))
        broadcast.publish("other", Notice("of another"))
        broadcast.stop()
        return [await one.outbox.next(), await every.outbox.next()]

    one, every = asyncio.run(read())
    assert names_in(one or b"") == ["text", "stopping"]
    assert names_in(every or b"") == ["notice", "stopping"]
    assert b'"session":"other"' in (every or b"")


# --- over a connection ------------------------------------------------------------------------------------------------


def test_a_session_is_followed_live(api: Api) -> None:
    session, other = api.create_session(), api.create_session()
    with httpx.Client(base_url=api.url, timeout=120) as client, following(client, session) as reply:
        assert reply.headers["cache-control"] == "no-store"
        api.say(other, "Not for us")
        ended = api.say(session, "Hi")
        received = list(until_ended(reply))
    assert [name for name, _ in received if name != "calling"] == ["accepted", "text", "reply", "turn_ended"]
    assert received[-1][1]["text"] == ended["text"]
    until(lambda: api.state.broadcast.open == 0)


def following(client: httpx.Client, session: str) -> AbstractContextManager[httpx.Response]:
    return client.stream("GET", f"/v1/sessions/{session}/events")


def until_ended(reply: httpx.Response) -> Iterator[tuple[str, Any]]:
    for name, data in events(reply):
        yield name, data
        if name in {"turn_ended", "deleted"}:
            return


def test_all_sessions_are_followed_live(api: Api) -> None:
    session = api.create_session()
    with httpx.Client(base_url=api.url, timeout=120) as client, client.stream("GET", "/v1/events") as reply:
        api.say(session, "Hi")
        received = list(until_ended(reply))
    assert {data["session"] for _, data in received} == {session}
    assert "text" not in [name for name, _ in received]


def test_the_stream_of_a_session_that_is_removed_ends(api: Api) -> None:
    session = api.create_session()
    with httpx.Client(base_url=api.url, timeout=120) as client, following(client, session) as reply:
        assert api.client.delete(f"/v1/sessions/{session}").status_code == 204
        assert list(events(reply)) == [("deleted", {"event": "deleted"})]


def test_a_client_that_leaves_leaves_nothing_behind_and_too_many_are_refused(api: Api) -> None:
    port = int(api.url.rpartition(":")[2])
    connections = [socket.create_connection(("127.0.0.1", port), timeout=120) for _ in range(4)]
    for connection in connections:
        connection.sendall(b"GET /v1/events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        assert connection.recv(100).startswith(b"HTTP/1.1 200 ")
    until(lambda: api.state.broadcast.open == 4)
    reply = api.client.get("/v1/events")
    assert (reply.status_code, reply.json()["type"]) == (503, "/problems/busy")
    for connection in connections:
        connection.close()
    until(lambda: api.state.broadcast.open == 0)


def test_a_client_that_does_not_read_does_not_grow_memory(api: Api) -> None:
    port = int(api.url.rpartition(":")[2])
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        connection.connect(("127.0.0.1", port))
        connection.sendall(b"GET /v1/events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        until(lambda: api.state.broadcast.open == 1)
        heard = asyncio.run_coroutine_threadsafe(flooded(api), api.served.loop)
        most_bytes, sent_bytes = heard.result(120)
    assert sent_bytes > 20_000_000
    assert most_bytes < 600_000
    until(lambda: api.state.broadcast.open == 0)


async def flooded(api: Api) -> tuple[int, int]:
    """Tell of much more than sockets hold; the most that waited for the one that follows, and how much was told."""
    (outbox,) = api.state.broadcast.all_followers
    most = sent = 0
    for number in range(3_000):
        api.state.broadcast.publish("s", Notice("x" * 10_000))
        sent += 10_000
        most = max(most, outbox._size_bytes)
        if number % 10 == 0:
            await asyncio.sleep(0)
    return most, sent
