"""What every route works on: the sessions, their followers, the limits of the server, and whether it stops."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import ParamSpec, TypeVar

from foldline.interfaces.actors import Actors
from foldline.interfaces.serving.bodies import BodyLimits
from foldline.interfaces.serving.metrics import Metrics
from foldline.interfaces.serving.problems import Problem
from foldline.interfaces.serving.streams import Broadcast
from foldline.messages import Json

__all__ = ["Door", "DoorLimits"]

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class DoorLimits:
    """What the server takes from one client, and from all.

    `rate` are requests a minute (0: any number), `reads` the heavy reads that run at once, `streams` those that are
    open, `request_seconds` how long an answer may take that waits for no turn.
    """

    body: BodyLimits = field(default_factory=BodyLimits)
    rate: int = 6_000
    reads: int = 4
    streams: int = 512
    request_seconds: float = 60.0


class Door:
    """One server's state."""

    def __init__(self, actors: Actors, *, version: str, limits: DoorLimits | None = None, page: bool = True) -> None:
        self.actors, self.version, self.page = actors, version, page
        self.limits = limits or DoorLimits()
        self.broadcast = Broadcast()
        self.metrics = Metrics(actors, lambda: self.broadcast.open + self.turn_streams)
        self.document: Json = {}
        """The OpenAPI document, which is made from the routes."""
        self.stopping = False
        self.turn_streams = 0
        self._reads = asyncio.Semaphore(self.limits.reads)
        self._heard = [actors.subscribe(self.broadcast.hear), actors.subscribe(self.metrics.hear)]

    async def read(self, work: Callable[P, T], /, *given: P.args, **named: P.kwargs) -> T:
        """What something reads of the store, in a thread; only some at a time, as each may hold a whole log."""
        async with self._reads:
            return await asyncio.to_thread(work, *given, **named)

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
