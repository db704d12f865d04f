"""OpenAI Responses: items, the calls that the client answers, and all the rest."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from foldline.codecs import codec
from foldline.errors import InvalidInput
from foldline.messages import Message, Opaque, Reasoning, Text, ToolCall, Wire

ITEMS = codec("openai-responses")

CALL = {
    "type": "function_call",
    "id": "fc_1",
    "call_id": "a",
    "name": "f",
    "arguments": '{"x": 1}',
    "status": "completed",
}


def mended(wire: dict[str, Any]) -> tuple[Wire, tuple[str, ...]]:
    sanitized = ITEMS.sanitize(ITEMS.read(wire))
    assert sanitized.message is not None
    return ITEMS.write(sanitized.message), sanitized.faults


@pytest.mark.parametrize(
    ("item", "name", "arguments"),
    [
        (CALL, "f", '{"x": 1}'),
        ({"type": "custom_tool_call", "call_id": "a", "name": "n", "input": "free"}, "n", "free"),
        ({"type": "computer_call", "call_id": "a", "action": {"type": "wait"}}, "computer", '{"type": "wait"}'),
        ({"type": "local_shell_call", "call_id": "a", "action": {}}, "local_shell", "{}"),
        ({"type": "shell_call", "call_id": "a", "action": {"commands": []}}, "shell", '{"commands": []}'),
        ({"type": "apply_patch_call", "call_id": "a", "operation": {}}, "apply_patch", "{}"),
    ],
)
def test_what_the_client_answers_is_a_call(item: dict[str, Any], name: str, arguments: str) -> None:
    message = ITEMS.read(item)
    assert message.role == "assistant"
    assert message.parts == (ToolCall("a", name, arguments, item["type"] == "custom_tool_call", raw=item),)


@pytest.mark.parametrize(
    "kind",
    [
        "web_search_call",
        "file_search_call",
        "code_interpreter_call",
        "image_generation_call",
        "mcp_call",
        "mcp_list_tools",
        "compaction",
        "from_the_future",
    ],
)
def test_what_the_server_runs_itself_is_opaque_and_the_assistants(kind: str) -> None:
    item = {"type": kind, "id": "x"}
    message = ITEMS.read(item)
    assert (message.role, message.parts) == ("assistant", (Opaque(kind, raw=item),))


@pytest.mark.parametrize(
    ("item", "opens", "answers", "caller"),
    [
        ({"type": "item_reference", "id": "x"}, "x", "", ""),
        ({"type": "mcp_approval_request", "id": "m", "name": "f", "arguments": "{}"}, "m", "", ""),
        ({"type": "mcp_approval_response", "id": "r", "approval_request_id": "m", "approve": True}, "", "m", ""),
        ({"type": "mcp_call", "id": "c", "name": "f", "approval_request_id": "m"}, "", "", "m"),
        ({"type": "program", "id": "p", "call_id": "k", "code": "f()"}, "k", "", ""),
        ({"type": "program_output", "id": "o", "call_id": "k", "result": "7"}, "", "k", ""),
        ({"type": "tool_search_call", "id": "t", "call_id": "k", "execution": "client"}, "k", "", ""),
        ({"type": "tool_search_call", "id": "t", "call_id": None, "execution": "server"}, "", "", ""),
        ({"type": "tool_search_output", "call_id": "k", "tools": []}, "", "k", ""),
        ({"type": "future_call", "id": "f", "call_id": "k"}, "k", "", ""),
        ({"type": "web_search_call", "id": "w", "caller": {"type": "program", "caller_id": "k"}}, "", "", "k"),
    ],
)
def test_an_item_has_the_ids_of_its_pair(item: dict[str, Any], opens: str, answers: str, caller: str) -> None:
    [part] = ITEMS.read(item).parts
    assert part == Opaque(item["type"], raw=item, opens=opens, answers=answers, caller=caller)


def test_an_answer_of_ours_names_the_program_that_its_call_came_out_of() -> None:
    caller = {"type": "program", "caller_id": "k"}
    [call] = ITEMS.read({**CALL, "caller": caller}).calls
    assert call.caller == "k"
    assert ITEMS.write(ITEMS.answer(call, "none"))["caller"] == caller


def test_an_approval_is_the_users() -> None:
    assert ITEMS.read({"type": "mcp_approval_response", "approval_request_id": "r", "approve": True}).role == "user"


def test_reasoning_is_read_and_counts_as_signed() -> None:
    item = {
        "type": "reasoning",
        "id": "rs_1",
        "summary": [{"type": "summary_text", "text": "short"}],
        "content": [{"type": "reasoning_text", "text": "long"}],
        "encrypted_content": "Zz",
    }
    assert ITEMS.read(item).parts == (Reasoning("short\nlong", True, raw=item),)


def test_an_item_without_type_is_a_message() -> None:
    message = ITEMS.read({"role": "developer", "content": [{"type": "input_text", "text": "x"}]})
    assert (message.role, message.text) == ("system", "x")


@pytest.mark.parametrize(
    ("wire", "place"), [({"id": "x"}, "type"), ({"type": "message"}, "role"), ({"type": 5}, "type")]
)
def test_an_item_without_type_and_role_names_the_field(wire: dict[str, Any], place: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        ITEMS.read(wire)
    assert refused.value.place == place


@pytest.mark.parametrize(
    ("role", "expected"),
    [
        ("user", {"type": "input_text", "text": "new"}),
        ("developer", {"type": "input_text", "text": "new"}),
        ("assistant", {"type": "output_text", "text": "new", "annotations": []}),
    ],
)
def test_new_text_is_of_the_kind_the_role_wants(role: str, expected: dict[str, Any]) -> None:
    image = {"type": "input_image", "image_url": "https://example.org/a.png"}
    message = ITEMS.read({"type": "message", "role": role, "content": [image]})
    assert ITEMS.write(ITEMS.revise(message, [Text("new")]))["content"] == [expected]


def test_a_changed_call_keeps_its_other_fields() -> None:
    message = ITEMS.read(CALL)
    revised = ITEMS.revise(message, [replace(message.calls[0], arguments="{}")])
    assert revised.wire == {**CALL, "arguments": "{}"}
    assert revised.calls[0].raw is revised.wire
    shell = ITEMS.read({"type": "local_shell_call", "call_id": "a", "action": {"command": ["ls"]}})
    revised = ITEMS.revise(shell, [replace(shell.calls[0], arguments='{"command": []}')])
    assert revised.wire == {"type": "local_shell_call", "call_id": "a", "action": {"command": []}}


def test_a_renamed_call_and_output_keep_the_rest() -> None:
    message = ITEMS.read(CALL)
    assert ITEMS.revise(message, [replace(message.calls[0], id="a-2")]).wire == {**CALL, "call_id": "a-2"}
    output = ITEMS.read({"type": "local_shell_call_output", "id": "a", "output": "x"})
    renamed = ITEMS.revise(output, [replace(output.results[0], call_id="a-2")])
    assert renamed.results[0].call_id == ITEMS.read(dict(ITEMS.write(renamed))).results[0].call_id == "a-2"


def test_a_patch_that_said_nothing_goes_on_saying_nothing() -> None:
    item = {"type": "apply_patch_call_output", "call_id": "a", "status": "completed"}
    message = ITEMS.read(item)
    assert ITEMS.revise(message, [replace(message.results[0], call_id="a-2")]).wire == {**item, "call_id": "a-2"}


def test_a_changed_output_keeps_its_other_fields() -> None:
    item = {"type": "function_call_output", "id": "fco_1", "call_id": "a", "output": "long", "status": "completed"}
    message = ITEMS.read(item)
    assert message.role == "tool"
    assert ITEMS.revise(message, [replace(message.results[0], parts=(Text("short"),))]).wire == {
        **item,
        "output": "short",
    }
    assert ITEMS.revise(message, [Text("short")]).wire == {**item, "output": "short"}


def test_a_call_that_becomes_text_becomes_a_message() -> None:
    revised = ITEMS.revise(ITEMS.read(CALL), [Text("called f")])
    assert revised.wire == {"type": "message", "role": "assistant", "content": "called f"}


def test_one_item_holds_one_thing() -> None:
    call = ITEMS.read(CALL)
    output = ITEMS.read({"type": "function_call_output", "call_id": "a", "output": "x"})
    with pytest.raises(InvalidInput, match="one result"):
        ITEMS.revise(output, [*output.parts, *output.parts])
    with pytest.raises(InvalidInput, match="items of their own"):
        ITEMS.write(Message("assistant", (Text("x"), *call.parts)))
    with pytest.raises(InvalidInput, match="without its JSON"):
        ITEMS.write(Message("assistant", (Reasoning("hm"),)))


@pytest.mark.parametrize(
    ("kind", "output"),
    [
        ("function_call", "gone"),
        ("custom_tool_call", "gone"),
        ("local_shell_call", "gone"),
        ("apply_patch_call", "gone"),
        ("shell_call", [{"outcome": {"type": "exit", "exit_code": 0}, "stdout": "gone", "stderr": ""}]),
    ],
)
def test_our_answer_is_of_the_type_the_call_wants(kind: str, output: Any) -> None:
    call = ITEMS.read({"type": kind, "call_id": "a", "name": "f"}).calls[0]
    wire = ITEMS.write(ITEMS.answer(call, "gone"))
    assert (wire["type"], wire["call_id"], wire["output"]) == (f"{kind}_output", "a", output)


def test_our_answer_to_a_computer_call_is_a_blank_screen() -> None:
    call = ITEMS.read({"type": "computer_call", "call_id": "a", "action": {}}).calls[0]
    wire = ITEMS.write(ITEMS.answer(call, "gone"))
    assert wire["output"]["type"] == "computer_screenshot"


@pytest.mark.parametrize(
    ("wire", "expected"),
    [
        ({"role": "user"}, {"role": "user", "content": ""}),
        ({"role": "tool", "content": "x"}, {"role": "user", "content": "x"}),
        ({**CALL, "arguments": "{cut"}, {**CALL, "arguments": '{"_invalid_arguments": "{cut"}'}),
        ({**CALL, "arguments": {"x": 2}}, {**CALL, "arguments": '{"x": 2}'}),
        ({**CALL, "name": None}, {**CALL, "name": "unknown_tool"}),
        ({**CALL, "call_id": None}, {**CALL, "call_id": "call_without_id"}),
        (
            {"type": "custom_tool_call", "call_id": "a", "name": "n"},
            {"type": "custom_tool_call", "call_id": "a", "name": "n", "input": ""},
        ),
        (
            {"type": "function_call_output", "call_id": "a"},
            {"type": "function_call_output", "call_id": "a", "output": ""},
        ),
        (
            {"type": "function_call_output", "call_id": 7, "output": "x"},
            {"type": "function_call_output", "call_id": "7", "output": "x"},
        ),
        (
            {"role": "assistant", "content": ["bare"]},
            {"role": "assistant", "content": [{"type": "output_text", "text": "bare"}]},
        ),
    ],
)
def test_what_the_api_refuses_is_repaired(wire: dict[str, Any], expected: dict[str, Any]) -> None:
    sent, faults = mended(wire)
    assert sent == expected
    assert faults


def test_outputs_are_never_merged() -> None:
    message = ITEMS.read({"type": "function_call_output", "call_id": "a", "output": "x"})
    assert ITEMS.merge([message, message]) is None
