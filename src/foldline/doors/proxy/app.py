"""The proxy as an ASGI application: dialects are looked into, everything else passes through."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import count
from time import perf_counter
from typing import Any, Final

from starlette.types import ASGIApp, Receive, Scope, Send

from foldline.doors.proxy.dialects import dialect_of, model_at
from foldline.doors.proxy.exchange import Exchange
from foldline.doors.proxy.parts import Parts
from foldline.doors.proxy.refusals import Refusal, refused, too_large
from foldline.doors.proxy.upstream import Upstream, UpstreamFault
from foldline.doors.proxy.values import Outcome, Served

__all__ = ["MAX_REQUEST_BYTES", "Proxy"]

MAX_REQUEST_BYTES: Final = 64 * 1024 * 1024
"""Twice what the largest API takes (Anthropic: 32 MB), so that their own refusals come from them."""

_END: Final = {"type": "http.response.body", "body": b"", "more_body": False}


class _TooLarge(Exception):  # noqa: N818 - never leaves this module
    pass


class _Left(Exception):  # noqa: N818 - never leaves this module
    pass


@dataclass(slots=True)
class Proxy:
    """Everything that is not asked of the proxy itself, on its way to the upstream. `looks` answers for itself."""

    parts: Parts
    looks: ASGIApp
    look_paths: tuple[str, ...]
    max_request_bytes: int = MAX_REQUEST_BYTES
    under_way: int = 0
    """Requests that are not answered yet."""
    _numbers: count[int] = field(default_factory=lambda: count(1))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            raise ValueError(f"the proxy speaks HTTP, not {scope['type']}")
        path = scope["path"]
        if path in self.look_paths or path.startswith("/foldline/"):
            await self.looks(scope, receive, send)
            return
        self.under_way += 1
        try:
            await self._passed(scope, receive, send)
        finally:
            self.under_way -= 1

    async def _passed(self, scope: Scope, receive: Receive, send: Send) -> None:
        dialect, counting = dialect_of(scope["method"], scope["path"])
        query = scope["query_string"].decode("latin-1")
        raw_path = (scope.get("raw_path") or scope["path"].encode()).decode("latin-1")
        target = f"{raw_path}?{query}" if query else raw_path
        if not dialect:
            await self._through(scope, receive, send, target)
            return
        exchange = Exchange(
            parts=self.parts,
            number=next(self._numbers),
            dialect=dialect,
            counting=counting,
            method=scope["method"],
            path=scope["path"],
            target=target,
            headers=scope["headers"],
            most_bytes=self.max_request_bytes,
            send=send,
            cut=scope.get("foldline.cut", _nothing),
        )
        try:
            raw = await _whole(receive, self.max_request_bytes)
        except _TooLarge:
            await exchange.turn_away()
            return
        except _Left:
            return
        await _while_there(exchange.run(raw), receive)

    async def _through(self, scope: Scope, receive: Receive, send: Send, target: str) -> None:
        """Pass a request on, and its answer back, as they come."""
        through = _Through(scope, send, _Body(receive, self.max_request_bytes), target, next(self._numbers))
        try:
            await _while_there(through.run(self.parts.upstream), receive, after=through.body.ended)
        finally:
            self.parts.tell(replace(through.served(), mode=self.parts.mode))


@dataclass(slots=True)
class _Through:
    """A request on a path that is not looked into."""

    scope: Scope
    send: Send
    body: _Body
    target: str
    number: int
    status: int = 0
    outcome: Outcome = "left"
    first_at: float | None = None
    at: datetime = field(default_factory=lambda: datetime.now(UTC))
    began: float = field(default_factory=perf_counter)

    async def run(self, upstream: Upstream) -> None:
        """Pass it on. Raises nothing but a cancellation."""
        scope, body = self.scope, self.body
        headers = [(name, value) for name, value in scope["headers"] if not name.startswith(b"x-foldline-")]
        given: AsyncIterator[bytes] | bytes = b""
        if any(name in (b"content-length", b"transfer-encoding") for name, _ in headers):
            given = body.chunks()
        else:
            body.ended.set()
        try:
            answer = await upstream.send(scope["method"], self.target, headers, given, readable=False)
            try:
                self.status = answer.status
                await self.send({"type": "http.response.start", "status": answer.status, "headers": answer.headers})
                async for chunk in answer.chunks():
                    self.first_at = self.first_at or perf_counter()
                    await self.send({"type": "http.response.body", "body": chunk, "more_body": True})
                await self.send(_END)
                self.outcome = "passed"
            finally:
                await answer.close()
        except (UpstreamFault, _TooLarge, _Left) as fault:
            await self._failed(fault)

    async def _failed(self, fault: Exception) -> None:
        if self.body.left:
            return
        if self.status:
            self.outcome = "cut"
            self.scope.get("foldline.cut", _nothing)()
            return
        if self.body.too_large:
            self.outcome, refusal = "refused", too_large("", self.body.most_bytes)
        else:
            silent = isinstance(fault, UpstreamFault) and fault.kind == "silence"
            self.outcome, refusal = "cut", refused("", 504 if silent else 502, str(fault))
        self.status = refusal.status
        await _answer(self.send, refusal)

    def served(self) -> Served:
        """What became of it."""
        return Served(
            number=self.number,
            at=self.at,
            method=self.scope["method"],
            path=self.scope["path"],
            model=model_at(self.scope["path"]),
            status=self.status,
            outcome=self.outcome,
            first_byte_seconds=None if self.first_at is None else self.first_at - self.began,
            seconds=perf_counter() - self.began,
            received_bytes=self.body.size_bytes,
            sent_bytes=self.body.size_bytes,
        )


@dataclass(slots=True)
class _Body:
    """The body of a request that is passed on while it comes."""

    receive: Receive
    most_bytes: int
    size_bytes: int = 0
    too_large: bool = False
    left: bool = False
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    async def chunks(self) -> AsyncIterator[bytes]:
        """Its pieces. Raises _TooLarge, _Left."""
        while True:
            message = await self.receive()
            if message["type"] == "http.disconnect":
                self.left = True
                raise _Left
            chunk = message.get("body", b"")
            self.size_bytes += len(chunk)
            if self.size_bytes > self.most_bytes:
                self.too_large = True
                raise _TooLarge
            if chunk:
                yield chunk
            if not message.get("more_body"):
                self.ended.set()
                return


async def _whole(receive: Receive, most_bytes: int) -> bytes:
    """A whole body. Raises _TooLarge, _Left."""
    message = await receive()
    if message["type"] == "http.request" and not message.get("more_body"):
        body: bytes = message.get("body", b"")
        if len(body) > most_bytes:
            raise _TooLarge
        return body
    pieces = bytearray()
    while message["type"] == "http.request":
        pieces += message.get("body", b"")
        if len(pieces) > most_bytes:
            raise _TooLarge
        if not message.get("more_body"):
            return bytes(pieces)
        message = await receive()
    raise _Left


async def _while_there(
    work: Coroutine[Any, Any, None], receive: Receive, *, after: asyncio.Event | None = None
) -> None:
    """Do some work as long as the client is there (which is looked at `after` its request has come)."""
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
        if not gone or task is None:
            raise
        task.uncancel()
    finally:
        watching.cancel()


async def _answer(send: Send, refusal: Refusal) -> None:
    await send({"type": "http.response.start", "status": refusal.status, "headers": list(refusal.headers)})
    await send({"type": "http.response.body", "body": refusal.body, "more_body": False})


def _nothing() -> None:
    """Servers without a way to cut a connection (tests in memory)."""
