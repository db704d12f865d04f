"""Quick tests on the bytes and fields of stream events, for `response_watch`. Pure functions."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from foldline.messages import Json

__all__ = ["MAY_REPORT", "find_usage", "parse_object", "shows_nothing"]

_USAGE: Final = re.compile(r'"usage"\s*:\s*')


def _chat_says(data: bytes) -> bool:
    if b"error" in data or b"[DONE]" in data:
        return True
    # Some servers put both into every chunk, mostly as null.
    found = data.count(b'"finish_reason"')
    if found != data.count(b'"finish_reason":null') and found != data.count(b'"finish_reason": null'):
        return True
    found = data.count(b'"usage"')
    return found > 0 and found != data.count(b'"usage":null') and found != data.count(b'"usage": null')


def _anthropic_says(data: bytes) -> bool:
    return b"error" in data or b"message_" in data or b'"usage"' in data


def _responses_says(data: bytes) -> bool:
    return b"error" in data or b'"response"' in data or b".completed" in data or b".done" in data


MAY_REPORT: Final[Mapping[str, Callable[[bytes], bool]]] = {
    "openai-chat": _chat_says,
    "anthropic": _anthropic_says,
    "openai-responses": _responses_says,
}
"""By dialect: whether bytes may hold an event other than a piece of content. It searches for words that all others
hold: in a text of the model every quotation mark has a backslash, so a quoted name is the name of a field."""


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
