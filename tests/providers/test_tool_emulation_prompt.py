"""A request with tools as plain messages."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tests.property.depth import costly
from tests.property.sessions import broken, legal
from tests.providers.serving import request

from foldline.codecs import codec
from foldline.providers.tool_emulation_prompt import SMALL, Bounds, plain_messages, tools_text, turn_schema
from foldline.tokens import message_tokens, system_tokens, tools_tokens


def tool(name: str, description: str = "", required: tuple[str, ...] = (), **properties: Any) -> dict[str, Any]:
    parameters = {"type": "object", "properties": properties, "required": list(required)}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}


TEXT = {"type": "string"}
TOOLS = [
    tool(
        "read_file",
        "Read a text file of the workspace.",
        ("path",),
        path={"type": "string", "description": "Where it is, below the workspace."},
        start_line={"type": "integer", "description": "The first line, from 1.", "minimum": 1},
    ),
    tool("list_files", "List a folder.", path=TEXT, kinds={"type": "array", "items": {"enum": ["file", "folder"]}}),
    tool("edit", "Replace text.", ("path", "content"), path=TEXT, content=TEXT),
]


def call(number: int, name: str = "read_file", arguments: str = '{"path":"a.py"}') -> dict[str, Any]:
    return {"id": f"c{number}", "type": "function", "function": {"name": name, "arguments": arguments}}


def calls(*made: dict[str, Any], content: str | None = None) -> dict[str, Any]:
    return {"role": "assistant", "content": content, "tool_calls": list(made)}


def result(number: int, text: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": f"c{number}", "content": text}


USER = {"role": "user", "content": "look"}


def test_a_call_becomes_the_object_that_is_asked_for_and_its_result_a_user_message() -> None:
    made = plain_messages(request(USER, calls(call(1)), result(1, "x = 1")))
    assert made == [
        USER,
        {"role": "assistant", "content": '{"tool":"read_file","arguments":{"path":"a.py"}}'},
        {"role": "user", "content": "Result:\nx = 1"},
    ]


def test_results_of_several_calls_are_one_message_that_names_each() -> None:
    made = plain_messages(
        request(USER, calls(call(1), call(2, "edit"), content="first this"), result(2, "done"), result(1, "x"), USER)
    )
    assert [message["role"] for message in made] == ["user", "assistant", "user"]
    assert made[1]["content"].startswith('first this\n{"tool":"read_file"')
    assert made[2]["content"] == "Result of edit:\ndone\n\nResult of read_file:\nx\n\nlook"


def test_system_texts_and_tools_are_one_message_at_the_front() -> None:
    made = plain_messages(request({"role": "system", "content": "two"}, USER, system="one", tools=TOOLS))
    assert [message["role"] for message in made] == ["system", "user"]
    first, second, third = made[0]["content"].partition(tools_text(TOOLS))
    assert (first, second, third) == ("one\n\n", tools_text(TOOLS), "\n\ntwo")


def test_a_tool_is_a_line_and_each_described_parameter_one_more() -> None:
    assert tools_text(TOOLS).splitlines()[2:] == [
        "read_file(path: string, start_line?: integer): Read a text file of the workspace.",
        "  path: Where it is, below the workspace.",
        "  start_line: The first line, from 1.",
        'list_files(path?: string, kinds?: ["file"|"folder"]): List a folder.',
        "edit(path: string, content: string): Replace text.",
    ]


def test_without_tools_nothing_is_said_of_them() -> None:
    assert tools_text(None) == tools_text([{"type": "web_search"}]) == ""
    assert plain_messages(request(USER)) == [USER]


def test_an_image_stays_a_block_and_reasoning_is_left_out() -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    shown = {"role": "user", "content": [{"type": "text", "text": "see"}, image]}
    thought = {"role": "assistant", "content": "yes", "reasoning_content": "hm"}
    made = plain_messages(request(shown, thought))
    assert made == [shown, {"role": "assistant", "content": "yes"}]


def started(shorter: list[Any], longer: list[Any]) -> bool:
    """Whether the prompt of `longer` begins with that of `shorter`, up to the mark that ends its last message."""
    if not shorter:
        return True
    last, same = shorter[-1], longer[len(shorter) - 1]
    content, after = last["content"], same["content"]
    if isinstance(content, str) and isinstance(after, list):  # a block joined it: the text is the first one
        content = [{"type": "text", "text": content}] if content else []
    return (
        shorter[:-1] == longer[: len(shorter) - 1] and last["role"] == same["role"] and after[: len(content)] == content
    )


@costly
@given(st.one_of(legal("openai-chat", 4), broken("openai-chat", 4)))
def test_the_prompt_of_a_session_begins_with_that_of_each_earlier_one(wires: list[Any]) -> None:
    made = [plain_messages(request(*wires[:end], system="s", tools=TOOLS)) for end in range(1, len(wires) + 1)]
    assert all(started(*pair) for pair in pairwise(made))


@costly
@given(st.one_of(legal("openai-chat", 4), broken("openai-chat", 4)))
def test_roles_alternate_beginning_with_the_user(wires: list[Any]) -> None:
    roles = [message["role"] for message in plain_messages(request(*wires, system="s", tools=TOOLS))]
    assert roles == ["system", *(["user", "assistant"] * len(roles))[: len(roles) - 1]]


@costly
@given(legal("openai-chat"))
def test_it_is_no_larger_than_what_the_original_was_counted_at(wires: list[Any]) -> None:
    read = codec("openai-chat").read
    before = tools_tokens(TOOLS) + system_tokens("Be brief.") + sum(message_tokens(read(wire)) for wire in wires)
    made = plain_messages(request(*wires, system="Be brief.", tools=TOOLS))
    assert sum(message_tokens(read(message)) for message in made) <= before


@costly
@given(legal("openai-chat", 4))
def test_no_text_of_a_session_is_lost(wires: list[Any]) -> None:
    shown = json.dumps(plain_messages(request(*wires)), ensure_ascii=False)
    for wire in wires:
        if isinstance(wire.get("content"), str):
            assert json.dumps(wire["content"], ensure_ascii=False)[1:-1] in shown


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
