"""The part of ASGI that the fake needs: a body in, JSON or a stream of events out, and clients that disconnect."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from foldline.testing.token_counts import dumped

__all__ = [
    "EventGate",
    "Exchange",
    "Receive",
    "Scope",
    "Send",
    "await_gate",
    "lifespan",
    "read_body",
    "send_body",
    "send_events",
]

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
EventGate: TypeAlias = Callable[[int], Awaitable[object]]


@dataclass(frozen=True, slots=True)
class Exchange:
    """One request and the way back to its client. `headers` are by lower-case name, of a repeated one the last."""

    method: str
    path: str
    headers: Mapping[str, str]
    number: int
    receive: Receive
    send: Send

    @classmethod
    def of(cls, scope: Scope, number: int, receive: Receive, send: Send) -> Exchange:
        """Return the exchange of an ASGI call."""
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        return cls(scope["method"], scope["path"], headers, number, receive, send)

    @property
    def reply_headers(self) -> dict[str, str]:
        """The id of the request, under the names that Anthropic and OpenAI use."""
        request_id = f"req_{self.number:06d}"
        return {"request-id": request_id, "x-request-id": request_id}


async def lifespan(receive: Receive, send: Send) -> None:
    """Confirm startup and shutdown: there is nothing to open or close."""
    while True:
        kind = (await receive())["type"]
        await send({"type": f"{kind}.complete"})
        if kind == "lifespan.shutdown":
            return


async def read_body(receive: Receive, max_bytes: int | None) -> bytes | None:
    """Return the whole body, or None if it is larger than `max_bytes`.

    Raises ConnectionResetError if the client disconnects before it has sent everything.
    """
    # A body that is too large is read to its end: a client that is still sending would not read the refusal.
    chunks: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        # A client that leaves while it sends is no request, so it is counted apart and never judged.
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
    """Send an object as JSON, or a page of HTML; `cut` sends only its first half.

    Without `ends` the header announces the whole, and the caller breaks the connection by an exception.
    """
    # A lone surrogate goes out as it is: what clients do with one is for their tests to find out.
    kind = "text/html; charset=utf-8" if isinstance(body, str) else "application/json"
    data = (body if isinstance(body, str) else dumped(body)).encode("utf-8", "surrogatepass")
    sent = data[: len(data) // 2] if cut else data
    # With the whole length announced, a client that gets half of it knows that the connection broke.
    length = str(len(sent if ends else data))
    await _start(at, status, {"content-type": kind, "content-length": length, **(headers or {})})
    await at.send({"type": "http.response.body", "body": sent, "more_body": not ends})


async def send_events(at: Exchange, events: Iterable[bytes], *, gate_of: EventGate | None, ends: bool) -> bool:
    """Send a stream of events, each once `gate_of(n)` opens; return False if the client disconnected before the end.

    Without `ends` the caller breaks the connection by an exception.
    """
    # Waiting for the disconnect at the same time is what tells a slow reply from one that nobody reads any more.
    client_gone = asyncio.ensure_future(_disconnected(at.receive))
    try:
        await _start(at, 200, {"content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache"})
        for number, event in enumerate(events):
            if not await _pass(gate_of and gate_of(number), client_gone):
                return False
            await at.send({"type": "http.response.body", "body": event, "more_body": True})
        if ends:
            await at.send({"type": "http.response.body", "body": b"", "more_body": False})
    # Servers of ASGI 2.4 raise here; older ones drop what is sent, and the awaited disconnect tells.
    except OSError:  # ASGI 2.4: a send after the client left
        return False
    finally:
        client_gone.cancel()
        await asyncio.wait((client_gone,))
    return True


async def await_gate(at: Exchange, gate_of: EventGate) -> bool:
    """Wait for the gate of a whole reply; return False if the client disconnected first."""
    client_gone = asyncio.ensure_future(_disconnected(at.receive))
    try:
        return await _pass(gate_of(0), client_gone)
    finally:
        client_gone.cancel()
        await asyncio.wait((client_gone,))


async def _pass(opening: Awaitable[object] | None, client_gone: asyncio.Future[None]) -> bool:
    if opening is None:
        await asyncio.sleep(0)  # lets the event loop deliver a disconnect
        return not client_gone.done()
    gate = asyncio.ensure_future(opening)
    try:
        await asyncio.wait((gate, client_gone), return_when=asyncio.FIRST_COMPLETED)
        if client_gone.done():
            return False
        await gate  # raises what the test's own gate raised
        return True
    finally:
        gate.cancel()
        await asyncio.wait((gate,))


async def _start(at: Exchange, status: int, headers: Mapping[str, str]) -> None:
    named = {**at.reply_headers, **headers}
    # Headers are Latin-1 (RFC 9110, 5.5), like those that ASGI delivers.
    lines = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in named.items()]
    await at.send({"type": "http.response.start", "status": status, "headers": lines})


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
