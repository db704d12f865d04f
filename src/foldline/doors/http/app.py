"""The ASGI application: the table of routes put to work, every error an answer."""

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
from starlette.routing import Route as Way
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from foldline.doors.http.bodies import Call, read_call
from foldline.doors.http.guard import Guard, GuardRules
from foldline.doors.http.openapi import document
from foldline.doors.http.problems import Problem, answer, problem_of
from foldline.doors.http.routes import ROUTES, Route
from foldline.doors.http.state import Door
from foldline.errors import FoldlineError, InvalidInput

__all__ = ["app_of"]

_OURS: Final = (FoldlineError, OSError)
_METHODS: Final = frozenset("GET HEAD POST PUT PATCH DELETE OPTIONS".split())
_FAULT: Final = Problem(name="internal", detail="a fault of the server; its log has more")


def app_of(door: Door, rules: GuardRules) -> ASGIApp:
    """The application over a door. It is closed by whoever made the door."""
    door.document = document(ROUTES, version=door.version)
    ways = []
    for path, own in groupby(sorted(ROUTES, key=lambda route: route.path), key=lambda route: route.path):
        by_method = {route.method: route for route in own}
        ways.append(Way(path, _Endpoint(door, by_method)))
    faults: Any = {HTTPException: _no_route, Exception: _fault}
    inner = Starlette(routes=ways, exception_handlers=faults)
    inner.router.redirect_slashes = False
    free = frozenset(route.path for route in ROUTES if route.free and "{" not in route.path)
    return Guard(inner, rules, free=free, free_under="/static/", refused=door.metrics.refused)


async def _no_route(request: Request, error: Exception) -> Response:
    del error
    return answer(Problem(name="not-found", detail=f"there is nothing at {request.url.path[:200]!r}"))


async def _fault(request: Request, error: Exception) -> Response:
    """What nobody foresaw; it is raised again after this, for the log."""
    del request, error
    return answer(_FAULT)


class _Endpoint:
    """What stands at one path."""

    def __init__(self, door: Door, routes: Mapping[str, Route]) -> None:
        self._door, self._routes = door, routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        method = scope["method"]
        route = self._routes.get("GET" if method == "HEAD" else method)
        if route is None or (method == "HEAD" and route.streams):
            known = next(iter(self._routes.values()))
            allowed = ", ".join(sorted(self._routes))
            refusal = Problem(name="method", detail=f"{allowed} can be done here", headers={"Allow": allowed})
            await self._send(known, refusal, scope, receive, send)
            return
        request = Request(scope, receive, send)
        try:
            done = await self._done(route, request)
        except Problem as problem:
            done = problem
        await self._send(route, done, scope, receive, send)

    async def _done(self, route: Route, request: Request) -> Any:
        """What the route answers. Raises Problem, and what nobody foresaw."""
        call: Call | None = None
        try:
            if self._door.stopping and route.path.startswith("/v1"):
                raise Problem(name="stopping", detail="the server stops, and begins nothing new")
            call = await read_call(request, route.takes, self._door.limits.body)
            if route.heavy:
                return await route.handle(self._door, call)
            return await self._door.in_time(route.handle(self._door, call))
        except (Problem, *_OURS) as error:
            raise await self._problem(error, route, call) from None

    async def _problem(self, error: Exception, route: Route, call: Call | None) -> Problem:
        """The problem that an error is. Where its session has gone meanwhile, that is it."""
        problem = problem_of(error)
        if problem is None:
            raise RuntimeError("an error of ours is not in the table")
        if isinstance(error, Problem) or call is None:
            return problem
        fields = {one.name for one in (*route.takes.query, *(route.takes.body or ()))}
        if isinstance(error, InvalidInput | FileNotFoundError) and problem.name in ("bad-request", "store"):
            if "id" in call.given and not await self._there(call["id"]):
                return Problem(name="not-found", detail=f"there is no session {call['id'][:80]!r}", field="id")
            if problem.field not in fields:
                place = f"{problem.field}: " if problem.field else ""
                return Problem(name="unreadable", detail=f"{place}{problem.detail}")
        return problem

    async def _there(self, name: str) -> bool:
        try:
            await asyncio.to_thread(self._door.actors.store.find, name)
        except (InvalidInput, OSError):
            return False
        return True

    async def _send(self, route: Route, done: Any, scope: Scope, receive: Receive, send: Send) -> None:
        method = scope["method"]
        began = scope.get("foldline.began", perf_counter())
        response = answer(done) if isinstance(done, Problem) else done

        async def counted(message: Message) -> None:
            if message["type"] == "http.response.start":
                known = method if method in _METHODS else "other"  # a client may make up any number of them
                self._door.metrics.answered(known, route.path, message["status"], perf_counter() - began)
            await send(message)

        await response(scope, receive, counted)
