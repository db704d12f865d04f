"""The few lines of ASGI that the fake needs: a body in, JSON or a stream of events out, and a client that goes away."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from foldline.testing.token_counts import dumped

__all__ = [
    "Exchange",
    "Held",
    "Receive",
    "Scope",
    "Send",
    "held_body",
    "lifespan",
    "read_body",
    "send_body",
    "send_events",
]

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
Held: TypeAlias = Callable[[int], Awaitable[object]]


@dataclass(frozen=True, slots=True)
class Exchange:
    """One request and the way back to its client; `headers` by lower-case name, of a repeated one the last."""

    method: str
    path: str
    headers: Mapping[str, str]
    number: int
    receive: Receive
    send: Send

    @classmethod
    def of(cls, scope: Scope, number: int, receive: Receive, send: Send) -> Exchange:
        """From what ASGI gives."""
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        return cls(scope["method"], scope["path"], headers, number, receive, send)

    @property
    def reply_headers(self) -> dict[str, str]:
        """The id of the request under both names in use."""
        request_id = f"req_{self.number:06d}"
        return {"request-id": request_id, "x-request-id": request_id}


async def lifespan(receive: Receive, send: Send) -> None:
    """Say yes to start and end: there is nothing to open or close."""
    while True:
        kind = (await receive())["type"]
        await send({"type": f"{kind}.complete"})
        if kind == "lifespan.shutdown":
            return


async def read_body(receive: Receive, max_bytes: int | None) -> bytes | None:
    """The whole body; None if it is larger than `max_bytes` (it is read to its end, but not kept).

    Raises ConnectionResetError when the client goes away before it has sent all.
    """
    chunks: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ConnectionResetError("the client left before its request was whole")
        chunk = message.get("body", b"")
        size += len(chunk)
        if max_bytes is None or size <= max_bytes:
            chunks.append(chunk)
        if not message.get("more_body", False):
            return b"".join(chunks) if max_bytes is None or size <= max_bytes else None


async def send_body(
    at: Exchange,
    status: int,
    body: Mapping[str, Any] | str,
    headers: Mapping[str, str] | None = None,
    *,
    cut: bool = False,
    ends: bool = True,
) -> None:
    """An object as JSON, or a page of HTML; with `cut` only its first half.

    Without `ends` the second half is promised, and the caller breaks the connection by an exception.
    """
    kind = "text/html; charset=utf-8" if isinstance(body, str) else "application/json"
    data = (body if isinstance(body, str) else dumped(body)).encode("utf-8", "surrogatepass")
    sent = data[: len(data) // 2] if cut else data
    length = str(len(sent if ends else data))
    await _start(at, status, {"content-type": kind, "content-length": length, **(headers or {})})
    await at.send({"type": "http.response.body", "body": sent, "more_body": not ends})


async def send_events(at: Exchange, events: Iterable[bytes], *, held: Held | None, ends: bool) -> bool:
    """A stream of events, each as soon as `held(n)` lets it; False if the client went away before its end.

    With `ends` the stream is closed in good order. The caller breaks it otherwise, by an exception.
    """
    client_gone = asyncio.ensure_future(_disconnected(at.receive))
    try:
        await _start(at, 200, {"content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache"})
        for number, event in enumerate(events):
            if not await _let_through(held and held(number), client_gone):
                return False
            await at.send({"type": "http.response.body", "body": event, "more_body": True})
        if ends:
            await at.send({"type": "http.response.body", "body": b"", "more_body": False})
    except OSError:  # ASGI 2.4: a send after the client left
        return False
    finally:
        client_gone.cancel()
        await asyncio.wait((client_gone,))
    return True


async def held_body(at: Exchange, held: Held) -> bool:
    """Wait until `held(0)` lets a whole reply go; False if the client went away first."""
    client_gone = asyncio.ensure_future(_disconnected(at.receive))
    try:
        return await _let_through(held(0), client_gone)
    finally:
        client_gone.cancel()
        await asyncio.wait((client_gone,))


async def _let_through(waiting: Awaitable[object] | None, client_gone: asyncio.Future[None]) -> bool:
    if waiting is None:
        await asyncio.sleep(0)  # so that a client's leaving is heard of
        return not client_gone.done()
    gate = asyncio.ensure_future(waiting)
    try:
        await asyncio.wait((gate, client_gone), return_when=asyncio.FIRST_COMPLETED)
        if client_gone.done():
            return False
        await gate  # what it raised is the test's
        return True
    finally:
        gate.cancel()
        await asyncio.wait((gate,))


async def _start(at: Exchange, status: int, headers: Mapping[str, str]) -> None:
    named = {**at.reply_headers, **headers}
    lines = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in named.items()]
    await at.send({"type": "http.response.start", "status": status, "headers": lines})


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
