"""Finds the unchanged messages in the output of a package.

A request is judged by the recorded messages themselves: what a package passed on unchanged must come back as the same
object, also where the package works on copies.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from foldline.messages import Wire

__all__ = ["OriginalMessages", "fingerprint"]


def fingerprint(wire: Wire) -> str:
    """The message as one text, equal for equal messages. O(size)."""
    return json.dumps(wire, sort_keys=True, ensure_ascii=False)


class OriginalMessages:
    """The recorded messages by content. Of equal messages, the first stands for all."""

    def __init__(self) -> None:
        self._read = 0
        self._by_content: dict[str, Wire] = {}

    def learn(self, history: Sequence[Wire]) -> None:
        """Add the messages that the history, which grows by appending, has gained. O(size of the new ones)."""
        for wire in history[self._read :]:
            self._by_content.setdefault(fingerprint(wire), wire)
        self._read = len(history)

    def of(self, wire: Wire) -> Wire:
        """The recorded message that equals this one, or else this one. O(size)."""
        return self._by_content.get(fingerprint(wire), wire)
