"""Watches a response while it passes: its usage reports, an error in it, whether content has begun.

Nothing is changed or delayed here. Once content has begun, pieces are searched for a few words, and only events that
contain one are parsed: a piece of content costs a search of its bytes.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, Final

from foldline.codecs import dialect_named
from foldline.doors.proxy.bodies import Inflater, decoded, find_usage, parse_object, readable, shows_nothing
from foldline.errors import InvalidInput
from foldline.messages import Json
from foldline.providers.base import reported
from foldline.providers.bodies import EventReader
from foldline.view.transcript import Usage
from foldline.view.usage import usage_of

__all__ = ["ResponseWatch", "buffer_until", "decoded"]

# Longer events are cut to their beginning and end: the name is in one, the usage in the other.
_MAX_EVENT_BYTES: Final = 1024 * 1024

_MAX_WHOLE_BYTES: Final = 16 * 1024 * 1024  # a larger reply passes without a look at its usage
_HEAD_BYTES: Final = 4 * 1024
_TAIL_BYTES: Final = 16 * 1024
# Events of Responses repeat the request (tools, instructions): 100 KB cost as much time as a thousand pieces of text.
# So longer events are not parsed where their beginning and end suffice.
_LONG_BYTES: Final = 8 * 1024

_MAX_NAMES: Final = 64  # of a usage report: an upstream could invent new ones for ever

# Two line ends in a row end an event, in any mixture: "\r\n\r\n" contains the second pair, "\r\n\n" the first.
_BLANKS: Final = frozenset({b"\n\n", b"\n\r", b"\r\r"})
_BLANK: Final = re.compile(rb"\n\n|\n\r|\r\r")
_WHOLE_ENDS: Final = (b"\n\n", b"\r\n\r\n")

_NAME: Final = re.compile(rb"(?:^|[\r\n])event: ?([\w.\-]+)")
_TYPE: Final = re.compile(rb'"type"\s*:\s*"([\w.\-]+)"')
_ERROR_FIRST: Final = re.compile(rb'(?:^|[\r\n])(?:error: ?|data: ?\{\s*"error")')

_NOT_SHOWN: Final = frozenset({"role", "name", "id"})


class ResponseWatch:
    """One response with status 200, watched piece by piece. Never raises. Memory: one event of at most 1 MiB, or a
    whole JSON body of at most 16 MiB.

    `error` is the body of an error in the response. `begun` says whether anything has arrived that a client shows or
    acts on; after an error nothing begins. Unreadable data (another coding, another form) counts as begun. `ended`
    says whether the closing event has arrived, or the response was whole JSON. `stop_reason` is the dialect's own
    word.
    """

    def __init__(self, dialect: str, *, streamed: bool, encoding: str = "") -> None:
        self._streamed = streamed
        self._words = dialect_named(dialect).stream
        self._may_report = self._words.says
        self._is_array = False  # a stream of Gemini without alt=sse: one array that grows
        self._inflate = None if encoding in ("", "identity") or not readable(encoding) else Inflater(encoding)
        self._blind = not readable(encoding)
        self._first = True
        self._rest = bytearray()  # of the event that is still incomplete
        self._cut = False  # whether the middle of that event was dropped
        self._reported: dict[str, Json] = {}
        self.error: bytes | None = None
        self.stop_reason = ""
        self.begun = self._blind
        self.ended = False

    @property
    def usage(self) -> Usage | None:
        """The usage reported so far; None without a report."""
        try:
            return usage_of(self._reported) if self._reported else None
        except (InvalidInput, RecursionError):  # no valid report, or one that is nested too deeply
            return None

    def feed(self, chunk: bytes) -> None:
        """Watch the next piece, as it arrived."""
        if self._blind:
            return
        if self._inflate is None:
            self._read(chunk)
            return
        try:
            for data in self._inflate.pieces(chunk):
                self._read(data)
        except zlib.error:
            self._give_up()

    def finish(self) -> None:
        """Watch the rest, as the response is complete."""
        rest, cut = bytes(self._rest), self._cut
        self._rest.clear()
        if self._blind or not rest:
            return
        if self._streamed:
            self._inspect_all(rest, cut)
        else:
            self._inspect_whole(rest)

    # --- pieces ------------------------------------------------------------------------------------------------------

    def _read(self, data: bytes) -> None:
        if self._first and not (data := self._skip_blanks(data)):
            return
        if not self._streamed:
            self._rest += data
            if self._is_array and b'"candidates"' in data:
                self._begin()
            if len(self._rest) > _MAX_WHOLE_BYTES:
                self._give_up()
            return
        cut = self._cut
        if self._rest or not data.endswith(_WHOLE_ENDS):
            data = self._complete_events(data)
        if data and (cut or not self.begun or self._may_report(data)):
            self._inspect_all(data, cut)

    def _skip_blanks(self, data: bytes) -> bytes:
        """The first piece without leading blanks. A server may answer with JSON though a stream was requested."""
        data = data.lstrip()
        if data:
            self._first = False
            self._is_array = self._words.shape == "candidates" and data[:1] == b"["
            self._streamed = self._streamed and data[0] not in b"{["
        return data

    def _complete_events(self, data: bytes) -> bytes:
        """The events that a piece completes. The incomplete rest is kept for the next piece."""
        rest = self._rest
        # The blank line that ends an event may be split between two pieces, and each of its line ends may have either
        # form. Only the last one in the piece matters: everything before it is complete. Searching from the end finds
        # it without a look at each event, and the kept rest is never searched again.
        if not rest:
            data = data.lstrip(b"\r\n")
        at = data.rfind(b"\n\n")
        if b"\r" in data:
            at = max(at, data.rfind(b"\n\r"), data.rfind(b"\r\r"))
        end = at + 2 if at >= 0 else 1 if rest and bytes(rest[-1:]) + data[:1] in _BLANKS else 0
        if end:
            whole = bytes(rest) + data[:end]
            rest[:] = data[end:].lstrip(b"\r\n")
            self._cut = False
        else:
            whole = b""
            rest += data
        if len(rest) > _MAX_EVENT_BYTES + 4 or (self._cut and len(rest) > _HEAD_BYTES + 4 * _TAIL_BYTES):
            # The middle goes. A blank takes its place, so that no line end arises where the two parts meet.
            rest[_HEAD_BYTES : -_TAIL_BYTES - 4] = b" "
            self._cut = True
        return whole

    def _give_up(self) -> None:
        self._blind = True
        self._rest.clear()
        self._begin()

    # --- events ------------------------------------------------------------------------------------------------------

    def _inspect_all(self, data: bytes, cut: bool) -> None:
        for piece in _BLANK.split(data) if b"\r" in data else data.split(b"\n\n"):
            event = piece.strip(b"\r\n")
            if event and (cut or not self.begun or self._may_report(event)):
                self._inspect(event, cut)
            cut = False

    def _inspect(self, event: bytes, cut: bool) -> None:
        if (cut or len(event) > _LONG_BYTES) and self._inspect_long(event, cut or len(event) > _MAX_EVENT_BYTES):
            return
        reader = EventReader()
        for found in (*reader.feed(event + b"\n\n"), *reader.finish()):
            data = found.data.strip()
            if data == "[DONE]":
                self._end()
                continue
            value = parse_object(data)
            if value is not None and self._words.shape == "choices":
                self._inspect_chat(value, data, found.name)
            elif value is not None and self._words.shape == "candidates":
                self._inspect_candidates(value, data)
            elif value is not None:
                self._inspect_named(value, data, found.name)
            elif found.name == "error":
                self._fail(data)
            elif data:
                self._begin()

    def _inspect_long(self, event: bytes, too_long: bool) -> bool:
        """Inspect the beginning and end of a long event; False if it must be parsed, and can be."""
        head, tail = event[:_HEAD_BYTES], event[-_TAIL_BYTES:]
        named = _NAME.search(head) or _TYPE.search(head)
        kind = named[1].decode() if named is not None and self._words.shape == "response" else ""
        if kind in self._words.openings:
            return True
        if kind == "response.completed" and (usage := find_usage(tail)) is not None:
            self._report(usage)
            self.stop_reason = "completed"
            self._end()
            return True
        if not too_long:
            return False
        if kind in self._words.errors or kind == "response.failed" or _ERROR_FIRST.search(head):
            self._fail((head + b" " + tail).decode("utf-8", "replace"))
        elif kind in self._words.ends:
            self._report(find_usage(tail))
            self._end()
        else:
            self._begin()
        return True

    def _inspect_chat(self, value: Mapping[str, Any], data: str, name: str) -> None:
        listed = value.get("choices")
        choices = [c for c in listed if isinstance(c, Mapping)] if isinstance(listed, list) else []
        own = value.get("x_groq")
        counted = self._report(value.get("usage")) or (isinstance(own, Mapping) and self._report(own.get("usage")))
        # Older versions of vLLM send the error itself, with "error" as its object.
        failed = bool(value.get("error")) or name == "error" or value.get("object") == "error"
        for choice in choices:
            if self._inspect_choice(choice):
                failed, data = True, data if value.get("error") else _failure_of(choice, data)
        if failed:
            self._fail(data)
        elif not choices and (counted or "choices" not in value):
            self._begin()

    def _inspect_choice(self, choice: Mapping[str, Any]) -> bool:
        """Inspect a choice; whether it reports a failure (OpenRouter, "Errors in streams")."""
        self._report(choice.get("usage"))
        for part in (choice.get("delta"), choice.get("message")):
            if isinstance(part, Mapping) and any(part[name] for name in part if name not in _NOT_SHOWN):
                self._begin()
        if choice.get("text"):
            self._begin()
        reason = choice.get("finish_reason")
        if choice.get("error") or reason == "error":
            return True
        if isinstance(reason, str) and reason:
            self.stop_reason = reason
            self._end()
        return False

    def _inspect_named(self, value: Mapping[str, Any], data: str, name: str) -> None:
        """Inspect an event of Anthropic or Responses, which names its type."""
        named = value.get("type")
        kind = named if isinstance(named, str) and named else name
        self._report(value.get("usage"))
        if kind in self._words.errors or name == "error" or (value.get("error") and "type" not in value):
            self._fail(data)
        elif self._words.shape == "message":
            self._inspect_anthropic(kind, value)
        elif kind in self._words.ends:
            response = value.get("response")
            self._inspect_response(response if isinstance(response, Mapping) else {}, data, kind)
        elif kind not in self._words.openings and not shows_nothing(kind, value):
            self._begin()

    def _inspect_anthropic(self, kind: str, value: Mapping[str, Any]) -> None:
        """Inspect an event of Anthropic. Source: Anthropic's docs, "Streaming messages"."""
        if kind == "message_start":
            message = value.get("message")
            if isinstance(message, Mapping):
                self._report(message.get("usage"))
                if message.get("content"):
                    self._begin()
        elif kind == "message_delta":
            self._stop(value.get("delta"), "stop_reason")
            self._begin()
        elif kind == "message_stop":
            self._end()
        elif kind == "content_block_start":
            block = value.get("content_block")
            if not (isinstance(block, Mapping) and block.get("type") == "text" and not block.get("text")):
                self._begin()
        elif kind != "ping":
            self._begin()

    def _inspect_response(self, response: Mapping[str, Any], data: str, kind: str) -> None:
        """Inspect the response object of a closing event, or of a whole body."""
        self._report(response.get("usage"))
        self._stop(response, "status")
        self._stop(response.get("incomplete_details"), "reason")
        if kind == "response.failed" or response.get("status") == "failed" or response.get("error"):
            self._fail(data)
        self._end()

    def _inspect_candidates(self, value: Mapping[str, Any], data: str) -> None:
        """Inspect an event of Gemini, which is a whole response. Source: API reference, "Generating content"."""
        self._report(value.get(self._words.usage))
        candidates = value.get("candidates")
        for candidate in candidates if isinstance(candidates, list) else ():
            if not isinstance(candidate, Mapping):
                continue
            content = candidate.get("content")
            if isinstance(content, Mapping) and content.get("parts"):
                self._begin()
            if candidate.get("finishReason"):
                self._stop(candidate, "finishReason")
                self._end()
        feedback = value.get("promptFeedback")
        if isinstance(feedback, Mapping) and feedback.get("blockReason"):
            self._stop(feedback, "blockReason")
            self._end()
        if value.get("error"):
            self._fail(data)

    def _inspect_array(self, text: str) -> None:
        """Inspect a stream that came as one array: its items are the events."""
        try:
            values = json.loads(text)
        except (ValueError, RecursionError):
            self._begin()
            return
        for value in values if isinstance(values, list) else ():
            if isinstance(value, dict):
                self._inspect_candidates(value, json.dumps(value))

    def _inspect_whole(self, body: bytes) -> None:
        text = body.decode("utf-8", "replace")
        if self._is_array:
            self._inspect_array(text)
            return
        value = parse_object(text)
        if value is None:
            self._begin()
            return
        self._report(value.get(self._words.usage))
        shown = any(value.get(part) for part in self._words.shown)
        if not shown and (value.get("error") or "error" in (value.get("type"), value.get("object"))):
            self._fail(text)
        elif self._words.shape == "choices":
            self._inspect_chat(value, text, "")
        elif self._words.shape == "response":
            self._inspect_response(value, text, "")
        elif self._words.shape == "candidates":
            self._inspect_candidates(value, text)
        else:
            self._stop(value, "stop_reason")
        self._end()

    # --- state -------------------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        if self.error is None:
            self.begun = True

    def _end(self) -> None:
        self.ended = True
        self._begin()

    def _fail(self, data: str) -> None:
        if self.error is None:
            self.error = data.encode("utf-8", "replace")

    def _stop(self, holder: Json, field: str) -> None:
        if isinstance(holder, Mapping) and isinstance(holder.get(field), str):
            self.stop_reason = holder[field]

    def _report(self, usage: Json) -> bool:
        """Merge a usage report into the earlier ones; whether it was one."""
        # Counts of a later report are totals so far, so the larger one holds: some servers put zeros into the first or
        # the last report, and Anthropic gives the input at the beginning and the output at the end.
        report = reported(usage)
        for name, value in (report or {}).items():
            old = self._reported.get(name)
            if value is None or (old is None and len(self._reported) >= _MAX_NAMES):
                continue
            larger = isinstance(old, int) and isinstance(value, int) and value < old
            self._reported[name] = old if larger else value
        return report is not None


def _failure_of(choice: Mapping[str, Any], data: str) -> str:
    """The error of a choice as a body of its own; the whole event if the choice has none."""
    try:
        return json.dumps({"error": choice["error"]}) if choice.get("error") else data
    except RecursionError:
        return data


async def buffer_until(
    held: list[bytes], chunks: AsyncIterator[bytes], max_bytes: int, enough: Callable[[bytes], bool]
) -> bool:
    """Collect pieces of a response in `held` until they are enough, or too many; whether it has ended."""
    size_bytes = 0
    async for chunk in chunks:
        held.append(chunk)
        size_bytes += len(chunk)
        if enough(chunk) or size_bytes > max_bytes:
            return False
    return True
