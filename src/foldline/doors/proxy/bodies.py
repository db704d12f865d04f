"""Bodies: content codings undone in bounded memory, the request of a client, and quick tests on events of a stream."""

from __future__ import annotations

import asyncio
import json
import re
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from foldline.codecs import dialect_named
from foldline.codecs.limits import MARKERS
from foldline.conversations.incoming_request import with_valid_markers
from foldline.conversations.request_body import FORMS, RequestBody, read_body
from foldline.conversations.short_tools import with_short_tools
from foldline.doors.proxy.request_head import ENCODING, Headers, encoding, is_streamed_at, media_type, model_at
from foldline.errors import InvalidInput
from foldline.messages import Json

__all__ = [
    "ClientRequest",
    "Inflater",
    "TooLarge",
    "decoded",
    "find_usage",
    "inflate",
    "parse_object",
    "read_client_request",
    "readable",
    "shows_nothing",
    "stream_form",
]

# One piece stays in the cache of a processor, and the size is checked after each.
_PIECE_BYTES: Final = 256 * 1024
# The most that one piece of a response may inflate to; deflate makes at most a thousand times its size of anything.
_MAX_BYTES: Final = 64 * 1024 * 1024

# The wording of an error stands at its beginning; some servers add a copy of the request.
_MAX_ERROR_BYTES: Final = 4 * 1024 * 1024

# Inflated on the event loop: it comes to 4 MiB at most, some milliseconds of work. A thread costs a switch each way.
_INLINE_BYTES: Final = 4 * 1024

_GZIP: Final = frozenset({"gzip", "x-gzip"})


class TooLarge(Exception):  # noqa: N818 - says what happened
    """A body inflates to more than the limit."""


def readable(encoding: str) -> bool:
    """Whether a content coding can be undone here: none, gzip or deflate."""
    return encoding in ("", "identity", "deflate") or encoding in _GZIP


class Inflater:
    """Undoes gzip or deflate piece by piece.

    gzip may have several members (RFC 1952, 2.2). deflate may lack the zlib frame that its definition asks for: some
    servers send it raw (RFC 9110, 8.4.1.2).
    """

    def __init__(self, encoding: str, max_bytes: int = _MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._gzip = encoding in _GZIP
        self._head = b""
        self._inflate = zlib.decompressobj(31) if self._gzip else None

    @property
    def ended(self) -> bool:
        """Whether the body is complete."""
        return self._inflate is not None and self._inflate.eof

    def pieces(self, chunk: bytes) -> Iterator[bytes]:
        """Inflate a piece, 256 KiB at a time. Raises zlib.error for malformed data, or too much of it."""
        size_bytes = 0
        if self._inflate is None:
            # Two bytes tell a zlib frame from raw deflate, and a piece may be a single byte.
            chunk = self._head + chunk
            if len(chunk) < 2:
                self._head = chunk
                return
            framed = chunk[0] & 0x0F == 8 and int.from_bytes(chunk[:2], "big") % 31 == 0  # RFC 1950, 2.2
            # 15: a zlib frame; -15: none; 31, above: a gzip frame (zlib manual, inflateInit2).
            self._inflate = zlib.decompressobj(15 if framed else -15)
        while True:
            if self._inflate.eof:
                if not self._gzip or chunk[:1] != b"\x1f":  # nothing more, or padding
                    return
                self._inflate = zlib.decompressobj(31)
            plain = self._inflate.decompress(chunk, _PIECE_BYTES)
            size_bytes += len(plain)
            if size_bytes > self._max_bytes:
                raise zlib.error("more than is inspected")
            if plain:
                yield plain
            chunk = self._inflate.unused_data if self._inflate.eof else self._inflate.unconsumed_tail
            # A full piece may have more behind it, though all input is consumed.
            if not chunk and len(plain) < _PIECE_BYTES:
                return


def decoded(body: bytes, encoding: str) -> bytes:
    """The body of an error in plain bytes, at most 4 MiB of it; unchanged if its coding cannot be undone."""
    if encoding in ("", "identity") or not readable(encoding):
        return body
    plain = bytearray()
    try:
        for piece in Inflater(encoding).pieces(body):
            plain += piece
            if len(plain) > _MAX_ERROR_BYTES:
                break
    except zlib.error:
        return body
    return bytes(plain[:_MAX_ERROR_BYTES])


async def inflate(body: bytes, encoding: str, max_bytes: int) -> bytes:
    """The body of a request in plain bytes. Large ones are inflated in a thread.

    Raises InvalidInput if it is incomplete or its coding is unknown, TooLarge above `max_bytes`: a small request that
    inflates to gigabytes never takes more memory than that.
    """
    if encoding in ("", "identity"):
        return body
    if not readable(encoding):
        raise InvalidInput(f"cannot be read: {encoding[:40]}", place="content-encoding")
    if len(body) <= _INLINE_BYTES:
        return _inflate(body, encoding, max_bytes)
    return await asyncio.to_thread(_inflate, body, encoding, max_bytes)


def _inflate(body: bytes, encoding: str, max_bytes: int) -> bytes:
    # One piece above the limit, so that this function raises TooLarge before the inflater raises zlib.error.
    plain, inflater = bytearray(), Inflater(encoding, max_bytes + _PIECE_BYTES)
    try:
        for piece in inflater.pieces(body):
            plain += piece
            if len(plain) > max_bytes:
                raise TooLarge
    except zlib.error:
        raise InvalidInput(f"is not in its coding ({encoding})", place="body") from None
    if not inflater.ended:
        raise InvalidInput(f"is not whole ({encoding})", place="body")
    return bytes(plain)


# --- the request of a client ------------------------------------------------------------------------------------------

_SETTLED: Final = f"more than {MARKERS} cache markers, or in an order that is refused: sent with those that are taken"


@dataclass(frozen=True, slots=True)
class ClientRequest:
    """The request of a client. `raw` and `headers` are what goes on if nothing else changes; `warning` is for logs."""

    body: RequestBody
    raw: bytes
    headers: Headers
    warning: str = ""


async def read_client_request(
    raw: bytes,
    headers: Headers,
    dialect: str,
    path: str,
    *,
    max_bytes: int,
    mends: bool = False,
    short_tools: int | None = None,
) -> ClientRequest:
    """Read a request. With `mends`, cache markers that its provider would refuse are left out. O(size).

    `short_tools` is the size in tokens to which descriptions of tools are cut, then too.

    Raises InvalidInput, and TooLarge for one that inflates to more than `max_bytes`.
    """
    plain = await inflate(raw, encoding(headers), max_bytes)
    body = read_body(FORMS[dialect], plain, addressed=model_at(path), streamed=is_streamed_at(path))
    short = with_short_tools(body, short_tools) if mends and short_tools is not None else None
    # With a part of the conversation at the provider, nobody here knows how many markers the whole has.
    mended = with_valid_markers(short or body) if mends and not body.elsewhere else None
    changed = mended or short
    if changed is None:
        return ClientRequest(body, raw, headers)
    # The changed body is plain, so its coding must not be announced any more.
    plain_headers = [each for each in headers if each[0] != ENCODING]
    return ClientRequest(changed, changed.raw, plain_headers, "" if mended is None else _SETTLED)


# --- stream events ----------------------------------------------------------------------------------------------------


_USAGE: Final = re.compile(r'"usage"\s*:\s*')


def shows_nothing(kind: str, value: Mapping[str, Any]) -> bool:
    """Whether an event of Responses shows the client nothing.

    It is the start of a text that is still empty, or no event of the API (keepalive; codex.rate_limits and others:
    router-for-me/CLIProxyAPI#6007).
    """
    if kind == "response.output_item.added":
        item = value.get("item")
        return isinstance(item, Mapping) and item.get("type") == "message" and not item.get("content")
    if kind == "response.content_part.added":
        part = value.get("part")
        return isinstance(part, Mapping) and part.get("type") == "output_text" and not part.get("text")
    return bool(kind) and not kind.startswith("response.")


def find_usage(tail: bytes) -> Json:
    """The usage report in the end of an event of Responses; None without one.

    A tool may have a parameter of that name, so the object must count input tokens.
    """
    text = tail.decode("utf-8", "replace")
    # From the end, where the report is; eight tries bound the time for a text that is full of the word.
    for found in reversed([*_USAGE.finditer(text)][-8:]):
        try:
            value = json.JSONDecoder().raw_decode(text, found.end())[0]
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict) and isinstance(value.get("input_tokens"), int):
            return value
    return None


def parse_object(text: str) -> Mapping[str, Any] | None:
    """Parse a JSON object; None for any other text."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


_FRAMES: Final = "application/vnd.amazon.eventstream"


def stream_form(dialect: str, headers: Headers, wanted: bool) -> tuple[bool, str]:
    """Whether a response is a stream, as its client `wanted`, and its coding ("frames" for what is unread)."""
    kind = media_type(headers)
    # Frames of Bedrock are a stream that passes unread, as one in an unknown coding does.
    coding = "frames" if kind == _FRAMES else encoding(headers)
    # Some servers stream with another media type, or with none; Gemini streams JSON as an array that grows.
    grows = dialect_named(dialect).stream.shape == "candidates"
    return kind == "text/event-stream" or (wanted and (grows or kind != "application/json")), coding
