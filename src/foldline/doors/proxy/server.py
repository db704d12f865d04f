"""The server process of the proxy: uvicorn over httptools, with an end to waiting, and a stop that lets streams end."""

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
from foldline.doors.proxy.half_closed import HalfClosed

__all__ = ["CUT", "Connection", "is_loopback", "listen", "loop_factory", "run"]

CUT: Final = "foldline.cut"
"""In the scope of a request: what ends the client's connection, so that an answer which broke off does not look whole.
What was sent before still arrives."""

BODY_SECONDS: Final = 60.0
"""How long nothing may come of the body of a request."""

MOST_HEAD_BYTES: Final = 65_536
"""The longest head of a request; httptools itself has no limit."""

_LAST_SECONDS: Final = 5
"""What the application may take to notice that a connection was cut."""

_DEAF_SECONDS: Final = 2.0
"""How long a client whose request is refused has to read that, and to stop sending."""

_LOOK_SECONDS: Final = 0.02
"""How often a stop looks whether all has ended."""

_TOO_LONG: Final = b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
_UNKNOWN_CODING: Final = b"HTTP/1.1 501 Not Implemented\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
_NO_HTTP: Final = (
    b"HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-length: 30\r\n"
    b"connection: close\r\n\r\nInvalid HTTP request received."
)
_OF_UPGRADES: Final = frozenset({b"connection", b"upgrade", b"http2-settings"})


class Connection(TimedConnection, HttpToolsProtocol):
    """A connection that is cut off when its request does not come, or when nobody reads what is sent."""

    body_seconds = BODY_SECONDS
    most_head_bytes = MOST_HEAD_BYTES

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._head_bytes = 0
        self._since = 0.0
        self._in_head, self._is_declined, self._is_deaf = True, False, False
        self._refusal = b""
        """The answer to a request that is refused by its head."""
        self._half_closed: HalfClosed | None = None

    # --- what comes --------------------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        """Take what came; a request that is only half there is waited for, however slowly it comes."""
        self._unset_keepalive_if_required()
        if self._is_deaf or self.parser is None:
            return
        self._since = self.loop.time()
        self._fed(data)
        if self._in_head:
            self._head_bytes += len(data)
        if self._in_head and self._head_bytes > self.most_head_bytes:
            self._refusal = self._refusal or _TOO_LONG
        if self._refusal:
            self._refuse(self._refusal)
            return
        self._on_data()
        if self._is_responding() and self.cycle.more_body and "body" not in self._timers:
            self._start_timer("body", self.body_seconds, self._look_at_body)

    def _fed(self, data: bytes) -> None:
        while True:
            try:
                self.parser.feed_data(data)
            except httptools.HttpParserUpgrade as upgrade:
                rest = data[upgrade.args[0] :]
                if not self._is_declined:  # a websocket: the gate refuses it, and nothing can follow
                    self._is_deaf = True
                    return
                data = self._without_upgrade() + rest
                continue
            except httptools.HttpParserError:
                if not self._refusal:
                    self.send_400_response("")
            return

    def _without_upgrade(self) -> bytes:
        """The head of a request without its wish for another protocol, which may be passed over (RFC 9110, 7.8).

        The parser would take the body for that protocol's.
        """
        method, url, headers = self.parser.get_method(), self.url, self.headers
        self._is_declined = False
        self.parser = httptools.HttpRequestParser(self)
        kept = [b"%b: %b\r\n" % (name, value) for name, value in headers if name not in _OF_UPGRADES]
        return b"".join((method, b" ", url, b" HTTP/1.1\r\n", *kept, b"\r\n"))

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no HTTP; in the middle of an answer it can only be cut off."""
        del msg
        if self._is_responding() and self.cycle.more_body and not self.cycle.response_started and not self.pipeline:
            self.cycle.disconnected = True  # what is wrong is its body: nothing else is said to it
            self.cycle.message_event.set()
            self._answer(_NO_HTTP)
        else:
            self._refuse(_NO_HTTP)

    def _refuse(self, answer: bytes) -> None:
        if self._is_responding():
            self.transport.abort()
        else:
            self._answer(answer)

    def _answer(self, answer: bytes) -> None:
        """The last that is said here: closed while something comes, the connection is reset, and it is not read."""
        self._is_deaf = True
        self.transport.write(answer)
        self.transport.write_eof()
        self._start_timer("deaf", _DEAF_SECONDS, self.transport.abort)

    def eof_received(self) -> bool:  # type: ignore[override]
        """No more comes; a client whose request is whole may still listen (RFC 9112, section 9.6)."""
        if self._is_deaf or not self._is_responding() or self.cycle.more_body:
            return False
        self._half_closed = HalfClosed(self.cycle, self.loop)
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        """Nobody is there any more."""
        super().connection_lost(exc)
        if self._half_closed is not None:
            self._half_closed.drop()

    # --- what the parser calls ---------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        """A request begins."""
        super().on_message_begin()
        self._in_head, self._head_bytes = True, 0

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header; those after the body (trailers) are left out."""
        if self._in_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Begin to answer."""
        self._in_head = False
        if sum(len(name) + len(value) for name, value in self.headers) + len(self.url) > self.most_head_bytes:
            self._refusal = _TOO_LONG
            raise ValueError("the head came in one piece, and is too long")  # the parser makes an error of it
        coded = [value for name, value in self.headers if name == b"transfer-encoding"]
        if coded and (refusal := _of_coding(b",".join(coded))):
            self._refusal = refusal
            raise ValueError("its body cannot be read")  # the parser makes an error of it
        if self.parser.should_upgrade():
            method = self.parser.get_method()
            if method == b"CONNECT":
                raise ValueError("the proxy is no tunnel")  # the parser makes an error of it
            if (self._get_upgrade() or b"").strip() != b"websocket":
                self._is_declined = True
                return
        super().on_headers_complete()
        self.scope[CUT] = partial(self._cut, self.cycle)  # type: ignore[typeddict-unknown-key]

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        begun: Any = _unchunked(app, cycle) if cycle.scope["http_version"] == "1.0" else app
        super()._start_asgi_task(cycle, begun)

    def on_body(self, body: bytes) -> None:
        """Hand on a piece of a body."""
        if not self._is_declined:
            super().on_body(body)

    def on_message_complete(self) -> None:
        """The request is whole."""
        if not self._is_declined:
            super().on_message_complete()

    # --- inside ------------------------------------------------------------------------------------------------------

    def _cut(self, cycle: RequestResponseCycle) -> None:
        cycle.disconnected = True
        cycle.message_event.set()
        self.transport.close()

    def _look_at_body(self) -> None:
        if not self._is_responding() or not self.cycle.more_body:
            return
        if self.flow.read_paused:  # it is we who do not read
            self._since = self.loop.time()
        left_seconds = self._since + self.body_seconds - self.loop.time()
        if left_seconds <= 0:
            self.transport.abort()
        else:
            self._start_timer("body", left_seconds, self._look_at_body)


def _of_coding(codings: bytes) -> bytes:
    """The answer to a body in these transfer codings; b"" to one that comes in chunks and nothing else.

    RFC 9112, section 6.1: 501 for a coding that is not known; section 6.3: 400 where the last one is not "chunked", or
    where it is applied twice.
    """
    named = [name.strip().partition(b";")[0].strip().lower() for name in codings.split(b",")]
    if named == [b"chunked"]:
        return b""
    return _NO_HTTP if set(named) == {b"chunked"} or b"" in named else _UNKNOWN_CODING


def _unchunked(app: ASGIApp, cycle: RequestResponseCycle) -> ASGIApp:
    """An application for a client of HTTP/1.0, which reads no chunks (RFC 9112, section 6.1).

    An answer without a length ends with its connection.
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


class _Server(GracefulServer):
    """A server that lets answers end before it lets go of its connections. A second signal ends it at once."""

    def __init__(
        self,
        config: uvicorn.Config,
        grace_seconds: float,
        notice: Callable[[str], None],
        stopping: Callable[[], None],
        cutting: Callable[[], None],
    ) -> None:
        super().__init__(config)
        self._stopping, self._cutting = stopping, cutting
        self._grace_seconds, self._notice = grace_seconds, notice

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Take no more connections, let answers end, cut those that do not, and wait until the application knows."""
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
            await asyncio.sleep(_LOOK_SECONDS)
        self._cutting()
        for connection in list(state.connections):
            if connection.transport is not None:
                connection.transport.abort()
        await super().shutdown(sockets)


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """What makes the event loop: uvloop's where it is installed, else None for Python's own."""
    if sys.platform == "win32" or find_spec("uvloop") is None:
        return None
    import uvloop

    return uvloop.new_event_loop


def _nothing() -> None:
    """Where nothing need be told of a stop."""


async def run(
    app: ASGIApp,
    at: socket.socket,
    *,
    grace_seconds: float,
    notice: Callable[[str], None],
    stopping: Callable[[], None] = _nothing,
    cutting: Callable[[], None] = _nothing,
) -> None:
    """Serve until SIGINT or SIGTERM, and stop in order: answers under way have `grace_seconds` to end.

    `stopping` is called when a stop begins; it ends what has no end of its own. `cutting` is called when no answer has
    any more time; it ends what an answer may wait for.
    """
    config = uvicorn.Config(
        app,
        http=Connection,
        ws="none",
        lifespan="off",
        log_level="warning",
        access_log=False,  # a path may hold the token
        server_header=False,
        date_header=False,  # an answer has the upstream's
        proxy_headers=False,  # who can reach this could claim any address
        timeout_keep_alive=75,
        timeout_graceful_shutdown=_LAST_SECONDS,
    )
    await _Server(config, grace_seconds, notice, stopping, cutting).serve(sockets=[at])
