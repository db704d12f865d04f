"""Quick tests on the bytes and fields of stream events, for `response_watch`. Pure functions."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final

from foldline.codecs import dialect_named
from foldline.doors.proxy.request_head import Headers, encoding, media_type
from foldline.messages import Json

__all__ = ["find_usage", "parse_object", "shows_nothing", "stream_form"]

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
