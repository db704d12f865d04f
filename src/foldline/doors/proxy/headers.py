"""What the headers of requests and answers say."""

from __future__ import annotations

from typing import Final, TypeAlias

__all__ = ["ENCODING", "Headers", "encoding", "header", "media"]

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
