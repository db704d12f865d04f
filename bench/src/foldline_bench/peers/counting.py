"""The neutral counter of messages, for a package that counts texts."""

from __future__ import annotations

from collections.abc import Callable

from foldline_bench.systems import Count

__all__ = ["text_counter"]


def text_counter(count: Count) -> Callable[[str], int]:
    """Tokens of a text alone, without the overhead of a message; cached. O(size), then O(1).

    The counter of messages remembers by identity, and a text has none that lasts.
    """
    known: dict[str, int] = {}
    around = count({"role": "user", "content": ""})

    def tokens(text: str) -> int:
        found = known.get(text)
        if found is None:
            found = known[text] = max(0, count({"role": "user", "content": text}) - around)
        return found

    return tokens
