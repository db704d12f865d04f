"""Cache points of Anthropic, and those of OpenRouter in the same form: up to where a provider caches the prefix.

Source: Anthropic docs, "Prompt caching": at most 4 cache points; the prefix is tools, system, messages, in this order;
a point finds what was cached up to 20 blocks before it; thinking and empty text cannot have one; points with a lifetime
of an hour come before those of five minutes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from foldline.catalog.models import lookup
from foldline.messages import Json, Wire
from foldline.providers.endpoint import Endpoint
from foldline.view.system_and_tools import System

__all__ = ["MAX_POINTS", "anthropic_points", "chat_points", "has_point", "wants_chat_points"]

MAX_POINTS: Final = 4

_POINT: Final = {"type": "ephemeral"}
_FIELD: Final = "cache_control"
_NEVER: Final = frozenset({"thinking", "redacted_thinking"})

Blocks = list[Mapping[str, Any]]


def anthropic_points(
    system: System,
    tools: Sequence[Wire] | None,
    messages: Sequence[Wire],
    *,
    stable_until: int,
    tokens: int,
    model: str,
    once: int = 0,
    breaks_at: Sequence[int] = (),
    lasts_until: int | None = None,
    wanted: bool = True,
) -> tuple[System, Sequence[Wire] | None, list[Wire]]:
    """Return system text, tools and messages with cache points. Only objects with a new point are copied.

    In order of value: the end of the newest message, the end of the previous request (so that its cache is found
    however many blocks are new), the system text, the first of `breaks_at` that is left (so that the next fold finds a
    cache of what it leaves), the tools. Existing points count and stay. No points are set below the model's smallest
    cacheable prefix, nor in the last `once` messages, which are sent only this time, nor behind `lasts_until`, unless
    there is a cache to be read. O(messages).
    """
    out = list(messages)
    until = len(out) - once
    if not wanted or (once and until <= 0) or tokens < lookup(model).cache.minimum_tokens:
        return system, tools, out
    blocks, listed = _system_blocks(system), list(tools or ())
    in_tools, in_system = _count(listed), _count(blocks)
    in_messages = [index for index, wire in enumerate(out) if has_point(wire)]
    free = MAX_POINTS - in_tools - in_system - sum(_count(_blocks(out[index])) for index in in_messages)
    # No point is set before an existing one, which may have the longer lifetime and must come first then.
    first = in_messages[-1] + 1 if in_messages else 0
    written = until if lasts_until is None else min(until, lasts_until)
    free = _mark(out, (written, stable_until), first, free)
    at = _last_markable(blocks)
    # Points of the user in messages mean that the user has planned the order of lifetimes, so none goes before them.
    if free > 0 and at is not None and not in_system and not in_messages:
        blocks[at] = _pointed(blocks[at])
        system, free = blocks, free - 1
    free = _mark(out, (end for end in breaks_at if end < written), first, free)
    if free > 0 and listed and not in_tools and not in_system and not in_messages:
        listed[-1] = _pointed(listed[-1])
        tools = listed
    return system, tools, out


def wants_chat_points(endpoint: Endpoint) -> bool:
    """Whether a Chat server takes cache points in content parts: OpenRouter, for Claude (docs, "Prompt caching")."""
    return endpoint.host.endswith("openrouter.ai") and "claude" in endpoint.model.lower()


def chat_points(
    messages: Sequence[Wire],
    *,
    stable_until: int,
    tokens: int,
    model: str,
    once: int = 0,
    breaks_at: Sequence[int] = (),
    lasts_until: int | None = None,
) -> list[Wire]:
    """Return Chat messages with cache points in their text parts, also in a leading system message. O(messages)."""
    out = list(messages)
    if tokens < lookup(model).cache.minimum_tokens or any(map(has_point, out)):
        return out
    # The same places as above. OpenRouter passes them on to Anthropic, and takes them in text parts only.
    lead = 1 if out and out[0].get("role") == "system" else 0
    until = len(out) - once
    if once and until <= lead:
        return out
    written = until if lasts_until is None else min(until, lasts_until)
    ends = (written, stable_until, lead, *(end for end in breaks_at if end < written))
    _mark(out, ends, 0, MAX_POINTS, text_only=True)
    return out


def _mark(messages: list[Wire], ends: Iterable[int], first: int, free: int, *, text_only: bool = False) -> int:
    """Set a point before each of these ends, as long as some are free; how many still are. O(messages)."""
    for end in dict.fromkeys(ends):
        place = _place(messages, end, first, text_only) if free > 0 else None
        if place is not None:
            messages[place[0]] = _marked(messages[place[0]], place[1])
            free -= 1
    return free


def _system_blocks(system: System) -> Blocks:
    if isinstance(system, str):
        return [{"type": "text", "text": system}] if system.strip() else []
    return list(system or ())


def _blocks(wire: Json) -> Blocks:
    content = wire.get("content")
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content.strip() else []
    return [block for block in content if isinstance(block, Mapping)] if isinstance(content, list | tuple) else []


def has_point(wire: Wire) -> bool:
    """Whether a message has a cache point in one of its blocks."""
    return any(_FIELD in block for block in _blocks(wire))


def _count(blocks: Sequence[Mapping[str, Any]]) -> int:
    return sum(_FIELD in block for block in blocks)


def _pointed(block: Mapping[str, Any]) -> dict[str, Any]:
    return {**block, _FIELD: dict(_POINT)}


def _can_carry(block: Mapping[str, Any], text_only: bool) -> bool:
    kind = block.get("type")
    if kind == "text":
        text = block.get("text")
        return isinstance(text, str) and bool(text.strip())
    return not text_only and kind not in _NEVER and _FIELD not in block


def _last_markable(blocks: Sequence[Mapping[str, Any]], text_only: bool = False) -> int | None:
    return next((at for at in reversed(range(len(blocks))) if _can_carry(blocks[at], text_only)), None)


def _place(messages: Sequence[Wire], end: int, first: int, text_only: bool = False) -> tuple[int, int] | None:
    """Return (message, block) of the last block in [first, end) that can have a point, or None.

    None too if a message there has a point already: it needs no second one.
    """
    for index in reversed(range(first, min(end, len(messages)))):
        if has_point(messages[index]):
            return None
        at = _last_markable(_blocks(messages[index]), text_only)
        if at is not None:
            return index, at
    return None


def _marked(wire: Wire, at: int) -> Wire:
    content = wire.get("content")
    if isinstance(content, str):
        blocks: list[Json] = [{"type": "text", "text": content}]
    else:
        # `at` counts only the blocks that are objects, and the list may have others.
        blocks = list(content or ())
        at = [number for number, block in enumerate(blocks) if isinstance(block, Mapping)][at]
    blocks[at] = _pointed(blocks[at])
    return {**wire, "content": blocks}
