"""What is shown of a file before it is written: what comes is seen, and what is not shown is counted."""

from __future__ import annotations

import pytest

from foldline.agent.tools.files.preview import preview


def numbered(stop: int, word: str = "line") -> str:
    return "".join(f"{word} {number}\n" for number in range(stop))


def test_a_new_file_is_shown_by_its_first_lines() -> None:
    assert preview(None, "a\n\nb") == ["+a", "+", "+b"]
    assert preview(None, "") == []
    shown = preview(None, numbered(100))
    assert shown[:40] == [f"+line {number}" for number in range(40)]
    assert shown[40:] == ["… 60 more lines of this change not shown"]


def test_lines_that_go_do_not_crowd_out_those_that_come() -> None:
    shown = preview(numbered(500, "old"), numbered(20, "new"))
    assert shown[0] == "@@ line 1 @@"
    assert shown[1:7] == [*(f"-old {number}" for number in range(5)), "… 495 more lines that go"]
    assert shown[7:] == [f"+new {number}" for number in range(20)]


@pytest.mark.parametrize("count", [900, 5_000])
def test_every_line_that_is_not_shown_is_counted(count: int) -> None:
    shown = preview(f"same\n{numbered(count, 'old')}end\n", f"same\n{numbered(count, 'new')}end\n")
    assert shown[:2] == ["@@ line 2 @@", " same"]
    assert shown[7] == f"… {count - 5:,} more lines that go"
    comes = sum(line.startswith("+") for line in shown)
    assert len(shown) == 41
    assert shown[-1] == f"… {count - comes + 1:,} more lines of this change not shown"  # with the one after it


def test_a_change_of_no_line_is_said() -> None:
    assert preview("a\nb", "a\nb\n") == ["… no line changes"]


def test_another_line_end_is_a_change_that_is_seen() -> None:
    assert preview("a\r\n", "a\n") == ["@@ line 1 @@", "-a\\r", "+a"]


def test_an_insertion_names_the_line_before_which_it_stands() -> None:
    assert preview("a\nb\n", "a\nnew\nb\n") == ["@@ line 2 @@", " a", "+new", " b"]
    assert preview("", "new\n") == ["@@ line 1 @@", "+new"]
    assert preview("gone\n", "") == ["@@ line 1 @@", "-gone"]
