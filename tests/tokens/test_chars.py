"""Characters divided by four: a whole rule for messages, taken at its word."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from foldline.messages import Document, Image, Message, Opaque, Reasoning, Text, ToolCall, ToolResult
from foldline.tokens import CharsPerFour, message_tokens

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
