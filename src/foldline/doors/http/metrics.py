"""Prometheus metrics of the server, in a registry of their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from foldline.agent.events import AgentEvent, ReplyFinished, TurnEnded
from foldline.engine.events import FoldFinished
from foldline.hosting.session_actor import SessionActor
from foldline.hosting.session_pool import SessionPool

__all__ = ["Metrics"]

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
