from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foldline.cli.console import plot


def test_bars_stand_on_nothing_and_reach_the_greatest_value() -> None:
    lines = plot([1_000, 2_000, 500, 0], [False, False, True, False], width=13, height=4, ascii_only=False)
    assert lines == [
        "2k ┤  ██",
        "   │  ██",
        "1k ┤████",
        "   │██████",
        " 0 ┼────────",
        "        ▼",
    ]


def test_a_part_of_a_row_is_drawn_in_eighths() -> None:
    (line, _) = plot([8, 4, 1], [False] * 3, width=12, height=1, ascii_only=False)
    assert line == "8 ┤███▄▄▄▁▁▁"


def test_what_is_small_is_not_nothing() -> None:
    lines = plot([100_000, 1, 0], [False] * 3, width=12, height=2, ascii_only=False)
    assert lines[1] == "     │██▁▁"


def test_falls_within_a_column_stay_visible() -> None:
    values = [100, 10] * 40
    lines = plot(values, [False] * 80, width=25, height=4, ascii_only=False)
    assert lines[0] == "100 ┤" + "░" * 20
    assert lines[3] == "    │" + "▃" * 20


def test_a_mark_among_many_values_is_kept() -> None:
    marked = [number == 777 for number in range(1_000)]
    lines = plot([1.0] * 1_000, marked, width=53, height=4, ascii_only=False)
    assert lines[-1].index("▼") == 3 + 777 * 50 // 1_000
    assert lines[-1].count("▼") == 1


def test_without_marks_there_is_no_line_for_them() -> None:
    assert len(plot([1, 2], [False, False], width=40, height=4, ascii_only=False)) == 5


def test_no_values_are_an_empty_plot() -> None:
    assert plot([], [], width=40, height=2, ascii_only=False) == ["1 ┤", "  │", "0 ┼"]


@given(
    values=st.lists(st.integers(0, 10**7), max_size=300),
    width=st.integers(24, 120),
    height=st.integers(1, 12),
    ascii_only=st.booleans(),
)
def test_no_line_is_wider_than_the_terminal(values: list[int], width: int, height: int, ascii_only: bool) -> None:
    lines = plot(values, [value % 7 == 0 for value in values], width=width, height=height, ascii_only=ascii_only)
    assert max(map(len, lines)) <= width
    assert len(lines) - height in {1, 2}
    if ascii_only:
        assert "".join(lines).isascii()


@pytest.mark.parametrize("ascii_only", [True, False])
def test_the_narrowest_terminal_gets_eight_columns(ascii_only: bool) -> None:
    lines = plot(list(range(100)), [False] * 100, width=1, height=3, ascii_only=ascii_only)
    assert len(lines[-1].split(" ")[-1]) == 9
