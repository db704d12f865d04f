"""Handlers that read: sessions and their histories, and the server's own health, figures, document and page."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, replace
from typing import Any, Final

from starlette.responses import Response

from foldline.agent.workers import until_stopped
from foldline.codecs import codec as codec_for
from foldline.doors.http import payloads
from foldline.doors.http.requests import ApiRequest
from foldline.doors.http.responses import Problem, asset_response, assets, dump_json, json_response
from foldline.doors.http.schemas import FoldsJson, HealthJson, HistoryJson, SessionsJson
from foldline.doors.http.state import ServerState
from foldline.errors import FoldlineError, InvalidInput
from foldline.hosting.session_actor import SessionActor, SessionState
from foldline.hosting.turns import TurnRecord, turns_of
from foldline.store.recording import ID
from foldline.store.snapshot import ListedSession

__all__ = [
    "HandlerResult",
    "actor_of",
    "branches",
    "context",
    "document",
    "entry",
    "events",
    "folds",
    "health",
    "history",
    "metrics",
    "page",
    "ready",
    "session",
    "session_events",
    "sessions",
    "static",
    "turns",
]

HandlerResult = Response | Any
"""The result of a handler: an ASGI application that sends the response."""

# Orchestrators usually give up a probe after 1 to 10 s; a later answer comes too late.
_READY_SECONDS: Final = 5.0
_PAGE: Final = "index.html"


async def actor_of(server: ServerState, request: ApiRequest, field: str = "id") -> SessionActor:
    """The actor of the session that a request names by its whole id. Raises Problem (404)."""
    name = request[field]
    try:
        # The store also finds sessions by a prefix of their ids, which is for people at a command line.
        if ID.fullmatch(name) and name.isascii():
            return await server.pool.actor(name)
    except InvalidInput as error:
        if error.place != "session":
            raise
    raise Problem(name="not-found", detail=f"there is no session {name[:80]!r}", field=field)


# --- sessions ---------------------------------------------------------------------------------------------------------


async def sessions(server: ServerState, request: ApiRequest) -> HandlerResult:
    """A page of the list of sessions, the one written last first."""
    found = await server.sessions()
    if request["query"]:
        # Within the list in memory: a search of the texts would read every log.
        wanted = request["query"].casefold()
        found = [one for one in found if wanted in one.id or wanted in _title(one).casefold()]
    if request["after"] is not None:
        # By id and not by number: sessions move to the top as they are used, between two pages.
        at = next((at for at, one in enumerate(found) if one.id == request["after"]), None)
        if at is None:
            raise Problem(name="not-found", detail="is no session of this list (any more)", field="after")
        found = found[at + 1 :]
    page = found[: request["limit"]]
    actors = server.pool.actors
    rows = [payloads.session_row(_newest(one, actors.get(one.id)), actors.get(one.id)) for one in page]
    out: SessionsJson = {"sessions": rows, "next": page[-1].id if len(found) > len(page) else None}
    return json_response(out)


def _newest(one: ListedSession, actor: SessionActor | None) -> ListedSession:
    """The session as it is in memory where that is newer than its stored snapshot: its turn runs, or has just ended."""
    live = None if actor is None else actor.snapshot
    if live is None or one.snapshot is None or live.updated <= one.snapshot.updated:
        return one
    return replace(one, snapshot=live)


def _title(one: ListedSession) -> str:
    return "" if one.snapshot is None else one.snapshot.title


async def session(server: ServerState, request: ApiRequest) -> HandlerResult:
    """One session."""
    actor = await actor_of(server, request)
    return json_response(await actor.inspect(lambda look: payloads.session(look, actor)))


async def context(server: ServerState, request: ApiRequest) -> HandlerResult:
    """The messages that the model is shown now."""
    actor = await actor_of(server, request)
    payload = await actor.inspect(payloads.context)
    # A whole window as JSON takes tens of milliseconds, so a thread does it.
    return Response(await server.read(dump_json, payload), media_type="application/json")


async def history(server: ServerState, request: ApiRequest) -> HandlerResult:
    """A page of the recorded messages."""
    actor, limit = await actor_of(server, request), request["limit"]
    count = await actor.inspect(lambda look: look.tally.messages)
    last = count if request["before"] is None else min(request["before"], count)
    # If both are set, `after` decides where the page starts, and `before` where it ends at the latest.
    if request["after"] is not None or request["before"] is None:
        start = min(0 if request["after"] is None else request["after"] + 1, last)
        stop = min(last, start + limit)
    else:
        start, stop = max(0, last - limit), last
    # The actor alone knows what the model sees; the log can be read meanwhile, in a thread.
    visible = await actor.inspect(lambda look: _visible(look, start, stop))

    def read() -> bytes:
        codec = codec_for(visible.dialect)
        found = server.pool.store.messages(actor.id, start=start, stop=stop)
        page = [payloads.entry(record, codec, visible.states) for record in found]
        out: HistoryJson = {"messages": page, "first": start, "next": stop if stop < count else None}
        return dump_json(out)

    return Response(await server.read(read), media_type="application/json")


@dataclass(frozen=True, slots=True)
class _VisiblePage:
    """The messages of a page as the model sees them now. It comes from the actor, before the store is read."""

    dialect: str
    states: dict[int, payloads.Visibility]


def _visible(look: SessionState, start: int, stop: int) -> _VisiblePage:
    view = look.context.view
    return _VisiblePage(look.header.dialect, {seq: payloads.visibility(view, seq) for seq in range(start, stop)})


async def entry(server: ServerState, request: ApiRequest) -> HandlerResult:
    """One message in full, and every fold over it."""
    actor, seq = await actor_of(server, request), request["seq"]
    visible = await actor.inspect(lambda look: _visible(look, seq, seq + 1))

    def read() -> bytes | None:
        codec, store = codec_for(visible.dialect), server.pool.store
        found = store.messages(actor.id, start=seq, stop=seq + 1)
        if not found:
            return None
        # Undone folds count too: they say what an earlier request showed instead.
        folds = payloads.folds_of(until_stopped(store.records(actor.id)), codec)
        covering = [payloads.fold(one, in_effect=now) for one, now in folds if one.start <= seq < one.stop]
        return dump_json(payloads.entry(found[0], codec, visible.states, covering))

    text = await server.read(read)
    if text is None:
        raise Problem(name="not-found", detail=f"there is no message {seq}", field="seq")
    return Response(text, media_type="application/json")


async def folds(server: ServerState, request: ApiRequest) -> HandlerResult:
    """The folds in effect."""
    actor = await actor_of(server, request)
    dialect = await actor.inspect(lambda look: look.header.dialect)

    def read() -> bytes:
        found = payloads.folds_of(until_stopped(server.pool.store.records(actor.id)), codec_for(dialect))
        out: FoldsJson = {"folds": [payloads.fold(one) for one, in_effect in found if in_effect]}
        return dump_json(out)

    return Response(await server.read(read), media_type="application/json")


async def branches(server: ServerState, request: ApiRequest) -> HandlerResult:
    """The branches that the session has left."""
    actor = await actor_of(server, request)

    whole = await actor.whole()

    def read() -> bytes:
        records = until_stopped(server.pool.store.records(actor.id))
        return dump_json(payloads.branches(whole, [one for one in records if one.get("type") == "branch"]))

    return Response(await server.read(read), media_type="application/json")


async def turns(server: ServerState, request: ApiRequest) -> HandlerResult:
    """The newest turns."""
    actor = await actor_of(server, request)

    def read() -> list[TurnRecord]:
        records = until_stopped(server.pool.store.records(actor.id))
        # A deque keeps the newest only, so that memory does not grow with the log.
        return list(deque(turns_of(records), maxlen=request["limit"]))

    return json_response({"turns": [payloads.turn_row(one) for one in await server.read(read)]})


async def session_events(server: ServerState, request: ApiRequest) -> HandlerResult:
    """The events of one session, as they happen."""
    actor = await actor_of(server, request)
    server.check_stream_count()
    return server.broadcast.follow(actor.id)


# --- the server itself ------------------------------------------------------------------------------------------------


async def events(server: ServerState, request: ApiRequest) -> HandlerResult:
    """The events of all sessions, as they happen."""
    del request
    server.check_stream_count()
    return server.broadcast.follow(None)


async def health(server: ServerState, request: ApiRequest) -> HandlerResult:
    """Whether the process is well: 503 once it stops."""
    del request
    out: HealthJson = {"status": "stopping" if server.stopping else "ok", "version": server.version}
    return json_response(out, 503 if server.stopping else 200)


async def ready(server: ServerState, request: ApiRequest) -> HandlerResult:
    """Whether sessions can be reached. It needs no token, so neither answer says where they are."""
    del request
    try:
        async with asyncio.timeout(_READY_SECONDS):
            await server.read_quickly(server.pool.store.session_of, "ready")
    except TimeoutError:  # an OSError too, but with a problem of its own
        raise
    except (FoldlineError, OSError):
        raise Problem(name="store", detail="the sessions cannot be reached now") from None
    return json_response({"status": "ready"})


async def metrics(server: ServerState, request: ApiRequest) -> HandlerResult:
    """The figures for Prometheus."""
    del request
    return Response(server.metrics.text(), media_type="text/plain; version=0.0.4")


async def document(server: ServerState, request: ApiRequest) -> HandlerResult:
    """The OpenAPI document."""
    del request
    return json_response(server.document)


async def page(server: ServerState, request: ApiRequest) -> HandlerResult:
    """The page."""
    return _file(server, request, _PAGE)


async def static(server: ServerState, request: ApiRequest) -> HandlerResult:
    """A file of the page."""
    return _file(server, request, request["name"])


def _file(server: ServerState, request: ApiRequest, name: str) -> Response:
    found = assets("foldline.doors.http", "page").get(name) if server.page else None
    # Looked up in a fixed table, never on disk, so that no name leads out of the folder.
    if found is None:
        raise Problem(name="not-found", detail=f"there is no file {name[:80]!r} here", field="name")
    return asset_response(found, request.request)
