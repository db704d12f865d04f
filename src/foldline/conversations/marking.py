"""Cache markers of Anthropic's API: the client's own, those too many, and the one for where all are folded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from foldline.codecs.anthropic import THOUGHTS
from foldline.codecs.caching import bare, in_order, marked, markers, out_of_order, unmarked, within
from foldline.codecs.caps import MARKERS
from foldline.conversations.chain import without_markers
from foldline.conversations.request_body import RequestBody, read_body, written
from foldline.messages import Json, Wire

__all__ = ["MARKER", "marks", "plain", "settled", "with_marker"]

MARKER: Final = '"cache_control"'


def plain(wire: Wire, body: RequestBody) -> Wire:
    """A message as it is recorded: a marker is for this request, and there may be four of them in one."""
    if body.dialect != "anthropic":
        return wire
    plain = without_markers(wire)
    return plain if isinstance(plain, dict) else wire


def marks(body: RequestBody) -> bool:
    """Whether any message of a request has a marker. O(size)."""
    start, stop = body.spans[body.form.messages]
    return body.text.find(MARKER, start, stop) >= 0


def with_marker(wire: Wire) -> Wire:
    """A message with a marker at its end; as it is where it has no block for one."""
    content = wire.get("content")
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    if not isinstance(blocks, list) or not blocks or not isinstance(blocks[-1], dict):
        return wire
    return {**wire, "content": [*blocks[:-1], {**blocks[-1], "cache_control": {"type": "ephemeral"}}]}


def settled(body: RequestBody) -> RequestBody | None:
    """A request with as many markers as are taken, in an order that is taken; None where its client's are.

    As `foldline.view.request` has it: tools and system text lose theirs only where they have too many by themselves,
    the newest of the messages stay, and thinking has none. A marker for the whole request is one of the four (Anthropic
    docs, "Prompt caching"). Nothing is remembered, so that the same markers are always settled the same way. O(size).
    """
    if body.dialect != "anthropic" or MARKER not in body.text:
        return None
    tools, system, wires = body.fields.get("tools"), body.fields.get("system"), list(map(_thinks_bare, body.messages))
    most = MARKERS - isinstance(body.fields.get("cache_control"), dict)
    lifetimes = list(markers(tools, system, wires))
    same = all(a is b for a, b in zip(wires, body.messages, strict=True))
    if same and len(lifetimes) <= most and not any(out_of_order(lifetimes)):
        return None
    beside, of_messages = len(list(markers(tools, system, ()))), sum(map(marked, wires))
    if beside > most:
        tools, system = within(tools, system, most - bool(of_messages))
    beside = len(list(markers(tools, system, ())))
    tools, short = in_order(tools, False)
    system, short = in_order(system, short)
    shown, _ = in_order(_newest(wires, most - beside), short)
    return read_body(body.form, body.changed(_changes(body, tools, system, shown)), addressed=body.addressed)


def _thinks_bare(wire: Wire) -> Wire:
    """A message whose thinking has no marker; the same object where it has none."""
    blocks = wire.get("content")
    if not isinstance(blocks, list) or not marked(wire):
        return wire
    out = [bare(each) if isinstance(each, dict) and each.get("type") in THOUGHTS else each for each in blocks]
    return wire if all(a is b for a, b in zip(out, blocks, strict=True)) else {**wire, "content": out}


def _newest(wires: Sequence[Wire], keep: int) -> list[Wire]:
    """Messages without their markers, all but the last `keep`; those that need no change are the same objects."""
    out: list[Wire] = []
    for wire in reversed(wires):
        here = marked(wire)
        out.append(unmarked(wire, keep))
        keep -= min(here, keep)
    return out[::-1]


def _changes(body: RequestBody, tools: Json, system: Json, shown: Sequence[Wire]) -> dict[str, str]:
    """The JSON of the fields that differ; the client's own text where a message is as it came."""
    changes = {"tools": written(tools)} if tools is not body.fields.get("tools") else {}
    if system is not body.fields.get("system"):
        changes["system"] = written(system)
    pairs = zip(body.messages, shown, strict=True)
    if any(given is not wire for given, wire in pairs):
        texts = [
            body.item(at) if given is wire else written(wire)
            for at, (given, wire) in enumerate(zip(body.messages, shown, strict=True))
        ]
        changes[body.form.messages] = f"[{','.join(texts)}]"
    return changes
