"""The clients and the upstream of the benchmark, over real connections."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

from foldline import check
from foldline_bench.proxy.load import GrowingChat, LoadPlan, LoadReport, load
from foldline_bench.proxy.upstream import answer_text, serve_upstream

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


def measured(seconds: float = 0.3, **given: Any) -> LoadReport:
    async def run() -> LoadReport:
        async with await serve_upstream(given.get("words", 5)) as server:
            port = server.sockets[0].getsockname()[1]
            wanted = {"clients": 4, "words": 5, "warm_seconds": 0.0, **given}
            return await load(LoadPlan(url=f"http://127.0.0.1:{port}/v1/chat/completions", seconds=seconds, **wanted))

    return asyncio.run(run())


def over(
    answering: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]], **given: Any
) -> LoadReport:
    """What clients see of another server."""

    async def once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await answering(reader, writer)
        finally:
            writer.close()

    async def run() -> LoadReport:
        async with await asyncio.start_server(once, "127.0.0.1", 0) as server:
            url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1/chat/completions"
            return await load(LoadPlan(url=url, clients=1, words=5, seconds=0.1, warm_seconds=0.0, **given))

    return asyncio.run(run())


def test_a_conversation_grows_by_its_answers_and_begins_anew() -> None:
    talk = GrowingChat("c1", LoadPlan(url="", turns=3, words=5))
    bodies = [(json.loads(body), mark) for body, mark, _ in (talk.next() for _ in range(4))]
    first, second, third, anew = (body["messages"] for body, _ in bodies)
    assert second[: len(first)] == first
    assert second[len(first)] == {"role": "assistant", "content": answer_text(bodies[0][1], 5)}
    assert len(third) == len(second) + 2
    assert check(third) == []
    assert len(anew) == len(first)
    assert anew != first
    assert len({mark for _, mark in bodies}) == 4


def test_every_answer_is_counted_and_belongs_to_its_request() -> None:
    seen = measured()
    assert not seen.faults
    assert seen.answered == len(seen.first_byte_seconds) == len(seen.over_seconds) >= seen.requests > 4
    assert all(0 < first <= over for first, over in zip(seen.first_byte_seconds, seen.over_seconds, strict=True))


def test_what_warms_up_is_answered_but_does_not_count() -> None:
    seen = measured(0.2, warm_seconds=0.1)
    assert 0 < seen.requests < seen.answered


def test_paced_clients_ask_at_their_times_and_planned_waits_are_not_counted() -> None:
    seen = measured(0.8, every_seconds=0.4, first_seconds=0.1, pause_seconds=0.01)
    assert not seen.faults
    assert seen.requests == 8
    assert all(first > -0.002 for first in seen.first_byte_seconds)


def test_an_answer_to_another_request_is_a_fault() -> None:
    async def another(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.read(2**20):
            writer.write(HEAD + b'4\r\n"x"\n\r\n0\r\n\r\n')
            await writer.drain()

    assert set(over(another).faults) == {"the answer of another request"}


def test_refusals_and_broken_connections_are_faults() -> None:
    async def refusing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"]]")
        writer.write(b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 2\r\n\r\n{}")
        await writer.drain()

    async def breaking(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"]]")
        writer.write(HEAD)
        await writer.drain()

    seen = over(refusing)
    assert set(seen.faults) == {"status 503"}
    assert LoadReport(**json.loads(json.dumps(seen.as_json()))) == seen
    assert set(over(breaking).faults) == {"a connection that broke"}


def test_an_answer_that_never_comes_is_a_fault() -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    assert over(silent, stuck_seconds=0.1).faults == {"no answer": 1}
