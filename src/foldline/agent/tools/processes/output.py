"""What a program writes: read as it comes, kept within bounds, made text.

A program can write without end. Its first and its last bytes are kept, since what went wrong stands there.
"""

from __future__ import annotations

import asyncio
import codecs
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

__all__ = ["KEPT_BYTES", "ProcessOutput", "reading"]

KEPT_BYTES: Final = 1024 * 1024
"""Bytes of an output that are kept, half of them its beginning: well over what a window takes, little in memory."""


class ProcessOutput(asyncio.Protocol):
    """The bounded output of one program; also the protocol of the pipe that it comes through."""

    def __init__(self, kept_bytes: int = KEPT_BYTES) -> None:
        self._most = max(1, kept_bytes // 2)
        self._head = bytearray()
        self._tail = bytearray()
        self.total_bytes = 0
        self.ended = asyncio.Event()
        """Set when nobody can write any more."""

    def data_received(self, data: bytes) -> None:
        """Take up what was written. O(size of it)."""
        self.total_bytes += len(data)
        room = self._most - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        self._tail += data
        if len(self._tail) > 2 * self._most:  # cut now and then, not at each piece
            del self._tail[: -self._most]

    def connection_lost(self, exc: Exception | None) -> None:
        """Note the end."""
        del exc
        self.ended.set()

    @property
    def text(self) -> str:
        """The output as text, with the figures of what was left out. Bytes that are no UTF-8, and NUL, are U+FFFD."""
        tail = bytes(self._tail[-self._most :])
        left_out = self.total_bytes - len(self._head) - len(tail)
        if not left_out:
            return _text(bytes(self._head) + tail)
        # An incremental decoder keeps back a character that was cut off at the end.
        head = codecs.getincrementaldecoder("utf-8")("replace").decode(bytes(self._head)).replace("\0", "\ufffd")
        start = next((at for at, byte in enumerate(tail[:4]) if byte & 0xC0 != 0x80), 0)
        told = f"[… {left_out:,} of {self.total_bytes:,} bytes are left out here …]"
        return f"{head}\n{told}\n{_text(tail[start:])}"


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace").replace("\0", "\ufffd")


@asynccontextmanager
async def reading(output: ProcessOutput) -> AsyncIterator[int]:
    """A pipe that `output` reads during the block: yields the end to write to, which the caller closes."""
    read_end, write_end = os.pipe()
    source = os.fdopen(read_end, "rb", 0)
    try:
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(lambda: output, source)
    except BaseException:
        source.close()
        os.close(write_end)
        raise
    try:
        yield write_end
    finally:
        transport.close()
