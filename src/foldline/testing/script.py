"""The script of a fake server, and the records of the requests that it received."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypeAlias

from foldline.messages import Json

__all__ = ["Body", "Fails", "FakeReply", "FakeRequest", "Gate", "Refusal", "Refused", "Script", "Scripts", "Steps"]

Body: TypeAlias = Mapping[str, Any]
"""The JSON object of a request."""

Gate: TypeAlias = asyncio.Event | Callable[[int], Awaitable[object]]
"""Delays pieces of a stream: see `FakeReply.gate`."""

Fails = Literal["no_answer", "broken", "unfinished", "error", "overflow"]
"""How a reply fails after the request was accepted: see `FakeReply.fails`."""


@dataclass(frozen=True, slots=True)
class FakeReply:
    """One reply of the fake: what the model answers, or what fails.

    `calls` are (name of the tool, arguments). `finish_reason` is "stop", "tool_calls", "length" or "refusal", sent in
    the dialect's own word, or any other word, sent unchanged; None follows from the calls. `input_tokens` and
    `output_tokens` replace the reported figures. Text goes out in pieces of `piece_chars` characters.

    `status` refuses with that HTTP status instead: `message` and `code` replace the provider's usual ones,
    `retry_after_seconds` adds the header. `fails` breaks a reply that has begun: "no_answer" ends the connection before
    the first byte, "broken" in the middle, "unfinished" closes the stream properly but without its closing events,
    "error" and "overflow" put an error event into the stream (status 200). It happens after `after_events` events, by
    default after the last piece of content. In a reply that is not streamed, "unfinished" is JSON cut in half, and
    "error" and "overflow" are an error object with status 200.

    `gate` makes the reply slow: a function is awaited before event number n (from 0); an asyncio.Event delays
    everything after the first piece of content, or the whole reply if it is not streamed.
    """

    text: str = ""
    calls: Sequence[tuple[str, Mapping[str, Json]]] = ()
    reasoning: str = ""
    finish_reason: str | None = None
    status: int | None = None
    message: str | None = None
    code: str | None = None
    retry_after_seconds: float | None = None
    fails: Fails | None = None
    after_events: int | None = None
    gate: Gate | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    # Small, so that pieces split words, escapes and numbers in most tests.
    piece_chars: int = 20


Script: TypeAlias = FakeReply | str | Callable[[Body], FakeReply | str]
"""One step of a script: a reply, its text alone, or a function of the request's body."""

Scripts: TypeAlias = Script | Iterable[Script] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FakeRequest:
    """One accepted request, with the counts of the fake: `input_tokens` includes the cached and written ones."""

    dialect: str
    path: str
    headers: Mapping[str, str] = field(repr=False)
    body: Body
    input_tokens: int
    cached_tokens: int
    written_tokens: int


class Refused(NamedTuple):
    """One refusal: the HTTP status, its kind ("overflow", "auth", a rule of `foldline.check`, …), its message."""

    status: int
    kind: str
    message: str


@dataclass(frozen=True, slots=True)
class Refusal:
    """A refusal to be sent; `code` and `param` are for dialects with such fields."""

    status: int
    kind: str
    message: str
    code: str | None = None
    param: str | None = None
    retry_after_seconds: float | None = None


class Steps:
    """A script of any form, taken step by step.

    A single step answers everything. Of several, each answers once, and with `repeat` the last one from then on.
    """

    def __init__(self, script: Scripts, *, repeat: bool) -> None:
        # Taken lazily, so that a generator can decide each step by what has happened so far.
        self._steps: Iterator[Script] = iter(())
        # The last step is remembered for `repeat`, whose script may be an iterator.
        self._last: Script | None = None
        self._stays = True
        self.taken = 0
        if script is None:
            self._last = FakeReply("ok")
        # A string is an iterable too, so a single step is looked for first.
        elif isinstance(script, FakeReply | str) or callable(script):
            self._last = script
        elif isinstance(script, Iterable):
            self._steps, self._stays = iter(script), repeat

    def reply(self, body: Body) -> FakeReply | None:
        """Return the reply to a request; None at the end of the script. Errors of a function in it pass through."""
        step = next(self._steps, self._last if self._stays else None)
        if step is None:
            return None
        self._last = step
        self.taken += 1
        reply = step(body) if callable(step) else step
        return FakeReply(reply) if isinstance(reply, str) else reply
