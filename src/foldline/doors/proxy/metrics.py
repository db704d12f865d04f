"""Figures of the proxy for Prometheus, in a registry of their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, get_args

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest

from foldline.doors.proxy.status import is_answered
from foldline.doors.proxy.values import Outcome, Served
from foldline.failures import Kind

__all__ = ["ProxyMetrics", "Several"]

_OWN_SECONDS: Final = (0.0005, 0.001, 0.002, 0.003, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10, 60)
_FIRST_BYTE_SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)

_DIALECTS: Final = frozenset({"openai-chat", "openai-responses", "anthropic"})
_FAILURES: Final = frozenset(get_args(Kind))
_OUTCOMES: Final = frozenset(get_args(Outcome))

_REPORTED: Final = ("input", "cached", "output", "summary")
_KINDS: Final = ("given", "sent", "saved", *_REPORTED)
_OTHER: Final = "other"
_NONE: Final = "none"


class Several:
    """Values of a label, at most `most` of them: what comes after is "other". A label's values are never given up."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._known: set[str] = set()

    def __call__(self, value: str) -> str:
        """The value, or "other"."""
        if value in self._known:
            return value
        if len(self._known) >= self._most:
            return _OTHER
        self._known.add(value)
        return value


class ProxyMetrics:
    """A listener that counts. No label has a value that a client makes up, so there are not more series than these."""

    def __init__(self) -> None:
        self._registry = registry = CollectorRegistry()
        self._reducers = Several(32)

        def counter(name: str, about: str, *labels: str) -> Counter:
            return Counter(f"foldline_proxy_{name}", about, labels, registry=registry)

        def histogram(name: str, about: str, buckets: tuple[float, ...]) -> Histogram:
            return Histogram(f"foldline_proxy_{name}", about, ["dialect"], buckets=buckets, registry=registry)

        self._requests = counter("requests", "Requests that ended", "dialect", "outcome", "status")
        self._tokens = counter(
            "tokens", "Tokens of requests that a model took; in a dry run `sent` is what would have been", "kind"
        )
        self._folds = counter("folds", "Folds that were made", "reducer")
        self._recoveries = counter(
            "recoveries", "Requests sent again, smaller, after a refusal by the upstream", "kind"
        )
        self._truncations = counter("truncations", "Prompts that the upstream is thought to have cut without a word")
        self._faults = counter("faults", "Requests with a fault of the proxy")
        self._own = histogram("own_seconds", "From the arrival of a request until it went on", _OWN_SECONDS)
        self._first = histogram(
            "first_byte_seconds", "From the arrival of a request to its answer", _FIRST_BYTE_SECONDS
        )
        self._of_kind = {kind: self._tokens.labels(kind) for kind in _KINDS}  # there at once: a rate needs a beginning
        self._conversations = Gauge("foldline_proxy_conversations", "Conversations in memory", registry=registry)
        self._streams = Gauge("foldline_proxy_streams", "Requests under way", registry=registry)
        self._store_up = Gauge("foldline_proxy_store_up", "1 while the store can be reached", registry=registry)
        ProcessCollector(registry=registry)

    def watch(
        self, *, conversations: Callable[[], int], streams: Callable[[], int], store_up: Callable[[], bool]
    ) -> None:
        """Say where the gauges read what is now. `store_up` should be true where no store is used."""
        self._conversations.set_function(conversations)
        self._streams.set_function(streams)
        self._store_up.set_function(store_up)

    def __call__(self, served: Served) -> None:
        """Count a request that has ended."""
        dialect = served.dialect if served.dialect in _DIALECTS else (_OTHER if served.dialect else _NONE)
        outcome = served.outcome if served.outcome in _OUTCOMES else _OTHER
        status = str(served.status) if 100 <= served.status <= 599 else _NONE
        self._requests.labels(dialect, outcome, status).inc()
        kinds = _KINDS if is_answered(served) else _REPORTED
        for kind in kinds:
            tokens = getattr(served, f"{kind}_tokens")
            if tokens and tokens > 0:
                self._of_kind[kind].inc(tokens)
        for fold in served.new_folds:
            self._folds.labels(self._reducers(fold.reducer)).inc()
        if served.recoveries:
            kind = served.failure if served.failure in _FAILURES else _OTHER
            self._recoveries.labels(kind).inc(served.recoveries)
        if served.truncated:
            self._truncations.inc()
        if served.faulty:
            self._faults.inc()
        if served.own_seconds > 0:  # 0: it did not come so far
            self._own.labels(dialect).observe(served.own_seconds)
        if served.first_byte_seconds is not None:
            self._first.labels(dialect).observe(served.first_byte_seconds)

    def text(self) -> bytes:
        """All figures, in the text format 0.0.4."""
        return generate_latest(self._registry)
