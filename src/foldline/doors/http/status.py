"""Handlers that ask of the server itself: whether it is well, its figures, its document, its page, its events."""

from __future__ import annotations

import asyncio
from typing import Final

from starlette.responses import Response

from foldline.doors.http.assets import asset_answer, assets
from foldline.doors.http.bodies import Call
from foldline.doors.http.problems import Problem
from foldline.doors.http.queries import Handled, actor_of, as_response
from foldline.doors.http.state import Door
from foldline.errors import FoldlineError

__all__ = ["document", "events", "events_of", "health", "metrics", "page", "ready", "static"]

_READY_SECONDS: Final = 5.0
_PAGE: Final = "index.html"


async def health(door: Door, call: Call) -> Handled:
    """Whether the process is well: 503 once it stops."""
    del call
    status = "stopping" if door.stopping else "ok"
    return as_response({"status": status, "version": door.version}, 503 if door.stopping else 200)


async def ready(door: Door, call: Call) -> Handled:
    """Whether sessions can be reached. It needs no token, so neither answer says where they are."""
    del call
    try:
        async with asyncio.timeout(_READY_SECONDS):
            await door.glance(door.actors.store.bound, "ready")
    except TimeoutError:
        raise
    except (FoldlineError, OSError):
        raise Problem(name="store", detail="the sessions cannot be reached now") from None
    return as_response({"status": "ready"})


async def metrics(door: Door, call: Call) -> Handled:
    """The figures for Prometheus."""
    del call
    return Response(door.metrics.text(), media_type="text/plain; version=0.0.4")


async def events(door: Door, call: Call) -> Handled:
    """The events of all sessions, as they happen."""
    del call
    door.stream_more()
    return door.broadcast.follow(None)


async def events_of(door: Door, call: Call) -> Handled:
    """The events of one session, as they happen."""
    actor = await actor_of(door, call)
    door.stream_more()
    return door.broadcast.follow(actor.id)


# --- the page ---------------------------------------------------------------------------------------------------------


async def page(door: Door, call: Call) -> Handled:
    """The page."""
    return _file(door, call, _PAGE)


async def static(door: Door, call: Call) -> Handled:
    """A file of the page."""
    return _file(door, call, call["name"])


def _file(door: Door, call: Call, name: str) -> Response:
    found = assets("foldline.doors.http", "page").get(name) if door.page else None
    if found is None:
        raise Problem(name="not-found", detail=f"there is no file {name[:80]!r} here", field="name")
    return asset_answer(found, call.request)


async def document(door: Door, call: Call) -> Handled:
    """The OpenAPI document."""
    return as_response(door.document)
