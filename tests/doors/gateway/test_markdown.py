"""Long texts split into messages: nothing lost, none too long, code blocks and characters whole."""

from __future__ import annotations

import itertools
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foldline.doors.gateway.markdown import Fence, split_text, utf16_units

MOST = 500

LINES = st.one_of(
    st.sampled_from(
        ["", "```", "```python", "~~~", "````", "   ```js", "    indented", "- item", "# head", "a ```", "`" * 700]
    ),
    st.text(max_size=80),
    st.text(alphabet="ab c`~#👋\u0301\u200d🇩🇪🏽 ", max_size=60),
    st.builds(
        lambda text, times: text * times,
        st.text(alphabet="ab `~-#👍🏽é ", min_size=1, max_size=12),
        st.integers(1, 300),
    ),
)
TEXTS = st.lists(LINES, max_size=40).map("\n".join)


def open_at_the_end(text: str) -> Fence | None:
    """The code block that is open after a text."""
    fence: Fence | None = None
    for line in text.split("\n"):
        if fence is None:
            fence = Fence.opened_by(line)
        elif fence.closed_by(line):
            fence = None
    return fence


@given(TEXTS)
def test_pieces_are_the_text_none_too_long_each_whole_and_no_character_torn(text: str) -> None:
    made = split_text(text, MOST)
    assert "".join(piece.body for piece in made) == text
    for piece in made:
        assert utf16_units(piece.text) == len(piece.text.encode("utf-16-le", "surrogatepass")) // 2 <= MOST
        assert piece.body
    assert [piece.text for piece in made if open_at_the_end(piece.text)] == []
    for before, after in itertools.pairwise(made):
        torn = f"{before.body[-1]}{after.body[0]}"
        assert not ("\ud800" <= torn[0] <= "\udbff" and "\udc00" <= torn[1] <= "\udfff")


def code(lines: int, fence: str = "```", language: str = "python") -> str:
    return f"{fence}{language}\n" + "".join(f"line {n:04}\n" for n in range(lines)) + fence


def test_a_code_block_that_goes_on_is_closed_and_opened_again_with_its_language() -> None:
    first, *more = [piece.text for piece in split_text(f"Look:\n{code(100)}\nThat is all.", MOST)]
    assert first.startswith("Look:\n```python\nline 0000\n")
    assert first.endswith("\n```")
    assert len(more) == 2
    for text in more:
        assert text.startswith("```python\nline ")
    assert more[-1].endswith("\n```\nThat is all.")


def test_a_code_block_that_fits_into_a_message_is_not_torn() -> None:
    block = code(40)
    made = split_text(f"{'words ' * 40}\n{block}\n{'words ' * 40}", MOST)
    assert sum(block in piece.body for piece in made) == 1


def test_a_code_block_that_nobody_closed_is_closed() -> None:
    assert [piece.text for piece in split_text("```sh\nls", MOST)] == ["```sh\nls\n```"]


def test_lines_stay_whole_where_they_can() -> None:
    lines = [f"{n} " + "x" * 90 for n in range(30)]
    for piece in split_text("\n".join(lines), MOST):
        assert set(piece.body.strip("\n").split("\n")) <= set(lines)


def test_words_stay_whole_where_they_can() -> None:
    words = [f"word{n:03}" for n in range(300)]
    for piece in split_text(" ".join(words), MOST):
        assert set(piece.body.split()) <= set(words)


@pytest.mark.parametrize("character", ["é", "👨‍👩‍👧‍👦", "👍🏽", "🇩🇪", "1️⃣", "👋"])
def test_a_character_as_people_see_it_stays_whole(character: str) -> None:
    character = unicodedata.normalize("NFD", character)
    for start in ("", "a", "ab"):
        for piece in split_text(start + character * 400, MOST):
            assert piece.body.removeprefix(start).replace(character, "") == ""


def test_the_rest_of_a_long_line_does_not_become_a_heading_or_a_code_block() -> None:
    for sign in ("# ", "```", "- "):
        made = split_text("x" * 498 + " " + sign + "y" * 100, MOST)
        assert made[1].text == f"\\{sign}{'y' * 100}"


def test_what_the_platform_does_not_count_takes_no_room() -> None:
    text = "\n".join(f"[{n:03}](https://example.com/{'x' * 80})" for n in range(100))
    assert len(split_text(text, MOST)) > 20
    assert len(split_text(text, MOST, units=lambda line: 3)) == 1
