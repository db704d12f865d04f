"""Undoes the coding of a body piece by piece: gzip and deflate, in memory that is bounded."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Iterator
from typing import Final

from foldline.errors import InvalidInput

__all__ = ["Inflate", "TooMuch", "decoded", "inflated", "readable"]

_PIECE_BYTES: Final = 256 * 1024
_MOST_BYTES: Final = 64 * 1024 * 1024
"""What one piece may come to: a thousand times its size is the most that deflate makes of anything."""

_MOST_DECODED_BYTES: Final = 4 * 1024 * 1024

_INLINE_BYTES: Final = 4 * 1024
"""What is inflated on the event loop: it comes to 4 MiB at most, in some milliseconds."""

_GZIP: Final = frozenset({"gzip", "x-gzip"})


class TooMuch(Exception):  # noqa: N818 - says what happened
    """A body comes to more than may be."""


def readable(encoding: str) -> bool:
    """Whether a content coding can be read: none, gzip or deflate."""
    return encoding in ("", "identity", "deflate") or encoding in _GZIP


class Inflate:
    """Undoes gzip (members in a row too: RFC 1952, 2.2) or deflate, the latter also without the frame that its name
    promises (RFC 9110, 8.4.1.2)."""

    def __init__(self, encoding: str, most_bytes: int = _MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._gzip = encoding in _GZIP
        self._head = b""
        self._inflate = zlib.decompressobj(31) if self._gzip else None

    @property
    def ended(self) -> bool:
        """Whether all has come."""
        return self._inflate is not None and self._inflate.eof

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
            if size_bytes > self._most_bytes:
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


async def inflated(body: bytes, encoding: str, most_bytes: int) -> bytes:
    """The whole body of a request in plain bytes. What may come to much is inflated in a thread.

    Raises InvalidInput where it is not whole, or its coding cannot be read; and TooMuch for more than `most_bytes`,
    of which no more than that was ever made.
    """
    if encoding in ("", "identity"):
        return body
    if not readable(encoding):
        raise InvalidInput(f"cannot be read: {encoding[:40]}", place="content-encoding")
    if len(body) <= _INLINE_BYTES:
        return _inflated(body, encoding, most_bytes)
    return await asyncio.to_thread(_inflated, body, encoding, most_bytes)


def _inflated(body: bytes, encoding: str, most_bytes: int) -> bytes:
    plain, inflate = bytearray(), Inflate(encoding, most_bytes + _PIECE_BYTES)
    try:
        for piece in inflate.pieces(body):
            plain += piece
            if len(plain) > most_bytes:
                raise TooMuch
    except zlib.error:
        raise InvalidInput(f"is not in its coding ({encoding})", place="body") from None
    if not inflate.ended:
        raise InvalidInput(f"is not whole ({encoding})", place="body")
    return bytes(plain)
