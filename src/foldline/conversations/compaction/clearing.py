"""Clears old results of tools and old thinking from messages of Anthropic Messages, as `context_management` asks.

The client keeps its history; only what is sent is cleared. Each message that is not touched stays the same object.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from foldline.conversations.compaction.edits import ClearThinking, ClearToolUses, Edits
from foldline.messages import Json, Wire

__all__ = ["CLEARED", "cleared"]

CLEARED: Final = "[Old tool result cleared to save context.]"
"""Stands for a result of a tool that was cleared."""

_THOUGHTS: Final = ("thinking", "redacted_thinking")

TokensOf = Callable[[Wire], int]


def cleared(
    messages: Sequence[Wire], edits: Edits, tokens: int, tokens_of: TokensOf, *, most_tokens: int | None = None
) -> tuple[list[Wire], list[dict[str, Json]]]:
    """Return the messages to send, and what was done as `applied_edits` of the API's answer. O(messages).

    `tokens` is the size of the whole prompt, `tokens_of` counts one message. A trigger above `most_tokens`, which is
    what the window holds, counts as that.
    """
    out, applied = list(messages), list[dict[str, Json]]()
    if edits.thinking is not None:
        out, turns = _without_thinking(out, edits.thinking)
        if turns:
            saved = _saved(messages, out, tokens_of)
            tokens -= saved
            applied.append(
                {"type": "clear_thinking_20251015", "cleared_thinking_turns": turns, "cleared_input_tokens": saved}
            )
    if edits.tool_uses is not None:
        before = out
        after, uses = _without_results(before, edits.tool_uses, tokens, most_tokens)
        saved = _saved(before, after, tokens_of)
        if uses and saved >= max(1, edits.tool_uses.least_tokens):
            out = after
            applied.append(
                {"type": "clear_tool_uses_20250919", "cleared_tool_uses": uses, "cleared_input_tokens": saved}
            )
    return out, applied


def _saved(before: Sequence[Wire], after: Sequence[Wire], tokens_of: TokensOf) -> int:
    kept = {id(wire) for wire in after}
    was = {id(wire) for wire in before}
    gone = sum(tokens_of(wire) for wire in before if id(wire) not in kept)
    return gone - sum(tokens_of(wire) for wire in after if id(wire) not in was)


def _blocks(wire: Wire) -> list[Any]:
    content = wire.get("content")
    return [block for block in content if isinstance(block, Mapping)] if isinstance(content, list) else []


def _is_thought(block: object) -> bool:
    return isinstance(block, Mapping) and block.get("type") in _THOUGHTS


# --- thinking ---------------------------------------------------------------------------------------------------------


def _without_thinking(messages: list[Wire], edit: ClearThinking) -> tuple[list[Wire], int]:
    """Return the messages without old thinking, and the number of turns that lost some."""
    if edit.keep is None:
        return messages, 0
    # A turn of the assistant lasts over its calls and their results, until the user says something.
    turns: list[list[int]] = [[]]
    for at, wire in enumerate(messages):
        if wire.get("role") == "assistant":
            if any(map(_is_thought, _blocks(wire))):
                turns[-1].append(at)
        elif not any(block.get("type") == "tool_result" for block in _blocks(wire)):
            turns.append([])
    thought = [turn for turn in turns if turn]
    old = thought[: max(0, len(thought) - edit.keep)]
    places = {at for turn in old for at in turn}
    out: list[Wire] = []
    for at, wire in enumerate(messages):
        if at not in places:
            out.append(wire)
            continue
        left = [block for block in wire["content"] if not _is_thought(block)]
        if left:  # a message of nothing but thinking goes with it
            out.append({**wire, "content": left})
    return out, len(old)


# --- tool uses --------------------------------------------------------------------------------------------------------


def _without_results(
    messages: list[Wire], edit: ClearToolUses, tokens: int, most_tokens: int | None
) -> tuple[list[Wire], int]:
    """Return the messages with old results cleared, and the number of uses that were."""
    uses = [block for wire in messages for block in _blocks(wire) if block.get("type") == "tool_use"]
    trigger = edit.trigger if edit.counts_uses or most_tokens is None else min(edit.trigger, most_tokens)
    if (len(uses) if edit.counts_uses else tokens) <= trigger:
        return messages, 0
    old = uses[: max(0, len(uses) - edit.keep)]
    names = {str(use.get("id")) for use in old if str(use.get("name")) not in edit.excluded}
    done: set[str] = set()

    def change(block: Any) -> Any:
        if not isinstance(block, Mapping):
            return block
        if block.get("type") == "tool_result" and (use := str(block.get("tool_use_id"))) in names:
            if block.get("content") == CLEARED:
                return block
            done.add(use)
            return {**block, "content": CLEARED}
        if block.get("type") != "tool_use" or (use := str(block.get("id"))) not in names or not block.get("input"):
            return block
        if not (edit.inputs if isinstance(edit.inputs, bool) else str(block.get("name")) in edit.inputs):
            return block
        done.add(use)
        return {**block, "input": {}}

    out: list[Wire] = []
    for wire in messages:
        content = wire.get("content")
        if not isinstance(content, list):
            out.append(wire)
            continue
        changed = [change(block) for block in content]
        same = all(one is other for one, other in zip(changed, content, strict=True))
        out.append(wire if same else {**wire, "content": changed})
    return out, len(done)
