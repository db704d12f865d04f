"""Whole numbers as a person types them."""

from __future__ import annotations

import pytest

from foldline.doors.chat.commands import whole_number


@pytest.mark.parametrize(("typed", "number"), [("0", 0), ("12", 12), ("007", 7), ("9" * 12, 999_999_999_999)])
def test_digits_are_a_number(typed: str, number: int) -> None:
    assert whole_number(typed) == number


@pytest.mark.parametrize("typed", ["", "²", "٣", "1 2", "-1", "+1", "1.0", "1_000", "x", "9" * 13, "9" * 5_000])
def test_anything_else_is_none(typed: str) -> None:
    assert whole_number(typed) is None
