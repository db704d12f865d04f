"""Server-sent events: bounded for readers that are slow, ended for those that are gone."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

from starlette.types import Receive, Scope, Send

from foldline.agent.events import AgentEvent, as_json
from foldline.doors.http.json_output import dumped
from foldline.messages import Json
from foldline.providers.base import ReasoningDelta, TextDelta

__all__ = ["Broadcast", "EventStream", "Outbox", "encoded", "left"]

BEAT_SECONDS: Final = 15.0
"""Something is sent this often, if only a comment: proxies end connections that are silent for a minute."""

_MOST_BYTES: Final = 262_144
"""What may wait for a reader that is slow."""

_BEAT: Final = b": here\n\n"
_DELTAS: Final = (TextDelta, ReasoningDelta)


def encoded(name: str, data: Json) -> bytes:
    """One event as it is sent."""
    return b"event: %s\ndata: %s\n\n" % (name.encode(), dumped(data))


class Outbox:
    """Events on their way to one reader. What a slow one cannot take is left out, and it is told how much."""

    def __init__(self, most_bytes: int = _MOST_BYTES, *, beat_seconds: float = BEAT_SECONDS) -> None:
        self._most_bytes, self._beat_seconds = most_bytes, beat_seconds
        self._waiting: deque[bytes] = deque()
        self._size_bytes = 0
        self._missed = 0
        self._news = asyncio.Event()
        self._ended = False

    @property
    def waiting_bytes(self) -> int:
        """What waits to be sent."""
        return self._size_bytes

    def put(self, event: bytes, *, last: bool = False) -> None:
        """Add an event; the `last` one is always taken, and ends the stream."""
        if self._ended:
            return
        full = bool(self._waiting) and self._size_bytes + len(event) > self._most_bytes
        if not last and (full or self._missed):
            self._missed += 1
        else:
            self._tell_missed()
            self._add(event)
        self._ended = last
        self._news.set()

    def end(self) -> None:
        """No more comes."""
        self._ended = True
        self._news.set()

    async def next(self) -> bytes | None:
        """What is to be sent: what waits, a sign of life where nothing comes, None at the end."""
        while not self._waiting:
            self._tell_missed()
            if self._waiting:
                break
            if self._ended:
                return None
            self._news.clear()
            try:
                async with asyncio.timeout(self._beat_seconds):
                    await self._news.wait()
            except TimeoutError:
                return _BEAT
        pieces = b"".join(self._waiting)
        self._waiting.clear()
        self._size_bytes = 0
        return pieces

    def _tell_missed(self) -> None:
        if self._missed:
            missed, self._missed = self._missed, 0
            self._add(encoded("behind", {"event": "behind", "missed": missed}))

    def _add(self, event: bytes) -> None:
        self._waiting.append(event)
        self._size_bytes += len(event)


class EventStream:
    """The answer that streams an outbox. `closed` is called when it ends, however it ends."""

    status_code = 200

    def __init__(self, outbox: Outbox, closed: Callable[[], None]) -> None:
        self.outbox, self._closed = outbox, closed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send events until there are no more, or nobody listens."""
        gone = asyncio.create_task(left(receive))
        gone.add_done_callback(lambda _: self.outbox.end())
        headers = [
            (b"content-type", b"text/event-stream; charset=utf-8"),
            (b"cache-control", b"no-store"),
            (b"x-accel-buffering", b"no"),  # nginx would hold events back
        ]
        try:
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            await send({"type": "http.response.body", "body": _BEAT, "more_body": True})
            while (piece := await self.outbox.next()) is not None and not gone.done():
                await send({"type": "http.response.body", "body": piece, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            gone.cancel()
            self._closed()
            await asyncio.gather(gone, return_exceptions=True)


async def left(receive: Receive) -> None:
    """Wait until the client is gone."""
    while (await receive())["type"] != "http.disconnect":
        pass


class Broadcast:
    """What happens in the sessions, to those who follow it. Give `hear` to `Actors.subscribe`."""

    def __init__(self) -> None:
        self._of: dict[str, set[Outbox]] = {}
        self.all_followers: set[Outbox] = set()
        """Those who follow all sessions."""

    def hear(self, name: str, event: AgentEvent) -> None:
        """Pass an event on. O(followers); nothing where there are none."""
        own = self._of.get(name)
        if own:
            plain = as_json(event)
            piece = encoded(plain["event"], plain)
            for outbox in own:
                outbox.put(piece)
        if self.all_followers and not isinstance(event, _DELTAS):
            plain = as_json(event)
            piece = encoded(plain["event"], {"session": name, **plain})
            for outbox in self.all_followers:
                outbox.put(piece)

    def follow(self, name: str | None) -> EventStream:
        """The events of a session, of all without a name."""
        outbox = Outbox()
        followers = self.all_followers if name is None else self._of.setdefault(name, set())
        followers.add(outbox)

        def closed() -> None:
            followers.discard(outbox)
            if name is not None and not followers and self._of.get(name) is followers:
                del self._of[name]

        return EventStream(outbox, closed)

    @property
    def open(self) -> int:
        """How many follow."""
        return len(self.all_followers) + sum(map(len, self._of.values()))

    def over(self, name: str) -> None:
        """End the streams of a session that is deleted."""
        for outbox in tuple(self._of.get(name, ())):
            outbox.put(encoded("deleted", {"event": "deleted"}), last=True)
        for outbox in self.all_followers:
            outbox.put(encoded("deleted", {"session": name, "event": "deleted"}))

    def stop(self) -> None:
        """End all streams: the server stops."""
        for outbox in (*self.all_followers, *(one for own in self._of.values() for one in own)):
            outbox.put(encoded("stopping", {"event": "stopping"}), last=True)
