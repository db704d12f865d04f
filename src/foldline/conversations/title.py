"""What a person sees of a conversation: the first words of the user in it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from foldline.messages import Wire

__all__ = ["title_of"]

_TITLE_CHARS: Final = 80


def title_of(messages: Sequence[Wire]) -> str:
    """The first words of the user, to be shown to a person; "" if there are none."""
    for wire in messages:
        if wire.get("role") == "user":
            content = wire.get("content")
            blocks = content if isinstance(content, list) else [{"text": content}]
            texts = (block.get("text") for block in blocks if isinstance(block, dict))
            text = " ".join(" ".join(text for text in texts if isinstance(text, str)).split())
            if text:
                return text if len(text) <= _TITLE_CHARS else f"{text[: _TITLE_CHARS - 1]}…"
    return ""
