"""A token counter for a shared event loop: long texts are counted in a thread before the session records them."""

from __future__ import annotations

import asyncio
from typing import Final

from foldline.tokens import Counter

__all__ = ["BackgroundCounter"]

# Texts up to this size take a millisecond or two: less than switching to a thread costs.
_INLINE_CHARS: Final = 65_536


class BackgroundCounter:
    """Counts as `inner` does, and remembers the one text that it counted in the background."""

    def __init__(self, inner: Counter) -> None:
        self._inner = inner
        self._counted: tuple[str, int] = "", 0

    @property
    def name(self) -> str:
        """The tokenizer."""
        return self._inner.name

    def text(self, text: str, /) -> int:
        """Return the tokens of `text`."""
        counted, tokens = self._counted
        # By identity: comparing two long texts would cost what the thread saved.
        return tokens if text is counted else self._inner.text(text)

    async def count_in_background(self, text: str) -> None:
        """Count a long text in a thread. `text` then returns the count for the same object. O(its size)."""
        if len(text) > _INLINE_CHARS:
            self._counted = text, await asyncio.to_thread(self._inner.text, text)

    def clear(self) -> None:
        """Drop the remembered text, once it is recorded."""
        self._counted = "", 0
