"""Control sequences reach the terminal as visible text."""

from __future__ import annotations

import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foldline.text.formatting import plain, plain_line

JOINERS = {"\u200c", "\u200d"}


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("\x1b[2J", "␛[2J"),
        ("\x1b]52;c;aGk=\x07", "␛]52;c;aGk=␇"),
        ("\x9b31m", "<U+009B>31m"),
        ("a\rb", "ab"),
        ("\r\n", "\n"),
        ("\x7f\x08", "␡␈"),
        ("user\u202etxt.exe", "user<U+202E>txt.exe"),
        ("\u2066x\u2069", "<U+2066>x<U+2069>"),
        ("hidden\U000e0041", "hidden<U+E0041>"),
        ("zero\u200bwidth", "zero<U+200B>width"),
        ("\ud800", "\ufffd"),
        ("plain, naïve, 漢字, 👩‍👩‍👧, نمی‌خواهم\n\tx", "plain, naïve, 漢字, 👩‍👩‍👧, نمی‌خواهم\n\tx"),
    ],
)
def test_marks_that_a_terminal_obeys_are_written_out(text: str, written: str) -> None:
    assert plain(text) == written


@given(st.text())
def test_no_control_or_direction_mark_is_left_whatever_comes(text: str) -> None:
    for char in plain(text):
        assert char in "\n\t" or char in JOINERS or unicodedata.category(char) not in {"Cc", "Cf", "Cs", "Zl", "Zp"}


@given(st.text(), st.integers(min_value=1, max_value=40))
def test_a_line_is_one_line_of_at_most_so_many_characters(text: str, most: int) -> None:
    line = plain_line(text, most)
    assert len(line) <= most
    assert not re.search(r"[\n\t\x00-\x1f]", line)
