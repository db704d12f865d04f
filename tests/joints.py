"""Requests without what only keeps their roles in turn."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from foldline.view.rendering import UNDERSTOOD

__all__ = ["unjoined"]


def unjoined(messages: Iterable[Any]) -> list[Any]:
    """The messages without the short ones of the assistant that stand between two of the user."""
    return [m for m in messages if (m.get("role"), m.get("content")) != ("assistant", UNDERSTOOD)]
