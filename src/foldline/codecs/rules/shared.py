"""What the rules of all dialects have in common: reading roles and content out of JSON that may be anything."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from foldline.codecs.blocks import mend_content
from foldline.codecs.rulebook import Findings
from foldline.messages import Json

__all__ = ["check_content", "is_blank", "named", "read_role"]


def is_blank(block: Mapping[str, Any]) -> bool:
    """Whether a block is a text without visible text. O(its length)."""
    text = block.get("text")
    return block.get("type") == "text" and (text is None or (isinstance(text, str) and not text.strip()))


def check_content(found: Findings, index: int, content: Json) -> None:
    """Note what keeps content from being text or a list of blocks. O(blocks)."""
    faults: list[str] = []
    mend_content(content, "text", faults)
    for fault in faults:
        found.add(index, "content", fault.partition(";")[0])


def read_role(found: Findings, index: int, wire: Json, known: Mapping[str, Any]) -> str | None:
    """The role of a message; None when it is not even an object with a role (which is noted)."""
    role = wire.get("role") if isinstance(wire, Mapping) else None
    if not isinstance(role, str) or not role:
        found.add(index, "object")
        return None
    if role not in known:
        found.add(index, "role", f"unknown role {role!r}")
    return role


def named(ids: set[str]) -> str:
    """The ids in quotes, sorted, for a sentence."""
    return ", ".join(map(repr, sorted(ids)))
