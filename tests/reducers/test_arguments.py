"""Arguments of calls stay valid JSON of the same shape, however small they get."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tests.property.depth import costly

from foldline.messages import ToolCall
from foldline.reducers.arguments import shorten_arguments
from foldline.tokens import ESTIMATE

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3_000),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


def shape(value: Any) -> Any:
    """The value without its texts."""
    if isinstance(value, dict):
        return {key: shape(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [shape(inner) for inner in value]
    return "" if isinstance(value, str) else value


@costly
@given(st.dictionaries(st.text(max_size=8), values, max_size=4), st.integers(1, 400))
def test_only_texts_get_shorter(value: dict[str, Any], limit: int) -> None:
    arguments = json.dumps(value, ensure_ascii=False)
    short = shorten_arguments(ToolCall("c", "edit", arguments), limit, ESTIMATE)
    assert shape(json.loads(short)) == shape(value)
    assert len(short) <= len(arguments)


def test_what_is_within_the_limit_stays_to_the_byte() -> None:
    arguments = '{ "path" :"a.py",  "n": 1.0 }'
    assert shorten_arguments(ToolCall("c", "edit", arguments), 100, ESTIMATE) == arguments


def test_short_values_stay_while_long_ones_shrink() -> None:
    arguments = json.dumps({"path": "src/app.py", "content": "x = 1\n" * 900})
    short = json.loads(shorten_arguments(ToolCall("c", "write", arguments), 100, ESTIMATE))
    assert short["path"] == "src/app.py"
    assert short["content"].startswith("x = 1\n")
    assert "characters cut" in short["content"]
    assert ESTIMATE.text(json.dumps(short)) <= 100


def test_free_text_of_a_custom_call_keeps_both_ends() -> None:
    text = "first line\n" + "middle\n" * 900 + "last line"
    short = shorten_arguments(ToolCall("c", "apply", text, custom=True), 60, ESTIMATE)
    assert short.startswith("first line\n")
    assert short.endswith("last line")
    assert len(short) < len(text) // 4


def test_arguments_that_are_no_json_are_left_alone() -> None:
    broken = '{"path": ' * 200
    assert shorten_arguments(ToolCall("c", "edit", broken), 10, ESTIMATE) == broken
