"""Cache markers of the Messages API: their places, their order, and which of them can be removed.

Source: Anthropic docs, "Prompt caching": at most four; blocks are read in the order tools, system, messages; a marker
for an hour precedes those for five minutes; thinking has none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from foldline.messages import Json, Wire

__all__ = [
    "count_markers",
    "keep_last_markers",
    "limit_markers",
    "markers",
    "order_lifetimes",
    "order_markers",
    "out_of_order",
    "strip_markers",
]

_MARKER: Final = "cache_control"
_HOUR: Final = "1h"


def _marks(block: Json) -> Iterator[str]:
    """Yield the lifetimes in a block and the blocks inside it, in order."""
    if not isinstance(block, Mapping):
        return
    inner = block.get("content")
    if isinstance(inner, list | tuple):
        # Inner blocks first: a marker of a result caches up to its end, behind those inside it.
        for each in inner:
            yield from _marks(each)
    marker = block.get(_MARKER)
    if isinstance(marker, Mapping):
        lifetime = marker.get("ttl")
        # Five minutes are the default of a marker without `ttl`.
        yield lifetime if isinstance(lifetime, str) else "5m"


def count_markers(wire: Json) -> int:
    """Return the number of markers in a message. O(blocks)."""
    return sum(1 for _ in _marks(wire))


def markers(tools: Json, system: Json, wires: Sequence[Json]) -> Iterator[str]:
    """Yield the lifetime of every marker of a request, in the order in which the API reads them. O(blocks)."""
    for listed in (tools, system, wires):
        for each in listed if isinstance(listed, list | tuple) else ():
            yield from _marks(each)


def out_of_order(lifetimes: Sequence[str]) -> Iterator[bool]:
    """Yield for each marker whether it has an hour after one with less."""
    short = False
    for lifetime in lifetimes:
        yield short and lifetime == _HOUR
        short = short or lifetime != _HOUR


def strip_markers(block: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a block or a message without its markers; the same object if it has none. O(blocks)."""
    if not count_markers(block):
        return block
    out = {key: value for key, value in block.items() if key != _MARKER}
    inner = out.get("content")
    if isinstance(inner, list | tuple):
        out["content"] = [strip_markers(each) if isinstance(each, Mapping) else each for each in inner]
    return out


def keep_last_markers(wire: Wire, keep: int) -> Wire:
    """Return a message with its last `keep` markers only; the same object if it has no more. O(blocks)."""
    if count_markers(wire) <= keep:
        return wire
    if keep <= 0:
        return strip_markers(wire)
    return {**wire, "content": _newest(wire["content"], keep)}


def _newest(blocks: Sequence[Any], keep: int) -> list[Any]:
    """Return blocks with their last `keep` markers only."""
    # The last ones stay: a later marker caches the blocks before it too.
    out: list[Any] = []
    for block in reversed(blocks):
        here = count_markers(block)
        out.append(block if here <= keep else keep_last_markers(block, keep) if keep else strip_markers(block))
        keep -= min(here, keep)
    return out[::-1]


def limit_markers(tools: Json, system: Json, most: int) -> tuple[Json, Json]:
    """Return tools and system text with at most `most` markers, at least 1. O(blocks).

    What needs no change is the same object.
    """
    # Removed first: the earliest of the system text, all but its last one, then the earliest of the tools. A later
    # marker caches what precedes it too, and the last of the system text caches the beginning of every request.
    of_tools, of_system = len(list(markers(tools, None, ()))), len(list(markers(None, system, ())))
    over = of_tools + of_system - most
    if over <= 0:
        return tools, system
    kept = max(min(of_system, 1), of_system - over)
    left = of_tools - (over - (of_system - kept))
    return (
        tools if left >= of_tools else _newest(tools, left),
        system if kept >= of_system else _newest(system, kept),
    )


def order_markers(blocks: Json, short: bool) -> tuple[Json, bool]:
    """Apply `order_lifetimes` to each block or tool; the same object if they are in order. O(blocks)."""
    if not isinstance(blocks, list | tuple):
        return blocks, short
    out: list[Any] = []
    for block in blocks:
        fit, short = order_lifetimes(block, short) if isinstance(block, Mapping) else (block, short)
        out.append(fit)
    return (out if any(a is not b for a, b in zip(out, blocks, strict=True)) else blocks), short


def order_lifetimes(block: Mapping[str, Any], short: bool) -> tuple[Mapping[str, Any], bool]:
    """Shorten markers for an hour that follow one for five minutes; return also whether such a one came. O(blocks).

    The block or message is the same object if nothing changes.
    """
    # Shortened and not removed: a cache for five minutes serves the next request, none does not.
    if not count_markers(block):
        return block, short
    out = dict(block)
    inner = out.get("content")
    if isinstance(inner, list | tuple):
        out["content"], short = order_markers(inner, short)
    marker = out.get(_MARKER)
    if isinstance(marker, Mapping):
        if short and marker.get("ttl") == _HOUR:
            out[_MARKER] = {key: value for key, value in marker.items() if key != "ttl"}
        short = short or marker.get("ttl") != _HOUR
    return (block if out == block else out), short
