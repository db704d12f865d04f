"""Values of texts that were seen lately."""

from __future__ import annotations

from typing import Generic, TypeVar

__all__ = ["RecentValues"]

T = TypeVar("T")


class RecentValues(Generic[T]):
    """The values of the newest texts. Older ones leave together, so that keeping one costs nothing but itself."""

    # Two views of one session may be read in two threads: each step is one of a dict, and a lost value is found again.
    __slots__ = ("_chars", "_most_chars", "_new", "_old")

    def __init__(self, most_chars: int) -> None:
        self._most_chars, self._chars = most_chars, 0
        self._new: dict[str, T] = {}
        self._old: dict[str, T] = {}

    def get(self, text: str) -> T | None:
        """Return the value of a text, None if it is not known any more. O(1)."""
        found = self._new.get(text)
        if found is None and (found := self._old.get(text)) is not None:
            self.keep(text, found)
        return found

    def keep(self, text: str, value: T) -> T:
        """Keep the value of a text, and return it. O(1)."""
        if len(text) <= self._most_chars:
            self._chars += len(text)
            if self._chars > self._most_chars:
                self._old, self._new, self._chars = self._new, {}, len(text)
            self._new[text] = value
        return value
