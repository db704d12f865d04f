"""Bodies on the wire: JSON requests, JSON answers, and server-sent events from bytes in pieces of any size."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Final

from foldline.codecs.encoding import clean
from foldline.errors import InvalidInput, MissingExtra
from foldline.messages import Json

if TYPE_CHECKING:
    import httpx

__all__ = [
    "MAX_EVENT_BYTES",
    "BrokenEventError",
    "Event",
    "EventReader",
    "StreamedError",
    "encode_body",
    "json_object",
    "load_httpx",
    "read_bytes",
    "root_message",
]


class StreamedError(Exception):
    """An error inside a stream, or in a body with a success status; `body` is its content."""

    def __init__(self, body: Json) -> None:
        super().__init__("an error inside a reply")
        self.body = body


class BrokenEventError(StreamedError):
    """An event that is no JSON object: a truncated line, or an error in plain text."""


def load_httpx() -> ModuleType:
    """Import httpx on first use. Raises MissingExtra."""
    try:
        import httpx
    except ImportError:
        raise MissingExtra("chat", "talking to a model server") from None
    return httpx


def encode_body(body: dict[str, Json]) -> bytes:
    """Encode a body as UTF-8 JSON. Values that cannot be sent (a lone surrogate in a schema) are replaced."""
    # Compact and not escaped to ASCII: fewer bytes for limits on bytes, and the same bytes in every request for caches.
    try:
        return json.dumps(body, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_plain).encode()
    except (ValueError, TypeError):  # rare, so cleaning, which walks the whole body, waits for it
        return json.dumps(clean(body), ensure_ascii=False, separators=(",", ":")).encode()


def _plain(value: object) -> Json:
    """Return a mapping of another type as a dict."""
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is no JSON")


def json_object(content: bytes) -> Mapping[str, Json]:
    """Parse the JSON object of an answer. Raises StreamedError for anything else."""
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise StreamedError(content[:2_000].decode("utf-8", "replace"))
    return value


async def read_bytes(response: httpx.Response, most_bytes: int) -> bytes:
    """Read a body, up to `most_bytes`."""
    pieces, size_bytes = [], 0
    async for chunk in response.aiter_bytes():
        pieces.append(chunk)
        size_bytes += len(chunk)
        if size_bytes >= most_bytes:
            break
    return b"".join(pieces)[:most_bytes]


def root_message(error: BaseException) -> str:
    """Return the message of the innermost error: "All connection attempts failed" hides that one was refused."""
    message = str(error)
    # A chain of exceptions in httpx, httpcore and asyncio ends at the error of the operating system.
    inner: BaseException | None = error
    while inner is not None:
        if isinstance(inner, OSError) and inner.strerror:
            message = inner.strerror
        inner = inner.__cause__ or inner.__context__
    return message or type(error).__name__


MAX_EVENT_BYTES: Final = 64 * 1024 * 1024
"""The size limit of an event: the largest ones in use repeat a whole reply with images, and stay below this."""

_BOM: Final = b"\xef\xbb\xbf"
_LF, _CR = 0x0A, 0x0D


@dataclass(frozen=True, slots=True)
class Event:
    """One event: its name ("" without one) and its data, with lines joined by newlines."""

    name: str
    data: str


class EventReader:
    """Parses events from bytes in any pieces. Each byte is scanned once."""

    def __init__(self, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        self._max_event_bytes = max_event_bytes
        self._pieces: list[bytes] = []  # of the line that is not yet whole
        self._size_bytes = 0
        self._after_cr = False
        self._first = True
        self._name = ""
        self._data: list[str] = []

    def feed(self, chunk: bytes) -> list[Event]:
        """Return the events that these bytes complete. Raises InvalidInput for one over `max_event_bytes`."""
        if self._after_cr and chunk:
            self._after_cr = False
            if chunk[0] == _LF:  # the second half of a CRLF that was split
                chunk = chunk[1:]
        self._size_bytes += len(chunk)
        events: list[Event] = []
        start = 0
        while (end := _line_end(chunk, start)) >= 0:
            self._pieces.append(chunk[start:end])
            start = end + 1
            if chunk[end] == _CR:
                if start == len(chunk):
                    self._after_cr = True
                elif chunk[start] == _LF:
                    start += 1
            event = self._line(b"".join(self._pieces))
            self._pieces.clear()
            if event is not None:
                events.append(event)
                self._size_bytes = len(chunk) - start
        self._pieces.append(chunk[start:])
        if self._size_bytes > self._max_event_bytes:
            raise InvalidInput(f"an event of more than {self._max_event_bytes:,} bytes", place="stream")
        return events

    def finish(self) -> list[Event]:
        """Return the event that the end of the stream completes, if any."""
        rest = b"".join(self._pieces)
        self._pieces.clear()
        found = [self._line(rest) if rest else None, self._line(b"")]
        return [event for event in found if event is not None]

    def _line(self, line: bytes) -> Event | None:
        if self._first:
            self._first = False
            line = line.removeprefix(_BOM)
        if not line:
            return self._dispatch()
        # Only whole lines are decoded, because a chunk may end inside a character.
        name, _, value = line.decode("utf-8", "replace").partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            self._data.append(value)
        elif name == "event":
            self._name = value
        elif name == "error":  # no field of the standard: llama.cpp's server sends its errors like this
            self._name = "error"
            self._data.append(value)
        return None  # a comment (no name), or a field without use here: id, retry

    def _dispatch(self) -> Event | None:
        # An event without data is none by the standard (HTML, "Interpreting an event stream"): a keep-alive.
        event = Event(self._name, "\n".join(self._data)) if self._data else None
        self._name, self._data = "", []
        return event


def _line_end(chunk: bytes, start: int) -> int:
    """Return the end of the next line, or -1 if it is not in this chunk."""
    feed = chunk.find(b"\n", start)
    back = chunk.find(b"\r", start, feed if feed >= 0 else len(chunk))
    return back if back >= 0 else feed
