"""What the headers of requests and answers say."""

from __future__ import annotations

from hashlib import blake2b
from typing import Final, TypeAlias

__all__ = ["ENCODING", "Headers", "encoding", "header", "media", "name_in"]

Headers: TypeAlias = list[tuple[bytes, bytes]]

ENCODING: Final = b"content-encoding"


def header(headers: Headers, wanted: bytes) -> str:
    """The value of a header (named in small letters); "" if it is not there."""
    found = next((value for name, value in headers if name.lower() == wanted), b"")
    return found.decode("latin-1").strip()


def media(headers: Headers) -> str:
    """The media type of a body, without its parameters."""
    return header(headers, b"content-type").partition(";")[0].strip().lower()


def encoding(headers: Headers) -> str:
    """The content codings of a body, in the order in which they were done (RFC 9110, 8.4); "" for none."""
    given = [value.decode("latin-1").strip() for name, value in headers if name.lower() == ENCODING]
    return ", ".join(given).lower()


def name_in(headers: Headers) -> str:
    """The client's own name of its conversation, apart for each key: two clients may choose the same one."""
    given = next((value for name, value in headers if name == b"x-foldline-session"), b"").strip()
    if not given:
        return ""
    keys = [value for name, value in headers if name in (b"authorization", b"x-api-key", b"api-key")]
    return blake2b(given[:1000], key=blake2b(b"\0".join(keys)).digest(), digest_size=16).hexdigest()
