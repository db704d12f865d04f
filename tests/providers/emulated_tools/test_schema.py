"""The schema of one turn."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tests.property.depth import costly
from tests.providers.emulated_tools.test_history import TOOLS, tool

from foldline.providers.emulated_tools.schema import SMALL, Bounds, turn_schema

BOUNDS = Bounds(argument_chars=50, answer_chars=70, items=3)


def arguments(schema: Any, **others: Any) -> Any:
    """The schema of one argument, as it comes out."""
    made = tool("t", "", (), x=schema)
    made["function"]["parameters"] |= others
    return turn_schema([made], BOUNDS)["anyOf"][0]["properties"]["arguments"]["properties"]["x"]


def inside(schema: Any) -> Iterator[dict[str, Any]]:
    """All schemas in a schema."""
    if isinstance(schema, dict):
        yield schema
    parts = schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ()
    for part in parts:
        yield from inside(part)


def test_it_is_a_call_of_one_of_the_tools_or_an_answer() -> None:
    *calls, answer = turn_schema(TOOLS, BOUNDS)["anyOf"]
    assert [call["properties"]["tool"]["enum"] for call in calls] == [["read_file"], ["list_files"], ["edit"]]
    assert all(call["required"] == ["tool", "arguments"] for call in calls)
    assert calls[0]["properties"]["arguments"]["required"] == ["path"]
    assert answer["properties"]["answer"] == {"type": "string", "minLength": 1, "maxLength": 70}


def test_the_tools_own_bounds_hold_where_they_are_tighter() -> None:
    assert arguments({"type": "string", "maxLength": 9, "minLength": 2}) == {
        "type": "string",
        "minLength": 2,
        "maxLength": 9,
    }
    assert arguments({"type": "string", "maxLength": 900})["maxLength"] == 50
    assert arguments({"type": "integer", "minimum": 1, "maximum": 5}) == {"type": "integer", "minimum": 1, "maximum": 5}
    assert arguments({"type": "array", "items": {"type": "string"}, "minItems": 5})["maxItems"] == 5


def test_what_does_not_shape_the_output_is_left_out() -> None:
    assert arguments({"type": "string", "description": "d", "pattern": "(", "format": "uri", "default": 1}) == {
        "type": "string",
        "maxLength": 50,
    }


def test_references_are_replaced_and_a_recursive_schema_ends() -> None:
    definitions = {
        "Name": {"type": "string"},
        "Tree": {"type": "object", "properties": {"in": {"$ref": "#/$defs/Tree"}}},
    }
    assert arguments({"$ref": "#/$defs/Name"}, **{"$defs": definitions}) == {"type": "string", "maxLength": 50}
    made = arguments({"$ref": "#/$defs/Tree"}, **{"$defs": definitions})
    assert made["type"] == "object"
    assert not any("$ref" in part for part in inside(made))
    assert arguments({"$ref": "#/$defs/Missing"}) == {"type": "object"}
    assert arguments({"$ref": "#/properties/x"}) == {"type": "object"}


_SCHEMAS = st.recursive(
    st.fixed_dictionaries(
        {"type": st.sampled_from(["string", "integer", "number", "boolean", ["string", "null"]])},
        optional={"maxLength": st.integers(0, 99), "minLength": st.integers(0, 99), "maximum": st.integers(-5, 5)},
    ),
    lambda inner: st.one_of(
        st.fixed_dictionaries({"type": st.just("array")}, optional={"items": inner, "maxItems": st.integers(0, 9)}),
        st.fixed_dictionaries({"properties": st.dictionaries(st.sampled_from("abc"), inner)}),
        st.fixed_dictionaries({"oneOf": st.lists(inner, min_size=1, max_size=3)}),
    ),
    max_leaves=8,
)


@costly
@given(_SCHEMAS)
def test_every_text_and_list_has_an_end(schema: Any) -> None:
    for part in inside(arguments(schema)):
        kinds = part.get("type")
        kinds = kinds if isinstance(kinds, list) else [kinds]
        if "string" in kinds:
            assert part.get("minLength", 0) <= part["maxLength"] <= 50
        if "array" in kinds:
            assert part["maxItems"] <= 3 and "items" in part
        if "integer" in kinds:
            assert part["minimum"] <= part["maximum"]


def test_a_small_model_gets_short_texts() -> None:
    assert SMALL.answer_chars < Bounds().answer_chars
