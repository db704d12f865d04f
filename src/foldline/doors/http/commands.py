"""Handlers that change something: sessions begin and end, turns run, folds are made and undone."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from contextlib import suppress
from typing import TypeVar

from starlette.responses import Response

from foldline.agent.events import Accepted, AgentEvent, ReplyFinished, TurnEnded, as_json
from foldline.doors.http import payloads
from foldline.doors.http.queries import HandlerResult, actor_of
from foldline.doors.http.requests import ApiRequest
from foldline.doors.http.responses import Problem, json_response, problem_of
from foldline.doors.http.schemas import TurnJson
from foldline.doors.http.state import ServerState
from foldline.doors.http.streams import EventStream, Outbox, encode_event, wait_for_disconnect
from foldline.engine.window_usage import WindowUsage
from foldline.errors import FoldlineError, InvalidInput
from foldline.hosting.session_actor import SessionActor

__all__ = ["cancel", "compact", "create", "delete", "fold", "go_back", "pin", "policy", "rewind", "say", "undo"]

T = TypeVar("T")


async def create(server: ServerState, request: ApiRequest) -> HandlerResult:
    """Begin a session."""
    source = None if request["from"] is None else (await actor_of(server, request, "from")).id
    actor = await server.pool.create(policy=request["policy"], title=request["title"], source=source)
    server.expire_sessions()  # before the answer, so that the client's next list has the session
    payload = await actor.inspect(lambda look: payloads.session(look, actor))
    return json_response(payload, 201, Location=f"/v1/sessions/{actor.id}")


async def delete(server: ServerState, request: ApiRequest) -> HandlerResult:
    """Remove a session."""
    actor = await actor_of(server, request)
    await server.pool.delete(actor.id)
    server.expire_sessions()
    # After the deletion: followers must not see an end that did not happen.
    server.broadcast.end_session(actor.id)
    return Response(status_code=204)


async def compact(server: ServerState, request: ApiRequest) -> HandlerResult:
    """Compact a session."""
    actor = await actor_of(server, request)
    # None: the client has disconnected, and nobody reads the response.
    done = await _while_connected(request, actor.compact(request["instructions"] or None))
    return json_response({} if done is None else payloads.compacted(done))


async def fold(server: ServerState, request: ApiRequest) -> HandlerResult:
    """Fold a stretch of messages that somebody chose."""
    actor = await actor_of(server, request)
    first, last = request["first"], request["first"] if request["last"] is None else request["last"]
    count = await actor.inspect(lambda look: look.tally.messages)
    if not first <= last < count:
        detail = f"messages {first} to {last} are not there; they are 0 to {count - 1}"
        raise Problem(name="not-found", detail=detail, field="last" if first < count else "first")
    ranges = ((first, last + 1),)
    done = await _while_connected(request, actor.compact(request["instructions"] or None, ranges))
    return json_response({} if done is None else payloads.compacted(done))


async def rewind(server: ServerState, request: ApiRequest) -> HandlerResult:
    """Go back to before a message; the session goes on from there as a branch."""
    actor = await actor_of(server, request)
    try:
        left = await actor.rewind(request["seq"])
    except InvalidInput as error:
        if error.place != "rewind":
            raise
        raise Problem(name="not-found", detail=error.reason, field="seq") from None
    return json_response({"left": left})


async def go_back(server: ServerState, request: ApiRequest) -> HandlerResult:
    """Go back to a branch that was left; what was sent until now is left then."""
    actor = await actor_of(server, request)
    try:
        back = await actor.go_back(request["tip"])
    except InvalidInput as error:
        if error.place != "branch":
            raise
        raise Problem(name="not-found", detail=error.reason, field="tip") from None
    return json_response({"back": back})


async def undo(server: ServerState, request: ApiRequest) -> HandlerResult:
    """Take back the last batch of folds."""
    actor = await actor_of(server, request)
    return json_response({"unfolded": [one.fold for one in await actor.undo()]})


async def pin(server: ServerState, request: ApiRequest) -> HandlerResult:
    """Keep a message whole, or no longer."""
    actor = await actor_of(server, request)
    try:
        await actor.pin(request["seq"], pinned=request["pinned"])
    # The field is valid, but there is no such message: 404, not the 400 of other invalid input.
    except InvalidInput as error:
        if error.place != "seq":
            raise
        raise Problem(name="not-found", detail=f"there is no message {request['seq']}", field="seq") from None
    return json_response({"seq": request["seq"], "pinned": request["pinned"]})


async def policy(server: ServerState, request: ApiRequest) -> HandlerResult:
    """Fold a session by another policy from here on."""
    actor = await actor_of(server, request)
    await actor.use_policy(request["policy"])
    return json_response(await actor.inspect(lambda look: payloads.session(look, actor)))


async def cancel(server: ServerState, request: ApiRequest) -> HandlerResult:
    """Stop the turn that runs."""
    actor = await actor_of(server, request)
    return json_response({"cancelled": actor.cancel()})


# --- turns ------------------------------------------------------------------------------------------------------------


async def say(server: ServerState, request: ApiRequest) -> HandlerResult:
    """Run one turn. Answers with its events, or with how it ended."""
    actor = await actor_of(server, request)
    streams = request["stream"] or "text/event-stream" in request.request.headers.get("accept", "")
    if not streams:
        running = _RunningTurn(actor, request, None)
        ended = await _while_connected(request, running.run())
        return json_response({} if ended is None else ended)
    # Before the turn starts: a refusal afterwards would leave a turn without a reader.
    server.check_stream_count()
    outbox = Outbox()
    running = _RunningTurn(actor, request, outbox)
    turn = asyncio.create_task(running.run())
    accepted = asyncio.create_task(running.accepted.wait())
    gone = asyncio.create_task(wait_for_disconnect(request.request.receive))
    # The status line waits until the turn is accepted: a full queue or a wrong key is still a problem response then.
    try:
        await asyncio.wait({turn, accepted, gone}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        accepted.cancel()
        gone.cancel()
        await asyncio.gather(accepted, gone, return_exceptions=True)
        if not running.accepted.is_set() and not turn.done():
            turn.cancel()
            await asyncio.gather(turn, return_exceptions=True)
    if turn.done() and not running.accepted.is_set():
        if turn.cancelled():  # the client has disconnected, so nobody reads this
            return Response(status_code=204)
        running.replay_accepted(turn.result())
    # Counted from here, not from the first byte: a client that connects and never reads takes a stream too.
    server.turn_streams += 1
    # Also called for a turn that has ended already, in the next round of the loop.
    turn.add_done_callback(lambda _: _end_stream(turn, outbox))

    def closed() -> None:
        server.turn_streams -= 1
        # It ends the request, not the turn itself: `session.on_disconnect` decides whether that goes on.
        turn.cancel()

    return EventStream(outbox, closed)


class _RunningTurn:
    """A turn on behalf of a client. Its events go to the outbox, if there is one."""

    def __init__(self, actor: SessionActor, request: ApiRequest, outbox: Outbox | None) -> None:
        self._actor, self._request, self._outbox = actor, request, outbox
        self._figures: WindowUsage | None = None
        self._seq: int | None = None
        self.accepted = asyncio.Event()

    async def run(self) -> TurnJson:
        """Run the turn and return how it ended. Raises what `SessionActor.run_turn` raises."""
        key = self._request["Idempotency-Key"] or ""
        # `same_text`: a key that is used for another text is a mistake of the client, which must not pass for a repeat.
        ended = await self._actor.run_turn(self._request["text"], key=key, same_text=True, listener=self._on_event)
        # A turn that had run before under this key brings no events, so its figures come from the session.
        if self._seq is None or self._figures is None:
            with suppress(FoldlineError, OSError):  # stopping or deleted: the end of the turn is reported all the same
                seq, self._figures = await self._actor.inspect(
                    lambda look: (look.tally.keys.get(key), look.context.figures)
                )
                self._seq = seq if self._seq is None else self._seq
        return payloads.turn(ended, self._actor.id, self._seq, self._figures)

    def replay_accepted(self, turn: TurnJson) -> None:
        """Send `accepted` for a turn that had run before: each stream begins with it."""
        if self._outbox is not None:
            self._outbox.append(encode_event("accepted", {"event": "accepted", "seq": turn["seq"]}))

    def _on_event(self, event: AgentEvent) -> None:
        if isinstance(event, Accepted):
            self._seq = event.seq
        elif isinstance(event, ReplyFinished):
            self._figures = event.figures
        if self._outbox is not None and not isinstance(event, TurnEnded):  # `_end_stream` sends that with figures
            payload = as_json(event)
            self._outbox.append(encode_event(payload["event"], payload))
        if isinstance(event, Accepted):
            self.accepted.set()


def _end_stream(turn: asyncio.Task[TurnJson], outbox: Outbox) -> None:
    """Send the last event of a turn's stream."""
    if turn.cancelled():
        outbox.end()
    elif (error := turn.exception()) is None:
        outbox.append(encode_event("turn_ended", {"event": "turn_ended", **turn.result()}), last=True)
    else:
        problem = problem_of(error) or Problem(name="internal", detail="the turn broke off")
        outbox.append(encode_event("error", {"event": "error", **problem.as_json()}), last=True)


async def _while_connected(request: ApiRequest, work: Awaitable[T]) -> T | None:
    """The result of `work`; None, and `work` is cancelled, when the client disconnects first."""
    # Nobody reads the result any more, so the turn should not cost its user further model calls.
    task = asyncio.ensure_future(work)
    gone = asyncio.create_task(wait_for_disconnect(request.request.receive))
    try:
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        gone.cancel()
        if not task.done():
            task.cancel()
        await asyncio.gather(gone, task, return_exceptions=True)
    return None if task.cancelled() else task.result()
