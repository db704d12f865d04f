"""Token and byte counts of texts, messages and tool schemas.

The estimate (`ESTIMATE`) needs no vocabulary. An exact counter implements the same protocol (`Counter`).
"""

from __future__ import annotations

from foldline.tokens.estimate import ESTIMATE, CharsPerFour, Counter, MessageCounter
from foldline.tokens.media import image_size, image_size_of_base64, pdf_pages_of_base64
from foldline.tokens.sizes import (
    content_bytes,
    json_tokens,
    lone_text,
    message_tokens,
    system_tokens,
    tools_tokens,
    wire_bytes,
)

__all__ = [
    "ESTIMATE",
    "CharsPerFour",
    "Counter",
    "MessageCounter",
    "content_bytes",
    "image_size",
    "image_size_of_base64",
    "json_tokens",
    "lone_text",
    "message_tokens",
    "pdf_pages_of_base64",
    "system_tokens",
    "tools_tokens",
    "wire_bytes",
]
