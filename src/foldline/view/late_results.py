"""What came for a call that is no longer shown, told in words: the newest thing there is must not get lost.

What a tool says stands in a message of ours then, which has the user's role: each line of it is marked as quoted, so
that none reads like a line of ours or like words of the user.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from foldline.codecs.base import Codec
from foldline.codecs.encoding import json_text
from foldline.messages import Document, Image, Message, Opaque, Part, Text, ToolResult
from foldline.view.open_calls import Called

__all__ = ["told_answer", "told_result"]

_BREAKS: Final = re.compile("\r\n|[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]")
"""All that a reader may take for the end of a line."""

_QUOTE: Final = "> "
_SHOWN_TYPES: Final = frozenset({"image", "document", "image_url", "file", "input_image", "input_file"})
"""Pictures and files that may stand in a user message as they stood in the result."""


def told_result(codec: Codec, called: Called, result: ToolResult) -> Message:
    """A user message of ours with a result and the call that it answers; pictures and files stand beside the words."""
    beside = [part for part in result.parts if _may_stand(part)]
    said = "\n".join(_words(part) for part in result.parts if not _may_stand(part))
    text = _told("failed" if result.is_error else "has its result", called, said)
    message = codec.note(text)
    return codec.revise(message, [*message.parts, *beside]) if beside else message


def told_answer(codec: Codec, called: Called, answer: Opaque) -> Message:
    """A user message of ours with the answer to a block that opened a pair: of a provider's tool, or of the user."""
    raw = answer.raw if isinstance(answer.raw, Mapping) else {}
    approves = raw.get("approve")
    if isinstance(approves, bool):
        reason = raw.get("reason")
        said = reason if isinstance(reason, str) else ""
        return codec.note(_told(f"was {'approved' if approves else 'refused'} by the user", called, said))
    return codec.note(_told("has its result", called, _words(answer)))


def _told(what: str, called: Called, said: str) -> str:
    call = _quoted(f"{called.name} {called.arguments}".strip())
    lines = [f"[An earlier call {what}. The call was:]", call]
    if said:
        lines += [
            "[What came, as a tool gave it:]" if "by the user" not in what else "[The reason given:]",
            _quoted(said),
        ]
    return "\n".join(lines)


def _quoted(text: str) -> str:
    return "\n".join(_QUOTE + line for line in _BREAKS.split(text))


def _may_stand(part: Part) -> bool:
    raw = part.raw if isinstance(part, Image | Document) else None
    return isinstance(raw, Mapping) and raw.get("type") in _SHOWN_TYPES


def _words(part: Part) -> str:
    """A part in words; one that has none by its JSON, a picture that cannot stand here by its name."""
    if isinstance(part, Text | Document | Opaque) and (text := part.text):
        return text
    if isinstance(part, Image | Document):
        return f"(a {type(part).__name__.lower()})"
    raw = part.raw
    if isinstance(raw, Mapping):
        told = {key: value for key, value in raw.items() if key not in {"type", "id", "tool_use_id", "call_id"}}
        return json_text(told)
    return ""
