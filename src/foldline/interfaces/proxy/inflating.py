"""Undoes the coding of an answer piece by piece: gzip and deflate, in memory that is bounded."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Final

__all__ = ["Inflate", "decoded", "readable"]

_PIECE_BYTES: Final = 256 * 1024
_MOST_BYTES: Final = 64 * 1024 * 1024
"""What one piece may come to: a thousand times its size is the most that deflate makes of anything."""

_MOST_DECODED_BYTES: Final = 4 * 1024 * 1024

_GZIP: Final = frozenset({"gzip", "x-gzip"})


def readable(encoding: str) -> bool:
    """Whether a content coding can be read: none, gzip or deflate."""
    return encoding in ("", "identity", "deflate") or encoding in _GZIP


class Inflate:
    """Undoes gzip (members in a row too: RFC 1952, 2.2) or deflate, the latter also without the frame that its name
    promises (RFC 9110, 8.4.1.2)."""

    def __init__(self, encoding: str) -> None:
        self._gzip = encoding in _GZIP
        self._head = b""
        self._inflate = zlib.decompressobj(31) if self._gzip else None

    def pieces(self, chunk: bytes) -> Iterator[bytes]:
        """What a piece comes to, 256 KiB at a time. Raises zlib.error for what is not in the coding, or too much."""
        size_bytes = 0
        if self._inflate is None:
            chunk = self._head + chunk
            if len(chunk) < 2:
                self._head = chunk
                return
            framed = chunk[0] & 0x0F == 8 and int.from_bytes(chunk[:2], "big") % 31 == 0  # RFC 1950, 2.2
            self._inflate = zlib.decompressobj(15 if framed else -15)
        while True:
            if self._inflate.eof:
                if not self._gzip or chunk[:1] != b"\x1f":  # nothing more, or padding
                    return
                self._inflate = zlib.decompressobj(31)
            plain = self._inflate.decompress(chunk, _PIECE_BYTES)
            size_bytes += len(plain)
            if size_bytes > _MOST_BYTES:
                raise zlib.error("more than can be looked at")
            if plain:
                yield plain
            chunk = self._inflate.unused_data if self._inflate.eof else self._inflate.unconsumed_tail
            if not chunk and len(plain) < _PIECE_BYTES:
                return


def decoded(body: bytes, encoding: str) -> bytes:
    """A whole body in plain bytes, at most 4 MiB of it; as it is where its coding cannot be read."""
    if encoding in ("", "identity") or not readable(encoding):
        return body
    plain = bytearray()
    try:
        for piece in Inflate(encoding).pieces(body):
            plain += piece
            if len(plain) > _MOST_DECODED_BYTES:
                break
    except zlib.error:
        return body
    return bytes(plain[:_MOST_DECODED_BYTES])
