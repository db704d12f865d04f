"""The state of one server that its routes share: sessions, followers, limits, metrics, and whether it is stopping."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from time import monotonic
from typing import Final, ParamSpec, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from foldline.agent.events import AgentEvent, ReplyFinished, TurnEnded
from foldline.agent.workers import Workers
from foldline.doors.http.requests import BodyLimits
from foldline.doors.http.responses import Problem
from foldline.doors.http.streams import Broadcast
from foldline.engine.events import FoldFinished
from foldline.hosting.session_actor import SessionActor
from foldline.hosting.session_pool import SessionPool
from foldline.messages import Json
from foldline.store.snapshot import ListedSession

__all__ = ["Metrics", "ServerLimits", "ServerState"]

# Up to 5 minutes, as a turn with tools may take that long; below, the usual steps of Prometheus' clients.
_SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)


class Metrics:
    """Counters and gauges of the sessions. `streams` returns the number of open streams."""

    def __init__(self, pool: SessionPool, streams: Callable[[], int]) -> None:
        # Not the global registry: tests, and programs that embed the server, may have several.
        self._registry = CollectorRegistry()
        self._turns = Counter("foldline_turns", "Turns that ended", ["reason"], registry=self._registry)
        self._folds = Counter("foldline_folds", "Folds that were made", ["reducer"], registry=self._registry)
        self._tokens = Counter("foldline_tokens", "Tokens of model calls", ["kind"], registry=self._registry)
        self._refused = Counter("foldline_refused", "Requests refused at the door", ["status"], registry=self._registry)
        self._seconds = Histogram(
            "foldline_request_seconds",
            "From a request to the beginning of its answer",
            ["method", "route", "status"],
            buckets=_SECONDS,
            registry=self._registry,
        )

        # Read at scrape time: counting up and down at each event would drift if one were missed.
        def gauge(name: str, about: str, value: Callable[[], float]) -> None:
            Gauge(name, about, registry=self._registry).set_function(value)

        def total(of: Callable[[SessionActor], int]) -> Callable[[], float]:
            return lambda: float(sum(of(actor) for actor in pool.actors.values()))

        gauge("foldline_turns_running", "Turns under way", total(lambda actor: actor.running))
        gauge("foldline_queued", "Requests that wait for their session", total(lambda actor: actor.queued))
        gauge("foldline_sessions_warm", "Sessions in memory", total(lambda actor: actor.warm))
        gauge("foldline_streams_open", "Event streams that are open", streams)

    def on_event(self, name: str, event: AgentEvent) -> None:
        """Count an event of a session."""
        del name
        if isinstance(event, TurnEnded):
            self._turns.labels(event.reason).inc()
        elif isinstance(event, FoldFinished):
            for fold in event.folds:
                self._folds.labels(fold.reducer).inc()
        elif isinstance(event, ReplyFinished):
            self._tokens.labels("in").inc(event.prompt_tokens)
            self._tokens.labels("out").inc(event.completion_tokens)
            self._tokens.labels("cached").inc(event.cached_tokens)

    def answered(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count a request by its route, not its URL: that would make a series for each session."""
        self._seconds.labels(method, route, str(status)).observe(seconds)

    def refused(self, status: int) -> None:
        """Count a request that was not admitted: wrong token, wrong origin or too many."""
        self._refused.labels(str(status)).inc()

    def text(self) -> bytes:
        """All metrics, in the text format 0.0.4."""
        return generate_latest(self._registry)


# --- metrics ----------------------------------------------------------------------------------------------------------


_LIST_SECONDS: Final = 2.0
# Above the number of connections: the queue never refuses a read.
_MAX_WAITING_READS: Final = 10_000
# A list of sessions stays fresh for this many times the time that it took, so that clients who poll take at most a
# sixth of one thread.
_FRESH_RATIO: Final = 5.0

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerLimits:
    """Bounds on what clients may use of the server.

    `reads` is the number of heavy reads that run at once, `streams` of open event streams. `request_seconds` bounds
    the time of an answer that waits for no turn.
    """

    body: BodyLimits = field(default_factory=BodyLimits)
    reads: int = 4
    streams: int = 512
    request_seconds: float = 60.0


class ServerState:
    """The state of one server."""

    def __init__(
        self, pool: SessionPool, *, version: str, limits: ServerLimits | None = None, page: bool = True
    ) -> None:
        self.pool, self.version, self.page = pool, version, page
        self.limits = limits or ServerLimits()
        self.broadcast = Broadcast()
        self.metrics = Metrics(pool, lambda: self.broadcast.open + self.turn_streams)
        self.document: Json = {}  # the OpenAPI document; set by `app_of`, which knows the routes
        self.stopping = False
        self.turn_streams = 0
        self._list_lock, self._list = asyncio.Lock(), list[ListedSession]()
        self._list_expires, self._list_changes = 0.0, 0
        reads = self.limits.reads
        self._reads = Workers("foldline-read", reads, per_owner=reads, max_waiting=_MAX_WAITING_READS)
        self._quick_reads = Workers("foldline-glance", 2, per_owner=2, max_waiting=_MAX_WAITING_READS)
        self._subscriptions = [pool.subscribe(self.broadcast.publish), pool.subscribe(self.metrics.on_event)]

    async def read(self, work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a heavy read of the store in a thread. Few run at a time, as each may hold a whole log in memory."""
        return await self._reads.run(lambda _: work(*args, **kwargs))

    async def read_quickly(self, work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a short read in a thread of its own pool, where it does not wait behind whole logs."""
        return await self._quick_reads.run(lambda _: work(*args, **kwargs))

    async def sessions(self) -> list[ListedSession]:
        """The sessions, the one written last first. Those with a running turn appear as they were before it.

        A slow list is reused for others, for 2 s at most.
        """
        # One reader at a time: clients that poll together wait for the same list instead of each reading it.
        async with self._list_lock:
            if monotonic() >= self._list_expires:
                # A session may be created while the list is read. Such a list is not reused.
                changes, began = self._list_changes, monotonic()
                running = {name for name, actor in self.pool.actors.items() if actor.busy}
                self._list = await self.read_quickly(self.pool.store.sessions, allow_stale=True, running=running)
                ended = monotonic()
                fresh_seconds = min(_LIST_SECONDS, _FRESH_RATIO * (ended - began))
                self._list_expires = ended + fresh_seconds if changes == self._list_changes else 0.0
            return self._list

    def expire_sessions(self) -> None:
        """Have the list of sessions read anew: one was created or deleted."""
        # The count tells a list that is being read right now that it is out of date.
        self._list_changes += 1
        self._list_expires = 0.0

    async def within_time_limit(self, work: Awaitable[T]) -> T:
        """Await the result within the time limit of a request. Raises TimeoutError."""
        async with asyncio.timeout(self.limits.request_seconds):
            return await work

    def check_stream_count(self) -> None:
        """Raise Problem when as many streams are open as may be."""
        if self.broadcast.open + self.turn_streams >= self.limits.streams:
            detail = f"{self.limits.streams:,} streams are open already"
            raise Problem(name="busy", detail=detail, headers={"Retry-After": "5"})

    async def stop(self, grace_seconds: float) -> None:
        """Refuse new work, let turns end or pause, then end all streams. A second call with 0 cuts turns off."""
        self.stopping = True
        # Streams end last: followers see how the turns ended.
        try:
            await self.pool.stop(grace_seconds)
        finally:
            self.broadcast.stop()
            for unsubscribe in self._subscriptions:
                unsubscribe()
