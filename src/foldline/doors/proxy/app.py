"""The proxy as an ASGI application: requests of a dialect become exchanges, all others pass through."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Final

from starlette.types import ASGIApp, Receive, Scope, Send

from foldline.doors.proxy.compaction.service import CompactionService, serves_path
from foldline.doors.proxy.error_responses import ErrorResponse, error_response, too_large
from foldline.doors.proxy.exchange import ProxyExchange
from foldline.doors.proxy.request_head import dialect_of, header, model_at
from foldline.doors.proxy.served_request import ExchangeRecord
from foldline.doors.proxy.shared_services import ProxyServices
from foldline.doors.proxy.upstream import Upstream, UpstreamFault

__all__ = ["MAX_REQUEST_BYTES", "Proxy"]

MAX_REQUEST_BYTES: Final = 64 * 1024 * 1024
"""Twice the limit of the largest API (Anthropic: 32 MB), so that clients get the API's own refusal."""

_END: Final = {"type": "http.response.body", "body": b"", "more_body": False}


class _TooLarge(Exception):  # noqa: N818 - never leaves this module
    pass


class _Disconnected(Exception):  # noqa: N818 - never leaves this module
    pass


@dataclass(slots=True)
class Proxy:
    """Sends requests to the upstream, except those at `own_paths`, which `own_app` answers."""

    services: ProxyServices
    own_app: ASGIApp
    own_paths: tuple[str, ...]
    max_request_bytes: int = MAX_REQUEST_BYTES
    compaction: CompactionService | None = None
    """Serves what clients ask for with `context_management` and the like; None passes it on."""
    pending: int = 0
    """Requests without a complete response."""
    _numbers: count[int] = field(default_factory=lambda: count(1))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            raise ValueError(f"the proxy speaks HTTP, not {scope['type']}")
        path = scope["path"]
        if path in self.own_paths or path.startswith("/foldline/"):
            await self.own_app(scope, receive, send)
            return
        # The page and the metrics are not counted: an open page would keep the number above 0.
        self.pending += 1
        try:
            await self._forward(scope, receive, send)
        finally:
            self.pending -= 1

    async def _forward(self, scope: Scope, receive: Receive, send: Send) -> None:
        dialect, counting = dialect_of(scope["method"], scope["path"])
        if self.compaction is not None and serves_path(scope["method"], scope["path"]):
            dialect = "openai-responses"
        query = scope["query_string"].decode("latin-1")
        # The path as it came: decoding and encoding it again could change what a signature or a route covers.
        raw_path = (scope.get("raw_path") or scope["path"].encode()).decode("latin-1")
        target = f"{raw_path}?{query}" if query else raw_path
        if not dialect:
            await self._pass_through(scope, receive, send, target)
            return
        record = ExchangeRecord(
            number=next(self._numbers),
            method=scope["method"],
            path=scope["path"],
            dialect=dialect,
            traceparent=header(scope["headers"], b"traceparent"),
        )
        exchange = ProxyExchange(
            services=self.services,
            record=record,
            dialect=dialect,
            counting=counting,
            target=target,
            headers=scope["headers"],
            max_bytes=self.max_request_bytes,
            send=send,
            cut=scope.get("foldline.cut", _nothing),
        )
        try:
            raw = await _read_body(receive, self.max_request_bytes)
        except _TooLarge:
            await exchange.refuse_too_large()
            return
        except _Disconnected:
            return
        serving = exchange.run(raw) if self.compaction is None else self.compaction.serve(exchange, raw)
        await _while_connected(serving, receive)

    async def _pass_through(self, scope: Scope, receive: Receive, send: Send, target: str) -> None:
        """Stream a request to the upstream and its response back."""
        body = _RequestBody(receive, self.max_request_bytes)
        record = ExchangeRecord(number=next(self._numbers), method=scope["method"], path=scope["path"], outcome="left")
        passing = _PassThrough(scope, send, body, target, record)
        try:
            await _while_connected(passing.run(self.services.upstream), receive, after=body.ended)
        finally:
            record.received_bytes = record.sent_bytes = body.size_bytes
            self.services.emit(record.served(self.services.mode, model=model_at(scope["path"])))


@dataclass(slots=True)
class _PassThrough:
    """A request on a path that is no dialect's. Its record says "left" until its response is complete."""

    scope: Scope
    send: Send
    body: _RequestBody
    target: str
    record: ExchangeRecord

    async def run(self, upstream: Upstream) -> None:
        """Forward the request. Raises nothing but a cancellation."""
        scope, body = self.scope, self.body
        # Headers for the proxy itself; an upstream may refuse what it does not know.
        headers = [(name, value) for name, value in scope["headers"] if not name.startswith(b"x-foldline-")]
        data: AsyncIterator[bytes] | bytes = b""
        # Only these headers announce a body (RFC 9112, section 6). Without them nothing is read, so that the watch for
        # a disconnect can start at once.
        if any(name in (b"content-length", b"transfer-encoding") for name, _ in headers):
            data = body.chunks()
        else:
            body.ended.set()
        try:
            response = await upstream.send(scope["method"], self.target, headers, data, readable=False)
            try:
                self.record.status = response.status
                start = {"type": "http.response.start", "status": response.status, "headers": response.headers}
                await self.send(start)
                async for chunk in response.chunks():
                    self.record.mark_first_byte()
                    await self.send({"type": "http.response.body", "body": chunk, "more_body": True})
                await self.send(_END)
                self.record.outcome = "passed"
            finally:
                await response.close()
        except (UpstreamFault, _TooLarge, _Disconnected) as fault:
            await self._failed(fault)

    async def _failed(self, fault: Exception) -> None:
        if self.body.left:  # nobody is there to read an error
            return
        record = self.record
        if record.status:  # a part of the response is out: only a broken connection can say that the rest is missing
            record.outcome = "cut"
            self.scope.get("foldline.cut", _nothing)()
            return
        if self.body.too_large:
            record.outcome, response = "refused", too_large("", self.body.max_bytes)
        else:
            silent = isinstance(fault, UpstreamFault) and fault.kind == "silence"
            record.outcome, response = "cut", error_response("", 504 if silent else 502, str(fault))
        record.status = response.status
        await _respond(self.send, response)


@dataclass(slots=True)
class _RequestBody:
    """The body of a request that is forwarded while it arrives."""

    receive: Receive
    max_bytes: int
    size_bytes: int = 0
    too_large: bool = False
    left: bool = False
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    async def chunks(self) -> AsyncIterator[bytes]:
        """Its pieces. Raises _TooLarge, _Disconnected."""
        while True:
            message = await self.receive()
            if message["type"] == "http.disconnect":
                self.left = True
                raise _Disconnected
            chunk = message.get("body", b"")
            self.size_bytes += len(chunk)
            # Counted as it arrives: a chunked body announces no length.
            if self.size_bytes > self.max_bytes:
                self.too_large = True
                raise _TooLarge
            if chunk:
                yield chunk
            if not message.get("more_body"):
                self.ended.set()
                return


async def _read_body(receive: Receive, max_bytes: int) -> bytes:
    """A whole body. Raises _TooLarge, _Disconnected."""
    message = await receive()
    # Most requests arrive in one message, and are passed on without a copy.
    if message["type"] == "http.request" and not message.get("more_body"):
        body: bytes = message.get("body", b"")
        if len(body) > max_bytes:
            raise _TooLarge
        return body
    pieces = bytearray()
    while message["type"] == "http.request":
        pieces += message.get("body", b"")
        if len(pieces) > max_bytes:
            raise _TooLarge
        if not message.get("more_body"):
            return bytes(pieces)
        message = await receive()
    raise _Disconnected


async def _while_connected(
    work: Coroutine[Any, Any, None], receive: Receive, *, after: asyncio.Event | None = None
) -> None:
    """Run `work` until it ends or the client disconnects, watched for once `after` is set: `receive` has one reader."""
    # The work stays in this task and is cancelled from outside: a task of its own would cost each request one more
    # switch, and its errors would have to be carried over.
    task = asyncio.current_task()
    gone = False

    async def watch() -> None:
        nonlocal gone
        if after is not None:
            await after.wait()
        while (await receive())["type"] != "http.disconnect":
            pass
        gone = True
        if task is not None:
            task.cancel()

    watching = asyncio.create_task(watch())
    try:
        await work
    except asyncio.CancelledError:
        if not gone or task is None:  # the server cancels, not the client
            raise
        task.uncancel()  # the cancellation was our own, and ends here
    finally:
        watching.cancel()


async def _respond(send: Send, response: ErrorResponse) -> None:
    await send({"type": "http.response.start", "status": response.status, "headers": list(response.headers)})
    await send({"type": "http.response.body", "body": response.body, "more_body": False})


def _nothing() -> None:
    """Do nothing: the server cannot cut a connection."""
