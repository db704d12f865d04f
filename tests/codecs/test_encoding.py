"""What can be sent as UTF-8 JSON, and how the rest becomes so."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.property.depth import costly

from foldline.codecs.encoding import (
    call_id_of,
    clean,
    is_json,
    json_text,
    mend_arguments,
    named_id,
    object_of,
    sendable,
)

texts = st.text(st.one_of(st.characters(), st.characters(categories=["Cs"])), max_size=8)
values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), texts, st.binary(max_size=3)),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.one_of(texts, st.integers()), inner)),
    max_leaves=12,
)


def sent(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, allow_nan=False).encode("utf-8")


@costly
@given(values)
def test_what_is_called_sendable_can_be_sent(value: Any) -> None:
    if sendable(value):
        assert clean(value) is value
    assert sent(clean(value))


@costly
@given(values)
def test_cleaning_is_done_once(value: Any) -> None:
    cleaned = clean(value)
    assert sendable(cleaned)
    assert clean(cleaned) is cleaned


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("broken \ud83d here", "broken \ufffd here"),
        ("\udc00", "\ufffd"),
        ("whole 👩‍👩‍👧 日本語", "whole 👩‍👩‍👧 日本語"),
        ("halves that meet \ud83d\ude00", "halves that meet 😀"),
        ("\x00 control", "\x00 control"),
    ],
)
def test_only_a_lone_surrogate_is_replaced(text: str, expected: str) -> None:
    assert clean(text) == expected


def test_nesting_without_end_is_cut() -> None:
    inner: list[Any] = []
    inner.append(inner)
    assert not sendable(inner)
    assert sendable(clean(inner))


@costly
@given(values)
def test_any_value_has_a_json_text(value: Any) -> None:
    assert isinstance(json_text(value), str)


@pytest.mark.parametrize(("text", "expected"), [("{}", True), ("", True), (None, True), ("[1]", True), ("{a}", False)])
def test_missing_arguments_stand_for_an_empty_object(text: Any, expected: bool) -> None:
    assert is_json(text) is expected


@costly
@given(st.one_of(texts, st.dictionaries(texts, texts), st.integers()))
def test_mended_arguments_are_a_json_object(given_arguments: Any) -> None:
    assert isinstance(json.loads(mend_arguments(given_arguments)), dict)


@costly
@given(st.dictionaries(texts, st.integers()))
def test_an_object_written_as_arguments_is_read_back(value: dict[str, int]) -> None:
    assert object_of(json.dumps(value)) == value


@pytest.mark.parametrize("arguments", ["[1]", "{cut", '"text"'])
def test_arguments_that_are_no_object_are_kept_under_one_key(arguments: str) -> None:
    assert object_of(arguments) == {"_invalid_arguments": arguments}


@pytest.mark.parametrize("levels", [201, 950, 100_000])
def test_arguments_that_are_nested_too_deep_to_be_written_are_kept_as_text(levels: int) -> None:
    """One level less than what Python reads is more than it writes: such a message could never enter a log."""
    arguments = '{"a":' * levels + "1" + "}" * levels
    assert object_of(arguments) == {"_invalid_arguments": arguments}
    assert object_of('{"a":' * 150 + "1" + "}" * 150) != {"_invalid_arguments": arguments}


@pytest.mark.parametrize(("value", "expected"), [("a", "a"), (7, "7"), (True, ""), (None, ""), ([], "")])
def test_a_number_is_an_id_too(value: Any, expected: str) -> None:
    assert call_id_of(value) == expected


def test_a_call_without_an_id_gets_one_and_an_empty_one_another() -> None:
    given: tuple[Any, ...] = ("a", 7, None, "", [])
    assert [named_id(value) for value in given] == [
        "a",
        "7",
        "call_without_id",
        "call_with_empty_id",
        "call_without_id",
    ]
