"""The server process of the proxy: uvicorn over httptools, with time limits and a stop that lets streams end."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from typing import Any, Final

import httptools
import uvicorn
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from foldline.doors.http.server import GracefulServer, TimedConnection, is_loopback, listen

__all__ = ["CUT", "ProxyConnection", "is_loopback", "listen", "loop_factory", "run"]

CUT: Final = "foldline.cut"
"""In the scope of a request: a function that closes the client's connection, so that a broken response does not look
complete. What was sent before still arrives."""

_BODY_SECONDS: Final = 60.0  # the longest pause of a request body
_MAX_HEAD_BYTES: Final = 65_536  # httptools has no limit of its own
_LAST_SECONDS: Final = 5  # for the application to notice that a connection was cut
_DRAIN_SECONDS: Final = 2.0  # for a client to read a refusal, and to stop sending
_POLL_SECONDS: Final = 0.02  # between two checks of a stop

# The beginning of every response, and the pauses before each byte of it that is written early. The first two bytes find
# a client on this machine or network that has gone, later ones a client that is far away or goes later. There are no
# more than fit before the status code.
_STATUS_LINE_START: Final = b"HTTP/1.1 "
_PROBE_SECONDS: Final = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4)

_HEAD_TOO_LARGE: Final = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
)
_CODING_NOT_IMPLEMENTED: Final = b"HTTP/1.1 501 Not Implemented\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
_BAD_REQUEST: Final = (
    b"HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-length: 30\r\n"
    b"connection: close\r\n\r\nInvalid HTTP request received."
)
_UPGRADE_HEADERS: Final = frozenset({b"connection", b"upgrade", b"http2-settings"})


class HalfClosedProbe:
    """Tells a client that has closed its sending side, and still listens, from one that has gone.

    Both look alike: a FIN. A client that has gone answers the next bytes with a reset, and the write after that fails,
    which the connection notices. So some bytes that are due anyway are written early, one at a time: the first ones of
    the status line, or zeros before a chunk size, which mean nothing (RFC 9112, section 7.1). A client that listens
    sees no difference, whatever version of HTTP it speaks.

    The probe stands between the response and its transport from then on, and removes what was written early.
    """

    def __init__(self, cycle: RequestResponseCycle, loop: asyncio.AbstractEventLoop) -> None:
        self._cycle, self._loop, self._transport = cycle, loop, cycle.transport
        self._early, self._probes = 0, 0
        self._timer: asyncio.TimerHandle | None = None
        cycle.keep_alive = False  # nothing more comes on this connection
        cycle.transport = self  # type: ignore[assignment]
        self._schedule()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        """Write bytes of the response."""
        if self._early and data.startswith(_STATUS_LINE_START):
            data = data[self._early :]
        self._early = 0
        self._transport.write(data)

    def stop(self) -> None:
        """Stop probing."""
        if self._timer is not None:
            self._timer.cancel()

    def _schedule(self) -> None:
        if self._probes < len(_PROBE_SECONDS):
            self._timer = self._loop.call_later(_PROBE_SECONDS[self._probes], self._probe)
            self._probes += 1

    def _probe(self) -> None:
        cycle = self._cycle
        if cycle.disconnected or cycle.response_complete or self._transport.is_closing():
            return
        if not cycle.response_started:
            self._transport.write(_STATUS_LINE_START[self._early : self._early + 1])
            self._early += 1
        elif cycle.chunked_encoding:
            self._transport.write(b"0")
        self._schedule()


class ProxyConnection(TimedConnection, HttpToolsProtocol):
    """A connection over httptools, with time limits and the leniency that a proxy owes to its clients."""

    body_seconds = _BODY_SECONDS
    max_head_bytes = _MAX_HEAD_BYTES

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._head_bytes = 0
        self._last_data = 0.0
        self._in_head, self._declined_upgrade, self._ignores_input = True, False, False
        self._refusal = b""  # the response to a request that is refused by its head
        self._half_closed: HalfClosedProbe | None = None

    # --- input -------------------------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        """Parse data, and start the time limits of what is still incomplete."""
        self._unset_keepalive_if_required()
        if self._ignores_input or self.parser is None:
            return
        self._last_data = self.loop.time()
        self._feed(data)
        if self._in_head:
            self._head_bytes += len(data)
        if self._in_head and self._head_bytes > self.max_head_bytes:
            self._refusal = self._refusal or _HEAD_TOO_LARGE
        if self._refusal:
            self._refuse(self._refusal)
            return
        self._on_data()
        if self._is_responding() and self.cycle.more_body and "body" not in self._timers:
            self._start_timer("body", self.body_seconds, self._check_body)

    def _feed(self, data: bytes) -> None:
        while True:
            try:
                self.parser.feed_data(data)
            except httptools.HttpParserUpgrade as upgrade:
                rest = data[upgrade.args[0] :]
                if not self._declined_upgrade:  # a websocket: the gate refuses it, and no HTTP follows
                    self._ignores_input = True
                    return
                data = self._without_upgrade() + rest
                continue
            except httptools.HttpParserError:
                if not self._refusal:
                    self.send_400_response("")
            return

    def _without_upgrade(self) -> bytes:
        """The head of the request without its Upgrade, which a server may ignore (RFC 9110, 7.8).

        With it the parser would take the body for data of the other protocol.
        """
        method, url, headers = self.parser.get_method(), self.url, self.headers
        self._declined_upgrade = False
        self.parser = httptools.HttpRequestParser(self)
        lines = [b"%b: %b\r\n" % (name, value) for name, value in headers if name not in _UPGRADE_HEADERS]
        return b"".join((method, b" ", url, b" HTTP/1.1\r\n", *lines, b"\r\n"))

    def send_400_response(self, msg: str) -> None:
        """Refuse malformed data. In the middle of a response the connection can only be cut."""
        del msg
        if self._is_responding() and self.cycle.more_body and not self.cycle.response_started and not self.pipeline:
            self.cycle.disconnected = True  # its body is malformed: the application sends nothing to it
            self.cycle.message_event.set()
            self._respond_last(_BAD_REQUEST)
        else:
            self._refuse(_BAD_REQUEST)

    def _refuse(self, response: bytes) -> None:
        if self._is_responding():
            self.transport.abort()
        else:
            self._respond_last(response)

    def _respond_last(self, response: bytes) -> None:
        """Send the last response of the connection, and keep reading for a while.

        Closed while data arrives, the connection would be reset, and the client could not read the response.
        """
        self._ignores_input = True
        self.transport.write(response)
        self.transport.write_eof()
        self._start_timer("drain", _DRAIN_SECONDS, self.transport.abort)

    def eof_received(self) -> bool:  # type: ignore[override]
        """Handle a half-close: a client whose request is complete may still listen (RFC 9112, section 9.6)."""
        # A request that is incomplete can get no response, so the connection may close.
        if self._ignores_input or not self._is_responding() or self.cycle.more_body:
            return False
        self._half_closed = HalfClosedProbe(self.cycle, self.loop)
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop probing a client that has gone."""
        super().connection_lost(exc)
        if self._half_closed is not None:
            self._half_closed.stop()

    # --- what the parser calls ---------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        """Begin to count the size of a head."""
        super().on_message_begin()
        self._in_head, self._head_bytes = True, 0

    def on_header(self, name: bytes, value: bytes) -> None:
        """Store a header. Trailers, which follow the body, are dropped."""
        if self._in_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Check the head, and start the application."""
        self._in_head = False
        if sum(len(name) + len(value) for name, value in self.headers) + len(self.url) > self.max_head_bytes:
            self._refusal = _HEAD_TOO_LARGE
            raise ValueError("the head came in one piece, and is too long")  # becomes an HttpParserError
        coded = [value for name, value in self.headers if name == b"transfer-encoding"]
        # A body whose end the proxy and the upstream see at different places is request smuggling (RFC 9112, 11.2).
        if coded and (refusal := _coding_refusal(b",".join(coded))):
            self._refusal = refusal
            raise ValueError("its body cannot be read")  # becomes an HttpParserError
        if self.parser.should_upgrade():
            method = self.parser.get_method()
            if method == b"CONNECT":
                raise ValueError("the proxy is no tunnel")  # becomes an HttpParserError
            if (self._get_upgrade() or b"").strip() != b"websocket":
                self._declined_upgrade = True
                return
        super().on_headers_complete()
        self.scope[CUT] = partial(self._cut, self.cycle)  # type: ignore[typeddict-unknown-key]

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        started: Any = _unchunked(app, cycle) if cycle.scope["http_version"] == "1.0" else app
        super()._start_asgi_task(cycle, started)

    def on_body(self, body: bytes) -> None:
        """Pass on a piece of a body."""
        if not self._declined_upgrade:
            super().on_body(body)

    def on_message_complete(self) -> None:
        """Mark the request as complete."""
        if not self._declined_upgrade:
            super().on_message_complete()

    # --- inside ------------------------------------------------------------------------------------------------------

    def _cut(self, cycle: RequestResponseCycle) -> None:
        # `close`, not `abort`: what was sent before still arrives, and only the end is missing.
        cycle.disconnected = True
        cycle.message_event.set()
        self.transport.close()

    def _check_body(self) -> None:
        if not self._is_responding() or not self.cycle.more_body:
            return
        if self.flow.read_paused:  # the proxy has stopped reading, not the client sending
            self._last_data = self.loop.time()
        left_seconds = self._last_data + self.body_seconds - self.loop.time()
        if left_seconds <= 0:
            self.transport.abort()
        else:
            self._start_timer("body", left_seconds, self._check_body)


def _coding_refusal(codings: bytes) -> bytes:
    """The response to a body in these transfer codings; b"" if it is chunked and nothing else.

    RFC 9112, section 6.1: 501 for a coding that is not known; section 6.3: 400 where the last one is not "chunked", or
    where it is applied twice.
    """
    named = [name.strip().partition(b";")[0].strip().lower() for name in codings.split(b",")]
    if named == [b"chunked"]:
        return b""
    return _BAD_REQUEST if set(named) == {b"chunked"} or b"" in named else _CODING_NOT_IMPLEMENTED


def _unchunked(app: ASGIApp, cycle: RequestResponseCycle) -> ASGIApp:
    """The application for a client of HTTP/1.0, which cannot read chunks (RFC 9112, section 6.1).

    A response without a length ends with its connection.
    """

    async def plainly(scope: Scope, receive: Receive, send: Send) -> None:
        ends = False

        async def plain(message: Message) -> None:
            nonlocal ends
            if message["type"] == "http.response.start":
                ends = not any(name.lower() == b"content-length" for name, _ in message.get("headers", ()))
                cycle.chunked_encoding = False if ends else None
            elif ends:
                cycle.expected_content_length = len(message.get("body", b""))
            await send(message)

        await app(scope, receive, plain)

    return plainly


class _ProxyServer(GracefulServer):
    """A server that lets responses end before it closes connections. A second signal ends it at once."""

    def __init__(
        self,
        config: uvicorn.Config,
        *,
        grace_seconds: float,
        notice: Callable[[str], None],
        stopping: Callable[[], None],
        cutting: Callable[[], None],
        until: asyncio.Event | None,
    ) -> None:
        super().__init__(config, until)
        self._stopping, self._cutting = stopping, cutting
        self._grace_seconds, self._notice = grace_seconds, notice

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept no more connections, let responses end, cut the others, and wait until the application knows."""
        state = self.server_state
        for server in self.servers:
            server.close()
        self._stopping()
        for connection in list(state.connections):
            connection.shutdown()
        if state.tasks:
            running = len(state.tasks)
            self._notice(f"Stopping; {running} under way, at most {self._grace_seconds:g} s more (again: at once)")
        until = asyncio.get_running_loop().time() + self._grace_seconds
        while state.tasks or state.connections:  # a connection may outlive its task: its client has not read all
            if self.at_once.is_set() or asyncio.get_running_loop().time() >= until:
                self._notice(f"Cutting off {len(state.connections)} that did not end")
                break
            await asyncio.sleep(_POLL_SECONDS)
        # Summaries first: a thread that waits for one would hold up the end of its request.
        self._cutting()
        for connection in list(state.connections):
            if connection.transport is not None:
                connection.transport.abort()
        await super().shutdown(sockets)


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """The factory of the event loop: uvloop's if it is installed, None for Python's own."""
    if sys.platform == "win32" or find_spec("uvloop") is None:
        return None
    import uvloop

    return uvloop.new_event_loop


def _nothing() -> None:
    """Nothing else stops."""


async def run(
    app: ASGIApp,
    bound: socket.socket,
    *,
    grace_seconds: float,
    notice: Callable[[str], None],
    stopping: Callable[[], None] = _nothing,
    cutting: Callable[[], None] = _nothing,
    until: asyncio.Event | None = None,
) -> None:
    """Serve until SIGINT or SIGTERM, then stop gracefully: pending responses have `grace_seconds` to end.

    With `until` it serves until that event is set, and leaves all signals alone.

    `stopping` is called when a stop begins, to end streams that have no end of their own. `cutting` is called when the
    time is over, to end what responses may wait for.
    """
    config = uvicorn.Config(
        app,
        http=ProxyConnection,
        ws="none",
        lifespan="off",
        log_level="warning",
        access_log=False,  # a path may hold the token
        server_header=False,
        date_header=False,  # a response has the upstream's
        proxy_headers=False,  # any client could claim any address by them
        timeout_keep_alive=75,
        timeout_graceful_shutdown=_LAST_SECONDS,
    )
    server = _ProxyServer(
        config, grace_seconds=grace_seconds, notice=notice, stopping=stopping, cutting=cutting, until=until
    )
    await server.serve(sockets=[bound])
