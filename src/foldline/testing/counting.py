"""The fake's own count of a request, which knows nothing of the estimate that is being tested."""

from __future__ import annotations

import json
import re
from typing import Final

from foldline.messages import Json
from foldline.testing.values import Body

__all__ = ["IMAGE_TOKENS", "count_body", "count_text", "dumped"]

IMAGE_TOKENS: Final = 85
"""What an image or file sent as base64 costs here, whatever its size: OpenAI's figure for an image of low detail."""

_COMPACT: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))
_PROMPT_FIELDS: Final = ("tools", "system", "instructions", "messages", "input", "systemInstruction", "contents")
_PAYLOAD: Final = re.compile(
    r'(?:;base64,|"(?:type":"base64|mime_?[tT]ype":"[^"]{1,80})",[^{}]{0,80}?"data":")[A-Za-z0-9+/=_-]+'
)


def dumped(value: Json) -> str:
    """Compact JSON. O(size)."""
    return _COMPACT.encode(value)


def count_text(text: str) -> int:
    """Tokens of a text: a quarter of its UTF-8 bytes, rounded up. O(size)."""
    return -(-len(text.encode("utf-8", "surrogatepass")) // 4)


def count_body(body: Body) -> int:
    """Tokens of a request: a quarter of the UTF-8 bytes of its tools, system text and messages as compact JSON.

    An image's payload costs IMAGE_TOKENS. O(size).
    """
    text = "\n".join(dumped(body[name]) for name in _PROMPT_FIELDS if body.get(name))
    text, images = _PAYLOAD.subn("", text)
    return count_text(text) + images * IMAGE_TOKENS
