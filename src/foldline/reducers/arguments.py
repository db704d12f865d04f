"""The arguments of a call, shortened leaf by leaf."""

from __future__ import annotations

import json

from foldline.messages import Json, ToolCall
from foldline.text.shorten import clip_tokens, head_and_tail
from foldline.tokens import Counter

__all__ = ["shorten_arguments"]


def shorten_arguments(call: ToolCall, limit_tokens: int, counter: Counter) -> str:
    """The arguments of a call with their long strings shortened, largest first; they stay valid JSON of the same shape.

    Short strings, numbers and keys stay as they are (hermes#13574: arguments cut as text are invalid JSON for ever).
    """
    if counter.text(call.arguments) <= limit_tokens:
        return call.arguments
    if call.custom:
        head, tail = clip_tokens(call.arguments, limit_tokens, counter, "both")
        return f"{head}\n[… cut …]\n{tail}"
    try:
        value = json.loads(call.arguments)
    except ValueError:
        return call.arguments
    leaves: list[int] = []
    _measure(value, leaves)
    for most in (2000, 800, 320, 120, 48, 24):
        if leaves and most >= max(leaves):
            continue
        text = json.dumps(_lessened(value, most), ensure_ascii=False)
        if counter.text(text) <= limit_tokens:
            return text
    return json.dumps(_lessened(value, 24), ensure_ascii=False)


def _measure(value: Json, leaves: list[int]) -> None:
    if isinstance(value, str):
        leaves.append(len(value))
    elif isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            _measure(inner, leaves)


def _lessened(value: Json, most_chars: int) -> Json:
    if isinstance(value, str) and len(value) > most_chars + 24:
        head, tail = head_and_tail(value, most_chars - most_chars // 3, most_chars // 3)
        return f"{head}[… {len(value) - len(head) - len(tail)} characters cut …]{tail}"
    if isinstance(value, dict):
        return {key: _lessened(inner, most_chars) for key, inner in value.items()}
    if isinstance(value, list):
        return [_lessened(inner, most_chars) for inner in value]
    return value
