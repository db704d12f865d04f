"""JSON that can be sent: in UTF-8, with call arguments that are JSON and ids that are text."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, Final

from foldline.messages import Json, Wire

__all__ = [
    "ABSENT",
    "BLANK",
    "EMPTY",
    "NO_IDS",
    "UNNAMED",
    "call_id_of",
    "clean",
    "is_json",
    "json_text",
    "mend_arguments",
    "mend_encoding",
    "named_id",
    "object_of",
    "sendable",
]

ABSENT: Final = object()
"""A missing field: Chat servers accept null for no arguments, but not a missing field."""

EMPTY: Final = "(empty)"
"""The text of a message or failed result that would be empty where its provider refuses that."""

UNNAMED: Final = "call_without_id"
"""The id of a call without one. Its result has none either, so they still find each other."""

BLANK: Final = "call_with_empty_id"
"""The id of a call with an empty one."""

# A result that came with an empty id may answer a call that came without one, and the other way round.
NO_IDS: Final = (UNNAMED, BLANK)

# Levels of nesting that are sent. Python's JSON reader gives up at about 1,000; real messages have under 20.
_DEPTH_LIMIT: Final = 200

_PLAIN: Final = frozenset({bool, int, type(None)})


def _sendable_text(text: str) -> bool:
    if text.isascii():  # known to the string object: O(1)
        return True
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def sendable(value: Json, depth: int = 0) -> bool:
    """Whether the value can be sent as UTF-8 JSON. O(size).

    Lone surrogates, NaN and infinity, keys other than text, values outside JSON and nesting over 200 levels cannot.
    """
    # The checks are written out where a helper would read better: every message passes here once.
    if isinstance(value, str):
        return _sendable_text(value)
    if type(value) in _PLAIN:
        return True
    if isinstance(value, float):
        return math.isfinite(value)
    if depth > _DEPTH_LIMIT:
        return False
    deeper = depth + 1
    if isinstance(value, dict):
        # Strings are checked in this loop: a call for each of them would cost more than the check.
        for key, inner in value.items():
            if not isinstance(key, str) or not _sendable_text(key):
                return False
            if not (_sendable_text(inner) if isinstance(inner, str) else sendable(inner, deeper)):
                return False
        return True
    return isinstance(value, list | tuple) and all(sendable(inner, deeper) for inner in value)


def _clean_text(text: str) -> str:
    if _sendable_text(text):
        return text
    # Two halves of a pair that were escaped one by one are one character: join them before what is alone is replaced.
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def clean(value: Json, depth: int = 0) -> Json:
    """Return the value as it can be sent; the same object if it can. O(size).

    U+FFFD replaces a lone surrogate, null replaces NaN and infinity, text replaces any value outside JSON.
    """
    if sendable(value, depth):
        return value
    if isinstance(value, str):
        return _clean_text(value)
    if isinstance(value, float):
        return None
    if depth > _DEPTH_LIMIT:
        return "(nested too deeply)"
    if isinstance(value, Mapping):
        return {_clean_text(str(key)): clean(inner, depth + 1) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [clean(inner, depth + 1) for inner in value]
    return _clean_text(str(value))


def mend_encoding(wire: Wire, faults: list[str]) -> Wire:
    """Return the message as it can be sent, with a sentence in `faults` if it is another object."""
    cleaned: Wire = clean(wire)
    if cleaned is not wire:
        faults.append("what cannot be sent as UTF-8 JSON (a lone surrogate, NaN) was replaced")
    return cleaned


def json_text(value: Json) -> str:
    """Return the JSON text of a value; values outside JSON become text. Never raises."""
    try:
        return json.dumps(value, ensure_ascii=False, default=str)
    except (TypeError, ValueError, RecursionError):
        return json.dumps(clean(value), ensure_ascii=False)


def is_json(text: Json) -> bool:
    """Whether call arguments are JSON text; "" and null stand for {}."""
    if text is None or text == "":
        return True
    if not isinstance(text, str):
        return False
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def mend_arguments(given: Json) -> str:
    """Return call arguments as JSON text; what is no JSON gets a key."""
    # Kept, not dropped: the model sees what it wrote, and an answer about a call that is gone would confuse it.
    if isinstance(given, Mapping):
        return json_text(given)
    return json_text({"_invalid_arguments": given if isinstance(given, str) else json_text(given)})


def object_of(arguments: str) -> dict[str, Any]:
    """Return call arguments as an object, for dialects that require one; anything else gets a key."""
    # Deep nesting too: arguments that can just be read may be too deep to be written a moment later.
    try:
        value = json.loads(arguments or "{}")
    except (ValueError, RecursionError):
        value = None
    return value if isinstance(value, dict) and not _deeper(value) else {"_invalid_arguments": arguments}


def _deeper(value: Json, levels: int = _DEPTH_LIMIT) -> bool:
    """Whether a value is nested deeper than `levels`."""
    inner = value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()
    return levels < 0 or any(_deeper(each, levels - 1) for each in inner)


def call_id_of(value: Json) -> str:
    """Return a call id as text; "" if there is none."""
    # Some servers number their calls: 7 becomes "7", and True, which is an int to Python, no id.
    if isinstance(value, str):
        return value
    # The id of a result is read by this function too, so a pair with numbers for ids stays a pair.
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else ""


def named_id(value: Json) -> str:
    """Return a call id as text, with a substitute for an empty or missing one."""
    return call_id_of(value) or (BLANK if value == "" else UNNAMED)
