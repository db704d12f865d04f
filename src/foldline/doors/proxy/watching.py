"""Looks at an answer while it passes: what it reports, whether it holds an error, whether it has begun.

Nothing is changed or held up here. Once a stream has begun, its pieces are searched for a few words; only events that
hold one are parsed. What a piece of content costs is a search of its bytes.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, Final

from foldline.doors.proxy.hints import SAYS, is_quiet, object_of, usage_in
from foldline.doors.proxy.inflating import Inflate, decoded, readable
from foldline.errors import InvalidInput
from foldline.messages import Json
from foldline.providers.assembly import reported
from foldline.providers.bodies import EventReader
from foldline.view.transcript import Usage
from foldline.view.usage import usage_of

__all__ = ["Watch", "decoded", "hold_back"]

_MOST_EVENT_BYTES: Final = 1024 * 1024
"""Of a longer event only the beginning and the end are kept: they say what it is, and what was used."""

_MOST_WHOLE_BYTES: Final = 16 * 1024 * 1024
_HEAD_BYTES: Final = 4 * 1024
_TAIL_BYTES: Final = 16 * 1024
_LONG_BYTES: Final = 8 * 1024
"""From here on an event of Responses that repeats the request (tools, instructions) is not parsed, if it need not be:
100 KB of them cost as much time as a thousand pieces of text."""

_MOST_NAMES: Final = 64

# Two line ends in a row, whichever each of them is: "\r\n\r\n" holds the second pair, "\r\n\n" the first.
_BLANKS: Final = frozenset({b"\n\n", b"\n\r", b"\r\r"})
_BLANK: Final = re.compile(rb"\n\n|\n\r|\r\r")
_WHOLE_ENDS: Final = (b"\n\n", b"\r\n\r\n")

_NAME: Final = re.compile(rb"(?:^|[\r\n])event: ?([\w.\-]+)")
_TYPE: Final = re.compile(rb'"type"\s*:\s*"([\w.\-]+)"')
_ERROR_FIRST: Final = re.compile(rb'(?:^|[\r\n])(?:error: ?|data: ?\{\s*"error")')

_OPENINGS: Final = frozenset({"response.created", "response.queued", "response.in_progress"})
_ENDS: Final = frozenset({"response.completed", "response.incomplete", "response.failed", "response.done"})
_ERRORS: Final = frozenset({"error", "response.error"})
"""Events of Responses. Source: OpenAI API reference, "Streaming events"; `response.error`, `.done`: gateways."""

_NOT_SHOWN: Final = frozenset({"role", "name", "id"})


class Watch:
    """One answer with status 200, looked at piece by piece. Never raises. Memory: one event, at most 1 MiB; a whole
    answer in JSON, at most 16 MiB.

    `error` is the body of an error that stands in it. `begun` says whether something has come that a client shows or
    acts on; after an error nothing begins. What cannot be read (another coding, another form) counts as begun. `ended`
    says whether the event has come that closes the answer, or the answer was whole JSON. `stop_reason` is in the
    dialect's own word.
    """

    def __init__(self, dialect: str, *, streamed: bool, encoding: str = "") -> None:
        self._dialect, self._streamed = dialect, streamed
        self._says = SAYS[dialect]
        self._inflate = None if encoding in ("", "identity") or not readable(encoding) else Inflate(encoding)
        self._blind = not readable(encoding)
        self._first = True
        self._rest = bytearray()  # of the event that is not yet whole
        self._cut = False  # whether its middle was dropped
        self._reported: dict[str, Json] = {}
        self.error: bytes | None = None
        self.stop_reason = ""
        self.begun = self._blind
        self.ended = False

    @property
    def usage(self) -> Usage | None:
        """What has been reported so far; None if nothing was."""
        try:
            return usage_of(self._reported) if self._reported else None
        except (InvalidInput, RecursionError):  # no report, or one that is nested too deep to be shown in an error
            return None

    def feed(self, chunk: bytes) -> None:
        """Look at a piece as it came."""
        if self._blind:
            return
        if self._inflate is None:
            self._take(chunk)
            return
        try:
            for data in self._inflate.pieces(chunk):
                self._take(data)
        except zlib.error:
            self._give_up()

    def finish(self) -> None:
        """Look at what is left: all has come."""
        rest, cut = bytes(self._rest), self._cut
        self._rest.clear()
        if self._blind or not rest:
            return
        if self._streamed:
            self._look_at_all(rest, cut)
        else:
            self._look_whole(rest)

    # --- pieces ------------------------------------------------------------------------------------------------------

    def _take(self, data: bytes) -> None:
        if self._first and not (data := self._opened(data)):
            return
        if not self._streamed:
            self._rest += data
            if len(self._rest) > _MOST_WHOLE_BYTES:
                self._give_up()
            return
        cut = self._cut
        if self._rest or not data.endswith(_WHOLE_ENDS):
            data = self._completed(data)
        if data and (cut or not self.begun or self._says(data)):
            self._look_at_all(data, cut)

    def _opened(self, data: bytes) -> bytes:
        """The piece from its first byte on that is no blank. A server may answer a wish for a stream with JSON."""
        data = data.lstrip()
        if data:
            self._first = False
            self._streamed = self._streamed and data[0] not in b"{["
        return data

    def _completed(self, data: bytes) -> bytes:
        """The events that a piece completes; what comes after them is kept."""
        rest = self._rest
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
        if len(rest) > _MOST_EVENT_BYTES + 4 or (self._cut and len(rest) > _HEAD_BYTES + 4 * _TAIL_BYTES):
            # A blank stands for what is dropped, so that the two parts make no line end together.
            rest[_HEAD_BYTES : -_TAIL_BYTES - 4] = b" "
            self._cut = True
        return whole

    def _give_up(self) -> None:
        self._blind = True
        self._rest.clear()
        self._begin()

    # --- events ------------------------------------------------------------------------------------------------------

    def _look_at_all(self, data: bytes, cut: bool) -> None:
        for piece in _BLANK.split(data) if b"\r" in data else data.split(b"\n\n"):
            event = piece.strip(b"\r\n")
            if event and (cut or not self.begun or self._says(event)):
                self._look(event, cut)
            cut = False

    def _look(self, event: bytes, cut: bool) -> None:
        if (cut or len(event) > _LONG_BYTES) and self._look_long(event, cut or len(event) > _MOST_EVENT_BYTES):
            return
        reader = EventReader()
        for found in (*reader.feed(event + b"\n\n"), *reader.finish()):
            data = found.data.strip()
            if data == "[DONE]":
                self._end()
                continue
            value = object_of(data)
            if value is not None and self._dialect == "openai-chat":
                self._look_chat(value, data, found.name)
            elif value is not None:
                self._look_named(value, data, found.name)
            elif found.name == "error":
                self._fail(data)
            elif data:
                self._begin()

    def _look_long(self, event: bytes, too_long: bool) -> bool:
        """Look at the beginning and the end of a long event; False when it has to be parsed, and can be."""
        head, tail = event[:_HEAD_BYTES], event[-_TAIL_BYTES:]
        named = _NAME.search(head) or _TYPE.search(head)
        kind = named[1].decode() if named is not None and self._dialect == "openai-responses" else ""
        if kind in _OPENINGS:
            return True
        if kind == "response.completed" and (usage := usage_in(tail)) is not None:
            self._report(usage)
            self.stop_reason = "completed"
            self._end()
            return True
        if not too_long:
            return False
        if kind in _ERRORS or kind == "response.failed" or _ERROR_FIRST.search(head):
            self._fail((head + b" " + tail).decode("utf-8", "replace"))
        elif kind in _ENDS:
            self._report(usage_in(tail))
            self._end()
        else:
            self._begin()
        return True

    def _look_chat(self, value: Mapping[str, Any], data: str, name: str) -> None:
        listed = value.get("choices")
        choices = [c for c in listed if isinstance(c, Mapping)] if isinstance(listed, list) else []
        own = value.get("x_groq")
        counted = self._report(value.get("usage")) or (isinstance(own, Mapping) and self._report(own.get("usage")))
        # An older vLLM sends the error itself, with this for its object.
        failed = bool(value.get("error")) or name == "error" or value.get("object") == "error"
        for choice in choices:
            if self._look_choice(choice):
                failed, data = True, data if value.get("error") else _failure_of(choice, data)
        if failed:
            self._fail(data)
        elif not choices and (counted or "choices" not in value):
            self._begin()

    def _look_choice(self, choice: Mapping[str, Any]) -> bool:
        """Look at a choice; whether it says that the answer failed (OpenRouter, "Errors in streams")."""
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

    def _look_named(self, value: Mapping[str, Any], data: str, name: str) -> None:
        """An event of Anthropic or Responses, which says what it is."""
        given = value.get("type")
        kind = given if isinstance(given, str) and given else name
        self._report(value.get("usage"))
        if kind in _ERRORS or name == "error" or (value.get("error") and "type" not in value):
            self._fail(data)
        elif self._dialect == "anthropic":
            self._look_anthropic(kind, value)
        elif kind in _ENDS:
            response = value.get("response")
            self._look_response(response if isinstance(response, Mapping) else {}, data, kind)
        elif kind not in _OPENINGS and not is_quiet(kind, value):
            self._begin()

    def _look_anthropic(self, kind: str, value: Mapping[str, Any]) -> None:
        """Source: Anthropic's docs, "Streaming messages"."""
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

    def _look_response(self, response: Mapping[str, Any], data: str, kind: str) -> None:
        """The response of a closing event, or of a whole answer."""
        self._report(response.get("usage"))
        self._stop(response, "status")
        self._stop(response.get("incomplete_details"), "reason")
        if kind == "response.failed" or response.get("status") == "failed" or response.get("error"):
            self._fail(data)
        self._end()

    def _look_whole(self, body: bytes) -> None:
        text = body.decode("utf-8", "replace")
        value = object_of(text)
        if value is None:
            self._begin()
            return
        self._report(value.get("usage"))
        shown = any(value.get(part) for part in ("choices", "output", "content"))
        if not shown and (value.get("error") or "error" in (value.get("type"), value.get("object"))):
            self._fail(text)
        elif self._dialect == "openai-chat":
            self._look_chat(value, text, "")
        elif self._dialect == "openai-responses":
            self._look_response(value, text, "")
        else:
            self._stop(value, "stop_reason")
        self._end()

    # --- what they come to -------------------------------------------------------------------------------------------

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
        """Take up a report; whether it says something. Counts of a later one are totals so far, and some servers put
        zeros into the first or the last one; Anthropic gives the input at the beginning and the output at the end."""
        told = reported(usage)
        for name, value in (told or {}).items():
            old = self._reported.get(name)
            if value is None or (old is None and len(self._reported) >= _MOST_NAMES):
                continue
            larger = isinstance(old, int) and isinstance(value, int) and value < old
            self._reported[name] = old if larger else value
        return told is not None


def _failure_of(choice: Mapping[str, Any], data: str) -> str:
    """The error of a choice as a body of its own; the whole event where the choice names none."""
    try:
        return json.dumps({"error": choice["error"]}) if choice.get("error") else data
    except RecursionError:
        return data


async def hold_back(
    held: list[bytes], chunks: AsyncIterator[bytes], most_bytes: int, enough: Callable[[bytes], bool]
) -> bool:
    """Take the pieces of an answer until there is enough of it, or too much; whether it has ended."""
    size_bytes = 0
    async for chunk in chunks:
        held.append(chunk)
        size_bytes += len(chunk)
        if enough(chunk) or size_bytes > most_bytes:
            return False
    return True
