"""The folds of the autopilot system on plain JSON messages, without a session."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from foldline.codecs import codec as codec_for
from foldline.messages import Message, Part, Text, ToolResult, Wire
from foldline.reducers.base import with_results
from foldline.reducers.mask import viewed
from foldline.reducers.truncate import cut_chars
from foldline.tokens import content_bytes

__all__ = ["compact_old_context", "estimate_context_size", "truncate_tool_results"]


def estimate_context_size(messages: Sequence[Wire], *, dialect: str = "openai-chat") -> int:
    """Bytes of the contents and of the tool calls (name and arguments) of messages. Raises InvalidInput. O(size)."""
    codec = codec_for(dialect)
    return sum(content_bytes(codec.read(wire)) for wire in messages)


def compact_old_context(
    messages: Sequence[Wire], keep_recent: int = 6, max_context_bytes: int = 50_000, *, dialect: str = "openai-chat"
) -> list[Wire]:
    """Over the threshold, the messages with every result older than the last `keep_recent` as its placeholder.

    `Mask` is its reducer. What need not change is the same object; a result that is shorter than its placeholder stays.
    Raises InvalidInput. O(size).
    """
    if estimate_context_size(messages, dialect=dialect) <= max_context_bytes:
        return list(messages)
    codec = codec_for(dialect)
    left = sum(len(codec.read(wire).results) for wire in messages) - keep_recent

    def change(result: ToolResult) -> str | None:
        nonlocal left
        left -= 1
        new = viewed(result.text)
        shorter = _bytes(Text(new)) < _bytes(*result.parts)
        return new if left >= 0 and shorter else None

    return [_changed(wire, change, dialect) for wire in messages]


def _bytes(*parts: Part) -> int:
    return content_bytes(Message("tool", parts))


def truncate_tool_results(messages: Sequence[Wire], max_len: int, *, dialect: str = "openai-chat") -> list[Wire]:
    """The messages with every tool result cut to `max_len` characters; what need not be cut is the same object.

    `CharLimit` is its reducer. Raises InvalidInput. O(size).
    """

    def change(result: ToolResult) -> str | None:
        return cut_chars(result.text, max_len) if len(result.text) > max_len else None

    return [_changed(wire, change, dialect) for wire in messages]


def _changed(wire: Wire, change: Callable[[ToolResult], str | None], dialect: str) -> Wire:
    codec = codec_for(dialect)
    message = codec.read(wire)
    parts = with_results(message, change)
    same = all(a is b for a, b in zip(parts, message.parts, strict=True))
    return wire if same else codec.write(codec.revise(message, parts))
