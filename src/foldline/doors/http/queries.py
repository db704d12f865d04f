"""Handlers that look: sessions, what a model is shown, everything that was said, folds, turns."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import Any

from starlette.responses import Response

from foldline.agent.workers import while_wanted
from foldline.codecs import codec as codec_for
from foldline.doors.http import shapes
from foldline.doors.http.bodies import Call
from foldline.doors.http.json_output import dumped
from foldline.doors.http.problems import Problem
from foldline.doors.http.state import Door
from foldline.errors import InvalidInput
from foldline.hosting.session_actor import SessionActor, SessionState
from foldline.hosting.turns import TurnRecord, turns_of
from foldline.messages import Json
from foldline.store.recording import ID
from foldline.store.snapshot import Listed

__all__ = ["Handled", "actor_of", "as_response", "context", "entry", "folds", "history", "row", "sessions", "turns"]

Handled = Response | Any
"""What a handler returns: an ASGI application that answers."""


def as_response(value: Json, status: int = 200, **headers: str) -> Response:
    """An answer in JSON."""
    named = {name.replace("_", "-"): text for name, text in headers.items()}
    return Response(dumped(value), status, headers=named, media_type="application/json")


async def actor_of(door: Door, call: Call, field: str = "id") -> SessionActor:
    """The session that a request names, by its whole id. Raises Problem (404)."""
    name = call[field]
    try:
        if ID.fullmatch(name) and name.isascii():
            return await door.actors.actor(name)
    except InvalidInput as error:
        if error.place != "session":
            raise
    raise Problem(name="not-found", detail=f"there is no session {name[:80]!r}", field=field)


async def sessions(door: Door, call: Call) -> Handled:
    """The sessions, the one written last first."""
    found = await door.sessions()
    if call["query"]:
        wanted = call["query"].casefold()
        found = [one for one in found if wanted in one.id or wanted in _title(one).casefold()]
    if call["after"] is not None:
        at = next((at for at, one in enumerate(found) if one.id == call["after"]), None)
        if at is None:
            raise Problem(name="not-found", detail="is no session of this list (any more)", field="after")
        found = found[at + 1 :]
    page = found[: call["limit"]]
    known = door.actors.known
    rows = [shapes.row(_as_it_stands(one, known.get(one.id)), known.get(one.id)) for one in page]
    return as_response({"sessions": rows, "next": page[-1].id if len(found) > len(page) else None})


def _as_it_stands(one: Listed, actor: SessionActor | None) -> Listed:
    """The session as it is in memory, where that is newer than what is kept of it: its turn has just ended, or runs."""
    live = None if actor is None else actor.snapshot
    if live is None or one.snapshot is None or live.updated <= one.snapshot.updated:
        return one
    return replace(one, snapshot=live)


def _title(one: Listed) -> str:
    return "" if one.snapshot is None else one.snapshot.title


async def row(door: Door, call: Call) -> Handled:
    """One session."""
    actor = await actor_of(door, call)
    return as_response(await actor.look(lambda look: shapes.session(look, actor)))


async def context(door: Door, call: Call) -> Handled:
    """What the model is shown now."""
    actor = await actor_of(door, call)
    plain = await actor.look(shapes.context)
    return Response(await door.read(dumped, plain), media_type="application/json")


async def history(door: Door, call: Call) -> Handled:
    """A page of everything that was said."""
    actor, limit = await actor_of(door, call), call["limit"]
    count = await actor.look(lambda look: look.tally.messages)
    last = count if call["before"] is None else min(call["before"], count)
    if call["after"] is not None or call["before"] is None:
        start = min(0 if call["after"] is None else call["after"] + 1, last)
        stop = min(last, start + limit)
    else:
        start, stop = max(0, last - limit), last
    shown = await actor.look(lambda look: _shown(look, start, stop))

    def read() -> bytes:
        codec = codec_for(shown.dialect)
        found = door.actors.store.messages(actor.id, start=start, stop=stop)
        page = [shapes.entry(record, codec, shown.states) for record in found]
        return dumped({"messages": page, "first": start, "next": stop if stop < count else None})

    return Response(await door.read(read), media_type="application/json")


class _Page:
    """What became of the messages of a page."""

    def __init__(self, dialect: str, states: dict[int, shapes.Shown]) -> None:
        self.dialect, self.states = dialect, states


def _shown(look: SessionState, start: int, stop: int) -> _Page:
    view = look.context.view
    return _Page(look.header.dialect, {seq: shapes.shown_as(view, seq) for seq in range(start, stop)})


async def entry(door: Door, call: Call) -> Handled:
    """One message whole, and why it is not shown as it was."""
    actor, seq = await actor_of(door, call), call["seq"]
    shown = await actor.look(lambda look: _shown(look, seq, seq + 1))

    def read() -> bytes | None:
        codec, store = codec_for(shown.dialect), door.actors.store
        found = store.messages(actor.id, start=seq, stop=seq + 1)
        if not found:
            return None
        folds = shapes.folds_of(while_wanted(store.records(actor.id)), codec)
        covering = [shapes.fold(one, in_effect=now) for one, now in folds if one.start <= seq < one.stop]
        return dumped({**shapes.entry(found[0], codec, shown.states, whole=True), "folds": covering})

    text = await door.read(read)
    if text is None:
        raise Problem(name="not-found", detail=f"there is no message {seq}", field="seq")
    return Response(text, media_type="application/json")


async def folds(door: Door, call: Call) -> Handled:
    """The folds in effect."""
    actor = await actor_of(door, call)
    dialect = await actor.look(lambda look: look.header.dialect)

    def read() -> bytes:
        found = shapes.folds_of(while_wanted(door.actors.store.records(actor.id)), codec_for(dialect))
        return dumped({"folds": [shapes.fold(one) for one, in_effect in found if in_effect]})

    return Response(await door.read(read), media_type="application/json")


async def turns(door: Door, call: Call) -> Handled:
    """The newest turns."""
    actor = await actor_of(door, call)

    def read() -> list[TurnRecord]:
        return list(deque(turns_of(while_wanted(door.actors.store.records(actor.id))), maxlen=call["limit"]))

    return as_response({"turns": [shapes.turn_row(one) for one in await door.read(read)]})
