"""What the agent asks of a model server: a stream of pieces that ends with the whole reply."""

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
    """The model has begun to write a tool call; its arguments are still coming."""

    name: str


@dataclass(frozen=True, slots=True)
class Retrying:
    """The server was busy, or failed before its first piece: the request is sent again after a pause."""

    attempt: int
    wait_seconds: float
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """A whole reply; the last piece of every stream that did not raise.

    `messages` are what to append to the session, in the provider's dialect: one message, or several items in Responses.
    `usage` is the server's own report, unchanged; None where it made none. `finish_reason` is one of "stop",
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
    """One model behind one address.

    A refusal or a fault is raised as ProviderError, with the failure classified; what may help is tried again first.
    Closing the iterator (or cancelling the task) ends the request.
    """

    @property
    def name(self) -> str:
        """What a person calls it: "openai", "anthropic", "ollama", "embedded", …"""

    @property
    def dialect(self) -> str:
        """The dialect of its messages."""

    @property
    def model(self) -> str:
        """The name of the model, as requests carry it."""

    @property
    def endpoint(self) -> str:
        """Its base URL: what learned limits hold for."""

    def stream(self, request: Request) -> AsyncIterator[Piece]:
        """Send a request as `Context.prepare` returned it; the last piece is the `Reply`. Raises ProviderError."""

    async def window_tokens(self) -> int | None:
        """The window that the server itself names; None where it does not say, or is off. Raises nothing."""

    async def aclose(self) -> None:
        """Let go of connections, and of a server that was started for it. Closing again does nothing."""
