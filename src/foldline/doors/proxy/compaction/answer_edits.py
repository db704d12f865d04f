"""Adds to an upstream's answer what it does not know of: a block or an item, the edits that were applied, the usage."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from starlette.types import Message, Send

from foldline.conversations.request_body import to_json
from foldline.doors.proxy.bodies import Inflater, parse_object, readable
from foldline.doors.proxy.compaction.usage_figures import compaction_iteration, message_iteration
from foldline.doors.proxy.compaction.whole_answers import block_events, item_events, sse
from foldline.doors.proxy.request_head import Headers, encoding, media_type
from foldline.doors.proxy.upstream import UpstreamFault
from foldline.messages import Json
from foldline.view.transcript import Usage

__all__ = ["BELIEVED", "AnswerEdit", "CountEdit", "EditingSend", "MessageEdit", "ResponseEdit"]

_FRAME_END: Final = re.compile(rb"\r?\n\r?\n")
_REWRITTEN: Final = frozenset({b"content-length", b"content-encoding", b"etag", b"digest", b"content-md5"})
BELIEVED: Final = 0.5, 2.0
"""Shares of our own count between which a report is believed."""

# An event is small, and a whole answer has what a model writes. More is passed on as it comes.
_MAX_HELD_BYTES: Final = 32 * 1024 * 1024


class AnswerEdit(Protocol):
    """A change to an answer, whole or event by event."""

    def whole(self, answer: dict[str, Any], /) -> dict[str, Any]:
        """Return a whole answer, changed."""

    def concerns(self, frame: bytes, /) -> bool:
        """Whether an event may have to be changed. Cheap: it is asked of each."""

    def event(self, event: dict[str, Any], /) -> Sequence[Mapping[str, Json]]:
        """Return an event, changed, with others around it."""


@dataclass(slots=True)
class MessageEdit:
    """Changes a message of Anthropic: `block` at its start, `applied` edits, and what each iteration used.

    With `iterations` the usage has them, as of every request with a compaction edit. `sent_tokens` is our own count of
    the request: the edits were counted by it too, and are told as the upstream counts.
    """

    applied: list[Json] | None
    block: Mapping[str, Json] | None = None
    usages: Sequence[Usage] = ()
    iterations: bool = False
    sent_tokens: int = 0
    usage: dict[str, Any] = field(default_factory=dict)

    def whole(self, answer: dict[str, Any], /) -> dict[str, Any]:
        """Return a message, changed."""
        content = answer.get("content")
        if self.block is not None and isinstance(content, list):
            answer["content"] = [dict(self.block), *content]
        usage = answer.get("usage")
        self.usage = usage if isinstance(usage, dict) else {}
        if self.iterations and isinstance(usage, dict):
            answer["usage"] = {**usage, "iterations": self._iterations()}
        if self.applied is not None:
            answer["context_management"] = {"applied_edits": self._told(self.applied)}
        return answer

    def concerns(self, frame: bytes, /) -> bool:
        """Whether an event may have to be changed."""
        return b"message_" in frame or (self.block is not None and b"content_block_" in frame)

    def event(self, event: dict[str, Any], /) -> Sequence[Mapping[str, Json]]:
        """Return an event, changed, with others around it."""
        kind = event.get("type")
        if kind == "message_start":
            message = event.get("message")
            usage = message.get("usage") if isinstance(message, dict) else None
            self.usage |= usage if isinstance(usage, dict) else {}
            return [event] if self.block is None else [event, *block_events(self.block)]
        if kind == "message_delta":
            usage = event.get("usage")
            self.usage |= {k: v for k, v in usage.items() if v is not None} if isinstance(usage, dict) else {}
            if self.iterations and isinstance(usage, dict):
                event["usage"] = {**usage, "iterations": self._iterations()}
            if self.applied is not None:
                event["context_management"] = {"applied_edits": self._told(self.applied)}
        elif self.block is not None and isinstance(kind, str) and kind.startswith("content_block_"):
            event["index"] = number_of(event.get("index")) + 1
        return [event]

    def _told(self, applied: list[Json]) -> list[Json]:
        """Return the edits with their tokens as the upstream counts, which has reported the size of the request."""
        names = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
        ratio = ratio_of(sum(number_of(self.usage.get(name)) for name in names), self.sent_tokens)
        return [
            {**edit, "cleared_input_tokens": round(ratio * edit["cleared_input_tokens"])}
            for edit in applied
            if isinstance(edit, Mapping)
        ]

    def _iterations(self) -> list[Json]:
        first = [] if self.block is None else [compaction_iteration(self.usages)]
        # An upstream with tools of its own may report iterations itself.
        theirs = self.usage.get("iterations")
        return [*first, *(theirs if isinstance(theirs, list) and theirs else [message_iteration(self.usage)])]


@dataclass(slots=True)
class CountEdit:
    """Changes a count of tokens (Anthropic): how many there were before the edits.

    Both figures are our own counts, of what the edits took away and of what is left.
    """

    saved_tokens: int
    sent_tokens: int

    def whole(self, answer: dict[str, Any], /) -> dict[str, Any]:
        """Return a count, changed."""
        tokens = answer.get("input_tokens")
        if isinstance(tokens, int):
            answer["context_management"] = {
                "original_input_tokens": tokens + round(ratio_of(tokens, self.sent_tokens) * self.saved_tokens)
            }
        return answer

    def concerns(self, frame: bytes, /) -> bool:
        """A count is no stream."""
        return False

    def event(self, event: dict[str, Any], /) -> Sequence[Mapping[str, Json]]:
        """Return the event as it is."""
        return [event]


@dataclass(slots=True)
class ResponseEdit:
    """Changes a response of OpenAI: an item at the start of its output. Its events are numbered anew."""

    item: Mapping[str, Json]
    shown: bool = False
    added: int = 0

    def whole(self, answer: dict[str, Any], /) -> dict[str, Any]:
        """Return a response, changed."""
        output = answer.get("output")
        if isinstance(output, list) and answer.get("status") != "failed":
            answer["output"] = [dict(self.item), *output]
        return answer

    def concerns(self, frame: bytes, /) -> bool:
        """Whether an event may have to be changed: all are numbered."""
        return True

    def event(self, event: dict[str, Any], /) -> Sequence[Mapping[str, Json]]:
        """Return an event, changed, with others around it."""
        kind, number = event.get("type"), event.get("sequence_number")
        opening = kind in ("response.created", "response.queued", "response.in_progress")
        first: list[Mapping[str, Json]] = []
        if not self.shown and not opening and kind not in ("error", "response.failed"):
            self.shown = True
            first = item_events(self.item)
            if isinstance(number, int):
                first = [{**each, "sequence_number": number + at} for at, each in enumerate(first)]
            self.added = len(first)
        if isinstance(number, int):
            event["sequence_number"] = number + self.added
        if isinstance(event.get("output_index"), int):
            event["output_index"] += 1
        response = event.get("response")
        if isinstance(response, dict) and not opening and self.shown:
            output = response.get("output")
            response["output"] = [dict(self.item), *(output if isinstance(output, list) else [])]
        return [*first, event]


def number_of(value: Json) -> int:
    """Return a number of an upstream's answer; 0 for what is none, as it may send anything."""
    return value if isinstance(value, int) else 0


def ratio_of(reported_tokens: int, counted_tokens: int) -> float:
    """Return how many tokens an upstream counts for one of ours; 1.0 for a report that must be about another text."""
    ratio = reported_tokens / counted_tokens if counted_tokens > 0 else 0.0
    low, high = BELIEVED
    return ratio if low <= ratio <= high else 1.0


# --- sending ----------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class EditingSend:
    """The `send` of a request: it adds headers to its answer, and changes the answer if it succeeds.

    A stream is changed event by event as it comes; `wanted` says that the client asked for one. An answer in a coding
    that cannot be undone passes unchanged.
    """

    send: Send
    headers: Sequence[tuple[bytes, bytes]]
    edit: AnswerEdit | None = None
    warning: str = ""
    wanted: bool = False
    _start: dict[str, Any] | None = None
    _inflater: Inflater | None = None
    _streamed: bool = False
    _held: bytearray = field(default_factory=bytearray)

    async def __call__(self, message: Message) -> None:
        """Pass on one message of ASGI."""
        if message["type"] == "http.response.start":
            await self._begin(dict(message))
        elif self.edit is None:
            await self.send(message)
        else:
            await self._body(bytes(message.get("body", b"")), bool(message.get("more_body")))

    async def _begin(self, start: dict[str, Any]) -> None:
        headers: Headers = [*start["headers"], *self.headers]
        if self.warning:
            headers = with_warning(headers, self.warning)
        coding = encoding(headers)
        if start["status"] != 200 or not readable(coding):
            self.edit = None
        if self.edit is not None:
            kind = media_type(headers)
            # Some servers stream with another media type, or with none.
            self._streamed = kind == "text/event-stream" or (self.wanted and kind != "application/json")
            self._inflater = None if coding in ("", "identity") else Inflater(coding)
            headers = [(name, value) for name, value in headers if name.lower() not in _REWRITTEN]
        start["headers"] = headers
        if self.edit is None or self._streamed:
            await self.send(start)
        else:
            self._start = start

    async def _body(self, data: bytes, more: bool) -> None:
        if self._inflater is not None and data:
            try:
                data = b"".join(self._inflater.pieces(data))
            except zlib.error:
                # The head says that it is plain, and a part may be out: all that is left is to break off.
                raise UpstreamFault("protocol", "the upstream's answer is not in the coding that it names") from None
        self._held += data
        if self._streamed:
            out = b"".join(self._frames(end=not more))
            if out or not more:
                await self.send({"type": "http.response.body", "body": out, "more_body": more})
            return
        if more and len(self._held) <= _MAX_HELD_BYTES:
            return
        body = bytes(self._held)
        self._held.clear()
        if self._start is not None:
            body = self._changed(body) if not more else body
            start, self._start = self._start, None
            if not more:
                start["headers"] = [*start["headers"], (b"content-length", str(len(body)).encode())]
            await self.send(start)
        await self.send({"type": "http.response.body", "body": body, "more_body": more})

    def _changed(self, body: bytes) -> bytes:
        answer = parse_object(body.decode("utf-8", "replace"))
        if answer is None or self.edit is None or answer.get("type") == "error" or answer.get("error"):
            return body
        return to_json(self.edit.whole(dict(answer))).encode("utf-8", "surrogatepass")

    def _frames(self, *, end: bool) -> Iterator[bytes]:
        """Yield the events that are complete, changed."""
        at = 0
        for found in _FRAME_END.finditer(self._held):
            yield self._frame(bytes(self._held[at : found.end()]))
            at = found.end()
        del self._held[:at]
        if end or len(self._held) > _MAX_HELD_BYTES:
            yield bytes(self._held)
            self._held.clear()

    def _frame(self, frame: bytes) -> bytes:
        if self.edit is None or not self.edit.concerns(frame):
            return frame
        lines = frame.decode("utf-8", "replace").splitlines()
        data = "\n".join(line[5:].removeprefix(" ") for line in lines if line.startswith("data:"))
        event = parse_object(data)
        if event is None or not isinstance(event.get("type"), str):
            return frame
        return sse(self.edit.event(dict(event)))


def with_warning(headers: Headers, warning: str) -> Headers:
    """Return the headers with one more warning, after any that is there."""
    name = b"x-foldline-warning"
    plain = " ".join(warning.split()).encode("ascii", "replace")[:400]
    there = next((value for key, value in headers if key == name), b"")
    rest = [(key, value) for key, value in headers if key != name]
    return [*rest, (name, b"; ".join(filter(None, (there, plain))))]
