"""Patterns find what `re` finds, and take no longer for a hostile text than for a friendly one."""

from __future__ import annotations

import re
from random import Random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.property.depth import costly

from foldline.errors import InvalidInput
from foldline.text.safe_regex import LOOK_STEPS, MOST_CHARS, MOST_STEPS, OutOfSteps, Pattern, Work

atoms = st.sampled_from(
    ["a", "b", "1", " ", "_", "é", ".", "\\.", "\\d", "\\w", "\\s", "\\S", "[ab]", "[^a]", "[]a]", "[\\]\\w-]", "\\x61"]
)
anchors = st.sampled_from(["^", "$", "\\b", "\\B", "\\A", "\\Z"])
repeats = st.sampled_from(["", "*", "+", "?", "*?", "+?", "{2}", "{,2}", "{1,3}", "{2,}", "{}", "{,}"])


def grouped(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    group = st.sampled_from(["({})", "(?:{})"])
    one = st.builds(lambda form, body, repeat: form.replace("{}", body) + repeat, group, inner, repeats)
    either = st.builds(lambda left, right: f"{left}|{right}", inner, inner)
    return st.one_of(one, either, st.lists(st.one_of(inner, anchors), min_size=1, max_size=3).map("".join))


patterns = st.recursive(st.builds(lambda atom, repeat: atom + repeat, atoms, repeats), grouped, max_leaves=6)
texts = st.text(alphabet="ab1 _-.é]{},\n", max_size=12)


@costly
@given(patterns, st.lists(texts, min_size=1, max_size=4))
@example("(a*)*b", ["aaa", "b"])
@example("\\B", ["", "a", "ab"])
@example("(|a){2}$", ["", "aa"])
@example("(?i)É", ["é"])
def test_a_pattern_finds_what_re_finds(pattern: str, lines: list[str]) -> None:
    found, expected = Pattern(pattern), re.compile(pattern)
    for text in lines:
        for line in text.split("\n"):
            assert (found.search(line) is None) == (expected.search(line) is None)


@pytest.mark.parametrize(
    ("pattern", "line", "stop"),
    [("b+", "abbb", 2), ("bbb", "abbbb", 4), ("$", "abc", 3), ("", "abc", 0), ("x?y", "wxyz", 3), ("a|bc", "zbc", 3)],
)
def test_it_says_where_the_match_that_ends_first_does(pattern: str, line: str, stop: int) -> None:
    assert Pattern(pattern).search(line) == stop


HOSTILE = [r"(a+)+$", r"(.*a){12}x", r".*.*.*.*=.*", r"(a?){40}a{40}b", r"(\w|a)+\d", r"(a|b){300}(.a){90}x"]


@pytest.mark.parametrize("pattern", HOSTILE)
def test_a_hostile_text_costs_what_a_friendly_one_does(pattern: str) -> None:
    """Each character takes a bounded number of steps, and one once they are remembered."""
    wanted, work = Pattern(pattern), Work()
    assert wanted.search("a" * 20_000 + "!", work) is None
    assert work.steps <= 20_001 + 200 * MOST_STEPS


@pytest.mark.parametrize("pattern", [r"(.{0,100}a){6}x", r"(\w{1,30}\b.?){20}x", r"(?:.?a|b.?){180}x"])
def test_a_text_for_which_nothing_can_be_remembered_costs_an_eighth_of_the_pattern_for_each_character(
    pattern: str,
) -> None:
    random = Random(1)
    text = "".join(random.choice("ab1 c") for _ in range(60_000))  # 60,000 letters held up a server for 15 s once
    wanted, work = Pattern(pattern), Work()
    wanted.search(text, work)
    assert work.steps <= len(text) * (MOST_STEPS // 8 + 1) + 200 * MOST_STEPS


def test_a_search_ends_when_its_steps_are_taken_and_says_what_to_write_instead() -> None:
    work = Work(10_000)
    with pytest.raises(OutOfSteps, match="takes more than 10,000 steps on this text: repeat less in it") as raised:
        Pattern("(.{0,100}a){6}x").search("ab1" * 10_000, work)
    assert isinstance(raised.value, InvalidInput)
    assert work.ended


def test_the_steps_of_several_searches_add_up() -> None:
    work, wanted = Work(950), Pattern("x")
    for _ in range(9):
        wanted.search("a" * 100, work)
    with pytest.raises(OutOfSteps):
        wanted.search("a" * 100, work)


def test_whoever_waits_can_end_a_search_in_the_middle_of_a_line() -> None:
    looks = 0

    def look() -> None:
        nonlocal looks
        looks += 1
        if looks == 3:
            raise KeyboardInterrupt

    work = Work(check=look)
    with pytest.raises(KeyboardInterrupt):
        Pattern("(.{0,100}a){6}x").search("a1 b" * 1_000_000, work)
    assert work.steps < 4 * (LOOK_STEPS + 20_000)


def test_what_is_remembered_is_bounded() -> None:
    wanted = Pattern("x.{12}y")
    line = "".join(chr(0x4E00 + i * 7 % 20_000) if i % 3 else "x" for i in range(60_000))
    assert wanted.search(line) is None
    assert wanted.search(line + "x123456789abcy") == len(line) + 14
    assert wanted._remembered <= 50_100


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("(", "is not a regular expression"),
        ("a**", "is not a regular expression"),
        ("[a", "is not a regular expression"),
        ("a{99999999999}", "is not a regular expression"),
        ("(" * 400 + ")" * 400, "is not a regular expression"),
        ("(?=a)", "one pass"),
        ("(?<!a)b", "one pass"),
        ("(?>a)", "one pass"),
        ("(?x)a", "one pass"),
        (r"(a)\1", "one pass"),
        ("(?P<n>a)(?P=n)", "one pass"),
        ("a++", "possessive repeat, which one pass cannot match: without its second"),
        ("(?=a)", "write it without look-around"),
        ("a" * (MOST_CHARS + 1), "characters"),
        (f"a{{{MOST_STEPS}}}", r"too large .* use \*, \+ or smaller counts"),
        ("(?:(?:){2000}){2000}", "too large"),
    ],
)
def test_what_cannot_be_searched_for_is_refused(pattern: str, reason: str) -> None:
    with pytest.raises(InvalidInput, match=reason):
        Pattern(pattern)
