"""Bytes pass the upstream client unchanged in both directions; a broken response is told from a complete one."""

from __future__ import annotations

import asyncio
import gzip
import os
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from tests import idle_clock

from foldline.doors.proxy.upstream import Header, Upstream, UpstreamFault, UpstreamResponse
from foldline.errors import InvalidInput

Reader: TypeAlias = asyncio.StreamReader
Writer: TypeAlias = asyncio.StreamWriter
LONG_SECONDS = 120


@dataclass
class Asked:
    line: bytes
    headers: list[Header]
    body: bytes

    def value(self, name: bytes) -> bytes | None:
        return next((value for one, value in self.headers if one.lower() == name), None)


@dataclass
class Server:
    """A server of raw bytes. `connections` counts all that were made, `open` those that are."""

    port: int = 0
    connections: int = 0
    open: int = 0
    asked: list[Asked] = field(default_factory=list)
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def until_closed(self) -> None:
        async with asyncio.timeout(LONG_SECONDS):
            while self.open:
                self.changed.clear()
                await self.changed.wait()


async def request(reader: Reader) -> Asked | None:
    """The next request of a connection, None at its end."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    line, *rest = head[:-4].split(b"\r\n")
    headers = [(name, value.strip()) for name, _, value in (one.partition(b":") for one in rest)]
    asked = Asked(line, headers, b"")
    if length := asked.value(b"content-length"):
        asked.body = await reader.readexactly(int(length))
    elif asked.value(b"transfer-encoding") == b"chunked":
        while size := int(await reader.readline(), 16):
            asked.body += (await reader.readexactly(size + 2))[:-2]
        await reader.readline()
    return asked


@asynccontextmanager
async def connected(handle: Callable[[Reader, Writer, Server], Awaitable[None]]) -> AsyncIterator[Server]:
    made = Server()

    async def one(reader: Reader, writer: Writer) -> None:
        made.connections += 1
        made.open += 1
        try:
            await handle(reader, writer, made)
        except ConnectionError:
            pass
        finally:
            writer.close()
            made.open -= 1
            made.changed.set()

    server = await asyncio.start_server(one, "127.0.0.1", 0)
    made.port = server.sockets[0].getsockname()[1]
    try:
        yield made
    finally:
        server.close()
        await made.until_closed()


@asynccontextmanager
async def answering(*answers: bytes) -> AsyncIterator[Server]:
    """Each request gets the next answer, the last one again and again; the client ends the connection."""
    left = list(answers)

    async def handle(reader: Reader, writer: Writer, server: Server) -> None:
        while asked := await request(reader):
            server.asked.append(asked)
            writer.write(left.pop(0) if len(left) > 1 else left[0])
            await writer.drain()

    async with connected(handle) as server:
        yield server


def run(work: Coroutine[Any, Any, None]) -> None:
    async def in_time() -> None:
        async with asyncio.timeout(LONG_SECONDS):
            await work

    asyncio.run(in_time())


async def whole(answer: UpstreamResponse) -> bytes:
    return b"".join([chunk async for chunk in answer.chunks()])


OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"


def test_headers_go_on_as_they_came_but_those_of_the_connection() -> None:
    given = [
        (b"host", b"localhost:8790"),
        (b"x-b", b"1"),
        (b"x-a", b"2"),
        (b"x-b", b"3"),
        (b"content-length", b"99"),
        (b"authorization", b"Bearer sk-1"),
        (b"x-unknown", "é".encode()),
        (b"x-latin", b"\xe9"),
        (b"connection", b"keep-alive, X-Hop"),
        (b"x-hop", b"gone"),
        (b"keep-alive", b"timeout=5"),
        (b"te", b"trailers"),
        (b"upgrade", b"h2c"),
        (b"http2-settings", b"AAMAAABk"),
        (b"expect", b"100-continue"),
        (b"proxy-authorization", b"Basic eA=="),
        (b"accept-encoding", b"br, gzip"),
    ]

    async def work() -> None:
        async with answering(OK) as server, Upstream(server.url) as upstream:
            answer = await upstream.send("POST", "/v1/x", given, b"{}")
            assert await whole(answer) == b"ok"
            asked = server.asked[0]
            assert asked.line == b"POST /v1/x HTTP/1.1"
            assert [(name.lower(), value) for name, value in asked.headers] == [
                (b"host", f"127.0.0.1:{server.port}".encode()),
                (b"x-b", b"1"),
                (b"x-a", b"2"),
                (b"x-b", b"3"),
                (b"authorization", b"Bearer sk-1"),
                (b"x-unknown", "é".encode()),
                (b"x-latin", "é".encode()),
                (b"accept-encoding", b"br, gzip"),
                (b"content-length", b"2"),
            ]

    run(work())


@pytest.mark.parametrize(
    ("base", "target", "line"),
    [
        ("", "/v1/messages?beta=true", "/v1/messages?beta=true"),
        ("/", "/v1/messages", "/v1/messages"),
        ("/v1", "/v1/messages?a=%20%2F&b", "/v1/messages?a=%20%2F&b"),
        ("/v1/", "/v1/messages", "/v1/messages"),
        ("/v1", "/v1", "/v1"),
        ("/v1", "/v10/x", "/v1/v10/x"),
        ("/v1", "/messages", "/v1/messages"),
        ("/api/v1", "/v1/chat/completions", "/api/v1/chat/completions"),
        ("", "/a%2Fb/../c//d;e=f", "/a%2Fb/../c//d;e=f"),
        ("", "/x?u=http://a/b?c#", "/x?u=http://a/b?c"),
    ],
)
def test_a_path_is_joined_to_the_base_and_not_touched(base: str, target: str, line: str) -> None:
    async def work() -> None:
        async with answering(OK) as server, Upstream(server.url + base) as upstream:
            await (await upstream.send("GET", target, [])).read(10)
            assert server.asked[0].line == f"GET {line} HTTP/1.1".encode()

    run(work())


@pytest.mark.parametrize("target", ["", "*", "http://evil.example/", "/a b", "/a\r\nx: y", "@evil.example/"])
def test_what_is_no_path_is_not_sent(target: str) -> None:
    async def work() -> None:
        async with answering(OK) as server, Upstream(server.url) as upstream:
            with pytest.raises(UpstreamFault) as caught:
                await upstream.send("GET", target, [])
            assert (caught.value.kind, server.connections) == ("protocol", 0)

    run(work())


@pytest.mark.parametrize(
    "base", ["", "localhost:1", "ftp://a.example", "http://", "https://u:p@a.example", "http://a/?q"]
)
def test_an_address_that_is_none_is_refused(base: str) -> None:
    with pytest.raises(InvalidInput):
        Upstream(base)


def test_headers_of_an_answer_come_back_in_order_but_those_of_the_connection() -> None:
    sent = (
        b"HTTP/1.1 200 Fine\r\nX-B: 1\r\nset-cookie: a=1\r\nX-a: 2\r\nSet-Cookie: b=2\r\n"
        b"Connection: X-Hop, keep-alive\r\nX-Hop: gone\r\n"
        b"Keep-Alive: timeout=5\r\nTransfer-Encoding: chunked\r\nTrailer: X-T\r\n"
        b"X-odd: \xff\xfe\r\n\r\n"
        b"3\r\nabc\r\n2;ext=1\r\nde\r\n0\r\nX-T: late\r\n\r\n"
    )

    async def work() -> None:
        async with answering(sent) as server, Upstream(server.url) as upstream:
            answer = await upstream.send("GET", "/", [])
            assert (answer.status, answer.reason) == (200, "Fine")
            kept = [(b"X-B", b"1"), (b"set-cookie", b"a=1"), (b"X-a", b"2"), (b"Set-Cookie", b"b=2")]
            assert answer.headers == [*kept, (b"X-odd", b"\xff\xfe")]
            assert await whole(answer) == b"abcde"
            assert answer.headers == [*kept, (b"X-odd", b"\xff\xfe")]
            await (await upstream.send("GET", "/", [])).read(100)
            assert server.asked[1].value(b"cookie") is None
            assert server.connections == 1

    run(work())


@pytest.mark.parametrize(
    ("method", "sent", "headers"),
    [
        ("HEAD", b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n", [(b"content-length", b"5")]),
        ("GET", b"HTTP/1.1 204 No Content\r\nx: 1\r\n\r\n", [(b"x", b"1")]),
        ("GET", b"HTTP/1.1 304 Not Modified\r\ncontent-length: 5\r\netag: 1\r\n\r\n", [(b"etag", b"1")]),
        ("POST", b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", [(b"content-length", b"0")]),
    ],
)
def test_answers_without_a_body_end_at_once(method: str, sent: bytes, headers: list[Header]) -> None:
    async def work() -> None:
        async with answering(sent) as server, Upstream(server.url) as upstream:
            for _ in range(3):
                answer = await upstream.send(method, "/", [])
                assert (answer.headers, await answer.piece()) == (headers, b"")
            assert server.connections == 1

    run(work())


def test_informational_answers_are_passed_over() -> None:
    async def work() -> None:
        early = b"HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n"
        async with answering(early + OK) as server, Upstream(server.url) as upstream:
            answer = await upstream.send("GET", "/", [])
            assert (answer.status, answer.headers, await whole(answer)) == (200, [(b"content-length", b"2")], b"ok")

    run(work())


def test_a_stream_comes_piece_by_piece() -> None:
    async def work() -> None:
        seen = asyncio.Event()

        async def handle(reader: Reader, writer: Writer, server: Server) -> None:
            await request(reader)
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
            writer.write(b"8\r\ndata: 1\n\r\n")
            await seen.wait()
            writer.write(b"8\r\ndata: 2\n\r\n0\r\n\r\n")
            await reader.read()

        async with connected(handle) as server, Upstream(server.url) as upstream:
            answer = await upstream.send("GET", "/", [])
            assert await answer.piece() == b"data: 1\n"
            seen.set()
            assert await answer.piece() == b"data: 2\n"
            assert await answer.piece() == b""

    run(work())


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_redirects_are_not_followed(status: int) -> None:
    async def work() -> None:
        sent = f"HTTP/1.1 {status} Moved\r\nlocation: /elsewhere\r\ncontent-length: 0\r\n\r\n".encode()
        async with answering(sent) as server, Upstream(server.url) as upstream:
            answer = await upstream.send("POST", "/", [(b"authorization", b"Bearer sk")], b"{}")
            assert (answer.status, answer.headers[0]) == (status, (b"location", b"/elsewhere"))
            await answer.close()
            assert len(server.asked) == 1

    run(work())


def test_coded_bytes_are_not_decoded() -> None:
    async def work() -> None:
        coded = gzip.compress(b"x" * 10_000)
        head = b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: %d\r\n\r\n" % len(coded)
        async with answering(head + coded) as server, Upstream(server.url) as upstream:
            answer = await upstream.send("GET", "/", [])
            assert (b"content-encoding", b"gzip") in answer.headers
            assert await whole(answer) == coded

    run(work())


@pytest.mark.parametrize(
    ("accepted", "narrowed"),
    [
        (b"br, gzip, deflate", b"gzip, deflate"),
        (b"gzip;q=0.5,zstd;q=1.0, identity;q=0", b"gzip;q=0.5, identity;q=0"),
        (b"GZip", b"GZip"),
        (b"br", b"identity"),
        (b"*", b"identity"),
        (b"", b"identity"),
    ],
)
def test_only_readable_codings_are_asked_for_where_the_answer_is_read(accepted: bytes, narrowed: bytes) -> None:
    async def work() -> None:
        async with answering(OK) as server, Upstream(server.url) as upstream:
            given = [(b"accept-encoding", accepted)]
            for headers, readable in ((given, True), (given, False), ([], True)):
                await (await upstream.send("POST", "/", headers, readable=readable)).read(9)
            assert [asked.value(b"accept-encoding") for asked in server.asked] == [narrowed, accepted, None]

    run(work())


async def pieces(*given: bytes) -> AsyncIterator[bytes]:
    for one in given:
        yield one


def test_bodies_arrive_as_they_were_framed() -> None:
    large = os.urandom(3_000_000)
    length, chunked = [(b"content-length", b"6")], [(b"transfer-encoding", b"chunked")]

    async def work() -> None:
        async with answering(OK) as server, Upstream(server.url) as upstream:
            cases: list[tuple[str, list[Header], bytes | AsyncIterator[bytes]]] = [
                ("POST", [], large),
                ("POST", [], b""),
                ("GET", [], b""),
                ("DELETE", [(b"content-length", b"2")], b"{}"),
                ("POST", length, pieces(b"abc", b"", b"def")),
                ("POST", chunked, pieces(b"abc", b"def")),
                ("POST", chunked, pieces()),
                ("POST", [], pieces(large[:1_500_000], large[1_500_000:])),
                ("GET", [], pieces()),
            ]
            for method, headers, body in cases:
                assert await whole(await upstream.send(method, "/", headers, body)) == b"ok"
            framed = [(a.value(b"content-length"), a.value(b"transfer-encoding")) for a in server.asked]
            by_chunks = (None, b"chunked")
            sizes = [(b"3000000", None), (b"0", None), (None, None), (b"2", None), (b"6", None)]
            assert framed == [*sizes, by_chunks, by_chunks, by_chunks, (None, None)]
            bodies = [large, b"", b"", b"{}", b"abcdef", b"abcdef", b"", large, b""]
            assert [asked.body for asked in server.asked] == bodies

    run(work())


def test_an_answer_that_comes_before_the_request_is_whole_is_given() -> None:
    async def work() -> None:
        read = asyncio.Event()

        async def endless() -> AsyncIterator[bytes]:
            yield b"a"
            await read.wait()
            yield b"b"

        async def handle(reader: Reader, writer: Writer, server: Server) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 413 Too Large\r\ncontent-length: 3\r\n\r\nbig")
            await reader.read()

        async with connected(handle) as server, Upstream(server.url) as upstream:
            answer = await upstream.send("POST", "/", [(b"transfer-encoding", b"chunked")], endless())
            assert (answer.status, await answer.read(10)) == (413, b"big")
            await answer.close()
            await server.until_closed()
            read.set()

    run(work())


def test_a_body_that_fails_ends_the_request() -> None:
    async def work() -> None:
        async def failing() -> AsyncIterator[bytes]:
            yield b"a"
            raise KeyError("the client left")

        async def handle(reader: Reader, writer: Writer, server: Server) -> None:
            assert b"0\r\n\r\n" not in await reader.read()

        async with connected(handle) as server, Upstream(server.url) as upstream:
            with pytest.raises(KeyError):
                await upstream.send("POST", "/", [(b"transfer-encoding", b"chunked")], failing())
            await server.until_closed()

    run(work())


def test_what_is_read_of_an_answer_can_be_bounded_and_read_on() -> None:
    async def work() -> None:
        sent = b"HTTP/1.1 400 Bad\r\ncontent-length: 10\r\n\r\n0123456789"
        async with answering(sent) as server, Upstream(server.url) as upstream:
            answer = await upstream.send("GET", "/", [])
            assert (await answer.read(4), await answer.read(1), await whole(answer)) == (b"0123", b"4", b"56789")
            assert await (await upstream.send("GET", "/", [])).read(10) == b"0123456789"
            assert server.connections == 1

    run(work())


HEAD = b"HTTP/1.1 200 OK\r\n"
CUT_ANSWERS = {
    "nothing": b"",
    "half a head": HEAD + b"content-len",
    "less than its length": HEAD + b"content-length: 10\r\n\r\nabc",
    "no last chunk": HEAD + b"transfer-encoding: chunked\r\n\r\n3\r\nabc\r\n",
    "half a chunk": HEAD + b"transfer-encoding: chunked\r\n\r\n9\r\nabc",
}
WRONG_ANSWERS = {
    "no HTTP": b"SSH-2.0-OpenSSH\r\n\r\n",
    "a bad header": HEAD + b"a b c\r\n\r\n",
    "no number": HEAD + b"content-length: x\r\n\r\n",
    "a status that is none": b"HTTP/1.1 999 Odd\r\ncontent-length: 0\r\n\r\n",
    "an endless head": HEAD + b"x: " + b"y" * 1_000_000,
}


async def fault_of(upstream: Upstream, taken: asyncio.Event | None = None) -> tuple[bytes, str]:
    """What came before a fault, and its kind."""
    came = b""
    try:
        answer = await upstream.send("POST", "/v1/x?key=secret", [(b"authorization", b"Bearer secret")], b"{}")
        async for chunk in answer.chunks():
            came += chunk
            if taken is not None:
                taken.set()
    except UpstreamFault as fault:
        assert "secret" not in str(fault)
        return came, fault.kind
    return came, ""


@pytest.mark.parametrize("reset", [False, True], ids=["closed", "reset"])
@pytest.mark.parametrize("sent", CUT_ANSWERS.values(), ids=CUT_ANSWERS)
def test_an_answer_that_breaks_off_is_told_from_one_that_ends(sent: bytes, reset: bool) -> None:
    async def work() -> None:
        taken = asyncio.Event()

        async def handle(reader: Reader, writer: Writer, server: Server) -> None:
            await request(reader)
            writer.write(sent)
            await writer.drain()
            if reset:
                if b"abc" in sent:
                    await taken.wait()
                at = writer.get_extra_info("socket")
                at.setsockopt(1, 13, struct.pack("ii", 1, 0))  # SOL_SOCKET, SO_LINGER
                writer.transport.abort()

        async with connected(handle) as server, Upstream(server.url) as upstream:
            assert await fault_of(upstream, taken) == (b"abc" if b"abc" in sent else b"", "cut")

    run(work())


def test_an_answer_without_a_length_ends_with_its_connection() -> None:
    async def work() -> None:
        async def handle(reader: Reader, writer: Writer, server: Server) -> None:
            await request(reader)
            writer.write(b"HTTP/1.0 200 OK\r\n\r\nabc")

        async with connected(handle) as server, Upstream(server.url) as upstream:
            assert await fault_of(upstream) == (b"abc", "")

    run(work())


@pytest.mark.parametrize("sent", WRONG_ANSWERS.values(), ids=WRONG_ANSWERS)
def test_what_is_no_http_is_a_fault_of_its_own(sent: bytes) -> None:
    async def work() -> None:
        async with answering(sent) as server, Upstream(server.url) as upstream:
            assert await fault_of(upstream) == (b"", "protocol")

    run(work())


@pytest.mark.parametrize("sent", [b"", HEAD, HEAD + b"content-length: 10\r\n\r\nabc"], ids=["all", "head", "body"])
def test_silence_is_given_up(sent: bytes) -> None:
    async def work() -> None:
        async with answering(sent) as server, Upstream(server.url, silence_seconds=0.2) as upstream:
            assert await fault_of(upstream) == (b"abc" if b"abc" in sent else b"", "silence")
            await server.until_closed()

    idle_clock.run(work())


def test_a_request_that_is_not_taken_is_given_up() -> None:
    async def work() -> None:
        ended = asyncio.Event()

        async def handle(reader: Reader, writer: Writer, server: Server) -> None:
            await ended.wait()

        async def endless() -> AsyncIterator[bytes]:
            while True:
                yield b"x" * 1_000_000

        async with connected(handle) as server:
            async with Upstream(server.url, silence_seconds=0.2, connect_seconds=0.2) as upstream:
                for body in (b"x" * 30_000_000, endless()):
                    with pytest.raises(UpstreamFault) as caught:
                        await upstream.send("POST", "/", [], body)
                    assert caught.value.kind == "silence"
            ended.set()

    idle_clock.run(work())


def test_a_client_that_takes_its_time_is_not_the_upstreams_silence() -> None:
    async def work() -> None:
        async def slow() -> AsyncIterator[bytes]:
            yield b"x"
            await asyncio.sleep(0.9)
            yield b"xx"

        async with answering(OK) as server:
            async with Upstream(server.url, silence_seconds=0.6) as upstream:
                assert await whole(await upstream.send("POST", "/", [], slow())) == b"ok"
            assert server.asked[0].body == b"xxx"

    idle_clock.run(work())


def test_what_cannot_be_reached_is_told() -> None:
    async def work() -> None:
        async with answering(OK) as server:
            gone = server.url
        async with Upstream(gone) as upstream:
            assert await fault_of(upstream) == (b"", "connect")
        async with Upstream("http://nowhere.invalid", connect_seconds=10) as upstream:
            assert await fault_of(upstream) == (b"", "connect")

    run(work())


def test_waiting_for_a_free_connection_ends() -> None:
    async def work() -> None:
        async with (
            answering(HEAD + b"content-length: 10\r\n\r\nabc") as server,
            Upstream(server.url, connections=1, connect_seconds=0.6) as upstream,
        ):
            answer = await upstream.send("GET", "/", [])
            assert await fault_of(upstream) == (b"", "connect")
            await answer.close()
            answer = await upstream.send("GET", "/", [])
            assert answer.status == 200
            await answer.close()

    idle_clock.run(work())


async def closing_the_second(reader: Reader, writer: Writer, server: Server) -> None:
    """Answers one request of each connection, and closes it when another comes."""
    while asked := await request(reader):
        server.asked.append(asked)
        if len(server.asked) == 2:
            return
        writer.write(OK)


@pytest.mark.parametrize(
    ("readable", "method", "kind"), [(True, "POST", ""), (False, "POST", "cut"), (False, "GET", "")]
)
def test_a_kept_connection_that_is_closed_is_replaced_where_asking_twice_does_no_harm(
    readable: bool, method: str, kind: str
) -> None:
    async def work() -> None:
        async with connected(closing_the_second) as server, Upstream(server.url) as upstream:
            await (await upstream.send("POST", "/", [], b"{}")).read(9)
            found = ""
            try:
                answer = await upstream.send(method, "/", [], b"{}", readable=readable)
                assert await answer.read(9) == b"ok"
            except UpstreamFault as fault:
                found = fault.kind
            assert (found, len(server.asked)) == (kind, 2 if kind else 3)

    run(work())


def test_a_new_connection_that_breaks_is_not_tried_again() -> None:
    async def work() -> None:
        async def handle(reader: Reader, writer: Writer, server: Server) -> None:
            await request(reader)

        async with connected(handle) as server, Upstream(server.url) as upstream:
            with pytest.raises(UpstreamFault):
                await upstream.send("POST", "/", [], b"{}", readable=True)
            assert server.connections == 1

    run(work())


def test_what_is_not_taken_is_not_read() -> None:
    """The upstream writes 64 MB as fast as it may; what nobody takes stays with it."""
    most = 64_000_000

    async def work() -> None:
        sent = 0

        async def handle(reader: Reader, writer: Writer, server: Server) -> None:
            nonlocal sent
            await request(reader)
            writer.write(HEAD + b"content-length: %d\r\n\r\n" % most)
            while sent < most:
                writer.write(b"x" * 100_000)
                await writer.drain()
                sent += 100_000

        async with connected(handle) as server, Upstream(server.url) as upstream:
            answer = await upstream.send("GET", "/", [])
            size = len(await answer.piece())
            before = -1
            while before != sent:
                before = sent
                await asyncio.sleep(0.2)
            assert sent < most / 2
            largest = 0
            async for chunk in answer.chunks():
                size, largest = size + len(chunk), max(largest, len(chunk))
            assert (size, largest < 1_000_000) == (most, True)

    idle_clock.run(work())


def test_an_unread_answer_that_is_closed_closes_its_connection() -> None:
    async def work() -> None:
        async with answering(HEAD + b"content-length: 10\r\n\r\nabc") as server, Upstream(server.url) as upstream:
            answer = await upstream.send("GET", "/", [])
            await answer.piece()
            await answer.close()
            await answer.close()
            await server.until_closed()
            with pytest.raises(UpstreamFault):
                await answer.piece()

    run(work())


def test_a_reader_that_waits_is_woken_by_a_close() -> None:
    async def work() -> None:
        async with answering(HEAD + b"content-length: 10\r\n\r\nabc") as server, Upstream(server.url) as upstream:
            answer = await upstream.send("GET", "/", [])
            reading = asyncio.create_task(whole(answer))
            await asyncio.sleep(0)
            answer.abort()
            with pytest.raises(UpstreamFault):
                await reading
            await server.until_closed()

    run(work())


def test_a_request_that_is_cancelled_closes_its_connection() -> None:
    async def work() -> None:
        async with answering(b"") as server, Upstream(server.url) as upstream:
            sending = asyncio.create_task(upstream.send("POST", "/", [], b"{}"))
            while not server.asked:
                await asyncio.sleep(0)
            sending.cancel()
            with pytest.raises(asyncio.CancelledError):
                await sending
            await server.until_closed()

    run(work())


def test_faults_leave_no_connection_behind() -> None:
    faults = [*CUT_ANSWERS.values(), *list(WRONG_ANSWERS.values())[:4], OK, HEAD + b"content-length: 9\r\n\r\nabc"]

    async def work() -> None:
        number = 0

        async def handle(reader: Reader, writer: Writer, server: Server) -> None:
            nonlocal number
            while await request(reader):
                fault = faults[number % len(faults)]
                number += 1
                writer.write(fault)
                await writer.drain()
                if fault in CUT_ANSWERS.values():
                    return

        async def one(upstream: Upstream, limit: asyncio.Semaphore, number: int) -> str:
            async with limit:
                try:
                    answer = await upstream.send("POST", "/", [], b"{}", readable=number % 2 == 0)
                    await answer.piece()
                    if number % 3:
                        await whole(answer)
                    await answer.close()
                except UpstreamFault as fault:
                    return fault.kind
                return ""

        async with connected(handle) as server:
            async with Upstream(server.url, silence_seconds=0.1) as upstream:
                limit = asyncio.Semaphore(20)
                kinds = await asyncio.gather(*(one(upstream, limit, number) for number in range(200)))
                assert {"", "cut", "silence", "protocol"} == set(kinds)
                assert server.open <= 20  # those that are kept
            await server.until_closed()

    before = len(list(Path("/dev/fd").iterdir()))
    run(work())
    assert len(list(Path("/dev/fd").iterdir())) == before


def test_the_proxy_of_the_environment_is_used_but_for_what_is_near(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> None:
        async with answering(OK) as proxy, answering(OK) as server:
            monkeypatch.setenv("http_proxy", f"http://user:p%40ss@127.0.0.1:{proxy.port}")
            monkeypatch.setenv("no_proxy", "direct.invalid")
            async with Upstream("http://models.example.com/v1") as upstream:
                assert await whole(await upstream.send("POST", "/v1/x", [], b"{}")) == b"ok"
            async with Upstream(server.url) as upstream:
                assert await whole(await upstream.send("GET", "/", [])) == b"ok"
            async with Upstream("http://direct.invalid") as upstream:
                assert await fault_of(upstream) == (b"", "connect")
            assert proxy.asked[0].line == b"POST http://models.example.com/v1/x HTTP/1.1"
            assert proxy.asked[0].value(b"host") == b"models.example.com"
            assert proxy.asked[0].value(b"proxy-authorization") == b"Basic dXNlcjpwQHNz"
            assert (len(proxy.asked), len(server.asked)) == (1, 1)

    run(work())


def test_a_tunnel_is_asked_for_where_the_upstream_is_secure(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> None:
        refusal = b"HTTP/1.1 407 No\r\ncontent-length: 0\r\n\r\n"
        async with answering(refusal) as proxy:
            monkeypatch.setenv("https_proxy", f"http://127.0.0.1:{proxy.port}")
            async with Upstream("https://models.example.com") as upstream:
                assert await fault_of(upstream) == (b"", "connect")
            assert proxy.asked[0].line == b"CONNECT models.example.com:443 HTTP/1.1"
            assert proxy.asked[0].value(b"authorization") is None

    run(work())


def test_a_proxy_that_is_none_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("https_proxy", "socks5://127.0.0.1:1080")
    with pytest.raises(InvalidInput, match="https_proxy"):
        Upstream("https://models.example.com")
