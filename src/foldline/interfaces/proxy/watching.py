"""Looks at an answer while it passes: what it reports, whether it holds an error, whether it has begun.

Nothing is changed or held here. Most pieces of a stream are looked at by a search for a few words in their bytes; only
events that hold one are parsed.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from foldline.errors import InvalidInput
from foldline.messages import Json
from foldline.providers.sse import EventReader
from foldline.transcript import Usage
from foldline.usage import usage_of

__all__ = ["Watch", "decoded"]

_MOST_EVENT_BYTES: Final = 16 * 1024 * 1024
"""An event that is longer is not looked at (the last one of Responses repeats the whole reply)."""

_MOST_WHOLE_BYTES: Final = 64 * 1024 * 1024
_BLANKS: Final = (b"\n\n", b"\r\n\r\n", b"\r\r")
_BOUNDARY: Final = re.compile(rb"\r\n\r\n|\n\n|\r\r")
_WORDS: Final = (b'"usage"', b'"error"', b"[DONE]", b"message_stop", b'"finish_reason":"', b'"finish_reason": "')

_OPENINGS: Final = {
    "anthropic": frozenset({"message_start", "ping"}),
    "openai-responses": frozenset({"response.created", "response.queued", "response.in_progress"}),
}
"""Events that come before anything that a client would show (Anthropic: "Streaming"; OpenAI: "Streaming events")."""

_ENDS: Final = frozenset({"message_stop", "response.completed", "response.incomplete", "response.failed"})
_CONTENT: Final = ("content", "reasoning_content", "reasoning", "tool_calls", "function_call", "refusal", "audio")


class Watch:
    """One answer with status 200, looked at piece by piece. Never raises. O(piece), memory bounded by one event.

    `error` is the body of an error that stands in it. `begun` says whether something has come that a client shows or
    acts on; what cannot be read (another coding) counts as begun. `ended` says whether its closing event has come.
    """

    def __init__(self, dialect: str, *, streamed: bool, encoding: str = "") -> None:
        self._dialect, self._streamed = dialect, streamed
        self._decode = _decoder(encoding)
        self._rest = b""
        self._skips = False
        self._reported: dict[str, Json] = {}
        self.error: bytes | None = None
        self.stop_reason = ""
        self.begun = self._decode is None
        self.ended = False

    @property
    def usage(self) -> Usage | None:
        """What has been reported so far; None if nothing was."""
        try:
            return usage_of(self._reported) if self._reported else None
        except InvalidInput:
            return None

    def feed(self, chunk: bytes) -> None:
        """Look at a piece as it came."""
        if self._decode is None:
            return
        try:
            data = self._decode(chunk)
        except zlib.error:
            self._decode, self.begun, self._rest = None, True, b""
            return
        if self._streamed:
            self._take(data)
        elif not self._skips:
            self._rest += data
            if len(self._rest) > _MOST_WHOLE_BYTES:
                self._skip()

    def finish(self) -> None:
        """Look at what is left: all has come."""
        rest, self._rest = self._rest, b""
        if self._decode is None or self._skips or not rest:
            return
        if self._streamed:
            self._look(rest)
        else:
            self._look_whole(rest)

    # --- inside ------------------------------------------------------------------------------------------------------

    def _take(self, data: bytes) -> None:
        data = self._rest + data if self._rest else data
        end = max(at + len(line) if (at := data.rfind(line)) >= 0 else 0 for line in _BLANKS)
        if not end:
            self._keep(data)
            return
        whole, rest = data[:end], data[end:]
        self._keep(rest)
        if self._skips:
            self._skips = False
            whole = whole[_first_end(whole) :]
        if self.begun and not any(word in whole for word in _WORDS):
            return
        for event in _BOUNDARY.split(whole):
            if event and (not self.begun or any(word in event for word in _WORDS)):
                self._look(event)

    def _keep(self, rest: bytes) -> None:
        self._rest = rest
        if len(rest) > _MOST_EVENT_BYTES:
            self._skip()

    def _skip(self) -> None:
        """Give up what is too long to be looked at."""
        self._rest, self._skips, self.begun = b"", True, True

    def _look(self, event: bytes) -> None:
        for name, data in _data(event):
            if data == "[DONE]":
                self.ended = True
                continue
            value = _object(data)
            if value is None:
                self.begun = True
            elif self._dialect == "openai-chat":
                self._look_chat(value, data, name)
            else:
                self._look_named(value, data, name)

    def _look_chat(self, value: Mapping[str, Any], data: str, name: str) -> None:
        self._report(value.get("usage"))
        choices = value.get("choices")
        if value.get("error") or name == "error":
            self.error = self.error or data.encode("utf-8", "replace")
            return
        if not isinstance(choices, list):
            self.begun = True
            return
        for choice in choices:
            if not isinstance(choice, Mapping):
                continue
            delta = choice.get("delta")
            if isinstance(choice.get("finish_reason"), str):
                self.stop_reason, self.begun = choice["finish_reason"], True
            if isinstance(delta, Mapping) and any(delta.get(part) for part in _CONTENT):
                self.begun = True

    def _look_named(self, value: Mapping[str, Any], data: str, name: str) -> None:
        """An event of Anthropic or Responses, which says what it is."""
        kind = str(value.get("type") or name)
        inner = value.get("message" if self._dialect == "anthropic" else "response")
        inner = inner if isinstance(inner, Mapping) else {}
        self._report(value.get("usage"))
        self._report(inner.get("usage"))
        if kind in _ENDS:
            self.ended = True
        if kind == "error":
            self.error = self.error or data.encode("utf-8", "replace")
        elif kind == "response.failed":
            self.error = self.error or json.dumps({"error": inner.get("error")}).encode()
        elif kind not in _OPENINGS[self._dialect]:
            self.begun = True
        delta, details = value.get("delta"), inner.get("incomplete_details")
        for holder, field in ((delta, "stop_reason"), (details, "reason")):
            if isinstance(holder, Mapping) and isinstance(holder.get(field), str):
                self.stop_reason = holder[field]

    def _look_whole(self, body: bytes) -> None:
        value = _object(body.decode("utf-8", "replace"))
        if value is None:
            self.begun = True
            return
        self.ended = True
        self._report(value.get("usage"))
        failed = value.get("error") or value.get("type") == "error"
        if failed and not value.get("choices") and not value.get("output") and not value.get("content"):
            self.error = body
        else:
            self.begun = True

    def _report(self, usage: Json) -> None:
        """Take up a part of a report: Anthropic gives the input at the beginning and the output at the end."""
        if isinstance(usage, Mapping):
            self._reported |= {name: value for name, value in usage.items() if value is not None}


def decoded(body: bytes, encoding: str) -> bytes:
    """A whole body in plain bytes; as it is where its coding cannot be read. At most 64 MiB of it."""
    decode = _decoder(encoding)
    try:
        return body if decode is None else decode(body)[:_MOST_WHOLE_BYTES]
    except zlib.error:
        return body


def _decoder(encoding: str) -> Callable[[bytes], bytes] | None:
    """What makes plain bytes of coded ones, piece by piece; None for a coding that cannot be read."""
    if encoding in ("", "identity"):
        return bytes
    if encoding in ("gzip", "x-gzip"):
        return _Inflate(31)
    if encoding == "deflate":
        return _Inflate(15)
    return None


class _Inflate:
    """Undoes gzip or deflate; the latter also without the frame that its name promises (RFC 9110, 8.4.1.2)."""

    def __init__(self, bits: int) -> None:
        self._inflate, self._bits, self._first = zlib.decompressobj(bits), bits, True

    def __call__(self, chunk: bytes) -> bytes:
        try:
            out = self._inflate.decompress(chunk, _MOST_WHOLE_BYTES)
        except zlib.error:
            if not self._first or self._bits != 15:
                raise
            self._inflate = zlib.decompressobj(-15)
            out = self._inflate.decompress(chunk, _MOST_WHOLE_BYTES)
        self._first = False
        if self._inflate.unconsumed_tail:
            raise zlib.error("more than can be looked at")
        return out


def _data(event: bytes) -> Iterator[tuple[str, str]]:
    """The name and the data of the events in some bytes."""
    reader = EventReader()
    try:
        for found in (*reader.feed(event + b"\n\n"), *reader.finish()):
            yield found.name, found.data
    except InvalidInput:
        return


def _object(text: str) -> Mapping[str, Any] | None:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _first_end(data: bytes) -> int:
    found = _BOUNDARY.search(data)
    return 0 if found is None else found.end()
