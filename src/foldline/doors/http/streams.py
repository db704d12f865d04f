"""Server-sent events: bounded for slow readers, ended for those that have disconnected."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

from starlette.types import Receive, Scope, Send

from foldline.agent.events import AgentEvent, as_json
from foldline.doors.http.responses import dump_json
from foldline.messages import Json
from foldline.providers.base import ReasoningDelta, TextDelta

__all__ = ["Broadcast", "EventStream", "Outbox", "encode_event", "wait_for_disconnect"]

# A comment is sent after this long without an event: reverse proxies close connections that are silent for a minute.
_HEARTBEAT_SECONDS: Final = 15.0

# The bytes that may wait for a slow reader.
_MAX_BYTES: Final = 262_144  # for 512 streams (`ServerLimits.streams`), 128 MiB

_HEARTBEAT: Final = b": here\n\n"
_DELTAS: Final = (TextDelta, ReasoningDelta)


def encode_event(name: str, data: Json) -> bytes:
    """One event in the wire format (WHATWG HTML, "Server-sent events")."""
    return b"event: %s\ndata: %s\n\n" % (name.encode(), dump_json(data))


class Outbox:
    """A queue of events for one reader. What a slow reader cannot take is dropped, and `behind` says how many."""

    def __init__(self, max_bytes: int = _MAX_BYTES, *, heartbeat_seconds: float = _HEARTBEAT_SECONDS) -> None:
        self._max_bytes, self._heartbeat_seconds = max_bytes, heartbeat_seconds
        self._waiting: deque[bytes] = deque()
        self._size_bytes = 0
        self._missed = 0
        self._wake = asyncio.Event()
        self._ended = False

    def append(self, event: bytes, *, last: bool = False) -> None:
        """Add an event. The `last` one always fits, and ends the stream."""
        if self._ended:
            return
        # An event larger than the bound still passes alone, so that no event is always too large.
        full = bool(self._waiting) and self._size_bytes + len(event) > self._max_bytes
        # After a gap everything is dropped until the reader has caught up: `behind` then stands where the gap was.
        if not last and (full or self._missed):
            self._missed += 1
        else:
            self._append_missed()
            self._add(event)
        self._ended = last
        self._wake.set()

    def end(self) -> None:
        """End the stream."""
        self._ended = True
        self._wake.set()

    async def next(self) -> bytes | None:
        """The next bytes to send: waiting events, a heartbeat if none come, None at the end."""
        while not self._waiting:
            self._append_missed()
            if self._waiting:
                break
            if self._ended:
                return None
            self._wake.clear()
            try:
                async with asyncio.timeout(self._heartbeat_seconds):
                    await self._wake.wait()
            except TimeoutError:
                return _HEARTBEAT
        # All that waits in one write: a reader that was slow catches up without a system call for each word.
        pieces = b"".join(self._waiting)
        self._waiting.clear()
        self._size_bytes = 0
        return pieces

    def _append_missed(self) -> None:
        if self._missed:
            missed, self._missed = self._missed, 0
            self._add(encode_event("behind", {"event": "behind", "missed": missed}))

    def _add(self, event: bytes) -> None:
        self._waiting.append(event)
        self._size_bytes += len(event)


class EventStream:
    """The response that streams an outbox. `closed` is called when it ends, however it ends."""

    status_code = 200

    def __init__(self, outbox: Outbox, closed: Callable[[], None]) -> None:
        self.outbox, self._closed = outbox, closed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send events until the outbox ends or the client disconnects."""
        # Without a read nobody would notice a client that has gone before the next event.
        gone = asyncio.create_task(wait_for_disconnect(receive))
        gone.add_done_callback(lambda _: self.outbox.end())
        headers = [
            (b"content-type", b"text/event-stream; charset=utf-8"),
            (b"cache-control", b"no-store"),
            (b"x-accel-buffering", b"no"),  # nginx would hold events back
        ]
        try:
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            # At once, so that the client knows that it follows: the first event may be minutes away.
            await send({"type": "http.response.body", "body": _HEARTBEAT, "more_body": True})
            while (piece := await self.outbox.next()) is not None and not gone.done():
                await send({"type": "http.response.body", "body": piece, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            # `closed` before any await: a second cancellation here must not keep the stream in the count.
            gone.cancel()
            self._closed()
            await asyncio.gather(gone, return_exceptions=True)


async def wait_for_disconnect(receive: Receive) -> None:
    """Wait until the client disconnects."""
    while (await receive())["type"] != "http.disconnect":
        pass


class Broadcast:
    """Sends events of sessions to their followers. Pass `publish` to `SessionPool.subscribe`."""

    def __init__(self) -> None:
        self._followers: dict[str, set[Outbox]] = {}
        self.all_followers: set[Outbox] = set()
        """Followers of all sessions."""

    def publish(self, name: str, event: AgentEvent) -> None:
        """Send an event to its followers. O(followers); without any it is not even encoded."""
        own = self._followers.get(name)
        if own:
            payload = as_json(event)
            piece = encode_event(payload["event"], payload)
            # Encoded once for all followers.
            for outbox in own:
                outbox.append(piece)
        if self.all_followers and not isinstance(event, _DELTAS):  # single words of every session would swamp a reader
            payload = as_json(event)
            piece = encode_event(payload["event"], {"session": name, **payload})
            for outbox in self.all_followers:
                outbox.append(piece)

    def follow(self, name: str | None) -> EventStream:
        """Follow a session; without a name, all of them."""
        outbox = Outbox()
        followers = self.all_followers if name is None else self._followers.setdefault(name, set())
        followers.add(outbox)

        def closed() -> None:
            followers.discard(outbox)
            if name is not None and not followers and self._followers.get(name) is followers:
                del self._followers[name]

        return EventStream(outbox, closed)

    @property
    def open(self) -> int:
        """The number of followers."""
        return len(self.all_followers) + sum(map(len, self._followers.values()))

    def end_session(self, name: str) -> None:
        """End the streams of a deleted session."""
        # A copy: each stream that ends removes itself from the set.
        for outbox in tuple(self._followers.get(name, ())):
            outbox.append(encode_event("deleted", {"event": "deleted"}), last=True)
        for outbox in self.all_followers:
            outbox.append(encode_event("deleted", {"session": name, "event": "deleted"}))

    def stop(self) -> None:
        """End all streams, as the server stops."""
        for outbox in (*self.all_followers, *(one for own in self._followers.values() for one in own)):
            outbox.append(encode_event("stopping", {"event": "stopping"}), last=True)
