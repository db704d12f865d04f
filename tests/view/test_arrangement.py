"""Pairs of the provider's in a block: what is legal stays as it is, what has no other half is mended and told of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from tests.property.pairs import halves
from tests.property.sessions import Wire

from foldline.codecs import codec
from foldline.engine.one_shot import check
from foldline.view.arrangement import NO_RESULT, arrange
from foldline.view.open_calls import RememberedCall

USER: Wire = {"role": "user", "content": "go"}
SEARCH: Wire = {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"query": "q"}}
FOUND: Wire = {"type": "web_search_tool_result", "tool_use_id": "s", "content": []}
CODE: Wire = {"type": "server_tool_use", "id": "c", "name": "code_execution", "input": {"code": "f()"}}
READ: Wire = {"type": "tool_use", "id": "t", "name": "read", "input": {}}
GAVE: Wire = {"type": "tool_result", "tool_use_id": "t", "content": "ok"}
SAID: Wire = {"type": "text", "text": "So it is."}
THOUGHT: Wire = {"type": "thinking", "thinking": "hm", "signature": "c2ln"}
BY_CODE = {"caller": {"type": "code_execution_20260120", "tool_id": "c"}}
ASKED: Wire = {"type": "mcp_approval_request", "id": "m", "name": "deploy", "arguments": "{}"}
GIVEN: Wire = {"type": "mcp_approval_response", "approval_request_id": "m", "approve": True}


def says(*blocks: Wire) -> Wire:
    return {"role": "assistant", "content": list(blocks)}


def gives(*blocks: Wire) -> Wire:
    return {"role": "user", "content": list(blocks)}


def arranged(wires: Sequence[Wire], dialect: str = "anthropic", **given: Any) -> tuple[list[Wire], list[str]]:
    block = [(seq, codec(dialect).read(wire)) for seq, wire in enumerate(wires)]
    messages, _, repairs = arrange(codec(dialect), block, **given)
    return [dict(codec(dialect).write(message)) for message in messages], [repair.rule for repair in repairs]


@pytest.mark.parametrize(
    "wires",
    [
        [USER, says(SAID, SEARCH)],
        [USER, says(SEARCH), says(FOUND, SAID), USER],
        [USER, says(SEARCH, READ), gives(GAVE), says(FOUND, SAID), USER],
        [USER, says(SEARCH, READ), gives(GAVE)],
        [USER, says(CODE, {**READ, **BY_CODE}), gives(GAVE)],
    ],
)
def test_pairs_over_several_messages_and_paused_ones_are_left_alone(wires: list[Wire]) -> None:
    assert arranged(wires) == (wires, [])


@pytest.mark.parametrize(
    ("use", "result"),
    [
        (SEARCH, "web_search_tool_result"),
        ({**SEARCH, "name": "web_fetch"}, "web_fetch_tool_result"),
        ({**SEARCH, "name": "tool_search_tool_bm25"}, "tool_search_tool_result"),
        ({**SEARCH, "name": "text_editor_code_execution"}, "text_editor_code_execution_tool_result"),
        ({"type": "mcp_tool_use", "id": "s", "name": "deploy", "server_name": "x", "input": {}}, "mcp_tool_result"),
        ({"type": "future_tool_use", "id": "s"}, "future_tool_result"),
    ],
)
@pytest.mark.parametrize("after", [[USER], [says(SAID)], []])
def test_a_use_whose_result_never_came_gets_one_that_failed(use: Wire, result: str, after: list[Wire]) -> None:
    wires = [USER, says(THOUGHT, use), *after]
    out, rules = arranged(wires, ended=True)
    assert rules == ["missing-result"]
    assert out[:2] == wires[:2] and out[3:] == wires[2:], "what came is sent as it came"
    assert out[2]["role"] == "assistant"
    assert [block["type"] for block in out[2]["content"]] == [result]
    assert check(out, dialect="anthropic") == []


def test_words_beside_a_result_end_what_the_provider_is_at() -> None:
    out, rules = arranged([USER, says(SEARCH, READ), gives(GAVE, {"type": "text", "text": "wait"})])
    assert rules == ["missing-result"]
    assert [wire["role"] for wire in out] == ["user", "assistant", "user", "assistant", "user"]
    assert check(out, dialect="anthropic") == []


def test_a_result_after_the_users_words_moves_next_to_its_use() -> None:
    out, rules = arranged([USER, says(SEARCH), USER, says(FOUND, SAID)])
    assert out == [USER, says(SEARCH), says(FOUND), USER, says(SAID)]
    assert rules == ["pairing"]
    assert check(out, dialect="anthropic") == []


def test_a_result_without_its_use_goes_and_what_stands_beside_it_stays() -> None:
    assert arranged([USER, says(FOUND, SAID)]) == ([USER, says(SAID)], ["orphan-result"])
    assert arranged([USER, says(THOUGHT, FOUND)]) == ([USER], ["orphan-result"])
    assert arranged([USER, says(SEARCH, FOUND), says(FOUND, SAID)])[1] == ["duplicate-result"]


def test_a_call_out_of_code_that_is_not_there_is_sent_as_the_models() -> None:
    out, rules = arranged([USER, says({**READ, **BY_CODE}), gives(GAVE)])
    assert out == [USER, says(READ), gives(GAVE)]
    assert rules == ["caller"]


def test_a_call_out_of_a_program_that_is_not_there_is_sent_as_the_models_with_its_output() -> None:
    caller = {"caller": {"type": "program", "caller_id": "p"}}
    call = {"type": "function_call", "call_id": "a", "name": "f", "arguments": "{}"}
    output = {"type": "function_call_output", "call_id": "a", "output": "x"}
    out, rules = arranged([USER, {**call, **caller}, {**output, **caller}], "openai-responses")
    assert out == [USER, call, output]
    assert "caller" in rules


def test_an_approval_without_its_request_goes_and_one_that_waits_stays() -> None:
    assert arranged([USER, GIVEN], "openai-responses") == ([USER], ["orphan-result"])
    assert arranged([USER, ASKED, USER], "openai-responses", ended=True) == ([USER, ASKED, USER], [])
    assert arranged([USER, ASKED, GIVEN, GIVEN], "openai-responses") == ([USER, ASKED, GIVEN], ["duplicate-result"])


def test_an_approval_that_is_told_in_words_leaves_no_request_behind() -> None:
    out, rules = arranged([USER, ASKED], "openai-responses", left_out={"m"})
    assert (out, rules) == ([USER], ["late-result"])
    called = {0: {"m": RememberedCall("deploy", "{}")}}
    out, rules = arranged([GIVEN], "openai-responses", late_calls=called)
    assert rules == ["late-result"]
    assert "approved by the user" in out[0]["content"]
    assert halves(out) == ({}, {})


def test_what_comes_late_stands_before_a_turn_that_is_paused() -> None:
    late = {"type": "tool_result", "tool_use_id": "pay", "content": "RECEIPT"}
    out, rules = arranged([says(SAID, SEARCH), gives(late)], late_calls={1: {"pay": RememberedCall("pay", "{}")}})
    assert rules == ["late-result"]
    assert "RECEIPT" in str(out[0])
    assert out[1] == says(SAID, SEARCH)


def test_an_output_of_a_type_that_is_yet_to_come_keeps_its_call() -> None:
    wires = [
        USER,
        {"type": "future_call", "call_id": "a"},
        {"type": "future_call_output", "call_id": "a", "output": "x"},
    ]
    assert arranged(wires, "openai-responses") == (wires, [])


def test_a_result_with_an_id_of_two_turns_answers_the_later_one_and_the_next_the_earlier() -> None:
    def call(words: str) -> Wire:
        function = {"name": words, "arguments": "{}"}
        return {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "x", "type": "function", "function": function}],
        }

    def result(words: str) -> Wire:
        return {"role": "tool", "tool_call_id": "x", "content": words}

    out, _ = arranged([call("pay"), call("read"), result("read"), result("paid")], "openai-chat")
    assert out == [call("pay"), result("paid"), call("read"), result("read")]
    assert NO_RESULT not in str(out)
