"""What the bytes and fields of an answer tell the watcher of it, quickly: pure functions."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from foldline.messages import Json

__all__ = ["SAYS", "is_quiet", "object_of", "usage_in"]

_USAGE: Final = re.compile(r'"usage"\s*:\s*')


def _chat_says(data: bytes) -> bool:
    if b"error" in data or b"[DONE]" in data:
        return True
    # Both stand in every chunk of some servers, mostly as null.
    found = data.count(b'"finish_reason"')
    if found != data.count(b'"finish_reason":null') and found != data.count(b'"finish_reason": null'):
        return True
    found = data.count(b'"usage"')
    return found > 0 and found != data.count(b'"usage":null') and found != data.count(b'"usage": null')


def _anthropic_says(data: bytes) -> bool:
    return b"error" in data or b"message_" in data or b'"usage"' in data


def _responses_says(data: bytes) -> bool:
    return b"error" in data or b'"response"' in data or b".completed" in data or b".done" in data


SAYS: Final[Mapping[str, Callable[[bytes], bool]]] = {
    "openai-chat": _chat_says,
    "anthropic": _anthropic_says,
    "openai-responses": _responses_says,
}
"""Whether events may say more than pieces of content do, by words that stand in all that do. In a text of the model no
quotation mark stands without a backslash, so a name in quotation marks is the name of a field."""


def is_quiet(kind: str, value: Mapping[str, Any]) -> bool:
    """Whether an event of Responses shows nothing: the beginning of a text that is still empty, or none of the API's
    (keepalive; codex.rate_limits and others: router-for-me/CLIProxyAPI#6007)."""
    if kind == "response.output_item.added":
        item = value.get("item")
        return isinstance(item, Mapping) and item.get("type") == "message" and not item.get("content")
    if kind == "response.content_part.added":
        part = value.get("part")
        return isinstance(part, Mapping) and part.get("type") == "output_text" and not part.get("text")
    return bool(kind) and not kind.startswith("response.")


def usage_in(tail: bytes) -> Json:
    """The usage in the end of an event of Responses: an object by that name that counts the input (a tool may have a
    parameter of the name). None where there is none."""
    text = tail.decode("utf-8", "replace")
    for found in reversed([*_USAGE.finditer(text)][-8:]):
        try:
            value = json.JSONDecoder().raw_decode(text, found.end())[0]
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict) and isinstance(value.get("input_tokens"), int):
            return value
    return None


def object_of(text: str) -> Mapping[str, Any] | None:
    """The JSON object that a text is; None for anything else."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
