"""The model server behind every route: `python -m foldline_bench.proxy.upstream`.

It streams Chat Completions and does nothing else, so it takes little of the machine: requests are parsed by hand, and
all events but the first are made beforehand. Each event is a write of its own, as from a server that makes tokens.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import sys
from collections.abc import Callable, Sequence
from typing import Final

__all__ = ["WORD", "FakeModelServer", "answer_text", "main", "serve_upstream"]

WORD: Final = " word"
"""The text of each event after the first."""

_LENGTH: Final = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_MARK: Final = re.compile(rb"\[\[([0-9a-z-]+) (\d+) (\d+)\]\]")
_HEAD: Final = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ncache-control: no-cache\r\n"
    b"transfer-encoding: chunked\r\n\r\n"
)
_HEADING: Final = b'{"id":"chatcmpl-bench","object":"chat.completion.chunk","created":1764288000,"model":"bench",'
_START: Final = _HEADING + b'"choices":[{"index":0,'
_USAGE: Final = _HEADING + b'"choices":[],"usage":{"prompt_tokens":%d,"completion_tokens":%d,"total_tokens":%d}}'


def answer_text(mark: str, words: int) -> str:
    """The whole text of an answer of `words` events to the request with that mark."""
    return mark + WORD * (words - 1)


def _event(data: bytes) -> bytes:
    """One server-sent event as one chunk of HTTP."""
    text = b"data: " + data + b"\n\n"
    return b"%x\r\n%s\r\n" % (len(text), text)


def _piece(delta: bytes, finish: bytes = b"null") -> bytes:
    return _event(_START + b'"delta":{' + delta + b'},"finish_reason":' + finish + b"}]}")


_OPENING: Final = _piece(b'"role":"assistant","content":""')
_NEXT: Final = _piece(b'"content":"' + WORD.encode() + b'"')
_LAST: Final = _piece(b"", b'"stop"')
_DONE: Final = _event(b"[DONE]") + b"0\r\n\r\n"


class FakeModelServer(asyncio.Protocol):
    """One connection, which takes one request after the other.

    The last `[[mark wait pause]]` of a request says how its answer goes: the mark is its first word, after `wait`
    milliseconds; the others come `pause` milliseconds apart, `words` of them in all, then usage, as with include_usage.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, words: int) -> None:
        self._loop, self._words = loop, words
        self._read = bytearray()
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the way back."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        """Send nothing more."""
        self._transport = None

    def data_received(self, data: bytes) -> None:
        """Answer each request once it is whole."""
        self._read += data
        end = self._read.find(b"\r\n\r\n")
        if end < 0:
            return
        length = _LENGTH.search(self._read, 0, end)
        whole = end + 4 + (int(length[1]) if length else 0)
        if len(self._read) < whole:
            return
        request = bytes(self._read[:whole])
        del self._read[:whole]
        self._take(request, whole - end)

    def _take(self, request: bytes, body_bytes: int) -> None:
        if not request.startswith(b"POST ") or b"/chat/completions" not in request[:80]:
            self._write(b"HTTP/1.1 404 Not Found\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}")
            return
        # The last mark is that of the newest message: earlier turns of the conversation have theirs.
        at = request.rfind(b"[[")
        mark = _MARK.match(request, at) if at >= 0 else None
        name, wait, pause = (mark[1], int(mark[2]), int(mark[3])) if mark else (b"unmarked", 0, 0)
        first = _HEAD + _OPENING + _piece(b'"content":"' + name + b'"')
        usage = _event(_USAGE % (body_bytes // 4, self._words, body_bytes // 4 + self._words))
        self._later(wait / 1000, lambda: self._say(first, self._words - 1, pause / 1000, usage))

    def _say(self, event: bytes, left: int, pause_seconds: float, usage: bytes) -> None:
        """One event, and the next ones after their pauses."""
        self._write(event)
        if self._transport is None:
            return
        if left:
            self._later(pause_seconds, lambda: self._say(_NEXT, left - 1, pause_seconds, usage))
        else:
            self._write(_LAST)
            self._write(usage + _DONE)

    def _later(self, seconds: float, then: Callable[[], None]) -> None:
        if seconds:
            self._loop.call_later(seconds, then)
        else:
            self._loop.call_soon(then)

    def _write(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)


async def serve_upstream(words: int, port: int = 0) -> asyncio.Server:
    """Listen on loopback; the caller closes it."""
    loop = asyncio.get_running_loop()
    return await loop.create_server(lambda: FakeModelServer(loop, words), "127.0.0.1", port, backlog=1024)


def main(argv: Sequence[str] | None = None) -> None:
    """Serve until killed; the port is the first line of the output."""
    parser = argparse.ArgumentParser(prog="python -m foldline_bench.proxy.upstream", description=__doc__)
    parser.add_argument("--words", type=int, required=True)
    options = parser.parse_args(argv)

    async def run() -> None:
        server = await serve_upstream(options.words)
        sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
        sys.stdout.flush()
        await server.serve_forever()

    asyncio.run(run())


if __name__ == "__main__":
    main()
