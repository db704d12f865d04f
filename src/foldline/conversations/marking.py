"""Cache markers of Anthropic's API: the client's own, and the one that replaces them where all are folded."""

from __future__ import annotations

from typing import Final

from foldline.conversations.body import RequestBody
from foldline.conversations.chain import without_markers
from foldline.messages import Wire

__all__ = ["MARKER", "marks", "plain", "with_marker"]

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
