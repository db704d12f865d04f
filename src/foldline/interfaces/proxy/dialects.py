"""Which dialect is spoken at a path: known by how the path ends, as providers put different things before it."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["dialect_of"]

_PATHS: Final = (
    ("/chat/completions", "openai-chat", False),
    ("/responses", "openai-responses", False),
    ("/messages", "anthropic", False),
    ("/messages/count_tokens", "anthropic", True),
)

_OTHERS: Final = re.compile(r"/threads/[^/]*/messages$")
"""What ends like a dialect's path and is none: a message that is added to a thread of OpenAI's Assistants."""


def dialect_of(method: str, path: str) -> tuple[str, bool]:
    """The dialect that is spoken at a path ("" for none), and whether only tokens are to be counted."""
    if method == "POST":
        plain = path.rstrip("/")
        for ending, dialect, counting in _PATHS:
            if plain.endswith(ending) and not _OTHERS.search(plain):
                return dialect, counting
    return "", False
