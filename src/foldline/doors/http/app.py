"""The ASGI application: dispatches requests by the table of routes, and answers every error with a problem."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from itertools import groupby
from time import perf_counter
from typing import Any, Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route as StarletteRoute
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from foldline.doors.http.guard import Guard, GuardRules
from foldline.doors.http.openapi import document
from foldline.doors.http.requests import ApiRequest, read_request
from foldline.doors.http.responses import Problem, problem_of, problem_response
from foldline.doors.http.routes import ROUTES, Route
from foldline.doors.http.state import ServerState
from foldline.errors import FoldlineError, InvalidInput

__all__ = ["app_of"]

# Errors that `problem_of` has a row for. All others are faults of the server.
_EXPECTED_ERRORS: Final = (FoldlineError, OSError)
_METHODS: Final = frozenset("GET HEAD POST PUT PATCH DELETE OPTIONS".split())
_FAULT: Final = Problem(name="internal", detail="a fault of the server; its log has more")


def app_of(server: ServerState, rules: GuardRules) -> ASGIApp:
    """The application of a server. The caller stops the server."""
    server.document = document(ROUTES, version=server.version)
    endpoints = []
    for path, own in groupby(sorted(ROUTES, key=lambda route: route.path), key=lambda route: route.path):
        # One endpoint a path, not a method: it knows which other methods a 405 should name.
        endpoints.append(StarletteRoute(path, _Endpoint(server, {route.method: route for route in own})))
    # Starlette's own errors are plain text; clients expect a problem object for every status.
    handlers: Any = {HTTPException: _no_route, Exception: _fault}
    inner = Starlette(routes=endpoints, exception_handlers=handlers)
    inner.router.redirect_slashes = False  # a redirected POST loses its body with many clients
    # The guard runs before routing, so it gets the paths without a token as plain strings.
    free = frozenset(route.path for route in ROUTES if route.free and "{" not in route.path)
    return Guard(inner, rules, free=free, free_under="/static/", on_refused=server.metrics.refused)


async def _no_route(request: Request, error: Exception) -> Response:
    del error
    return problem_response(Problem(name="not-found", detail=f"there is nothing at {request.url.path[:200]!r}"))


async def _fault(request: Request, error: Exception) -> Response:
    """Answer an unexpected error. Starlette raises it again afterwards, for the log."""
    del request, error
    return problem_response(_FAULT)


class _Endpoint:
    """All routes at one path."""

    def __init__(self, server: ServerState, routes: Mapping[str, Route]) -> None:
        self._server, self._routes = server, routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        method = scope["method"]
        # HEAD is GET without the body, which uvicorn drops (RFC 9110, section 9.3.2). A stream would never end, though.
        route = self._routes.get("GET" if method == "HEAD" else method)
        if route is None or (method == "HEAD" and route.streams):
            any_route = next(iter(self._routes.values()))
            allowed = ", ".join(sorted(self._routes))
            problem = Problem(name="method", detail=f"{allowed} can be done here", headers={"Allow": allowed})
            await self._send(any_route, problem_response(problem), scope, receive, send)
            return
        try:
            response = await self._handle(route, Request(scope, receive, send))
        except Problem as problem:
            response = problem_response(problem)
        await self._send(route, response, scope, receive, send)

    async def _handle(self, route: Route, http_request: Request) -> Any:
        """The response of the route. Raises Problem, and unexpected errors as they are."""
        request: ApiRequest | None = None
        try:
            # Health, metrics and the page still answer: they are how an operator watches the stop.
            if self._server.stopping and route.path.startswith("/v1"):
                raise Problem(name="stopping", detail="the server stops, and begins nothing new")
            request = await read_request(http_request, route.fields, self._server.limits.body)
            # Turns and compactions last as long as their model; a disconnect ends them, not a time limit.
            if route.heavy:
                return await route.handle(self._server, request)
            return await self._server.within_time_limit(route.handle(self._server, request))
        except (Problem, *_EXPECTED_ERRORS) as error:
            raise await self._problem(error, route, request) from None

    async def _problem(self, error: Exception, route: Route, request: ApiRequest | None) -> Problem:
        """The problem for an error. If the session was deleted meanwhile, the problem is that."""
        problem = problem_of(error)
        if problem is None:
            raise RuntimeError("an error of this package is not in the table")
        if isinstance(error, Problem) or request is None:
            return problem
        fields = {one.name for one in (*route.fields.query, *(route.fields.body or ()))}
        # A session that another request deletes meanwhile fails in as many ways as it has files. To the client all of
        # them are a 404.
        if isinstance(error, InvalidInput | FileNotFoundError) and problem.name in ("bad-request", "store"):
            if "id" in request.values and not await self._exists(request["id"]):
                return Problem(name="not-found", detail=f"there is no session {request['id'][:80]!r}", field="id")
            # An InvalidInput about nothing that the client wrote is about a file of the session.
            if problem.field not in fields:
                place = f"{problem.field}: " if problem.field else ""
                return Problem(name="unreadable", detail=f"{place}{problem.detail}")
        return problem

    async def _exists(self, name: str) -> bool:
        try:
            await asyncio.to_thread(self._server.pool.store.find, name)
        except (InvalidInput, OSError):
            return False
        return True

    async def _send(self, route: Route, response: Any, scope: Scope, receive: Receive, send: Send) -> None:
        method = scope["method"]
        # From the guard on, so that its own work and the wait for the body count too.
        began = scope.get("foldline.began", perf_counter())

        async def counted(message: Message) -> None:
            if message["type"] == "http.response.start":
                label = method if method in _METHODS else "other"  # clients can invent any number of methods
                self._server.metrics.answered(label, route.path, message["status"], perf_counter() - began)
            await send(message)

        await response(scope, receive, counted)
