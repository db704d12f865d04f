"""Reads the request of a client: its body, inflated, with no more cache markers than its provider takes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from foldline.codecs.caps import MARKERS
from foldline.conversations.incoming_request import with_valid_markers
from foldline.conversations.request_body import FORMS, RequestBody, read_body
from foldline.doors.proxy.dialects import model_at
from foldline.doors.proxy.headers import ENCODING, Headers, encoding
from foldline.doors.proxy.inflating import inflated

__all__ = ["Given", "request_in"]

_SETTLED: Final = f"more than {MARKERS} cache markers, or in an order that is refused: sent with those that are taken"


@dataclass(frozen=True, slots=True)
class Given:
    """A request: its body, the bytes and headers to send on where nothing more is changed, what is to be told of it."""

    body: RequestBody
    raw: bytes
    headers: Headers
    warning: str = ""


async def request_in(
    raw: bytes, headers: Headers, dialect: str, path: str, *, most_bytes: int, mends: bool = False
) -> Given:
    """The request in some bytes; `mends` says that its cache markers may be changed. O(size).

    Raises InvalidInput, and TooMuch for one that is larger than `most_bytes` when it is inflated.
    """
    plain = await inflated(raw, encoding(headers), most_bytes)
    body = read_body(FORMS[dialect], plain, addressed=model_at(path))
    taken = with_valid_markers(body) if mends and not body.elsewhere else None
    if taken is None:
        return Given(body, raw, headers)
    return Given(taken, taken.raw, [each for each in headers if each[0] != ENCODING], _SETTLED)
