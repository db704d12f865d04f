"""What every route works on: the sessions, their followers, the limits of the server, and whether it stops."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from time import monotonic
from typing import Final, ParamSpec, TypeVar

from foldline.agent.workers import Workers
from foldline.doors.http.bodies import BodyLimits
from foldline.doors.http.metrics import Metrics
from foldline.doors.http.problems import Problem
from foldline.doors.http.streams import Broadcast
from foldline.hosting.session_pool import SessionPool
from foldline.messages import Json
from foldline.store.snapshot import Listed

__all__ = ["Door", "DoorLimits"]

_LIST_SECONDS: Final = 2.0
_MOST_WAITING: Final = 10_000
"""Reads that wait: more than connections there are."""
_LIST_SHARE: Final = 5.0
"""A list is fresh for so many times of what it took: sessions at work are read from their logs for each."""

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class DoorLimits:
    """What the server takes from one client, and from all.

    `reads` are the heavy reads that run at once, `streams` those that are open, `request_seconds` is how long an answer
    may take that waits for no turn.
    """

    body: BodyLimits = field(default_factory=BodyLimits)
    reads: int = 4
    streams: int = 512
    request_seconds: float = 60.0


class Door:
    """One server's state."""

    def __init__(
        self, actors: SessionPool, *, version: str, limits: DoorLimits | None = None, page: bool = True
    ) -> None:
        self.actors, self.version, self.page = actors, version, page
        self.limits = limits or DoorLimits()
        self.broadcast = Broadcast()
        self.metrics = Metrics(actors, lambda: self.broadcast.open + self.turn_streams)
        self.document: Json = {}
        """The OpenAPI document, which is made from the routes."""
        self.stopping = False
        self.turn_streams = 0
        self._listing, self._listed, self._listed_until, self._changes = asyncio.Lock(), list[Listed](), 0.0, 0
        reads = self.limits.reads
        self._reads = Workers("foldline-read", reads, each=reads, most_waiting=_MOST_WAITING)
        self._glances = Workers("foldline-glance", 2, each=2, most_waiting=_MOST_WAITING)
        self._heard = [actors.subscribe(self.broadcast.hear), actors.subscribe(self.metrics.hear)]

    async def read(self, work: Callable[P, T], /, *given: P.args, **named: P.kwargs) -> T:
        """What something reads of the store, in a thread; only some at a time, as each may hold a whole log."""
        return await self._reads.run(lambda _: work(*given, **named))

    async def glance(self, work: Callable[P, T], /, *given: P.args, **named: P.kwargs) -> T:
        """The same for what is read quickly: no log that somebody reads keeps it waiting."""
        return await self._glances.run(lambda _: work(*given, **named))

    async def sessions(self) -> list[Listed]:
        """The sessions, the one written last first; those that run as they stood before it, without reading their logs.

        A list that took long serves others too, for 2 s at most.
        """
        async with self._listing:
            if monotonic() >= self._listed_until:
                changes, began = self._changes, monotonic()
                at_work = {name for name, actor in self.actors.known.items() if actor.busy}
                self._listed = await self.glance(self.actors.store.sessions, stale=True, at_work=at_work)
                ended = monotonic()
                fresh_seconds = min(_LIST_SECONDS, _LIST_SHARE * (ended - began))
                self._listed_until = ended + fresh_seconds if changes == self._changes else 0.0
            return self._listed

    def changed(self) -> None:
        """Read the list of sessions anew: one has come or gone."""
        self._changes += 1
        self._listed_until = 0.0

    async def in_time(self, work: Awaitable[T]) -> T:
        """The result, if it comes within the time of a request. Raises TimeoutError."""
        async with asyncio.timeout(self.limits.request_seconds):
            return await work

    def stream_more(self) -> None:
        """Raise Problem where no more streams may be open."""
        if self.broadcast.open + self.turn_streams >= self.limits.streams:
            detail = f"{self.limits.streams:,} streams are open already"
            raise Problem(name="busy", detail=detail, headers={"Retry-After": "5"})

    async def stop(self, grace_seconds: float) -> None:
        """Begin nothing new, let turns end or pause, end all streams. Calling it again with 0 cuts turns off."""
        self.stopping = True
        try:
            await self.actors.stop(grace_seconds)
        finally:
            self.broadcast.stop()
            for end in self._heard:
                end()
