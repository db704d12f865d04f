"""Every content of a session can be written as JSON."""

from __future__ import annotations

import json
from types import MappingProxyType

from hypothesis import given
from hypothesis import strategies as st
from tests.property.depth import costly

from foldline.doors.http.responses import dump_json

ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(codec=None, exclude_categories=())),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@costly
@given(ANY)
def test_anything_becomes_json_that_every_reader_takes(value: object) -> None:
    json.loads(dump_json(value).decode(), parse_constant=lambda name: 1 / 0)


def test_what_can_be_written_is_written_as_it_is() -> None:
    assert dump_json({"a": ["ü", 1.5, None, True]}) == '{"a":["ü",1.5,null,true]}'.encode()


def test_what_has_no_form_in_json_is_near_to_it() -> None:
    assert json.loads(dump_json([float("nan"), float("inf"), "\ud800", MappingProxyType({"a": 1})])) == [
        None, None, "\ud800", {"a": 1},
    ]  # fmt: skip
