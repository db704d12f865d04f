"""Blocks of the type `compaction` in Anthropic Messages: those of ours are made, checked and put into words.

Sources: Anthropic docs, "Compaction at a token threshold" (its block covers all before it) and "Compaction on demand"
(its signed block comes first); the error codes are those of the SDK (anthropic 2.14.0, `types/compaction_*_error.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from foldline.conversations.compaction.condense import Condensed
from foldline.conversations.compaction.expansion import Expanded, messages_of
from foldline.conversations.compaction.refusals import CompactionRefused
from foldline.conversations.compaction.seals import Seal, SealBroken, SealKey, is_seal
from foldline.messages import Json, Wire

__all__ = ["block_of", "expand_blocks", "has_block"]

_DIALECT: Final = "anthropic"
_TYPE: Final = "compaction"
_CODES: Final = {"content": "compaction_content_mismatch"}  # any other breach is an invalid signature
_FIELDS: Final = frozenset({"type", "content", "encrypted_content", "signature", "tool_changes", "cache_control"})


@dataclass(frozen=True, slots=True)
class _Found:
    """A block of ours: where it stands, and what it says."""

    message: int
    block: int
    seal: Seal
    cache_control: Json = None


def has_block(messages: Sequence[Wire]) -> bool:
    """Whether any message holds a block of compaction. O(blocks)."""
    return any(block.get("type") == _TYPE for wire in messages for block in _blocks(wire))


def block_of(key: SealKey, client: bytes, condensed: Condensed, *, on_demand: bool) -> dict[str, Json]:
    """Return the block for a condensed conversation, signed for a client."""
    kind = "summary" if on_demand else "threshold"
    seal = Seal("summary" if on_demand else "threshold", condensed.summary, condensed.shown)
    name = "signature" if kind == "summary" else "encrypted_content"
    return {"type": _TYPE, "content": condensed.summary, name: key.seal(seal, client, inside=False)}


def expand_blocks(messages: Sequence[Wire], key: SealKey, client: bytes, *, native: bool) -> Expanded:
    """Return the messages without blocks of ours, which are put into words. O(blocks).

    With `native` the upstream makes blocks of its own: these stay. Otherwise a block that is not ours is refused, as is
    one that was changed or stands in the wrong place. Raises CompactionRefused.
    """
    kept = [_without_empty(wire) for wire in messages] if not native else list(messages)
    kept = [wire for wire in kept if wire is not None]
    found = [block for at, wire in enumerate(kept) for block in _found_in(at, wire, key, client, native)]
    changed = len(kept) != len(messages) or any(a is not b for a, b in zip(kept, messages, strict=False))
    if not found:
        return Expanded(messages=kept, changed=changed)
    signed = [block for block in found if block.seal.kind == "summary"]
    if len(signed) > 1:
        reason = "a request can carry only one `compaction` block with a signature: send the newest"
        raise CompactionRefused(reason, place="messages", code="compaction_block_ambiguous")
    if signed and (signed[0].message, signed[0].block) != (0, 0):
        reason = "the `compaction` block must be the first block of the first message: remove what it summarizes"
        place = f"messages.{signed[0].message}.content.{signed[0].block}"
        raise CompactionRefused(reason, place=place, code="compaction_block_misplaced")
    return replace(_expanded(kept, found[-1]), signed=bool(signed))


def _expanded(messages: Sequence[Wire], newest: _Found) -> Expanded:
    """Return the messages with the newest block in words. Everything before it is covered by it."""
    holder = messages[newest.message]
    rest = [block for block in holder["content"][newest.block + 1 :] if not _is_ours(block)]
    following = [*([{**holder, "content": rest}] if rest else []), *messages[newest.message + 1 :]]
    following = [wire for wire in (_without_ours(wire) for wire in following) if wire is not None]
    shown, at = messages_of(_DIALECT, newest.seal, following, newest.cache_control)
    dropped = list(messages[: newest.message])
    if newest.block:
        dropped.append({**holder, "content": holder["content"][: newest.block]})
    return Expanded(messages=[*shown, *following], summaries=frozenset({at}), dropped=tuple(dropped), changed=True)


def _found_in(at: int, wire: Wire, key: SealKey, client: bytes, native: bool) -> list[_Found]:
    found = []
    content = wire.get("content")
    for number, block in enumerate(content if isinstance(content, list) else []):
        if not isinstance(block, Mapping) or block.get("type") != _TYPE:
            continue
        if native and not _is_ours(block):
            continue
        place = f"messages.{at}.content.{number}"
        found.append(_Found(at, number, _opened(block, key, client, place), block.get("cache_control")))
    return found


def _opened(block: Mapping[str, Any], key: SealKey, client: bytes, place: str) -> Seal:
    """Return what a block says. Raises CompactionRefused for one that is not ours, or not as we made it."""
    for name, value in block.items():
        if name not in _FIELDS and value is not None:
            raise CompactionRefused("Extra inputs are not permitted", place=f"{place}.compaction.{name}")
    content = block.get("content")
    if not isinstance(content, str) or not content:
        raise CompactionRefused("Input should be a valid string, and not empty", place=f"{place}.compaction.content")
    if block.get("tool_changes"):
        reason = "the `tool_changes` of this block were not returned with it"
        raise CompactionRefused(reason, place=place, code="compaction_tool_changes_mismatch")
    field = "encrypted_content" if is_seal(block.get("encrypted_content")) else "signature"
    try:
        text = block.get(field)
        if not is_seal(text):
            raise SealBroken("foreign")
        seal = key.open(str(text), client, summary=content)
        if seal.kind != ("threshold" if field == "encrypted_content" else "summary"):
            raise SealBroken("signature")
    except SealBroken as broken:
        code = _CODES.get(broken.breach, "compaction_signature_invalid")
        raise CompactionRefused(f"this `compaction` block cannot be used: {broken}", place=place, code=code) from None
    return seal


def _blocks(wire: Wire) -> list[Mapping[str, Any]]:
    content = wire.get("content")
    return [block for block in content if isinstance(block, Mapping)] if isinstance(content, list) else []


def _is_ours(block: object) -> bool:
    if not isinstance(block, Mapping) or block.get("type") != _TYPE:
        return False
    return is_seal(block.get("encrypted_content")) or is_seal(block.get("signature"))


def _without_ours(wire: Wire) -> Wire | None:
    """Return a message without blocks of ours; None if nothing is left."""
    return _without(wire, _is_ours)


def _without_empty(wire: Wire) -> Wire | None:
    """Return a message without blocks that say that a compaction has failed, which the API ignores."""

    def is_empty(block: object) -> bool:
        return isinstance(block, Mapping) and block.get("type") == _TYPE and block.get("content") is None

    return _without(wire, is_empty)


def _without(wire: Wire, unwanted: Any) -> Wire | None:
    content = wire.get("content")
    if not isinstance(content, list) or not any(map(unwanted, content)):
        return wire
    left = [block for block in content if not unwanted(block)]
    return {**wire, "content": left} if left else None
