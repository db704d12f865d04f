"""The protocols of a provider and of its dialect, and one vocabulary for the end of a reply.

A request goes in; a stream of pieces comes out and ends with the whole reply. Finish reasons, each of which needs
another reaction:

stop, tool_calls      complete
length                cut off at the output cap
refusal               the model, or a filter after it, does not answer
pause                 the server stops and continues when the reply is sent back unchanged
malformed_call        the server could not parse a call of the model
context_window        cut off because the window is full
failed                the server broke off or discarded the reply
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, TypeAlias
from uuid import uuid4

from foldline.engine.context import Request
from foldline.messages import Json, ToolCall, Wire
from foldline.providers.bodies import BrokenEventError, Event
from foldline.providers.endpoint import Endpoint

__all__ = [
    "AssembledReply",
    "Assembler",
    "CallStarted",
    "HttpDialect",
    "Piece",
    "Provider",
    "ReasoningDelta",
    "Reply",
    "Retrying",
    "TextDelta",
    "finish_reason_of",
    "new_call_id",
    "object_in",
    "reported",
]


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
    the table of this module) or what the server said. `request_body` is the JSON that was sent. `first_seconds` is the
    time to the first piece, 0.0 where nobody measured it; `timings` is what llama.cpp reports of its own.
    """

    messages: tuple[Wire, ...]
    text: str
    calls: tuple[ToolCall, ...]
    finish_reason: str
    usage: Mapping[str, Json] | None
    request_body: Mapping[str, Json]
    seconds: float
    first_seconds: float = 0.0
    timings: Mapping[str, Json] = field(default_factory=dict, compare=False)


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


# --- dialects over HTTP ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AssembledReply:
    """The result of a stream: no messages if the model wrote nothing, no usage without a report."""

    messages: tuple[Wire, ...]
    finish_reason: str
    usage: Mapping[str, Json] | None
    timings: Mapping[str, Json] = field(default_factory=dict, compare=False)

    @property
    def output_tokens(self) -> int:
        """The generated tokens as reported by the server; 0 without a report."""
        usage = self.usage or {}
        count = usage.get("completion_tokens", usage.get("output_tokens", usage.get("candidatesTokenCount")))
        return count if isinstance(count, int) else 0


class Assembler(Protocol):
    """Assembles one reply."""

    @property
    def finished(self) -> bool:
        """Whether the reply is complete, so that the rest of the stream can be skipped."""

    def feed(self, event: Event) -> Iterator[Piece]:
        """Take an event and yield its pieces. Raises StreamedError."""

    def feed_body(self, body: Mapping[str, Json]) -> Iterator[Piece]:
        """Take a reply that is not streamed and yield its pieces. Raises StreamedError."""

    def result(self) -> AssembledReply | None:
        """Return the whole reply, or None if the stream broke off before its closing event."""


class HttpDialect(Protocol):
    """The requests and replies of one dialect. Pure."""

    @property
    def path(self) -> str:
        """The path of requests after the base URL, with `{model}` for the model."""

    def body(self, endpoint: Endpoint, request: Request) -> dict[str, Json]:
        """Return the JSON body. Its messages are the objects of the request, or copies with a cache point."""

    def adapted(self, body: Mapping[str, Json], refusal: str) -> dict[str, Json] | None:
        """Return the body without what a server refused as unknown; None for another kind of refusal."""

    def assembler(self) -> Assembler:
        """Return a new assembler."""


def new_call_id(prefix: str = "call_") -> str:
    """Make an id for a call without one."""
    return f"{prefix}{uuid4().hex[:24]}"


def object_in(event: Event) -> dict[str, Any]:
    """Parse the JSON object of an event. Raises BrokenEventError for anything else."""
    try:
        value = json.loads(event.data)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise BrokenEventError(event.data[:2_000])
    return value


def reported(usage: Json) -> Mapping[str, Json] | None:
    """Return a usage report; None for one of zeros only, which means that the server does not count."""
    if not isinstance(usage, Mapping):
        return None
    counts = (value for value in usage.values() if isinstance(value, int | float) and not isinstance(value, bool))
    return usage if any(count > 0 for count in counts) else None


# Anthropic, stop reasons; OpenAI, Chat and Responses; Gemini and Vertex, FinishReason; Bedrock, StopReason; Cohere,
# finish reasons; DeepSeek (insufficient_system_resource); Z.ai and GLM (sensitive, network_error,
# model_context_window_exceeded); Mistral (model_length, error); vLLM and SGLang (abort); Hugging Face (eos_token).
_WORDS: Final = {
    "stop": "end_turn end_of_turn stop_sequence eos eos_token complete completed done finished end normal",
    "tool_calls": "tool_use tool_call function_call function_calls",
    "length": "max_tokens max_output_tokens max_new_tokens max_completion_tokens max_length model_length token_limit",
    "refusal": (
        "content_filter content_filtered safety sensitive recitation blocklist prohibited_content spii image_safety "
        "image_prohibited_content image_recitation guardrail_intervened moderation blocked error_toxic language"
    ),
    "pause": "pause_turn paused",
    "malformed_call": (
        "malformed_function_call malformed_tool_call malformed_tool_use malformed_model_output malformed_response "
        "unexpected_tool_call invalid_tool_call tool_call_error too_many_tool_calls missing_thought_signature"
    ),
    "context_window": (
        "model_context_window_exceeded context_window_exceeded context_length_exceeded context_length context_limit "
        "context_overflow max_context_length error_limit"
    ),
    "failed": (
        "network_error insufficient_system_resource abort aborted cancel cancelled canceled error server_error "
        "internal_error engine_error engine_overloaded timeout time_limit incomplete repetition repetition_truncation "
        "repetition_detected repeat other unknown unspecified in_progress queued"
    ),
}

_REASONS: Final = {word: reason for reason, words in _WORDS.items() for word in (reason, *words.split())}


def finish_reason_of(reported_reason: Json, *, calls: bool, refused: bool = False) -> str:
    """Return a server's finish reason in our vocabulary; an unknown one stays unchanged."""
    reason = reported_reason.lower() if isinstance(reported_reason, str) and reported_reason else "stop"
    reason = re.sub(r"[ -]", "_", reason).removeprefix("finish_reason_")
    reason = _REASONS.get(reason, reason)
    if reason == "stop":  # Ollama and some gateways report "stop" for a turn that ends with calls
        return "tool_calls" if calls else "refusal" if refused else "stop"
    return reason
