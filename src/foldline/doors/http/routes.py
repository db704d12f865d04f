"""Every route of the server in one table: its fields, handler and answer. Dispatch and document are made from it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from foldline.doors.http import commands, queries, schemas
from foldline.doors.http.requests import ApiRequest, RequestField, RequestFields
from foldline.doors.http.state import ServerState
from foldline.engine.presets import policy_names
from foldline.messages import Json

__all__ = ["ROUTES", "Route"]

# Something other than white space, and no NUL, which neither PostgreSQL nor a file name can hold.
_SOME_TEXT: Final = "^[^\\u0000]*\\S[^\\u0000]*$"
_NEWEST: Final = 2**31 - 1  # what an INTEGER of a database holds
_POLICY: Final = "How the context is folded from here on."

_ID = RequestField(name="id", about="The id of a session.", least=1, most=64, example="20260301-093000-0a1b2c3d")
_SEQ = RequestField(name="seq", kind="whole", about="The number of a message, from 0.", most=_NEWEST, example=0)
_KEY = RequestField(
    name="Idempotency-Key",
    about="The client's own name for this turn: sent again, the turn does not run twice.",
    least=1,
    most=200,
    pattern="^[!-~]+$",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """One operation of the server.

    `answer` is the type of the JSON that comes with `status` (None: no JSON). `problems` are further statuses of
    refusals, in addition to those of every route. `heavy` routes may take as long as a turn. `free` ones need no token.
    """

    method: str
    path: str
    name: str
    about: str
    handle: Callable[[ServerState, ApiRequest], Awaitable[Any]]
    fields: RequestFields = field(default_factory=RequestFields)
    answer: Any
    status: int = 200
    media_type: str = "application/json"
    streams: bool = False
    problems: Sequence[int] = ()
    heavy: bool = False
    free: bool = False


def _of_session(
    method: str,
    rest: str,
    name: str,
    about: str,
    handle: Callable[[ServerState, ApiRequest], Awaitable[Any]],
    **more: Any,
) -> Route:
    """A route of one session, which may be missing (404), unreadable or open in another process (409)."""
    more["fields"] = RequestFields(path=(_ID, *more.pop("path", ())), **more.pop("parts", {}))
    more["problems"] = (404, 409, *more.pop("problems", ()))
    return Route(method=method, path=f"/v1/sessions/{{id}}{rest}", name=name, about=about, handle=handle, **more)


def _whole(name: str, about: str, default: int | None, least: int, most: int) -> RequestField:
    return RequestField(name=name, kind="whole", about=about, default=default, least=least, most=most)


_CREATE = RequestFields(
    body=(
        RequestField(name="policy", about=_POLICY, choices=policy_names()),
        RequestField(
            name="title", about="What it is called in lists; by default its first words.", default="", most=200
        ),
        RequestField(
            name="from", about="A session: the new one begins with what its model is shown.", least=1, most=64
        ),
    )
)
_LIST = RequestFields(
    query=(
        _whole("limit", "How many at most.", 50, 1, 500),
        RequestField(name="after", about="The id that the page before ended with (`next`).", least=1, most=64),
        RequestField(name="query", about="Only those with this in their title or id.", most=200),
    )
)
_SAY: Mapping[str, Any] = {
    "headers": (_KEY,),
    "body": (
        RequestField(
            name="text", about="What the user says.", required=True, least=1, pattern=_SOME_TEXT, example="Hello"
        ),
        RequestField(name="stream", kind="flag", about="Answer with events; so does Accept.", default=False),
    ),
}
_HISTORY: Mapping[str, Any] = {
    "query": (
        _whole("after", "Messages after this one; -1 (or neither) from the first on.", None, -1, _NEWEST),
        _whole("before", "Messages before this one; the newest of them, unless after is given.", None, 0, _NEWEST),
        _whole("limit", "How many at most.", 100, 1, 500),
    )
}
_COMPACT = (RequestField(name="instructions", about="What the summary should keep.", default="", most=10_000),)
_FOLD = (
    RequestField(name="first", kind="whole", about="The first message to fold.", required=True, most=_NEWEST),
    _whole("last", "The last one; by default the first alone.", None, 0, _NEWEST),
    *_COMPACT,
)
_REWIND = (RequestField(name="seq", kind="whole", about="The first message to leave.", required=True, most=_NEWEST),)
_RETURN = (RequestField(name="tip", kind="whole", about="The last of the branch.", required=True, most=_NEWEST),)
_PIN = (
    RequestField(name="seq", kind="whole", about="The message to keep.", required=True, most=_NEWEST),
    RequestField(name="pinned", kind="flag", about="false lets it be folded again.", default=True),
)
_USE = (RequestField(name="policy", about=_POLICY, required=True, choices=policy_names()),)
_NAME = RequestField(name="name", about="A file of the page.", least=1, most=64, example="page.js")

ROUTES: Final[tuple[Route, ...]] = (
    Route(method="POST", path="/v1/sessions", name="create_session", about="Begin a session.", handle=commands.create,
          fields=_CREATE, answer=schemas.SessionJson, status=201, problems=(404, 409)),
    Route(method="GET", path="/v1/sessions", name="list_sessions", about="List sessions, the one written last first.",
          handle=queries.sessions, fields=_LIST, answer=schemas.SessionsJson, problems=(404,)),
    _of_session("GET", "", "get_session", "One session: its window, usage and folds.", queries.session,
                answer=schemas.SessionJson),
    _of_session("DELETE", "", "delete_session", "Remove a session and all that belongs to it.", commands.delete,
                answer=None, status=204),
    _of_session("POST", "/messages", "say", "Say something: one turn, after those that wait.", commands.say,
                answer=schemas.TurnJson, streams=True, heavy=True, parts=_SAY, problems=(422, 502)),
    _of_session("GET", "/context", "get_context", "What the model is shown now, with tokens of each part.",
                queries.context, answer=schemas.ContextJson),
    _of_session("GET", "/history", "get_history", "A page of everything that was said.", queries.history,
                answer=schemas.HistoryJson, parts=_HISTORY),
    _of_session("GET", "/history/{seq}", "get_message", "One message whole, with every fold over it.", queries.entry,
                answer=schemas.WholeEntryJson, path=(_SEQ,)),
    _of_session("GET", "/folds", "get_folds", "The folds in effect, oldest first.", queries.folds,
                answer=schemas.FoldsJson),
    _of_session("GET", "/turns", "get_turns", "The newest turns, oldest of them first.", queries.turns,
                answer=schemas.TurnsJson, parts={"query": (_whole("limit", "How many at most.", 200, 1, 2_000),)}),
    _of_session("POST", "/compact", "compact", "Fold everything that may be folded.", commands.compact, heavy=True,
                answer=schemas.CompactedJson, parts={"body": _COMPACT}, problems=(502,)),
    _of_session("POST", "/fold", "fold", "Fold a stretch of messages alone.", commands.fold, heavy=True,
                answer=schemas.CompactedJson, parts={"body": _FOLD}, problems=(502,)),
    _of_session("POST", "/rewind", "rewind", "Go back to before a message, as a branch.", commands.rewind, heavy=True,
                answer=schemas.RewoundJson, parts={"body": _REWIND}),
    _of_session("POST", "/return", "go_back", "Go back to a branch that was left.", commands.go_back, heavy=True,
                answer=schemas.ReturnedJson, parts={"body": _RETURN}),
    _of_session("GET", "/branches", "get_branches", "The branches that were left, oldest first.", queries.branches,
                answer=schemas.BranchesJson),
    _of_session("POST", "/undo", "undo", "Take back the last batch of folds.", commands.undo, heavy=True,
                answer=schemas.UndoneJson, parts={"body": ()}),
    _of_session("POST", "/pin", "pin", "Keep a message whole, or no longer.", commands.pin, heavy=True,
                answer=schemas.PinnedJson, parts={"body": _PIN}),
    _of_session("POST", "/policy", "use_policy", "Fold by another policy from here on.", commands.policy, heavy=True,
                answer=schemas.SessionJson, parts={"body": _USE}),
    _of_session("POST", "/cancel", "cancel", "Stop the turn that runs.", commands.cancel, answer=schemas.CancelledJson,
                parts={"body": ()}),
    _of_session("GET", "/events", "follow_session", "The events of a session, as they happen.", queries.session_events,
                answer=None, media_type="text/event-stream", streams=True),
    Route(method="GET", path="/v1/events", name="follow_all", about="The events of all sessions, but for single words.",
          handle=queries.events, answer=None, media_type="text/event-stream", streams=True),
    Route(method="GET", path="/health", name="health", about="Whether the process is well.", handle=queries.health,
          answer=schemas.HealthJson, free=True),
    Route(method="GET", path="/ready", name="ready", about="Whether sessions can be reached.", handle=queries.ready,
          answer=schemas.ReadyJson, free=True),
    Route(method="GET", path="/metrics", name="metrics", about="Figures for Prometheus.", handle=queries.metrics,
          answer=None, media_type="text/plain"),
    Route(method="GET", path="/openapi.json", name="document", about="This document.", handle=queries.document,
          answer=Mapping[str, Json], free=True),
    Route(method="GET", path="/", name="page", about="The page.", handle=queries.page, answer=None,
          media_type="text/html", free=True, problems=(404,)),
    Route(method="GET", path="/static/{name}", name="static", about="A file of the page.", handle=queries.static,
          fields=RequestFields(path=(_NAME,)), answer=None, media_type="*/*", free=True, problems=(404,)),
)  # fmt: skip
