from __future__ import annotations

import string
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.property.depth import costly

from foldline.messages import Document, Image, Message, Opaque, Reasoning, Text, ToolCall, ToolResult
from foldline.providers.exact import exact_counter
from foldline.tokens import ESTIMATE, CharsPerFour, message_tokens

ANY_TEXT = st.text(alphabet=st.characters(codec=None, exclude_categories=()), max_size=400)  # lone surrogates too
# At the seam of two texts one pair of neighbours changes (at most 2.55 tokens), and two runs of letters may join to
# one that is charged as endless (at most 12).
SEAM = 15

PROSE = (
    "The window of a model is what it can see at once. When a session grows past it, something has to give: the oldest "
    "turns, the longest results, or the whole middle, replaced by a summary that somebody has to pay for.\n"
) * 4
CODE = (
    "def longest_prefix(names: list[str], *, lower: bool = False) -> str:\n"
    '    """The beginning that all names share."""\n'
    "    if not names:\n"
    '        return ""\n'
    "    for index, letters in enumerate(zip(*names)):\n"
    "        if len(set(letters)) > 1:\n"
    "            return names[0][:index]\n"
    "    return min(names, key=len)\n"
) * 3
JSON = (
    '{"id": 4211, "state": "open", "title": "Crash on empty input", "labels": ["bug", "p1"], "user": {"login": "ada", '
    '"html_url": "https://example.com/ada"}, "created_at": "2026-03-04T10:22:41Z", "comments": 17}, '
) * 5
LOG = "2026-03-04 10:22:41,118 INFO [worker-3] app.jobs: finished job 8812 in 0.413 s (retries=0)\n" * 8
CHINESE = "上下文窗口管理很重要。当对话超过窗口时，必须删除最早的内容，或者用摘要代替。" * 8
RUSSIAN = "Все люди рождаются свободными и равными в своем достоинстве и правах. Они наделены разумом и совестью. " * 4


@given(ANY_TEXT)
def test_any_text_has_a_count(text: str) -> None:
    assert ESTIMATE.text(text) >= (1 if text else 0)


def test_no_text_takes_no_tokens() -> None:
    assert ESTIMATE.text("") == 0


@given(ANY_TEXT, ANY_TEXT)
def test_a_longer_text_takes_no_fewer_tokens(text: str, more: str) -> None:
    assert ESTIMATE.text(text + more) >= max(ESTIMATE.text(text), ESTIMATE.text(more)) - SEAM


@given(ANY_TEXT, ANY_TEXT)
def test_two_texts_take_together_what_they_take_apart(text: str, more: str) -> None:
    assert abs(ESTIMATE.text(text + more) - ESTIMATE.text(text) - ESTIMATE.text(more)) <= SEAM + _uneven(text, more)


def _uneven(*texts: str) -> int:
    """By how much the lower bound of one token per word may raise one text and not the other."""
    return sum(len(text.split()) for text in texts)


@costly
@given(st.lists(st.text(string.ascii_lowercase, min_size=1, max_size=12), max_size=200))
def test_words_are_never_undercounted(words: list[str]) -> None:
    assert ESTIMATE.text(" ".join(words)) >= len(words)


@given(st.text(alphabet=" \t\n\rab.Z7é漢", max_size=200))
def test_each_run_between_blanks_takes_a_token(text: str) -> None:
    assert ESTIMATE.text(text) >= len(text.split())


@pytest.mark.parametrize("text", [PROSE, CODE, JSON, LOG, CHINESE, RUSSIAN], ids="prose code json log zh ru".split())
def test_the_estimate_is_near_the_larger_vocabulary(text: str) -> None:
    real = max(exact_counter(model).text(text) for model in ("gpt-4", "gpt-4o"))
    assert 0.85 <= ESTIMATE.text(text) / real <= 1.3


@pytest.mark.parametrize(
    "text",
    [
        "iVBORw0KGgoAAAANSUhEUgAAAAUAAAAFCAYAAACNbyblAAAAHElEQVQI12P4//8/w38GIAXDIBKE0DHxgljNBAAO9TXL0Y4OHw" * 20,
        "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08" * 20,
        "acgtacgatcgatcgtacgtagctagctacgatcgatgcatgcatcgatcga" * 20,
    ],
    ids=["base64", "hex", "letters"],
)
def test_unbroken_runs_are_not_words(text: str) -> None:
    assert 0.7 <= ESTIMATE.text(text) / exact_counter("gpt-4").text(text) <= 1.5


def test_chinese_is_no_quarter_of_a_token() -> None:
    assert 4_500 <= ESTIMATE.text("上下文窗口管理很重要" * 1_000) <= 13_000


@pytest.mark.parametrize("blank", [" ", "\t", "\n"])
def test_long_blanks_cost_little(blank: str) -> None:
    assert 1 <= ESTIMATE.text(blank * 10_000) <= 1_000


# --- characters divided by four: a whole rule for messages, taken at its word -----------------------------------------

COUNT = CharsPerFour()


def test_nothing_is_added_to_what_it_says_of_a_message() -> None:
    assert message_tokens(Message("user", (Text("12345678"),)), COUNT) == 2
    assert message_tokens(Message("user", ()), COUNT) == 0


def test_it_is_rounded_up_once_for_the_whole_message() -> None:
    assert COUNT.message(Message("user", (Text("a"), Text("b"), Text("c"), Text("d")))) == 1
    assert COUNT.message(Message("user", (Text("a"), Text("bcde")))) == 2


def test_ids_names_and_signatures_are_not_counted() -> None:
    call = ToolCall("call_123456789", "a_long_name_of_a_tool", "1234")
    thought = Reasoning("5678", signed=True, raw={"signature": "s" * 1_000})
    assert COUNT.message(Message("assistant", (thought, call))) == 2


def test_results_are_counted_by_what_is_in_them() -> None:
    parts = (Text("12345678"), Image(size_bytes=10**6), Document(text="1234"))
    assert COUNT.message(Message("tool", (ToolResult("c", parts),))) == 2 + 1_200 + 1


def test_what_is_not_understood_is_counted_by_its_size() -> None:
    small, large = ({"type": "new", "data": "x" * size} for size in (10, 1_000))
    assert COUNT.message(Message("user", (Opaque("new", raw=small),))) > 0
    assert COUNT.message(Message("user", (Opaque("new", raw=large),))) >= 250


@given(st.one_of(st.none(), st.integers(), st.text(), st.lists(st.integers())))
def test_it_never_raises_whatever_a_block_is(raw: Any) -> None:
    assert COUNT.message(Message("user", (Opaque("odd", raw=raw), Text("x")))) >= 1
