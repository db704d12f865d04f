"""The proxy's server: odd requests, visible cuts, bounded waits, and a graceful stop."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeAlias

import httpx
import pytest
from tests.doors.proxy.test_upstream import connected, request
from tests.doors.socket_server import (
    CHUNK,
    LONG_SECONDS,
    SocketServer,
    closed,
    dribbled_heads_are_given_up,
    slow_readers_get_all,
    socket_server,
    unread_answers_are_given_up,
)

from foldline.doors.proxy.gate import GateRules
from foldline.doors.proxy.server import CUT, ProxyConnection, listen, loop_factory, run
from foldline.doors.proxy.startup import ProxySettings, open_proxy

Factory: TypeAlias = Callable[[], asyncio.AbstractEventLoop]


class Quick(ProxyConnection):
    head_seconds = 0.2
    body_seconds = 0.2
    stall_seconds = 1.0


async def body_of(receive: Any) -> bytes:
    read = bytearray()
    while True:
        message = await receive()
        read += message.get("body", b"")
        if not message.get("more_body"):
            return bytes(read)


LEFT: list[float] = []
"""When clients of `/waits` were found to have left."""


async def app(scope: Any, receive: Any, send: Any) -> None:
    body = await body_of(receive)
    path = scope["path"]
    if path == "/cut":
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"all that came", "more_body": True})
        scope[CUT]()
        return
    if path == "/later":
        for _ in range(3):
            await asyncio.sleep(0.25)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"first ", "more_body": True})
        await asyncio.sleep(0.25)
        await send({"type": "http.response.body", "body": b"last"})
        return
    if path == "/waits":
        if b"begins" in scope["query_string"]:
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"some", "more_body": True})
        while (await receive())["type"] != "http.disconnect":
            pass
        LEFT.append(time.monotonic())
        return
    if path == "/large":
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for _ in range(30):
            await send({"type": "http.response.body", "body": CHUNK, "more_body": True})
        await send({"type": "http.response.body", "body": b""})
        return
    names = b",".join(name for name, _ in scope["headers"])
    answer = b"|".join((scope["method"].encode(), scope["raw_path"], scope["query_string"], names, body))
    headers = [(b"X-Odd", b"1"), (b"x-odd", b"2"), (b"content-length", b"%d" % len(answer))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": answer})


@pytest.fixture(scope="module", params=[False, True], ids=["asyncio", "uvloop"])
def loops(request: pytest.FixtureRequest) -> Factory:
    """Makes a loop of each kind."""
    factory = loop_factory() if request.param else asyncio.new_event_loop
    if factory is None:
        pytest.skip("uvloop is not installed")
    return factory


@pytest.fixture(scope="module")
def served(loops: Factory) -> Iterator[SocketServer]:
    """A server with the patience of a real one: a machine that is busy elsewhere is not given up."""
    with socket_server(app, ProxyConnection, loop_factory=loops, date_header=False, server_header=False) as made:
        yield made


@pytest.fixture(scope="module")
def quick(loops: Factory) -> Iterator[SocketServer]:
    """A server that waits for little."""
    with socket_server(app, Quick, loop_factory=loops, date_header=False, server_header=False) as made:
        yield made


LAST = b"GET /last HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"


def test_nothing_is_added_to_an_answer_and_no_header_is_joined(served: SocketServer) -> None:
    head, _, body = served.answer(b"GET /a%2Fb?c=%20d HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").partition(
        b"\r\n\r\n"
    )
    lines = head.split(b"\r\n")
    assert lines[0] == b"HTTP/1.1 200 OK"
    assert [line.lower() for line in lines[1:]] == [
        b"x-odd: 1",
        b"x-odd: 2",
        b"content-length: 34",
        b"connection: close",
    ]
    assert body == b"GET|/a%2Fb|c=%20d|host,connection|"


def test_requests_follow_each_other_on_a_connection(served: SocketServer) -> None:
    post = b"POST /p HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc"
    chunked = b"POST /q HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nde\r\n0\r\nX-Late: 1\r\n\r\n"
    read = served.answer(post + chunked + LAST)
    assert b"POST|/p||host,content-length|abc" in read
    assert b"POST|/q||host,transfer-encoding|de" in read
    assert read.endswith(b"GET|/last||host,connection|")


@pytest.mark.parametrize("pieces", [1, 2, 3])
def test_a_wish_for_another_protocol_is_passed_over_and_the_body_arrives(served: SocketServer, pieces: int) -> None:
    """Java's client wishes for HTTP/2 with each first request, bodies included."""
    wish = b"POST /p HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n"
    wish += b"HTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\nContent-Length: 3\r\n\r\n"
    sent = {1: [wish + b"abc" + LAST], 2: [wish, b"abc" + LAST], 3: [wish + b"a", b"bc", LAST]}[pieces]
    read = served.answer(*sent)
    assert b"POST|/p||host,content-length|abc" in read
    assert read.endswith(b"GET|/last||host,connection|")


def test_a_websocket_is_asked_for_in_the_open(served: SocketServer) -> None:
    with served.connection() as made:
        made.sendall(b"GET /v1/responses HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
        read = b""
        while not read.endswith(b"|host,connection,upgrade|"):
            read += made.recv(65_536)


@pytest.mark.parametrize(
    "sent",
    [
        b"nonsense\r\n\r\n",
        b"CONNECT a.example:443 HTTP/1.1\r\nHost: a.example:443\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
    ],
)
def test_what_is_no_request_is_refused(served: SocketServer, sent: bytes) -> None:
    assert served.answer(sent).startswith(b"HTTP/1.1 400 ")


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"Transfer-Encoding: xchunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", 501),
        (b"Transfer-Encoding: gzip, chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", 501),
        (b"Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", 501),
        (b"Transfer-Encoding: gzip\r\n\r\nhello", 501),
        (b"Transfer-Encoding: chunked, chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", 400),
        (b"Transfer-Encoding: \r\n\r\n5\r\nhello\r\n0\r\n\r\n", 400),
        (b"Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\nhello\r\n0\r\n\r\n", 400),
        (b"Transfer-Encoding: chunked\r\n\r\n5\nhello\r\n0\r\n\r\n", 400),
        (b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\n0\r\n\r\n", 400),
        (b"Transfer-Encoding: chunked\r\n\r\nzz\r\nhello\r\n0\r\n\r\n", 400),
    ],
)
@pytest.mark.parametrize("pieces", [1, 2])
def test_a_body_that_cannot_be_read_is_refused_in_words(
    served: SocketServer, sent: bytes, status: int, pieces: int
) -> None:
    whole = b"POST /a HTTP/1.1\r\nHost: a\r\n" + sent
    at = whole.index(b"\r\n\r\n") + 4
    given = [whole] if pieces == 1 else [whole[:at], whole[at:]]
    assert served.answer(*given).startswith(b"HTTP/1.1 %d " % status)


def test_a_body_in_chunks_arrives_however_that_is_written(served: SocketServer) -> None:
    sent = b"POST /a HTTP/1.1\r\nHost: a\r\nConnection: close\r\nTRANSFER-encoding:  Chunked \r\n\r\n"
    assert served.answer(sent + b"5\r\nhello\r\n0\r\n\r\n").endswith(b"|hello")


@pytest.mark.parametrize("more", [b"", b"Connection: keep-alive\r\n"])
def test_a_client_of_http_1_0_gets_no_chunks_and_an_end(served: SocketServer, more: bytes) -> None:
    head, _, body = served.answer(b"GET /later HTTP/1.0\r\nHost: a\r\n" + more + b"\r\n").partition(b"\r\n\r\n")
    assert body == b"first last"
    assert b"transfer-encoding" not in head.lower() and b"connection: close" in head.lower()
    head, _, body = served.answer(b"POST /a HTTP/1.0\r\nContent-Length: 2\r\n\r\nhi").partition(b"\r\n\r\n")
    assert body.endswith(b"|hi") and b"content-length: %d" % len(body) in head


def test_a_client_that_has_said_all_gets_its_answer(served: SocketServer) -> None:
    for version in (b"1.1", b"1.0"):
        for path in (b"/later", b"/a"):
            with served.connection() as made:
                made.sendall(b"POST " + path + b" HTTP/" + version + b"\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi")
                made.shutdown(socket.SHUT_WR)
                read = b""
                while piece := made.recv(1_000_000):
                    read += piece
            assert read.startswith(b"HTTP/1.1 200 OK\r\n"), read[:40]
            body = _unchunked(read)
            assert body == b"first last" if path == b"/later" else body.endswith(b"|hi")


def _unchunked(answer: bytes) -> bytes:
    head, _, body = answer.partition(b"\r\n\r\n")
    if b"transfer-encoding: chunked" not in head:
        return body
    found = b""
    while True:
        size, _, body = body.partition(b"\r\n")
        if not int(size, 16):
            return found
        found += body[: int(size, 16)]
        body = body[int(size, 16) + 2 :]


@pytest.mark.parametrize("query", ["", "?begins"])
@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_a_client_that_has_gone_is_noticed_soon(served: SocketServer, query: str, version: str) -> None:
    if query and version == "1.0":
        return  # nothing can be written ahead of what has no chunks: it is noticed with the next piece
    before = len(LEFT)
    with served.connection() as made:
        made.sendall(f"GET /waits{query} HTTP/{version}\r\nHost: a\r\n\r\n".encode())
        if query:
            assert made.recv(1_000)
        else:
            time.sleep(0.05)
    gone = time.monotonic()
    served.until(lambda: len(LEFT) > before)
    assert LEFT[-1] - gone < 10  # 0.15 s where nothing else keeps the machine busy


def test_half_a_request_is_no_whole_one(served: SocketServer) -> None:
    with served.connection() as made:
        made.sendall(b"POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 20\r\n\r\nhi")
        made.shutdown(socket.SHUT_WR)
        assert made.recv(1_000) == b""


def test_a_head_without_end_is_refused(served: SocketServer) -> None:
    head = b"GET / HTTP/1.1\r\nHost: a\r\n"
    with served.connection() as made:
        made.sendall(head + b"x: " + b"y" * 70_000)
        assert made.recv(65_536).startswith(b"HTTP/1.1 431 ")


@pytest.mark.parametrize("long", [b"GET /%b HTTP/1.1\r\n", b"GET / HTTP/1.1\r\nx: %b\r\n"], ids=["path", "header"])
@pytest.mark.parametrize("size", [65_600, 200_000])
def test_a_head_that_is_too_long_is_called_that_where_it_is_whole(served: SocketServer, long: bytes, size: int) -> None:
    assert served.answer(long % (b"y" * size) + b"Host: a\r\n\r\n").startswith(b"HTTP/1.1 431 ")


def test_nonsense_in_the_middle_of_an_answer_ends_it(served: SocketServer) -> None:
    with socket.socket() as made:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 200_000)  # with less, what was sent takes seconds to come
        made.settimeout(LONG_SECONDS)
        made.connect(("127.0.0.1", served.port))
        made.sendall(b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n")
        read = made.recv(1_000)
        made.sendall(b"nonsense\r\n\r\n")
        with suppress(ConnectionResetError):
            while piece := made.recv(1_000_000):
                read += piece
        assert b"400 Bad Request" not in read
        assert not read.endswith(b"0\r\n\r\n")


def test_an_answer_that_is_cut_does_not_look_whole(served: SocketServer) -> None:
    with httpx.Client(trust_env=False) as client, client.stream("GET", f"http://127.0.0.1:{served.port}/cut") as reply:
        pieces = reply.iter_raw()
        assert next(pieces) == b"all that came"
        with pytest.raises(httpx.RemoteProtocolError):
            next(pieces)
    served.until(lambda: not served.server.server_state.connections)
    served.until(lambda: not served.server.server_state.tasks)


@pytest.mark.parametrize("sent", [b"", b"GET / HT", b"GET / HTTP/1.1\r\nHost: a\r\n"])
def test_a_request_that_does_not_come_is_given_up(quick: SocketServer, sent: bytes) -> None:
    with quick.connection() as made:
        made.sendall(sent)
        assert closed(made)


@pytest.mark.parametrize("framing", [b"Content-Length: 10", b"Transfer-Encoding: chunked"])
def test_a_body_that_does_not_come_is_given_up(quick: SocketServer, framing: bytes) -> None:
    with quick.connection() as made:
        made.sendall(b"POST / HTTP/1.1\r\nHost: a\r\n" + framing + b"\r\n\r\n3\r\nabc\r\n")
        assert closed(made)
    quick.until(lambda: not quick.server.server_state.tasks)


def test_a_body_that_comes_slowly_arrives(quick: SocketServer) -> None:
    def sent(made: socket.socket) -> bool:
        """Whether it was sent over more than the time that a silence may take, without such a silence."""
        made.sendall(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 8\r\n\r\n")
        times = [time.monotonic()]
        for _ in range(8):
            threading.Event().wait(0.03)
            with suppress(OSError):
                made.sendall(b"x")
            times.append(time.monotonic())
        longest = max(after - before for before, after in pairwise(times))
        return longest < Quick.body_seconds * 0.75 and times[-1] - times[0] > Quick.body_seconds

    for _ in range(50):  # a machine that is busy elsewhere may make the pauses too long
        with quick.connection() as made:
            if not sent(made):
                continue
            read = b""
            while piece := made.recv(65_536):
                read += piece
                if read.endswith(b"|xxxxxxxx"):
                    return
            pytest.fail(f"it was given up after {read!r}")
    pytest.fail("the pauses were too long every time")


def test_a_head_that_comes_a_byte_at_a_time_is_given_up(quick: SocketServer) -> None:
    dribbled_heads_are_given_up(quick)


def test_an_answer_that_is_not_read_is_given_up(quick: SocketServer) -> None:
    unread_answers_are_given_up(quick)


def test_an_answer_that_is_read_slowly_comes_whole(quick: SocketServer) -> None:
    slow_readers_get_all(quick)


# --- the stop --------------------------------------------------------------------------------------------------------


@dataclass
class Streams:
    """An application whose responses end on request, or when the client is gone."""

    end: asyncio.Event = field(default_factory=asyncio.Event)
    left: int = 0
    ended: int = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"first", "more_body": True})
        gone = asyncio.create_task(receive())
        stopped = asyncio.create_task(self.end.wait())
        await asyncio.wait({gone, stopped}, return_when=asyncio.FIRST_COMPLETED)
        self.left += gone.done() and not stopped.done()
        gone.cancel()
        stopped.cancel()
        last = b"last" if scope["path"] != "/large" else b"x" * 100_000_000
        await send({"type": "http.response.body", "body": last})
        self.ended += 1


@dataclass
class Running:
    port: int
    streams: Streams
    notices: list[str]
    work: asyncio.Task[None]

    async def stream(self, path: str = "/v1/messages") -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection whose answer has begun."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(b"GET " + path.encode() + b" HTTP/1.1\r\nHost: a\r\n\r\n")
        await reader.readuntil(b"first\r\n")
        return reader, writer

    async def until(self, done: Callable[[], bool]) -> None:
        while not done():
            await asyncio.sleep(0.01)


def running(act: Callable[[Running], Any], *, grace_seconds: float, factory: Any = None) -> None:
    """Run a server in this process, which gets the signals."""

    async def work() -> None:
        streams, notices = Streams(), list[str]()
        with listen("127.0.0.1", 0) as at:
            at.listen()  # who comes before the server waits for it
            task = asyncio.create_task(run(streams, at, grace_seconds=grace_seconds, notice=notices.append))
            try:
                async with asyncio.timeout(LONG_SECONDS):
                    await act(Running(at.getsockname()[1], streams, notices, task))
                    await task
            finally:
                task.cancel()

    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(work())


def terminate() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


both_loops = pytest.mark.parametrize("factory", [None, loop_factory()], ids=["asyncio", "uvloop"])


@both_loops
def test_a_stop_lets_streams_end_and_takes_nothing_new(factory: Any) -> None:
    async def act(served: Running) -> None:
        reader, writer = await served.stream()
        idle, idle_writer = await asyncio.open_connection("127.0.0.1", served.port)
        terminate()
        await served.until(lambda: bool(served.notices))
        assert await idle.read() == b""
        with pytest.raises(OSError, match=r"refused|reset|Connect call failed"):
            await asyncio.open_connection("127.0.0.1", served.port)
        assert not served.work.done()
        served.streams.end.set()
        assert await reader.read() == b"4\r\nlast\r\n0\r\n\r\n"
        assert (served.streams.left, len(served.notices)) == (0, 1)
        writer.close()
        idle_writer.close()

    running(act, grace_seconds=15, factory=factory)


@both_loops
def test_what_does_not_end_in_time_is_cut(factory: Any) -> None:
    async def act(served: Running) -> None:
        reader, writer = await served.stream()
        terminate()
        with suppress(ConnectionResetError):
            assert await reader.read() == b""
        await served.until(lambda: served.streams.left == 1)
        assert len(served.notices) == 2
        writer.close()

    running(act, grace_seconds=0.1, factory=factory)


def test_a_second_signal_stops_at_once() -> None:
    async def act(served: Running) -> None:
        _, writer = await served.stream()
        terminate()
        await served.until(lambda: bool(served.notices))
        terminate()
        await served.work
        assert served.streams.left == 1
        writer.close()

    running(act, grace_seconds=1_000)


@both_loops
def test_an_answer_that_is_not_read_does_not_hold_up_the_end(factory: Any) -> None:
    """It was written whole, so nothing is under way but its bytes."""

    async def act(served: Running) -> None:
        _, writer = await served.stream("/large")
        served.streams.end.set()
        await served.until(lambda: served.streams.ended == 1)
        terminate()
        await served.work
        assert served.notices == ["Cutting off 1 that did not end"]
        writer.transport.abort()

    running(act, grace_seconds=0.2, factory=factory)


def test_a_stop_without_anything_under_way_says_nothing() -> None:
    async def act(served: Running) -> None:
        reader, writer = await served.stream()
        served.streams.end.set()
        await reader.readuntil(b"0\r\n\r\n")
        terminate()
        await served.work
        writer.close()
        assert served.notices == []

    running(act, grace_seconds=1_000)


# --- the whole way ---------------------------------------------------------------------------------------------------


def through(handle: Any, act: Callable[[Any, int], Any], home: Path, *, grace_seconds: float = 0) -> None:
    """A whole proxy between `act`, which gets its port, and a server of raw bytes."""

    async def work() -> None:
        async with connected(handle) as server:
            settings = ProxySettings(upstream=server.url, summaries=False, window=8_000)
            rules, environ = GateRules(hosts=frozenset({"127.0.0.1"})), {"FOLDLINE_HOME": str(home)}
            async with open_proxy(settings, rules, environ, notice=print) as opened:
                with listen("127.0.0.1", 0) as at:
                    at.listen()
                    stop: Any = {"grace_seconds": grace_seconds, "stopping": opened.stopping}
                    task = asyncio.create_task(run(opened.app, at, notice=print, **stop))
                    try:
                        async with asyncio.timeout(LONG_SECONDS):
                            await act(server, at.getsockname()[1])
                    finally:
                        terminate()
                        await task

    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(work())


def test_the_live_page_does_not_hold_up_a_stop(tmp_path: Path) -> None:
    read: list[bytes] = []
    reading: list[asyncio.Task[None]] = []

    async def act(server: Any, port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /foldline/events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        await reader.readuntil(b"\n\n")

        async def run_to_end() -> None:
            read.append(await reader.read())
            writer.close()
            await writer.wait_closed()

        reading.append(asyncio.create_task(run_to_end()))

    async def handle(reader: Any, writer: Any, server: Any) -> None:
        raise AssertionError("the page asks nothing of the upstream")

    through(handle, act, tmp_path, grace_seconds=1_000)
    assert b"event: stopping" in read[0]


BODY = b'{"model":"m","stream":true,"messages":[{"role":"user","content":"Hello."}]}'
EVENT = b'data: {"choices":[{"index":0,"delta":{"content":"' + b"x" * 10_000 + b'"}}]}\n\n'


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/files/1/content"])
def test_what_a_client_does_not_read_stays_upstream_and_when_it_leaves_so_do_we(path: str, tmp_path: Path) -> None:
    sent_bytes, most_bytes = 0, 400_000_000  # the system holds up to 33 MB of each connection

    async def handle(reader: Any, writer: Any, server: Any) -> None:
        nonlocal sent_bytes
        await request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n")
        while sent_bytes < most_bytes:
            writer.write(EVENT)
            await writer.drain()
            sent_bytes += len(EVENT)

    async def act(server: Any, port: int) -> None:
        slow = socket.create_connection(("127.0.0.1", port))
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        reader, writer = await asyncio.open_connection(sock=slow, limit=10_000)
        head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(BODY)}\r\n\r\n"
        writer.write(head.encode() + BODY)
        await reader.readuntil(b"\r\n\r\n")
        before = -1
        while before != sent_bytes:
            before = sent_bytes
            await asyncio.sleep(0.3)
        assert 0 < sent_bytes < most_bytes / 2, sent_bytes
        writer.transport.abort()
        await server.until_closed()

    through(handle, act, tmp_path)


def test_a_client_that_leaves_before_an_answer_takes_its_request_along(tmp_path: Path) -> None:
    arrived = asyncio.Event()

    async def handle(reader: Any, writer: Any, server: Any) -> None:
        if await request(reader):
            arrived.set()
        assert await reader.read() == b""

    async def act(server: Any, port: int) -> None:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(BODY)}\r\n\r\n"
        writer.write(head.encode() + BODY)
        await arrived.wait()
        writer.close()
        await server.until_closed()

    through(handle, act, tmp_path)
