"""Patterns find what `re` finds, and take no longer for a hostile text than for a friendly one."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from foldline.errors import InvalidInput
from foldline.patterns import MOST_CHARS, MOST_STEPS, Pattern
from tests.property.depth import costly

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


@pytest.mark.parametrize("pattern", [r"(a+)+$", r"(.*a){12}x", r".*.*.*.*=.*", r"(a?){40}a{40}b", r"(\w|a)+\d"])
def test_a_hostile_text_costs_what_a_friendly_one_does(pattern: str) -> None:
    """Each character is tested against the pattern a bounded number of times, however long the text is."""
    tested = 0
    wanted = Pattern(pattern)

    def counted(test: Callable[[str], object]) -> Callable[[str], object]:
        def run(char: str) -> object:
            nonlocal tested
            tested += 1
            return test(char)

        return run

    wanted._steps = [step._replace(test=counted(step.test)) if step.test else step for step in wanted._steps]
    assert wanted.search("a" * 20_000 + "!") is None
    assert tested <= len(wanted._steps) * 200


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
        ("a++", "possessive"),
        ("a" * (MOST_CHARS + 1), "characters"),
        (f"a{{{MOST_STEPS}}}", "too large"),
        ("(?:(?:){2000}){2000}", "too large"),
    ],
)
def test_what_cannot_be_searched_for_is_refused(pattern: str, reason: str) -> None:
    with pytest.raises(InvalidInput, match=reason):
        Pattern(pattern)
