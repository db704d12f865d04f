"""The provider protocol: a request goes in, a stream of pieces comes out and ends with the whole reply."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from foldline.engine.context import Request
from foldline.messages import Json, ToolCall, Wire

__all__ = ["CallStarted", "Piece", "Provider", "ReasoningDelta", "Reply", "Retrying", "TextDelta"]


@dataclass(frozen=True, slots=True)
class TextDelta:
    """A piece of the answer's text."""

    text: str


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    """A piece of the model's thinking, where the server shows it."""

    text: str


@dataclass(frozen=True, slots=True)
class CallStarted:
    """The model has started a tool call, whose arguments are still to come."""

    name: str


@dataclass(frozen=True, slots=True)
class Retrying:
    """The server was busy or failed before its first piece. The request is sent again after a pause."""

    attempt: int
    wait_seconds: float
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """A whole reply: the last piece of every stream that does not raise.

    `messages` are to be appended to the session, in the provider's dialect: one message, or several items in Responses.
    `usage` is the server's own report, unchanged; None without one. `finish_reason` is one of "stop",
    "tool_calls", "length", "refusal", "pause", "malformed_call", "context_window", "failed" (see
    `foldline.providers.assembly`) or what the server said. `request_body` is the JSON that was sent.
    """

    messages: tuple[Wire, ...]
    text: str
    calls: tuple[ToolCall, ...]
    finish_reason: str
    usage: Mapping[str, Json] | None
    request_body: Mapping[str, Json]
    seconds: float


Piece: TypeAlias = TextDelta | ReasoningDelta | CallStarted | Retrying | Reply


class Provider(Protocol):
    """One model at one address.

    Refusals and faults are retried where that may help, and then raised as ProviderError with the classified failure.
    Closing the iterator (or cancelling the task) ends the request.
    """

    @property
    def name(self) -> str:
        """Its name for people: "openai", "anthropic", "ollama", "embedded", …"""

    @property
    def dialect(self) -> str:
        """The dialect of its messages."""

    @property
    def model(self) -> str:
        """The name of the model in requests."""

    @property
    def endpoint(self) -> str:
        """Its base URL, for which learned limits hold."""

    def stream(self, request: Request) -> AsyncIterator[Piece]:
        """Send a request of `Context.prepare`. The last piece is the `Reply`. Raises ProviderError."""

    async def window_tokens(self) -> int | None:
        """Return the window that the server names, or None if it names none or is off. Raises nothing."""

    async def aclose(self) -> None:
        """Close its connections and any server started for it. Closing again does nothing."""
