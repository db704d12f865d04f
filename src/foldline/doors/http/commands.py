"""Handlers that do something: begin and delete sessions, say, compact, undo, pin, use another policy, cancel."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from contextlib import suppress
from typing import TypeVar

from starlette.responses import Response

from foldline.agent.events import Accepted, AgentEvent, ReplyFinished, TurnEnded, as_json
from foldline.doors.http import shapes
from foldline.doors.http.bodies import Call
from foldline.doors.http.problems import Problem, problem_of
from foldline.doors.http.queries import Handled, actor_of, as_response
from foldline.doors.http.state import Door
from foldline.doors.http.streams import EventStream, Outbox, encoded, left
from foldline.engine.window_usage import Figures
from foldline.errors import FoldlineError, InvalidInput
from foldline.hosting.session_actor import SessionActor
from foldline.messages import Json

__all__ = ["cancel", "compact", "create", "delete", "pin", "policy", "say", "undo"]

T = TypeVar("T")


async def create(door: Door, call: Call) -> Handled:
    """A new session."""
    source = None if call["from"] is None else (await actor_of(door, call, "from")).id
    made = await door.actors.create(policy=call["policy"], title=call["title"], source=source)
    door.changed()
    plain = await made.look(lambda look: shapes.session(look, made))
    return as_response(plain, 201, Location=f"/v1/sessions/{made.id}")


async def delete(door: Door, call: Call) -> Handled:
    """A session is removed."""
    actor = await actor_of(door, call)
    await door.actors.delete(actor.id)
    door.changed()
    door.broadcast.over(actor.id)
    return Response(status_code=204)


async def compact(door: Door, call: Call) -> Handled:
    """A session is compacted."""
    actor = await actor_of(door, call)
    done = await _unless_left(call, actor.compact(call["instructions"] or None))
    return as_response({} if done is None else shapes.compacted(done))


async def undo(door: Door, call: Call) -> Handled:
    """The last batch of folds is taken back."""
    actor = await actor_of(door, call)
    return as_response({"unfolded": [one.fold for one in await actor.undo()]})


async def pin(door: Door, call: Call) -> Handled:
    """A message is kept whole, or no longer."""
    actor = await actor_of(door, call)
    try:
        await actor.pin(call["seq"], pinned=call["pinned"])
    except InvalidInput as error:
        if error.place != "seq":
            raise
        raise Problem(name="not-found", detail=f"there is no message {call['seq']}", field="seq") from None
    return as_response({"seq": call["seq"], "pinned": call["pinned"]})


async def policy(door: Door, call: Call) -> Handled:
    """A session goes on under another policy."""
    actor = await actor_of(door, call)
    await actor.use_policy(call["policy"])
    return as_response(await actor.look(lambda look: shapes.session(look, actor)))


async def cancel(door: Door, call: Call) -> Handled:
    """The turn that runs is stopped."""
    actor = await actor_of(door, call)
    return as_response({"cancelled": actor.cancel()})


# --- saying -----------------------------------------------------------------------------------------------------------


async def say(door: Door, call: Call) -> Handled:
    """One turn: its events, or how it ended."""
    actor = await actor_of(door, call)
    streams = call["stream"] or "text/event-stream" in call.request.headers.get("accept", "")
    if not streams:
        saying = _Saying(actor, call, None)
        ended = await _unless_left(call, saying.turn())
        return as_response({} if ended is None else ended)
    door.stream_more()
    outbox = Outbox()
    saying = _Saying(actor, call, outbox)
    turn = asyncio.create_task(saying.turn())
    begun = asyncio.create_task(saying.accepted.wait())
    gone = asyncio.create_task(left(call.request.receive))
    try:
        await asyncio.wait({turn, begun, gone}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        begun.cancel()
        gone.cancel()
        await asyncio.gather(begun, gone, return_exceptions=True)
        if not saying.accepted.is_set() and not turn.done():
            turn.cancel()
            await asyncio.gather(turn, return_exceptions=True)
    if turn.done() and not saying.accepted.is_set():
        if turn.cancelled():  # the client has left
            return Response(status_code=204)
        saying.repeated(turn.result())
    door.turn_streams += 1
    turn.add_done_callback(lambda _: _last(turn, outbox))

    def closed() -> None:
        door.turn_streams -= 1
        turn.cancel()

    return EventStream(outbox, closed)


class _Saying:
    """One turn that a client asked for. Its events go to the outbox, if there is one."""

    def __init__(self, actor: SessionActor, call: Call, outbox: Outbox | None) -> None:
        self._actor, self._call, self._outbox = actor, call, outbox
        self._figures: Figures | None = None
        self._seq: int | None = None
        self.accepted = asyncio.Event()

    async def turn(self) -> dict[str, Json]:
        """How it ended. Raises what `SessionActor.say` raises."""
        key = self._call["Idempotency-Key"] or ""
        ended = await self._actor.say(self._call["text"], key=key, same_text=True, listener=self._hear)
        if self._seq is None or self._figures is None:
            with suppress(FoldlineError, OSError):  # it stops, or was deleted: how the turn ended is told all the same
                seq, self._figures = await self._actor.look(
                    lambda look: (look.tally.keys.get(key), look.context.figures)
                )
                self._seq = seq if self._seq is None else self._seq  # it was asked for before
        return shapes.turn(ended, self._actor.id, self._seq, self._figures)

    def repeated(self, turn: dict[str, Json]) -> None:
        """Tell of a turn that ran before as of one that was accepted."""
        if self._outbox is not None:
            self._outbox.put(encoded("accepted", {"event": "accepted", "seq": turn["seq"]}))

    def _hear(self, event: AgentEvent) -> None:
        if isinstance(event, Accepted):
            self._seq = event.seq
        elif isinstance(event, ReplyFinished):
            self._figures = event.figures
        if self._outbox is not None and not isinstance(event, TurnEnded):  # its end is told with its figures
            plain = as_json(event)
            self._outbox.put(encoded(plain["event"], plain))
        if isinstance(event, Accepted):
            self.accepted.set()


def _last(turn: asyncio.Task[dict[str, Json]], outbox: Outbox) -> None:
    """The last event of a turn's stream."""
    if turn.cancelled():
        outbox.end()
    elif (error := turn.exception()) is None:
        outbox.put(encoded("turn_ended", {"event": "turn_ended", **turn.result()}), last=True)
    else:
        problem = problem_of(error) or Problem(name="internal", detail="the turn broke off")
        outbox.put(encoded("error", {"event": "error", **problem.plain()}), last=True)


async def _unless_left(call: Call, work: Awaitable[T]) -> T | None:
    """The result; None when the client left before it was there, and nobody waits for it any more."""
    task = asyncio.ensure_future(work)
    gone = asyncio.create_task(left(call.request.receive))
    try:
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        gone.cancel()
        if not task.done():
            task.cancel()
        await asyncio.gather(gone, task, return_exceptions=True)
    return None if task.cancelled() else task.result()
