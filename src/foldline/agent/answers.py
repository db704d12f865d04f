"""What calls brought, as the messages of a dialect."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from foldline.codecs import codec as codec_for
from foldline.messages import Message, ToolCall, Wire

__all__ = ["result_wires"]


def result_wires(dialect: str, results: Sequence[tuple[ToolCall, str, bool]]) -> list[Wire]:
    """The messages that carry results, as the dialect has them: one for each, or one for all (Anthropic)."""
    codec = codec_for(dialect)
    messages = [_marked(codec.answer(call, text), is_error) for call, text, is_error in results]
    merged = codec.merge(messages) if len(messages) > 1 else None
    return [codec.write(merged)] if merged is not None else [codec.write(message) for message in messages]


def _marked(message: Message, is_error: bool) -> Message:
    """The message as it is, or with `is_error` on its result where the dialect has such a field (Anthropic)."""
    if not is_error or message.wire is None or message.wire.get("role") != "user":
        return message
    blocks = [
        {**block, "is_error": True} if block.get("type") == "tool_result" else block
        for block in message.wire["content"]
    ]
    return replace(codec_for("anthropic").read({**message.wire, "content": blocks}))
