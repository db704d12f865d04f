"""Names and ids as providers take them: their alphabets, their lengths, and what stands for one that is refused.

What stands for a name or an id follows from it alone, so that a call and its result, and every later request, agree.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterator, Mapping
from typing import Final

from foldline.messages import Json

__all__ = [
    "ITEM_ID_PREFIXES",
    "NAME",
    "bounded_id",
    "good_author",
    "good_item_id",
    "good_name",
    "is_item_id",
    "tool_names",
]

ITEM_ID_PREFIXES: Final = {
    "message": "msg",
    "function_call": "fc",
    "custom_tool_call": "ct",
    "reasoning": "rs",
}
"""What the id of an item begins with (OpenAI API, error "Expected an ID that begins with")."""

_CARRIES: Final = "__thought__"
"""LiteLLM keeps a thought signature of Gemini behind this mark in the id of a call: shortened it would be lost."""

_ITEM_ID_CHARS: Final = 64
_AUTHOR_CHARS: Final = 64
NAME: Final = re.compile(r"[a-zA-Z0-9_-]+")
"""The alphabet of a tool's name with most providers."""

_NOT_IN_NAME: Final = re.compile(r"[^a-zA-Z0-9_-]+")
_NOT_IN_AUTHOR: Final = re.compile(r"[\s<|\\/>]+")
_DIGEST_CHARS: Final = 12


def _shortened(text: str, most: int, between: str) -> str:
    """The text cut to `most` characters; a digest at its end keeps two texts apart that begin alike."""
    if len(text) <= most:
        return text
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGEST_CHARS]
    return f"{text[: most - len(digest) - len(between)]}{between}{digest}"


def good_name(name: str, most: int, known: Collection[str] = (), alphabet: re.Pattern[str] = NAME) -> str:
    """The name of a tool in the alphabet and length that providers take; the same name where it is taken already.

    A name in `known` stays: the tools beside the request have it, and a server that takes these takes the call.
    """
    if name in known or (len(name) <= most and alphabet.fullmatch(name)):
        return name
    return _shortened(_NOT_IN_NAME.sub("_", name).strip("_") or "unknown_tool", most, "_")


def tool_names(tools: Json) -> Iterator[str]:
    """The names in a list of tools of any dialect; what has none (a tool of the provider's own) is passed over."""
    for tool in tools if isinstance(tools, list | tuple) else ():
        if not isinstance(tool, Mapping):
            continue
        listed = tool.get("functionDeclarations") or tool.get("function_declarations")
        if isinstance(listed, list | tuple):  # Gemini lists the functions inside one tool
            yield from tool_names(listed)
            continue
        inner = tool.get("function") or tool.get("custom")
        name = (inner if isinstance(inner, Mapping) else tool).get("name")
        if isinstance(name, str) and name:
            yield name


def bounded_id(call_id: str, most: int | None) -> str:
    """The id of a call in the length that its provider takes (None: any)."""
    return call_id if most is None or _CARRIES in call_id else _shortened(call_id, most, "-")


def good_author(name: str) -> str:
    """The `name` of who speaks in a chat: no blanks, no <, |, \\, / and >, at most 64 characters; "" for none."""
    if len(name) <= _AUTHOR_CHARS and not _NOT_IN_AUTHOR.search(name):
        return name
    return _shortened(_NOT_IN_AUTHOR.sub("_", name).strip("_"), _AUTHOR_CHARS, "_")


def is_item_id(item_id: Json, kind: str) -> bool:
    """Whether the Responses API takes this as the id of an item of that type."""
    return (
        isinstance(item_id, str)
        and len(item_id) <= _ITEM_ID_CHARS
        and NAME.fullmatch(item_id) is not None
        and item_id.startswith(ITEM_ID_PREFIXES.get(kind, ""))
    )


def good_item_id(item: Json, kind: str) -> bool:
    """Whether an item has no id, or one that is taken."""
    return item.get("id") is None or kind not in ITEM_ID_PREFIXES or is_item_id(item["id"], kind)
