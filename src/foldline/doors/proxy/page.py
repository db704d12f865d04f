"""The paths at which the proxy tells of itself: its live page for people, its figures for Prometheus."""

from __future__ import annotations

from typing import Final

from starlette.datastructures import MutableHeaders
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from foldline.doors.http.guard import SAFE_HEADERS
from foldline.doors.http.responses import Asset, asset_response, assets, json_response
from foldline.doors.proxy.metrics import ProxyMetrics
from foldline.doors.proxy.status import Standing

__all__ = ["FREE_PATHS", "routes"]

_ROOT: Final = "/foldline"
_PAGE: Final = "index.html"
_SHARED: Final = ("api.js", "dom.js", "frame.js", "icon.svg", "keys.js", "lists.js", "live.js", "page.css", "theme.js")
"""What the page has in common with the one of `foldline serve`."""


def _files() -> dict[str, Asset]:
    shared = assets("foldline.doors.http", "page")
    return {name: shared[name] for name in _SHARED} | dict(assets("foldline.doors.proxy", "look"))


FREE_PATHS: Final = frozenset({_ROOT, f"{_ROOT}/", *(f"{_ROOT}/{name}" for name in _files() if name != _PAGE)})
"""What needs no token: the page itself, which asks for one, says nothing of anybody. All else here does."""


def routes(standing: Standing, metrics: ProxyMetrics) -> list[Route]:
    """The routes of the page and of the figures. `standing.stop()` ends the streams when the server stops.

    The page asks for everything by relative addresses, so it also works under a prefix (`/~TOKEN/foldline`).
    """
    files = _files()

    async def page(request: Request) -> Response:
        return asset_response(files[_PAGE], request)

    async def slash(request: Request) -> Response:
        del request
        return RedirectResponse("../foldline", 307)  # relative: there may be a prefix

    async def file(request: Request) -> Response:
        found = files.get(request.path_params["name"])
        if found is None or found is files[_PAGE]:
            return _refusal(404, "there is nothing here")
        return asset_response(found, request)

    async def without_slash(request: Request) -> Response:
        name, query = request.path_params["name"], request.url.query
        return RedirectResponse(f"../{name}{'?' if query else ''}{query}", 307)

    async def missing(request: Request) -> Response:
        del request
        return _refusal(404, "there is nothing here")

    async def state(request: Request) -> Response:
        del request
        return json_response(standing.state())

    async def folds(request: Request) -> Response:
        found = standing.folds(request.query_params.get("session", ""))
        if found is None:
            return _refusal(404, "this conversation is not known, or was let go of")
        return json_response({"folds": found})

    async def events(request: Request) -> ASGIApp:
        if request.method == "HEAD":
            return Response(media_type="text/event-stream")
        return standing.follow() or _refusal(503, "too many pages follow already", Retry_After="30")

    async def figures(request: Request) -> Response:
        del request
        return Response(metrics.text(), media_type="text/plain; version=0.0.4")

    ways = {
        _ROOT: page,
        f"{_ROOT}/": slash,
        f"{_ROOT}/state": state,
        f"{_ROOT}/folds": folds,
        f"{_ROOT}/events": events,
        f"{_ROOT}/{{name}}": file,
        f"{_ROOT}/{{name}}/": without_slash,
        f"{_ROOT}/{{path:path}}": missing,
        "/metrics": figures,
    }
    return [Route(path, way, middleware=[Middleware(_Safe)]) for path, way in ways.items()]


class _Safe:
    """Adds what browsers must know of every answer of ours."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def marked(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *SAFE_HEADERS]
                MutableHeaders(scope=message).setdefault("cache-control", "no-store")
            await send(message)

        await self._app(scope, receive, marked)


def _refusal(status: int, detail: str, **headers: str) -> Response:
    return json_response({"detail": detail}, status, **headers)
