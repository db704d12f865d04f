"""Messages of Chat Completions, as short as tests need them."""

from __future__ import annotations

from typing import Any

__all__ = ["Wire", "says", "user"]

Wire = dict[str, Any]


def user(words: str) -> Wire:
    """A message of the user."""
    return {"role": "user", "content": words}


def says(words: str) -> Wire:
    """A reply of the assistant without calls."""
    return {"role": "assistant", "content": words}
