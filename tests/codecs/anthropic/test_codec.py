"""Anthropic Messages: blocks, results in user messages, signed thinking."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from foldline.codecs import codec
from foldline.errors import InvalidInput
from foldline.messages import Opaque, Part, Reasoning, Text, ToolCall, ToolResult, Wire

CLAUDE = codec("anthropic")

THOUGHT = {"type": "thinking", "thinking": "hm", "signature": "c2ln"}


def use(call_id: Any, **fields: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": "f", "input": {"a": 1}, **fields}


def result(call_id: Any, content: Any = "ok", **fields: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call_id, "content": content, **fields}


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def mended(role: str, *blocks: Any) -> tuple[Any, tuple[str, ...]]:
    sanitized = CLAUDE.sanitize(CLAUDE.read({"role": role, "content": list(blocks)}))
    assert sanitized.message is not None
    return CLAUDE.write(sanitized.message)["content"], sanitized.faults


def test_blocks_are_read_as_what_they_are() -> None:
    server = {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}
    blocks = [THOUGHT, {"type": "redacted_thinking", "data": "Zz"}, text("x"), server, use("a")]
    assert CLAUDE.read({"role": "assistant", "content": blocks}).parts == (
        Reasoning("hm", True, raw=THOUGHT),
        Reasoning("", True, raw=blocks[1]),
        Text("x", raw=blocks[2]),
        Opaque("server_tool_use", raw=server, opens="s"),
        ToolCall("a", "f", '{"a": 1}', raw=blocks[4]),
    )


def test_results_stand_in_a_user_message() -> None:
    block = result("a", [text("x")], is_error=True)
    message = CLAUDE.read({"role": "user", "content": [block, text("and?")]})
    assert message.role == "user"
    assert message.results == (ToolResult("a", (Text("x", raw=block["content"][0]),), True, raw=block),)
    assert message.text == "and?"


def test_arguments_are_text_that_keeps_its_characters() -> None:
    message = CLAUDE.read({"role": "assistant", "content": [use("a", input={"path": "日本"})]})
    assert message.calls[0].arguments == '{"path": "日本"}'


@pytest.mark.parametrize("role", ["system", "developer"])
def test_system_text_is_read_as_such_and_sent_as_the_users_if_nobody_moves_it(role: str) -> None:
    message = CLAUDE.read({"role": role, "content": "Be brief."})
    assert message.role == "system"
    sanitized = CLAUDE.sanitize(message)
    assert sanitized.message is not None
    assert sanitized.message.wire == {"role": "user", "content": "Be brief."}
    assert sanitized.faults


def test_a_changed_result_keeps_the_other_fields_of_its_block() -> None:
    block = result("a", "long", is_error=True, cache_control={"type": "ephemeral"})
    message = CLAUDE.read({"role": "user", "content": [block, text("and?")]})
    changed = ToolResult("a", (Text("short"),), True, raw=block)
    revised = CLAUDE.revise(message, [changed, message.parts[1]])
    assert CLAUDE.write(revised)["content"] == [{**block, "content": "short"}, text("and?")]
    assert block["content"] == "long"
    assert revised.results[0].raw == {**block, "content": "short"}


def test_a_result_may_be_given_to_another_call() -> None:
    message = CLAUDE.read({"role": "user", "content": [result("a", cache_control={"type": "ephemeral"})]})
    revised = CLAUDE.revise(message, [replace(message.results[0], call_id="a-2")])
    assert CLAUDE.write(revised)["content"] == [result("a-2", cache_control={"type": "ephemeral"})]


def test_a_result_without_content_stays_without_when_nothing_is_said() -> None:
    block = {"type": "tool_result", "tool_use_id": "a"}
    message = CLAUDE.read({"role": "user", "content": [block]})
    revised = CLAUDE.revise(message, [replace(message.results[0], call_id="b")])
    assert CLAUDE.write(revised)["content"] == [{"type": "tool_result", "tool_use_id": "b"}]


def test_changed_arguments_become_an_object() -> None:
    message = CLAUDE.read({"role": "assistant", "content": [THOUGHT, use("a", caller={"type": "direct"})]})
    thought, call = message.parts
    assert isinstance(call, ToolCall)
    revised = CLAUDE.revise(message, [thought, replace(call, arguments='{"a": 2}')])
    assert CLAUDE.write(revised)["content"] == [THOUGHT, use("a", caller={"type": "direct"}, input={"a": 2})]
    broken = CLAUDE.revise(message, [thought, replace(call, arguments="{cut")])
    assert CLAUDE.write(broken)["content"][1]["input"] == {"_invalid_arguments": "{cut"}


def test_a_renamed_call_keeps_its_very_input() -> None:
    message = CLAUDE.read({"role": "assistant", "content": [use("a")]})
    revised = CLAUDE.revise(message, [replace(message.calls[0], id="a-2")])
    block = CLAUDE.write(revised)["content"][0]
    assert block["input"] is message.calls[0].raw["input"]
    assert block["id"] == "a-2"


def test_blank_text_is_never_written() -> None:
    message = CLAUDE.read({"role": "user", "content": [result("a", [text("long")]), text("and?")]})
    parts: list[Part] = [replace(message.results[0], parts=(Text(" "),)), Text("")]
    assert CLAUDE.write(CLAUDE.revise(message, parts))["content"] == [result("a", "")]
    assert CLAUDE.write(CLAUDE.revise(message, [Text(" ")]))["content"] == "(empty)"


@pytest.mark.parametrize(
    ("role", "blocks", "expected"),
    [
        ("assistant", [text(" "), text("x")], [text("x")]),
        ("assistant", [{"type": "thinking", "thinking": "hm"}, text("x")], [text("x")]),
        ("assistant", [{**THOUGHT, "signature": ""}, use("a")], [use("a")]),
        ("assistant", [result("a"), text("x")], [text("x")]),
        ("assistant", [use("f.b:0")], [use("f_b_0")]),
        ("assistant", [use(None)], [use("call_without_id")]),
        ("assistant", [use("a", input='{"b": 2}')], [use("a", input={"b": 2})]),
        ("assistant", [use("a", input=None)], [use("a", input={})]),
        ("assistant", [use("a", input="cut")], [use("a", input={"_invalid_arguments": "cut"})]),
        ("assistant", [use("a", name=None)], [use("a", name="unknown_tool")]),
        ("user", [text("and?"), result("a")], [result("a"), text("and?")]),
        ("user", [result("f.b:0")], [result("f_b_0")]),
        ("user", [result("a", "", is_error=True)], [result("a", "(empty)", is_error=True)]),
        ("user", [use("a"), THOUGHT, text("x")], [text("x")]),
        ("user", [{"type": "web_search_tool_result", "tool_use_id": "s", "content": []}, text("x")], [text("x")]),
        ("user", ["bare"], [text("bare")]),
        ("user", [result("a", ["bare"])], [result("a", [text("bare")])]),
    ],
)
def test_what_the_api_refuses_is_repaired(role: str, blocks: list[Any], expected: list[Any]) -> None:
    content, faults = mended(role, *blocks)
    assert content == expected
    assert faults


@pytest.mark.parametrize("content", [None, "", " ", [], [text("")], [{"type": "thinking", "thinking": "hm"}]])
@pytest.mark.parametrize("role", ["user", "assistant"])
def test_a_message_that_says_nothing_is_left_out(role: str, content: Any) -> None:
    sanitized = CLAUDE.sanitize(CLAUDE.read({"role": role, "content": content}))
    assert sanitized.message is None
    assert sanitized.faults


def test_results_of_a_turn_are_merged_first_and_in_order() -> None:
    wires: list[Wire] = [
        {"role": "user", "content": [result("a"), text("one")], "x-mine": 1},
        {"role": "user", "content": "two"},
        {"role": "user", "content": [result("b")]},
    ]
    before = json.dumps(wires)
    messages = [CLAUDE.read(wire) for wire in wires]
    merged = CLAUDE.merge([messages[0], replace(messages[1], pinned=True), messages[2]])
    assert merged is not None
    assert merged.wire == {
        "role": "user",
        "content": [result("a"), result("b"), text("one"), text("two")],
        "x-mine": 1,
    }
    assert merged.pinned
    assert merged.wire["content"][0] is wires[0]["content"][0]
    assert json.dumps(wires) == before


def test_one_message_is_its_own_merger() -> None:
    message = CLAUDE.read({"role": "user", "content": [result("a")]})
    assert CLAUDE.merge([message]) is message
    assert CLAUDE.merge([]) is None
    with pytest.raises(InvalidInput):
        CLAUDE.merge([message, CLAUDE.note("x", role="assistant")])
