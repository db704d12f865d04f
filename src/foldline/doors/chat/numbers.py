"""Numbers that a person typed."""

from __future__ import annotations

from typing import Final

__all__ = ["whole_number"]

_MOST_DIGITS: Final = 12
"""More than any count or number of a message here has; `int` refuses a text of some thousands."""


def whole_number(typed: str) -> int | None:
    """A whole number from 0 on, as digits and nothing else; None for any other text.

    Only ASCII: "²" and digits of other scripts are digits to `str.isdigit`, and not all of them to `int`.
    """
    if len(typed) > _MOST_DIGITS or not (typed.isascii() and typed.isdigit()):
        return None
    return int(typed)
