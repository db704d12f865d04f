"""Every route of the server in one table: what it takes, what does it, how it answers. All else is made from it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from foldline.agent.settings.values import policy_names
from foldline.doors.http import commands as doing
from foldline.doors.http import queries as looking
from foldline.doors.http import status as standing
from foldline.doors.http.bodies import Call, Takes
from foldline.doors.http.fields import Field
from foldline.doors.http.state import Door

__all__ = ["ROUTES", "Route"]

_SOME_TEXT: Final = "^[^\\u0000]*\\S[^\\u0000]*$"
_NEWEST: Final = 2**31 - 1
_POLICY: Final = "How the context is folded from here on."

_ID = Field(name="id", about="The id of a session.", least=1, most=64, example="20260301-093000-0a1b2c3d")
_SEQ = Field(name="seq", kind="whole", about="The number of a message, from 0.", most=_NEWEST, example=0)
_KEY = Field(
    name="Idempotency-Key",
    about="The client's own name for this turn: sent again, the turn does not run twice.",
    least=1,
    most=200,
    pattern="^[!-~]+$",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """One thing that can be asked for.

    `answer` names the shape of what comes back with `status` (None: no JSON). `problems` are the statuses that it may
    be refused with beside those of every route. `heavy` answers may take as long as a turn. `free` ones need no token.
    """

    method: str
    path: str
    name: str
    about: str
    handle: Callable[[Door, Call], Awaitable[Any]]
    takes: Takes = field(default_factory=Takes)
    answer: str | None
    status: int = 200
    media_type: str = "application/json"
    streams: bool = False
    problems: Sequence[int] = ()
    heavy: bool = False
    free: bool = False


def _of_session(
    method: str, rest: str, name: str, about: str, handle: Callable[[Door, Call], Awaitable[Any]], **more: Any
) -> Route:
    """A route of one session: it may not be there, be unreadable, or be in the hands of another process."""
    more["takes"] = Takes(path=(_ID, *more.pop("path", ())), **more.pop("parts", {}))
    more["problems"] = (404, 409, *more.pop("problems", ()))
    return Route(method=method, path=f"/v1/sessions/{{id}}{rest}", name=name, about=about, handle=handle, **more)


def _whole(name: str, about: str, default: int | None, least: int, most: int) -> Field:
    return Field(name=name, kind="whole", about=about, default=default, least=least, most=most)


_CREATE = Takes(
    body=(
        Field(name="policy", about=_POLICY, choices=policy_names()),
        Field(name="title", about="What it is called in lists; by default its first words.", default="", most=200),
        Field(name="from", about="A session: the new one begins with what its model is shown.", least=1, most=64),
    )
)
_LIST = Takes(
    query=(
        _whole("limit", "How many at most.", 50, 1, 500),
        Field(name="after", about="The id that the page before ended with (`next`).", least=1, most=64),
        Field(name="query", about="Only those with this in their title or id.", most=200),
    )
)
_SAY: Mapping[str, Any] = {
    "headers": (_KEY,),
    "body": (
        Field(name="text", about="What the user says.", required=True, least=1, pattern=_SOME_TEXT, example="Hello"),
        Field(name="stream", kind="flag", about="Answer with events; so does Accept.", default=False),
    ),
}
_HISTORY: Mapping[str, Any] = {
    "query": (
        _whole("after", "Messages after this one; -1 (or neither) from the first on.", None, -1, _NEWEST),
        _whole("before", "Messages before this one; the newest of them, unless after is given.", None, 0, _NEWEST),
        _whole("limit", "How many at most.", 100, 1, 500),
    )
}
_COMPACT = (Field(name="instructions", about="What the summary should keep.", default="", most=10_000),)
_PIN = (
    Field(name="seq", kind="whole", about="The message to keep.", required=True, most=_NEWEST),
    Field(name="pinned", kind="flag", about="false lets it be folded again.", default=True),
)
_USE = (Field(name="policy", about=_POLICY, required=True, choices=policy_names()),)
_NAME = Field(name="name", about="A file of the page.", least=1, most=64, example="page.js")

ROUTES: Final[tuple[Route, ...]] = (
    Route(method="POST", path="/v1/sessions", name="create_session", about="Begin a session.", handle=doing.create,
          takes=_CREATE, answer="Session", status=201, problems=(404, 409)),
    Route(method="GET", path="/v1/sessions", name="list_sessions", about="List sessions, the one written last first.",
          handle=looking.sessions, takes=_LIST, answer="Sessions", problems=(404,)),
    _of_session("GET", "", "get_session", "One session: its window, usage and folds.", looking.row, answer="Session"),
    _of_session("DELETE", "", "delete_session", "Remove a session and all that belongs to it.", doing.delete,
                answer=None, status=204),
    _of_session("POST", "/messages", "say", "Say something: one turn, after those that wait.", doing.say, answer="Turn",
                streams=True, heavy=True, parts=_SAY, problems=(422, 502)),
    _of_session("GET", "/context", "get_context", "What the model is shown now, with tokens of each part.",
                looking.context, answer="Context"),
    _of_session("GET", "/history", "get_history", "A page of everything that was said.", looking.history,
                answer="History", parts=_HISTORY),
    _of_session("GET", "/history/{seq}", "get_message", "One message whole, with every fold over it.", looking.entry,
                answer="WholeEntry", path=(_SEQ,)),
    _of_session("GET", "/folds", "get_folds", "The folds in effect, oldest first.", looking.folds, answer="Folds"),
    _of_session("GET", "/turns", "get_turns", "The newest turns, oldest of them first.", looking.turns, answer="Turns",
                parts={"query": (_whole("limit", "How many at most.", 200, 1, 2_000),)}),
    _of_session("POST", "/compact", "compact", "Fold everything that may be folded.", doing.compact, heavy=True,
                answer="Compacted", parts={"body": _COMPACT}, problems=(502,)),
    _of_session("POST", "/undo", "undo", "Take back the last batch of folds.", doing.undo, heavy=True,
                answer="Undone", parts={"body": ()}),
    _of_session("POST", "/pin", "pin", "Keep a message whole, or no longer.", doing.pin, heavy=True, answer="Pinned",
                parts={"body": _PIN}),
    _of_session("POST", "/policy", "use_policy", "Fold by another policy from here on.", doing.policy, heavy=True,
                answer="Session", parts={"body": _USE}),
    _of_session("POST", "/cancel", "cancel", "Stop the turn that runs.", doing.cancel, answer="Cancelled",
                parts={"body": ()}),
    _of_session("GET", "/events", "follow_session", "The events of a session, as they happen.", standing.events_of,
                answer=None, media_type="text/event-stream", streams=True),
    Route(method="GET", path="/v1/events", name="follow_all", about="The events of all sessions, but for single words.",
          handle=standing.events, answer=None, media_type="text/event-stream", streams=True),
    Route(method="GET", path="/health", name="health", about="Whether the process is well.", handle=standing.health,
          answer="Health", free=True),
    Route(method="GET", path="/ready", name="ready", about="Whether sessions can be reached.", handle=standing.ready,
          answer="Ready", free=True),
    Route(method="GET", path="/metrics", name="metrics", about="Figures for Prometheus.", handle=standing.metrics,
          answer=None, media_type="text/plain"),
    Route(method="GET", path="/openapi.json", name="document", about="This document.", handle=standing.document,
          answer="Document", free=True),
    Route(method="GET", path="/", name="page", about="The page.", handle=standing.page, answer=None,
          media_type="text/html", free=True, problems=(404,)),
    Route(method="GET", path="/static/{name}", name="static", about="A file of the page.", handle=standing.static,
          takes=Takes(path=(_NAME,)), answer=None, media_type="*/*", free=True, problems=(404,)),
)  # fmt: skip
