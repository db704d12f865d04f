"""Handlers that ask of the server itself: whether it is well, its figures, its document, its page, its events."""

from __future__ import annotations

import asyncio
import hashlib
from functools import cache
from importlib.resources import files
from typing import Final

from starlette.responses import Response

from foldline.errors import FoldlineError
from foldline.interfaces.serving.bodies import Call
from foldline.interfaces.serving.door import Door
from foldline.interfaces.serving.looking import Handled, actor_of, as_response
from foldline.interfaces.serving.problems import Problem

__all__ = ["document", "events", "events_of", "health", "metrics", "page", "ready", "static"]

_READY_SECONDS: Final = 5.0
_PAGE: Final = "index.html"
_TYPES: Final = {
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "svg": "image/svg+xml",
    "png": "image/png",
    "ico": "image/vnd.microsoft.icon",
}


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
            await door.read(door.actors.store.bound, "ready")
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
    found = _files().get(name) if door.page else None
    if found is None:
        raise Problem(name="not-found", detail=f"there is no file {name[:80]!r} here", field="name")
    data, media_type, tag = found
    headers = {"ETag": tag, "Cache-Control": "no-cache"}
    if tag in [one.strip().removeprefix("W/") for one in call.request.headers.get("if-none-match", "").split(",")]:
        return Response(status_code=304, headers=headers)
    return Response(data, headers=headers, media_type=media_type)


@cache
def _files() -> dict[str, tuple[bytes, str, str]]:
    """The files of the page with their media types and tags, read once; no others can be asked for."""
    found = {}
    for one in (files("foldline.interfaces.serving") / "page").iterdir():
        media_type = _TYPES.get(one.name.rpartition(".")[2])
        if media_type is not None and one.is_file():
            data = one.read_bytes()
            found[one.name] = data, media_type, f'"{hashlib.sha256(data).hexdigest()[:32]}"'
    return found


async def document(door: Door, call: Call) -> Handled:
    """The OpenAPI document."""
    return as_response(door.document)
