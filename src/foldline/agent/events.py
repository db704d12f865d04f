"""The events of an agent: frozen values, and their form in JSON."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from foldline.engine.events import ContextEvent
from foldline.engine.window_usage import WindowUsage
from foldline.messages import Json, Message
from foldline.providers.base import CallStarted, ReasoningDelta, Retrying, TextDelta
from foldline.view.transcript import Fold

__all__ = [
    "Accepted",
    "AgentEvent",
    "Calling",
    "EndReason",
    "Listener",
    "Notice",
    "ReplyFinished",
    "ToolFinished",
    "ToolStarted",
    "TurnEnded",
    "as_json",
]


@dataclass(frozen=True, slots=True)
class Accepted:
    """The user's message is on disk, as entry `seq` of the session."""

    seq: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Calling:
    """A request is sent to the model; its size by our count (S0.04)."""

    messages: int
    size_bytes: int
    tokens: int
    iteration: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyFinished:
    """A complete reply is recorded. `figures` is the usage after it; `estimated` if the server reported none.

    `prompt_tokens` is the server's count, `expected_tokens` our own count of the same request.
    """

    text: str
    calls: int
    finish_reason: str
    prompt_tokens: int
    expected_tokens: int
    completion_tokens: int
    cached_tokens: int
    estimated: bool
    seconds: float
    figures: WindowUsage


@dataclass(frozen=True, slots=True)
class ToolStarted:
    """A tool call starts; `arguments` is the JSON text that the model wrote."""

    call_id: str
    tool: str
    arguments: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolFinished:
    """A tool call has ended; `text` is its whole result, of `tokens` by our count."""

    call_id: str
    tool: str
    text: str
    is_error: bool
    tokens: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Notice:
    """A sentence for the user about a recovery, a refusal or a failure."""

    text: str


EndReason: TypeAlias = Literal[
    "done", "iterations", "length", "refusal", "paused", "interrupted", "cancelled", "does_not_fit", "failed"
]


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnEnded:
    """A turn is over and recorded; `text` is the last answer, `message` the reason if it is not "done".

    "paused": its user left, or the server stops; "interrupted": its process ended in the middle of it.
    """

    reason: EndReason
    text: str = ""
    message: str = ""
    iterations: int = 0


AgentEvent: TypeAlias = (
    Accepted
    | Calling
    | TextDelta
    | ReasoningDelta
    | CallStarted
    | Retrying
    | ReplyFinished
    | ToolStarted
    | ToolFinished
    | Notice
    | TurnEnded
    | ContextEvent
)
Listener: TypeAlias = Callable[[AgentEvent], None]

# Written out, not derived from the classes: clients match these names, and renaming a class must not change them.
_NAMES: Final[Mapping[type, str]] = {
    Accepted: "accepted",
    Calling: "calling",
    TextDelta: "text",
    ReasoningDelta: "reasoning",
    CallStarted: "call_started",
    Retrying: "retrying",
    ReplyFinished: "reply",
    ToolStarted: "tool_started",
    ToolFinished: "tool_finished",
    Notice: "notice",
    TurnEnded: "turn_ended",
}


def as_json(event: AgentEvent) -> dict[str, Json]:
    """The event as a JSON object; `event` is its name, the other fields are its own. O(size)."""
    fields = {field.name: _plain(getattr(event, field.name)) for field in dataclasses.fields(event)}
    # An event of the context is not in the table: it carries its name itself, as users of the library see it.
    name = _NAMES.get(type(event))
    if name is None:
        name = fields.pop("name")
    return {"event": name, **fields}


def _plain(value: object) -> Json:
    if isinstance(value, Fold):
        # Without the messages of the fold: they are in the session, and an event of each fold would repeat the window.
        keep = ("id", "start", "stop", "reducer", "reason", "before_tokens", "tokens", "archive")
        return {name: getattr(value, name) for name in keep}
    # Its text alone: a whole message has another form in each dialect, and clients of events know none.
    if isinstance(value, Message):
        return value.text
    if isinstance(value, WindowUsage):
        # Computed here, since a client has no method to call.
        return {**dataclasses.asdict(value), "utilization": value.utilization}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    return value
