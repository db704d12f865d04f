"""A counter for a loop that others share: a long text is counted in a thread before the session takes it up."""

from __future__ import annotations

import asyncio
from typing import Final

from foldline.tokens import Counter

__all__ = ["BackgroundCounter"]

# What is counted in a millisecond or two is counted where it is asked for.
_INLINE_CHARS: Final = 65_536


class BackgroundCounter:
    """Counts as another counter does, and remembers the text that it was asked about `ahead`."""

    def __init__(self, inner: Counter) -> None:
        self._inner = inner
        self._known: tuple[str, int] = "", 0

    @property
    def name(self) -> str:
        """Whose tokens they are."""
        return self._inner.name

    def text(self, text: str, /) -> int:
        """Tokens of `text`."""
        known, tokens = self._known
        return tokens if text is known else self._inner.text(text)

    async def ahead(self, text: str) -> None:
        """Count a long text in a thread, for `text` to be asked about the very same object. O(its size)."""
        if len(text) > _INLINE_CHARS:
            self._known = text, await asyncio.to_thread(self._inner.text, text)

    def forget(self) -> None:
        """The text has been taken up: it is not asked about again."""
        self._known = "", 0
