"""What a provider bounds besides tokens: names, ids, the size of an image, and what a request may hold of each kind."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Final

from foldline.codecs.limits.caps import NO_CAPS, Caps
from foldline.codecs.limits.labels import NAME, bounded_id, good_name

__all__ = ["Limits"]

_LARGE_WINDOW_TOKENS: Final = 200_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The limits of one dialect. `call_id_chars` is None where an id may have any length.

    `image_chars` are characters of the base64 of one image, `image_side_px` pixels of its longer side (0: no limit).
    With `strict_media` the declared type of an image must be that of its data. `large_media` takes the place of
    `caps.max_media` for a model with a window over 200,000 tokens.
    """

    call_name_chars: int
    tool_name_chars: int
    call_id_chars: int | None = None
    name: re.Pattern[str] = NAME
    image_chars: int = 0
    image_side_px: int = 0
    strict_media: bool = False
    caps: Caps = NO_CAPS
    large_media: int | None = None

    def call_name(self, name: str, known: Collection[str] = ()) -> str:
        """The name of a tool as a call may have it; see `good_name`."""
        return good_name(name, self.call_name_chars, known, self.name)

    def tool_name(self, name: str) -> str:
        """The name of a tool as the list of tools may have it."""
        return good_name(name, self.tool_name_chars, (), self.name)

    def call_id(self, call_id: str) -> str:
        """The id of a call in the length that is taken."""
        return bounded_id(call_id, self.call_id_chars)

    def caps_for(self, window_tokens: int | None = None) -> Caps:
        """What a request may hold, for a model whose window is known; the smaller limits where it is not."""
        if self.large_media is None or window_tokens is None or window_tokens <= _LARGE_WINDOW_TOKENS:
            return self.caps
        return replace(self.caps, max_media=self.large_media)
