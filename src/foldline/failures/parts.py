"""The part of a request that an error refuses: its kind, its place, the reason, and the maximum of its kind.

Such a request passes once the part is left out, so its place matters: an index or id in the message comes first, the
kind of part second.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal

__all__ = [
    "PartKind",
    "RefusedPart",
    "read_part",
]

PartKind = Literal[
    "image",
    "document",
    "result_media",
    "reasoning",
    "item",
    "name",
    "call_id",
    "roles",
    "system",
    "empty",
    "pairs",
    "history",
]
"""Kinds of parts. `result_media` is anything but text in a tool result, `item` one with an id, `pairs` calls without
results or results without calls, `history` any other fault of the messages."""

Why = Literal["", "unreadable", "protected", "pages", "size", "count", "unsupported", "signature"]


@dataclass(frozen=True, slots=True)
class RefusedPart:
    """A part that a provider refused.

    `place` are the indices in the error: of the message (or item), of the block in it, of the block in that. `item_id`
    is the id in the error. `most` is the number of such parts that the error allows.
    """

    kind: PartKind
    why: Why = ""
    place: tuple[int, ...] = ()
    item_id: str | None = None
    most: int | None = None


# "messages.27.content.0", "messages[5]", "input[7]", "contents[3].parts[1]", and pydantic's ('body', 'messages', 2, …).
_PLACE: Final = (
    r"\b(?:messages?|inputs?|contents|items?)\W{0,4}?[.\[ (,'\"]{1,4}(\d{1,6})\b"
    r"(?:[\].)'\", ]{1,4}(?:content|parts|output|tool_calls|blocks?)['\"]?[.\[ ,]{1,3}(\d{1,6})\b"
    r"(?:[\].)'\", ]{1,4}\w{1,24}['\"]?[.\[ ,]{1,3}(?:content|output|parts)['\"]?[.\[ ,]{1,3}(\d{1,6})\b)?)?"
)
_ITEM_ID: Final = r"\b((?:rs|msg|fc|ws|cmp|ci|fs|ig|mcp|mcpr|mcpl|ctc|cu|item|call|toolu|srvtoolu|thk)_[\w\-]{6,80})"
_MOST: Final = (
    r"(?:maximum(?: number)?(?: allowed)?|max|at most|up to|limit|more than|only supports?)"
    r"(?: of| is|:|s)? ?\(?(\d{1,5})\b(?!\s?(?:px|pixels|[km]b|x))|(?:\d|images|"
    r"pages)\s?> ?(\d{1,5})\b(?!\s?(?:px|[km]?b))|"
    r"exceed\w{0,4} (?:the )?(?:limit|maximum)[^\d]{0,20}(\d{1,5})\b(?!\s?(?:px|pixels|[km]b))|"
    r"maximum number of (?:images|documents|pages) \((\d{1,5})\)"
)
_WHY: Final[tuple[tuple[Why, str], ...]] = (
    ("protected", r"password|encrypted(?! content)|locked"),
    ("signature", r"signature|encrypted content|encrypted_content"),
    ("count", r"too many (?:images|documents)|too much media|number of images|\bimages[ ,]{1,2}exceed|\d{1,4} images"),
    ("pages", r"\bpages?\b"),
    ("size", r"too (?:large|big|long)|exceeds? .{0,40}?(?:mb|bytes|size)|dimension|pixels?|maximum (?:allowed )?size"),
    ("unsupported", r"support|only (?:allowed|text|accept)|unknown variant|allowed values|not allowed|must be text"),
    ("count", r"too many|at most|maximum of|more than"),
    ("unreadable", r"valid|invalid|could not|cannot|unable|failed|corrupt|damaged|parse|decode|malformed|read"),
)


def read_part(kind: PartKind, text: str, places: tuple[str, ...]) -> RefusedPart:
    """The part of a kind, read from the text and the parameters of an error. O(size of the text)."""
    place = next((found for said in (*places, text) if (found := _place(said))), ())
    item = re.search(_ITEM_ID, text)
    why: Why = next((why for why, pattern in _WHY if re.search(pattern, text, re.IGNORECASE)), "")
    most = re.search(_MOST, text, re.IGNORECASE) if kind in ("image", "document") else None
    return RefusedPart(
        kind,
        why,
        place,
        item[1] if item else None,
        next((int(digits) for digits in most.groups() if digits), None) if most else None,
    )


def _place(said: str) -> tuple[int, ...]:
    found = re.search(_PLACE, said, re.IGNORECASE)
    return tuple(int(digits) for digits in found.groups() if digits is not None) if found else ()
