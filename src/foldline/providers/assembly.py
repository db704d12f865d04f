"""What the dialects share: pieces of a stream put together into a whole reply."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol
from uuid import uuid4

from foldline.engine.context import Request
from foldline.messages import Json, Wire
from foldline.providers.base import Piece
from foldline.providers.bodies import BrokenEventError, Event
from foldline.providers.endpoint import Endpoint

__all__ = [
    "AssembledReply",
    "Assembler",
    "Dialect",
    "finish_reason_of",
    "new_call_id",
    "object_in",
    "reported",
]


@dataclass(frozen=True, slots=True)
class AssembledReply:
    """What a stream came to: no message when the model said nothing, no usage when the server reported none."""

    messages: tuple[Wire, ...]
    finish_reason: str
    usage: Mapping[str, Json] | None

    @property
    def output_tokens(self) -> int:
        """Tokens that were generated, as the server reported them; 0 where it did not."""
        usage = self.usage or {}
        count = usage.get("completion_tokens", usage.get("output_tokens", usage.get("candidatesTokenCount")))
        return count if isinstance(count, int) else 0


class Assembler(Protocol):
    """Puts one reply together."""

    @property
    def finished(self) -> bool:
        """Whether nothing more is to come: the rest of the stream need not be read."""

    def feed(self, event: Event) -> Iterator[Piece]:
        """What an event brings. Raises StreamedError."""

    def feed_body(self, body: Mapping[str, Json]) -> Iterator[Piece]:
        """What a reply brings that came in one piece, though a stream was asked for. Raises StreamedError."""

    def result(self) -> AssembledReply | None:
        """The whole reply; None when the stream broke off before its closing event."""


class Dialect(Protocol):
    """How one dialect asks, and how it answers. Pure."""

    @property
    def path(self) -> str:
        """Where requests go, behind the base URL; `{model}` stands for the model."""

    def body(self, endpoint: Endpoint, request: Request) -> dict[str, Json]:
        """The JSON body. Messages are the objects of the request, unless a cache point is set in a copy."""

    def adapted(self, body: Mapping[str, Json], refusal: str) -> dict[str, Json] | None:
        """The body without what the server says it does not know; None when the refusal is about something else."""

    def assembler(self) -> Assembler:
        """A new assembler."""


def new_call_id(prefix: str = "call_") -> str:
    """An id for a call that came without one."""
    return f"{prefix}{uuid4().hex[:24]}"


def object_in(event: Event) -> dict[str, Any]:
    """The JSON object of an event. Raises BrokenEventError when it is none."""
    try:
        value = json.loads(event.data)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise BrokenEventError(event.data[:2_000])
    return value


def reported(usage: Json) -> Mapping[str, Json] | None:
    """A usage report; None for one without a count above zero, which says only that the server does not count."""
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

_REASONS: Final = {said: reason for reason, words in _WORDS.items() for said in (reason, *words.split())}


def finish_reason_of(said: Json, *, calls: bool, refused: bool = False) -> str:
    """The reason in one vocabulary; what is unknown stays as the server said it.

    A turn with calls that "stops" (Ollama, some gateways) ended with its calls.
    """
    reason = said.lower() if isinstance(said, str) and said else "stop"
    reason = re.sub(r"[ -]", "_", reason).removeprefix("finish_reason_")
    reason = _REASONS.get(reason, reason)
    if reason == "stop":
        return "tool_calls" if calls else "refusal" if refused else "stop"
    return reason
