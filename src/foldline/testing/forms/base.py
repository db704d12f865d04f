"""What the fake must know of a dialect: how to read its requests and to write its replies, streams and errors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeAlias

from foldline.testing.counting import count_text, dumped
from foldline.testing.values import Body, FakeReply, Refusal

__all__ = [
    "EPOCH",
    "Counts",
    "Form",
    "Made",
    "Prompt",
    "Stream",
    "StreamEvent",
    "missing",
    "output_counts",
    "pieces",
    "whole_number",
    "with_field",
]

StreamEvent: TypeAlias = Mapping[str, Any] | str
"""The data of one event: an object, or a bare text ("[DONE]")."""

EPOCH: Final = 1_790_000_000  # replies are numbered from here, one second each, so that a run gives the same twice


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """A request as every dialect has it. `max_output_tokens` is None where it names none."""

    model: str
    messages: Any
    system: Any
    tools: Any
    max_output_tokens: int | None
    streamed: bool


@dataclass(frozen=True, slots=True)
class Counts:
    """Tokens as the fake reports them: `input_tokens` is the whole request, cached and written ones in it."""

    input_tokens: int
    cached_tokens: int
    written_tokens: int
    output_tokens: int
    reasoning_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """A reply with all that its wire form needs; `counts` is None where no usage is reported."""

    reply: FakeReply
    body: Body
    model: str
    number: int
    counts: Counts | None

    @property
    def created(self) -> int:
        """Seconds since 1970, counted up and not read from a clock."""
        return EPOCH + self.number

    def named(self, prefix: str, part: int | None = None) -> str:
        """An id that this fake gives once."""
        return f"{prefix}_{self.number:06d}" if part is None else f"{prefix}_{self.number:06d}_{part}"

    @property
    def finish(self) -> str:
        """Why it ended, in the neutral word."""
        return self.reply.finish_reason or ("tool_calls" if self.reply.calls else "stop")


@dataclass(frozen=True, slots=True)
class Stream:
    """The events of a reply: before its content, the content, and those that close it.

    `lead` events of the content come before its first piece.
    """

    opening: Sequence[StreamEvent]
    content: Sequence[StreamEvent]
    closing: Sequence[StreamEvent]
    lead: int = 0

    @property
    def first_piece(self) -> int:
        """The number of the event that brings the first piece of content."""
        return len(self.opening) + self.lead


class Form(Protocol):
    """One dialect as a server speaks it."""

    @property
    def dialect(self) -> str:
        """Its name, as everywhere in this package."""

    def read(self, body: Body, path: str) -> Prompt | Refusal:
        """The request, or what is wrong with its outermost fields; the path may name its model."""

    def whole(self, made: Made) -> Mapping[str, Any]:
        """The reply as one object."""

    def stream(self, made: Made) -> Stream:
        """The reply in pieces."""

    def frame(self, event: StreamEvent, number: int) -> bytes:
        """Event `number` of a stream as server-sent events have it."""

    def error(self, refusal: Refusal, number: int) -> Mapping[str, Any]:
        """The body of a refusal."""

    def error_event(self, refusal: Refusal, made: Made) -> StreamEvent:
        """The same inside a stream that has begun."""


def pieces(text: str, chars: int) -> list[str]:
    """A text cut into pieces of `chars` characters; none for an empty one."""
    return [text[start : start + chars] for start in range(0, len(text), max(1, chars))]


def output_counts(reply: FakeReply) -> tuple[int, int]:
    """Tokens of a reply and of the reasoning in it: a quarter of their bytes, at least 1 for the end of the turn."""
    reasoning = count_text(reply.reasoning)
    calls = sum(count_text(name) + count_text(dumped(arguments)) for name, arguments in reply.calls)
    return reasoning + count_text(reply.text) + calls + 1, reasoning


def missing(name: str, *, anthropic: bool = False) -> Refusal:
    """Refuses a request without a field that must be there."""
    if anthropic:
        return Refusal(400, "field", f"{name}: Field required")
    return Refusal(400, "field", f"Missing required parameter: '{name}'.", "missing_required_parameter", name)


def whole_number(body: Body, name: str, *, anthropic: bool = False) -> int | Refusal | None:
    """A positive number of tokens, None where the field is missing or null."""
    value = body.get(name)
    if value is None:
        return None
    if isinstance(value, int) and not isinstance(value, bool) and value >= 1:
        return value
    if anthropic:
        return Refusal(400, "field", f"{name}: Input should be a valid integer greater than or equal to 1")
    message = f"Invalid '{name}': expected an integer of at least 1, but got {dumped(value)[:40]} instead."
    return Refusal(400, "field", message, "invalid_value", name)


def with_field(fields: Mapping[str, Any], name: str, value: object) -> dict[str, Any]:
    """`fields` with `name`, unless its value is None."""
    return dict(fields) if value is None else {**fields, name: value}
