"""What the three dialects share: pieces of a stream put together into a whole reply."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol
from uuid import uuid4

from foldline.engine.context import Request
from foldline.messages import Json, Wire
from foldline.providers.base import Piece
from foldline.providers.endpoint import Endpoint
from foldline.providers.sse import Event

__all__ = [
    "Assembler",
    "BrokenEventError",
    "Dialect",
    "Outcome",
    "StreamedError",
    "new_call_id",
    "object_in",
    "reported",
]


class StreamedError(Exception):
    """An error that came inside a stream, or as a body with the status of success; `body` is what it says."""

    def __init__(self, body: Json) -> None:
        super().__init__("an error inside a reply")
        self.body = body


class BrokenEventError(StreamedError):
    """An event that is no JSON object: a line that was cut off, or an error as plain text."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a stream came to: no message when the model said nothing, no usage when the server reported none."""

    messages: tuple[Wire, ...]
    finish_reason: str
    usage: Mapping[str, Json] | None

    @property
    def output_tokens(self) -> int:
        """Tokens that were generated, as the server reported them; 0 where it did not."""
        usage = self.usage or {}
        count = usage.get("completion_tokens", usage.get("output_tokens"))
        return count if isinstance(count, int) else 0


class Assembler(Protocol):
    """Puts one reply together."""

    @property
    def finished(self) -> bool:
        """Whether nothing more is to come: the rest of the stream need not be read."""

    def take(self, event: Event) -> Iterator[Piece]:
        """What an event brings. Raises StreamedError."""

    def whole(self, body: Mapping[str, Json]) -> Iterator[Piece]:
        """What a reply brings that came in one piece, though a stream was asked for. Raises StreamedError."""

    def outcome(self) -> Outcome | None:
        """The whole reply; None when the stream broke off before its closing event."""


class Dialect(Protocol):
    """How one dialect asks, and how it answers. Pure."""

    @property
    def path(self) -> str:
        """Where requests go, behind the base URL."""

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
