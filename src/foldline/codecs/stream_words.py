"""The words of a dialect's stream: which events open it, end it, or say that it failed, and how usage is found.

`says` tells, by words that stand in all such events, whether bytes of a stream may say more than pieces of content do:
most events are passed on unread. In a text of the model no quotation mark stands without a backslash, so a name in
quotation marks is the name of a field.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

__all__ = ["ANTHROPIC", "CHAT", "GEMINI", "RESPONSES", "StreamWords"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamWords:
    """A stream's vocabulary. `shape` is what an event holds: choices, named events, or candidates.

    `usage` is the field that reports tokens, `shown` are the fields of a whole answer that hold content.
    """

    shape: Literal["choices", "message", "response", "candidates"]
    says: Callable[[bytes], bool]
    usage: str = "usage"
    shown: tuple[str, ...] = ("choices", "output", "content")
    openings: frozenset[str] = frozenset()
    ends: frozenset[str] = frozenset()
    errors: frozenset[str] = frozenset({"error", "response.error"})


def _holds(data: bytes, field: bytes) -> bool:
    """Whether a field stands there with another value than null. Both stand in every chunk of some servers as null."""
    found = data.count(field)
    return found > 0 and found != data.count(field + b":null") and found != data.count(field + b": null")


def _chat_says(data: bytes) -> bool:
    if b"error" in data or b"[DONE]" in data:
        return True
    return _holds(data, b'"finish_reason"') or _holds(data, b'"usage"')


def _anthropic_says(data: bytes) -> bool:
    return b"error" in data or b"message_" in data or b'"usage"' in data


def _responses_says(data: bytes) -> bool:
    return b"error" in data or b'"response"' in data or b".completed" in data or b".done" in data


def _gemini_says(data: bytes) -> bool:
    return b'"usageMetadata"' in data or b'"finishReason"' in data or b'"promptFeedback"' in data or b"error" in data


CHAT: Final = StreamWords(shape="choices", says=_chat_says)
ANTHROPIC: Final = StreamWords(shape="message", says=_anthropic_says)
RESPONSES: Final = StreamWords(
    shape="response",
    says=_responses_says,
    openings=frozenset({"response.created", "response.queued", "response.in_progress"}),
    ends=frozenset({"response.completed", "response.incomplete", "response.failed", "response.done"}),
)
"""OpenAI API reference, "Streaming events"; `response.error`, `.done`: gateways."""
GEMINI: Final = StreamWords(
    shape="candidates", says=_gemini_says, usage="usageMetadata", shown=("candidates", "promptFeedback")
)
"""Gemini API reference, "Generating content": each event is a whole GenerateContentResponse."""
