"""The proxy's own paths: a live page for people, metrics for Prometheus."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, get_args

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest
from starlette.datastructures import MutableHeaders
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from foldline.codecs import DIALECTS
from foldline.doors.http.guard import SAFE_HEADERS
from foldline.doors.http.responses import Asset, asset_response, assets, json_response
from foldline.doors.proxy.served_request import Outcome, ServedRequest, is_answered
from foldline.doors.proxy.status import ProxyStatus
from foldline.failures.failure import Kind

__all__ = ["FREE_PATHS", "HEALTH", "LabelValues", "ProxyMetrics", "routes"]

# From the half millisecond of a request that passes to the minute of one that waits for a summary.
_OWN_SECONDS: Final = (0.0005, 0.001, 0.002, 0.003, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10, 60)
_FIRST_BYTE_SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)

_DIALECTS: Final = frozenset(DIALECTS)
_FAILURES: Final = frozenset(get_args(Kind))
_OUTCOMES: Final = frozenset(get_args(Outcome))

_REPORTED: Final = ("input", "cached", "output", "summary")
_KINDS: Final = ("given", "sent", "saved", *_REPORTED)
# Stands for every value that a client or an upstream can invent: each new one would be a series for ever.
_OTHER: Final = "other"
_NONE: Final = "none"

_ROOT: Final = "/foldline"
_PAGE: Final = "index.html"
# Files shared with the page of `foldline serve`.
_SHARED: Final = ("api.js", "dom.js", "frame.js", "icon.svg", "keys.js", "lists.js", "live.js", "page.css", "theme.js")


def _files() -> dict[str, Asset]:
    shared = assets("foldline.doors.http", "page")
    return {name: shared[name] for name in _SHARED} | dict(assets("foldline.doors.proxy", "look"))


HEALTH: Final = f"{_ROOT}/health"
"""Answers 200 while the proxy runs, whoever asks and by whatever name."""

FREE_PATHS: Final = frozenset({_ROOT, f"{_ROOT}/", HEALTH, *(f"{_ROOT}/{name}" for name in _files() if name != _PAGE)})
"""Paths without a token: the files of the page, which asks for one itself, and the health check. All data needs it."""


def routes(status: ProxyStatus, metrics: ProxyMetrics) -> list[Route]:
    """The routes of the page and the metrics. `status.stop()` ends the streams when the server stops.

    The page uses relative URLs only, so that it also works under a prefix (`/~TOKEN/foldline`).
    """
    files = _files()

    async def page(request: Request) -> Response:
        return asset_response(files[_PAGE], request)

    async def slash(request: Request) -> Response:
        del request
        return RedirectResponse("../foldline", 307)  # relative, for a prefix

    async def file(request: Request) -> Response:
        found = files.get(request.path_params["name"])
        if found is None or found is files[_PAGE]:
            return _problem(404, "there is nothing here")
        return asset_response(found, request)

    async def without_slash(request: Request) -> Response:
        name, query = request.path_params["name"], request.url.query
        return RedirectResponse(f"../{name}{'?' if query else ''}{query}", 307)

    async def missing(request: Request) -> Response:
        del request
        return _problem(404, "there is nothing here")

    async def state(request: Request) -> Response:
        del request
        return json_response(status.state())

    async def folds(request: Request) -> Response:
        found = status.details(request.query_params.get("session", ""))
        if found is None:
            return _problem(404, "this conversation is not known, or is no longer listed")
        return json_response(found)

    async def events(request: Request) -> ASGIApp:
        if request.method == "HEAD":  # the body of a stream would never end
            return Response(media_type="text/event-stream")
        return status.follow() or _problem(503, "too many pages follow already", Retry_After="30")

    async def figures(request: Request) -> Response:
        del request
        return Response(metrics.text(), media_type="text/plain; version=0.0.4")

    handlers = {
        _ROOT: page,
        f"{_ROOT}/": slash,
        HEALTH: _health,
        f"{_ROOT}/state": state,
        f"{_ROOT}/folds": folds,
        f"{_ROOT}/events": events,
        f"{_ROOT}/{{name}}": file,
        f"{_ROOT}/{{name}}/": without_slash,
        f"{_ROOT}/{{path:path}}": missing,
        "/metrics": figures,
    }
    return [Route(path, handler, middleware=[Middleware(_SafeHeaders)]) for path, handler in handlers.items()]


async def _health(request: Request) -> Response:
    del request
    return json_response({"status": "ok"})


class _SafeHeaders:
    """Adds the security headers to every response of the proxy's own."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def marked(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *SAFE_HEADERS]
                MutableHeaders(scope=message).setdefault("cache-control", "no-store")
            await send(message)

        await self._app(scope, receive, marked)


def _problem(status: int, detail: str, **headers: str) -> Response:
    return json_response({"detail": detail}, status, **headers)


# --- metrics ----------------------------------------------------------------------------------------------------------


class LabelValues:
    """Bounds the values of a label: the first `most` keep their names, all others are "other"."""

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
    """A listener with Prometheus metrics. No label has a value that a client invents, so the series are bounded."""

    def __init__(self) -> None:
        # Not the global registry: a process may run several proxies, as tests do.
        self._registry = registry = CollectorRegistry()
        self._reducers = LabelValues(32)

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
        # Created at once: a rate needs a first sample.
        self._of_kind = {kind: self._tokens.labels(kind) for kind in _KINDS}
        self._conversations = Gauge("foldline_proxy_conversations", "Conversations in memory", registry=registry)
        self._streams = Gauge("foldline_proxy_streams", "Requests under way", registry=registry)
        self._store_up = Gauge("foldline_proxy_store_up", "1 while the store can be reached", registry=registry)
        ProcessCollector(registry=registry)

    def watch(
        self, *, conversations: Callable[[], int], streams: Callable[[], int], store_up: Callable[[], bool]
    ) -> None:
        """Connect the gauges to their sources. `store_up` should return True without a store."""
        self._conversations.set_function(conversations)
        self._streams.set_function(streams)
        self._store_up.set_function(store_up)

    def __call__(self, served: ServedRequest) -> None:
        """Count a request that has ended."""
        dialect = served.dialect if served.dialect in _DIALECTS else (_OTHER if served.dialect else _NONE)
        outcome = served.outcome if served.outcome in _OUTCOMES else _OTHER
        status = str(served.status) if 100 <= served.status <= 599 else _NONE
        self._requests.labels(dialect, outcome, status).inc()
        # What an upstream reports was paid for in any case; the proxy's own counts are of requests that a model read.
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
        if served.own_seconds > 0:  # 0: it was refused before it went on
            self._own.labels(dialect).observe(served.own_seconds)
        if served.first_byte_seconds is not None:
            self._first.labels(dialect).observe(served.first_byte_seconds)

    def text(self) -> bytes:
        """All metrics, in the text format 0.0.4."""
        return generate_latest(self._registry)
