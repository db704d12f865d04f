"""Bodies of requests and answers, and what a failed connection says: the small change of `foldline.providers.http`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import ModuleType
from typing import TYPE_CHECKING

from foldline.codecs.encoding import clean
from foldline.errors import MissingExtra
from foldline.messages import Json
from foldline.providers.assembly import StreamedError

if TYPE_CHECKING:
    import httpx

__all__ = ["encoded", "innermost", "json_object", "load_httpx", "read_bytes"]


def load_httpx() -> ModuleType:
    """The module httpx, loaded when it is first needed. Raises MissingExtra."""
    try:
        import httpx
    except ImportError:
        raise MissingExtra("chat", "talking to a model server") from None
    return httpx


def encoded(body: dict[str, Json]) -> bytes:
    """The body as UTF-8 JSON. What cannot be sent (a lone surrogate in a tool's schema) is replaced."""
    try:
        return json.dumps(body, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_plain).encode()
    except (ValueError, TypeError):
        return json.dumps(clean(body), ensure_ascii=False, separators=(",", ":")).encode()


def _plain(value: object) -> Json:
    """A mapping or sequence of another type as JSON has it."""
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is no JSON")


def json_object(content: bytes) -> Mapping[str, Json]:
    """The JSON object of an answer. Raises StreamedError when it is none."""
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise StreamedError(content[:2_000].decode("utf-8", "replace"))
    return value


async def read_bytes(response: httpx.Response, most_bytes: int) -> bytes:
    """The body, as far as `most_bytes`."""
    pieces, size_bytes = [], 0
    async for chunk in response.aiter_bytes():
        pieces.append(chunk)
        size_bytes += len(chunk)
        if size_bytes >= most_bytes:
            break
    return b"".join(pieces)[:most_bytes]


def innermost(error: BaseException) -> str:
    """What the innermost error says: "All connection attempts failed" hides that one was refused."""
    said = str(error)
    inner: BaseException | None = error
    while inner is not None:
        if isinstance(inner, OSError) and inner.strerror:
            said = inner.strerror
        inner = inner.__cause__ or inner.__context__
    return said or type(error).__name__
