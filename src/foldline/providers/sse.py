"""Server-sent events out of bytes, in whatever pieces they come.

Source of the rules: HTML Living Standard, "Server-sent events", 9.2.5 and 9.2.6. Two liberties, for servers in use: an
event that the stream's end cuts off before its blank line is given all the same, and a field `error` (older
llama-server) is an event of that name.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from foldline.errors import InvalidInput

__all__ = ["MAX_EVENT_BYTES", "Event", "EventReader"]

MAX_EVENT_BYTES: Final = 64 * 1024 * 1024
"""A longer event is an error: the largest in use repeat a whole reply, with images, and stay below this."""

_BOM: Final = b"\xef\xbb\xbf"
_LF, _CR = 0x0A, 0x0D


@dataclass(frozen=True, slots=True)
class Event:
    """One event: its name ("" where the server gives none) and its data, lines joined by newlines."""

    name: str
    data: str


class EventReader:
    """Takes bytes as they come, gives events as they become whole. Each byte is looked at once."""

    def __init__(self, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        self._max_event_bytes = max_event_bytes
        self._pieces: list[bytes] = []  # of the line that is not yet whole
        self._size_bytes = 0
        self._after_cr = False
        self._first = True
        self._name = ""
        self._data: list[str] = []

    def feed(self, chunk: bytes) -> list[Event]:
        """The events that these bytes complete. Raises InvalidInput for one over `max_event_bytes`."""
        if self._after_cr and chunk:
            self._after_cr = False
            if chunk[0] == _LF:  # the other half of a CRLF that was split
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
        """What the end of the stream completes: at most one event."""
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
        # A line is decoded whole, so that a character split between two chunks comes together first.
        name, _, value = line.decode("utf-8", "replace").partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            self._data.append(value)
        elif name == "event":
            self._name = value
        elif name == "error":
            self._name = "error"
            self._data.append(value)
        return None  # a comment (no name), or a field that says nothing to us: id, retry

    def _dispatch(self) -> Event | None:
        event = Event(self._name, "\n".join(self._data)) if self._data else None
        self._name, self._data = "", []
        return event


def _line_end(chunk: bytes, start: int) -> int:
    """Where the next line ends; -1 if it does not end in this chunk."""
    feed = chunk.find(b"\n", start)
    back = chunk.find(b"\r", start, feed if feed >= 0 else len(chunk))
    return back if back >= 0 else feed
