"""Chat Completions: what is a field, what is a block, what is a message of its own."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from foldline.codecs import codec
from foldline.errors import InvalidInput
from foldline.messages import Document, Image, Json, Opaque, Reasoning, Text, ToolCall, ToolResult, Wire

CHAT = codec("openai-chat")


def call(call_id: str, arguments: Json = "{}", **fields: Any) -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": "f", "arguments": arguments}, **fields}


def mended(wire: dict[str, Any]) -> tuple[Wire, tuple[str, ...]]:
    sanitized = CHAT.sanitize(CHAT.read(wire))
    assert sanitized.message is not None
    return CHAT.write(sanitized.message), sanitized.faults


def test_a_tool_message_is_one_result() -> None:
    wire = {"role": "tool", "tool_call_id": "a", "content": [{"type": "text", "text": "x"}], "name": "f"}
    message = CHAT.read(wire)
    assert message.role == "tool"
    assert message.parts == (ToolResult("a", (Text("x", raw=wire["content"][0]),), raw=wire),)


def test_developer_text_is_system_text_and_stays_the_developers() -> None:
    message = CHAT.read({"role": "developer", "content": "long"})
    assert message.role == "system"
    assert CHAT.revise(message, [Text("short")]).wire == {"role": "developer", "content": "short"}


def test_everything_an_assistant_message_can_hold_is_read() -> None:
    wire: dict[str, Any] = {
        "role": "assistant",
        "reasoning_content": "hm",
        "reasoning_details": [{"type": "reasoning.encrypted", "data": "Zz"}],
        "content": "text",
        "refusal": "no",
        "audio": {"id": "audio_1"},
        "function_call": {"name": "old", "arguments": "{}"},
        "tool_calls": [call("a"), {"id": "b", "type": "custom", "custom": {"name": "n", "input": "free"}}],
    }
    parts = CHAT.read(wire).parts
    assert parts == (
        Reasoning("hm", False, raw={"reasoning_content": "hm"}),
        Reasoning("", True, raw={"reasoning_details": wire["reasoning_details"]}),
        Text("text"),
        Text("no", raw={"refusal": "no"}),
        Opaque("audio", raw={"audio": {"id": "audio_1"}}),
        Opaque("function_call", raw={"function_call": wire["function_call"]}),
        ToolCall("a", "f", "{}", raw=wire["tool_calls"][0]),
        ToolCall("b", "n", "free", custom=True, raw=wire["tool_calls"][1]),
    )


def test_images_files_and_sound_are_read() -> None:
    blocks = [
        {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}},
        {"type": "file", "file": {"file_id": "file_1"}},
        {"type": "input_audio", "input_audio": {"data": "AA", "format": "wav"}},
    ]
    kinds = [type(part) for part in CHAT.read({"role": "user", "content": blocks}).parts]
    assert kinds == [Image, Document, Document]


def test_a_changed_call_keeps_its_other_fields() -> None:
    wire = {"role": "assistant", "content": None, "tool_calls": [call("a", '{"x": 1}', index=0), call("b")]}
    message = CHAT.read(wire)
    first, second = message.calls
    revised = CHAT.revise(message, [replace(first, arguments='{"x": 2}'), second])
    assert revised.wire == {
        "role": "assistant",
        "content": None,
        "tool_calls": [call("a", '{"x": 2}', index=0), call("b")],
    }
    assert revised.wire["tool_calls"][1] is wire["tool_calls"][1]  # type: ignore[index]


def test_a_field_whose_part_is_gone_leaves_and_a_null_stays() -> None:
    wire = {"role": "assistant", "reasoning": "hm", "content": "x", "refusal": None, "tool_calls": [call("a")], "x": 1}
    message = CHAT.read(wire)
    assert CHAT.revise(message, message.parts[1:2]).wire == {
        "role": "assistant",
        "content": "x",
        "refusal": None,
        "x": 1,
    }


def test_the_order_of_fields_stays() -> None:
    wire = {"content": "long", "x": 1, "role": "user", "name": "ann"}
    revised = CHAT.revise(CHAT.read(wire), [Text("short")])
    assert json.dumps(CHAT.write(revised)) == '{"content": "short", "x": 1, "role": "user", "name": "ann"}'


def test_plain_reasoning_may_be_shortened_and_signed_may_not() -> None:
    message = CHAT.read({"role": "assistant", "content": "x", "reasoning_content": "long"})
    thought, text = message.parts
    assert isinstance(thought, Reasoning)
    revised = CHAT.revise(message, [replace(thought, text="short"), text])
    assert revised.wire == {"role": "assistant", "content": "x", "reasoning_content": "short"}
    signed = CHAT.read(
        {"role": "assistant", "content": "x", "thinking_blocks": [{"type": "thinking", "thinking": "hm"}]}
    )
    thought, text = signed.parts
    assert isinstance(thought, Reasoning)
    with pytest.raises(InvalidInput, match="as it came or not at all"):
        CHAT.revise(signed, [replace(thought, text="short"), text])


def test_a_result_may_be_replaced_whole_or_by_text() -> None:
    message = CHAT.read({"role": "tool", "tool_call_id": "a", "content": "long", "name": "f"})
    expected = {"role": "tool", "tool_call_id": "a", "content": "short", "name": "f"}
    assert CHAT.revise(message, [Text("short")]).wire == expected
    revised = CHAT.revise(message, [replace(message.results[0], parts=(Text("short"),))])
    assert revised.wire == expected
    assert revised.results[0].raw is revised.wire


def test_one_message_cannot_hold_two_results() -> None:
    message = CHAT.read({"role": "tool", "tool_call_id": "a", "content": "x"})
    with pytest.raises(InvalidInput, match="one result"):
        CHAT.revise(message, [*message.parts, *message.parts])
    with pytest.raises(InvalidInput, match="message of its own"):
        CHAT.revise(CHAT.read({"role": "user", "content": "x"}), message.parts)


@pytest.mark.parametrize(
    ("content", "calls", "expected"),
    [
        ("text", [], "(empty)"),
        (None, [call("a")], None),
        ("", [call("a")], ""),
        ("text", [call("a")], None),
    ],
)
def test_an_assistant_message_without_text_says_so_only_if_it_calls_nothing(
    content: str | None, calls: list[Any], expected: str | None
) -> None:
    message = CHAT.read({"role": "assistant", "content": content, "tool_calls": [*calls, call("gone")]})
    revised = CHAT.revise(message, [part for part in message.calls if part.id == "a"])
    assert CHAT.write(revised)["content"] == expected


@pytest.mark.parametrize(
    ("wire", "expected"),
    [
        ({"role": "user", "content": None}, {"role": "user", "content": ""}),
        ({"role": "system"}, {"role": "system", "content": ""}),
        ({"role": "user", "content": []}, {"role": "user", "content": ""}),
        ({"role": "tool", "tool_call_id": "a"}, {"role": "tool", "tool_call_id": "a", "content": ""}),
        (
            {"role": "tool", "tool_call_id": 7, "content": "x"},
            {"role": "tool", "tool_call_id": "7", "content": "x"},
        ),
        (
            {"role": "function", "name": "f", "content": "4"},
            {"role": "user", "name": "f", "content": "4"},
        ),
        ({"role": "assistant", "content": "x", "tool_calls": []}, {"role": "assistant", "content": "x"}),
        ({"role": "assistant", "content": "x", "tool_calls": [None]}, {"role": "assistant", "content": "x"}),
        ({"role": "user", "content": 5}, {"role": "user", "content": "5"}),
    ],
)
def test_what_no_server_takes_is_repaired(wire: dict[str, Any], expected: dict[str, Any]) -> None:
    sent, faults = mended(wire)
    assert sent == expected
    assert faults


@pytest.mark.parametrize(
    ("broken", "repaired"),
    [
        (call("a", {"path": "x"}), call("a", '{"path": "x"}')),
        (call("a", "{cut"), call("a", '{"_invalid_arguments": "{cut"}')),
        ({**call("a"), "id": None}, {**call("a"), "id": "call_without_id"}),
        (
            {"id": "a", "function": {"arguments": "{}"}},
            {"id": "a", "function": {"arguments": "{}", "name": "unknown_tool"}},
        ),
        (
            {"id": "a", "type": "other"},
            {"id": "a", "type": "function", "function": {"name": "unknown_tool", "arguments": "{}"}},
        ),
        (
            {"id": "a", "type": "function", "function": {"name": "f"}},
            {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}},
        ),
        (
            {"id": "a", "type": "custom", "custom": {"name": "n", "input": {"b": 1}}},
            {"id": "a", "type": "custom", "custom": {"name": "n", "input": '{"b": 1}'}},
        ),
    ],
)
def test_a_broken_call_becomes_one_that_can_be_answered(broken: dict[str, Any], repaired: dict[str, Any]) -> None:
    sent, faults = mended({"role": "assistant", "content": None, "tool_calls": [broken, call("b")]})
    assert sent["tool_calls"] == [repaired, call("b")]
    assert faults


@pytest.mark.parametrize("content", [None, "", []])
def test_an_assistant_message_that_says_nothing_is_left_out(content: Any) -> None:
    sanitized = CHAT.sanitize(CHAT.read({"role": "assistant", "content": content, "reasoning_content": "hm"}))
    assert sanitized.message is None
    assert len(sanitized.faults) == 1


def test_results_are_never_merged() -> None:
    message = CHAT.read({"role": "tool", "tool_call_id": "a", "content": "x"})
    assert CHAT.merge([message, message]) is None
