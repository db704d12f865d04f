"""The estimate of tokens for tests that count the same texts many times over."""

from __future__ import annotations

from functools import lru_cache

from foldline.tokens import ESTIMATE

__all__ = ["REMEMBERED"]


class _Remembered:
    """Counts as the estimate does, and remembers what it has counted."""

    name = ESTIMATE.name

    def __init__(self) -> None:
        self.text = lru_cache(maxsize=32_768)(ESTIMATE.text)


REMEMBERED = _Remembered()
