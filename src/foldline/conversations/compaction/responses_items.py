"""Compaction in OpenAI Responses: what a request asks for, and items of the type `compaction`, made and put into words.

Sources: OpenAI docs, "Compaction"; API reference, "Compact a response"; the types of the SDK (openai 3.57.0). An item
made at a threshold covers all before it. A window, from `/responses/compact` or `compaction_trigger`, is the words of
the user and an item for all else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from uuid import uuid4

from foldline.codecs import codec
from foldline.conversations.compaction.condense import Condensed
from foldline.conversations.compaction.expansion import Expanded, messages_of
from foldline.conversations.compaction.refusals import CompactionRefused
from foldline.conversations.compaction.seals import Seal, SealBroken, SealKey, is_seal
from foldline.messages import Json, Wire
from foldline.tokens import ESTIMATE, Counter, message_tokens

__all__ = ["ItemsRequest", "expand_items", "has_item", "item_of", "kept_words", "read_request"]

_DIALECT: Final = "openai-responses"
_TYPES: Final = ("compaction", "compaction_summary")
_TRIGGER: Final = "compaction_trigger"
_COMPACT_AT_TOKENS: Final = 200_000
_KEPT_ROLES: Final = ("user", "developer", "system")

# Words of the user that stay in a compacted window, newest first: at most this share of the model's window.
_WORDS_SHARE: Final = 0.25
_USUAL_WINDOW_TOKENS: Final = 128_000


@dataclass(frozen=True, slots=True)
class ItemsRequest:
    """What a request asks for: compaction from a size on (None: not), or now."""

    threshold: int | None = None
    now: bool = False
    asked: bool = False


# --- what is asked for ------------------------------------------------------------------------------------------------


def read_request(fields: Mapping[str, Json], items: Sequence[Wire]) -> ItemsRequest:
    """Return what a request asks for. Raises CompactionRefused."""
    value = fields.get("context_management")
    threshold: int | None = None
    if value is not None and not isinstance(value, list):
        raise _wrong_type("context_management", "an array of objects", value)
    for at, entry in enumerate(value or []):
        place = f"context_management[{at}]"
        if not isinstance(entry, Mapping):
            raise _wrong_type(place, "an object", entry)
        if unknown := next((name for name in entry if name not in ("type", "compact_threshold")), None):
            raise CompactionRefused(
                f"Unknown parameter: '{place}.{unknown}'.", place=f"{place}.{unknown}", code="unknown_parameter"
            )
        kind = entry.get("type")
        if kind != "compaction":
            reason = f"Invalid value: '{kind}'. Supported values are: 'compaction'."
            raise CompactionRefused(reason, place=f"{place}.type", code="invalid_value")
        asked = _threshold(entry.get("compact_threshold"), f"{place}.compact_threshold")
        threshold = asked if threshold is None else min(threshold, asked)
    now = _is_triggered(items)
    return ItemsRequest(threshold, now, asked=bool(value) or now)


def _threshold(value: Json, place: str) -> int:
    if value is None:
        return _COMPACT_AT_TOKENS
    if not isinstance(value, int) or isinstance(value, bool):
        raise _wrong_type(place, "an integer", value)
    if value < 1:
        reason = f"Invalid '{place}': integer below minimum value. Expected a value >= 1, but got {value} instead."
        raise CompactionRefused(reason, place=place, code="integer_below_min_value")
    return value


def _is_triggered(items: Sequence[Wire]) -> bool:
    places = [at for at, item in enumerate(items) if item.get("type") == _TRIGGER]
    if not places:
        return False
    if places != [len(items) - 1]:
        reason = "Invalid value: 'compaction_trigger' must be the final input item, and the only one."
        raise CompactionRefused(reason, place=f"input[{places[0]}]", code="invalid_value")
    return True


def _wrong_type(place: str, expected: str, value: Json) -> CompactionRefused:
    names = {bool: "a boolean", int: "an integer", float: "a decimal", str: "a string", list: "an array"}
    got = "null" if value is None else names.get(type(value), "an object")
    reason = f"Invalid type for '{place}': expected {expected}, but got {got} instead."
    return CompactionRefused(reason, place=place, code="invalid_type")


# --- items ------------------------------------------------------------------------------------------------------------


def has_item(items: Sequence[Wire]) -> bool:
    """Whether any item is one of compaction, or asks for one. O(items)."""
    return any(item.get("type") in (*_TYPES, _TRIGGER) for item in items)


def item_of(key: SealKey, client: bytes, condensed: Condensed, *, window: bool) -> dict[str, Json]:
    """Return the item for a condensed conversation, signed for a client."""
    seal = Seal("window" if window else "item", condensed.summary, condensed.shown)
    return {"id": f"cmp_{uuid4().hex}", "type": "compaction", "encrypted_content": key.seal(seal, client)}


def expand_items(items: Sequence[Wire], key: SealKey, client: bytes, *, native: bool) -> Expanded:
    """Return the items without those of ours, which are put into words. O(items).

    With `native` the upstream makes items of its own: these stay. Otherwise an item that is not ours is refused, as is
    one that was changed. Raises CompactionRefused.
    """
    found: list[tuple[int, Seal]] = []
    for at, item in enumerate(items):
        if item.get("type") in _TYPES and (not native or is_seal(item.get("encrypted_content"))):
            found.append((at, _opened(item, key, client, at)))
    if not found:
        return Expanded(messages=list(items))
    newest, seal = found[-1]
    ours = {at for at, _ in found}
    following = list(items[newest + 1 :])
    shown, at = messages_of(_DIALECT, seal, following)
    words: list[Wire] = []
    if seal.kind == "window":
        words = [_plain(item) for n, item in enumerate(items[:newest]) if n not in ours and _is_words(item)]
    dropped = tuple(item for n, item in enumerate(items[:newest]) if n not in ours)
    return Expanded(
        messages=[*words, *shown, *following],
        summaries=frozenset({len(words) + at}),
        dropped=dropped,
        changed=True,
    )


def _opened(item: Mapping[str, Any], key: SealKey, client: bytes, at: int) -> Seal:
    text = item.get("encrypted_content")
    try:
        if not is_seal(text):
            raise SealBroken("foreign")
        seal = key.open(str(text), client)
        if seal.kind not in ("item", "window"):
            raise SealBroken("signature")
    except SealBroken as broken:
        name = item.get("id") or f"input[{at}]"
        reason = f"The encrypted content for item {name} could not be verified. Reason: {broken}."
        raise CompactionRefused(reason, place=f"input[{at}]", code="invalid_encrypted_content") from None
    return seal


def kept_words(
    items: Sequence[Wire], summaries: frozenset[int], window_tokens: int | None, counter: Counter = ESTIMATE
) -> list[dict[str, Json]]:
    """Return the words of the user and of the developer, as items of a compacted window: the newest that fit. O(items).

    `summaries` are the positions of items that show an earlier summary.
    """
    room = int(_WORDS_SHARE * (window_tokens or _USUAL_WINDOW_TOKENS))
    reader, out = codec(_DIALECT), list[dict[str, Json]]()
    for at in reversed(range(len(items))):
        item = items[at]
        if at in summaries or not _is_words(item):
            continue
        room -= message_tokens(reader.read(item), counter)
        if room < 0:
            break
        content = item.get("content")
        blocks = [{"type": "input_text", "text": content}] if isinstance(content, str) else content
        role = item.get("role")
        out.append(
            {"id": f"msg_{uuid4().hex}", "type": "message", "status": "completed", "role": role, "content": blocks}
        )
    return out[::-1]


def _is_words(item: Mapping[str, Any]) -> bool:
    return item.get("type") in (None, "message") and item.get("role") in _KEPT_ROLES


def _plain(item: Wire) -> Wire:
    """Return a kept message without the id that was given to it here, which no upstream knows."""
    return {name: value for name, value in item.items() if name not in ("id", "status")}
