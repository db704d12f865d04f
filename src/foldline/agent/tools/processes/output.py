"""The output of a program: read as it comes, bounded, decoded.

A program can write without end. The first and last bytes are kept, since errors are at the ends.
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
"""Bytes kept of an output, half of them its beginning: more than any window takes, little in memory."""


class ProcessOutput(asyncio.Protocol):
    """The bounded output of one program, and the protocol of its pipe."""

    def __init__(self, kept_bytes: int = KEPT_BYTES) -> None:
        self._most = max(1, kept_bytes // 2)
        self._head = bytearray()
        self._tail = bytearray()
        self.total_bytes = 0
        self.ended = asyncio.Event()  # set when nobody can write any more

    def data_received(self, data: bytes) -> None:
        """Append data. O(its size)."""
        self.total_bytes += len(data)
        room = self._most - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        self._tail += data
        if len(self._tail) > 2 * self._most:  # only now and then: a cut per piece would be quadratic
            del self._tail[: -self._most]

    def connection_lost(self, exc: Exception | None) -> None:
        """Record the end of the output."""
        del exc
        self.ended.set()

    @property
    def text(self) -> str:
        """The output as text, with a note on omitted bytes. Invalid UTF-8 and NUL become U+FFFD."""
        tail = bytes(self._tail[-self._most :])
        left_out = self.total_bytes - len(self._head) - len(tail)
        if not left_out:
            return _text(bytes(self._head) + tail)
        # An incremental decoder drops a character that is cut off at the end.
        head = codecs.getincrementaldecoder("utf-8")("replace").decode(bytes(self._head)).replace("\0", "\ufffd")
        start = next((at for at, byte in enumerate(tail[:4]) if byte & 0xC0 != 0x80), 0)
        told = f"[… {left_out:,} of {self.total_bytes:,} bytes are left out here …]"
        return f"{head}\n{told}\n{_text(tail[start:])}"


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace").replace("\0", "\ufffd")


@asynccontextmanager
async def reading(output: ProcessOutput) -> AsyncIterator[int]:
    """Connect a pipe to `output` during the block. Yields the write end, which the caller closes."""
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
