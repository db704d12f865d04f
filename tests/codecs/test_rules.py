"""Every rule of the table has a request that breaks it, and the shapes that look odd but pass are left alone."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.codecs.strategies import Wire, any_dialect, in_dialect, junk
from tests.property.depth import costly, dear
from tests.testing.invalid_requests import GEMINI

from foldline.codecs.dialect import ROWS, violations
from foldline.errors import InvalidInput

USER: Wire = {"role": "user", "content": "u"}
HALF = "half \ud83d"


def says(text: Any) -> Wire:
    return {"role": "assistant", "content": text}


def chat_call(*ids: str, arguments: Any = "{}") -> Wire:
    calls = [{"id": i, "type": "function", "function": {"name": "f", "arguments": arguments}} for i in ids]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def chat_result(call_id: str, content: Any = "ok") -> Wire:
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def use(*ids: str, thinking: bool = False, **fields: Any) -> Wire:
    blocks: list[Wire] = [{"type": "tool_use", "id": i, "name": "f", "input": {}, **fields} for i in ids]
    thought: Wire = {"type": "thinking", "thinking": "hm", "signature": "c2ln"}
    return {"role": "assistant", "content": [thought, *blocks] if thinking else blocks}


def results(*ids: str, **fields: Any) -> Wire:
    return {
        "role": "user",
        "content": [{"type": "tool_result", "tool_use_id": i, "content": "ok", **fields} for i in ids],
    }


def item_call(call_id: str, **fields: Any) -> Wire:
    return {
        "type": "function_call",
        "id": f"fc_{call_id}",
        "call_id": call_id,
        "name": "f",
        "arguments": "{}",
        **fields,
    }


def item_output(call_id: str, **fields: Any) -> Wire:
    return {"type": "function_call_output", "call_id": call_id, "output": "ok", **fields}


def named(name: str) -> Wire:
    call = {"id": "a", "type": "function", "function": {"name": name, "arguments": "{}"}}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


def image(media_type: str, data: str) -> Wire:
    return {"type": "image", "source": {"type": "base64", "media_type": media_type, "data": data}}


def chat_image(media_type: str, data: str) -> Wire:
    return {"type": "image_url", "image_url": {"url": f"data:{media_type};base64,{data}"}}


def item_image(media_type: str, data: str) -> Wire:
    return {"type": "input_image", "image_url": f"data:{media_type};base64,{data}"}


PNG = "iVBORw0KGgo="
MARK: Wire = {"cache_control": {"type": "ephemeral"}}
HOUR: Wire = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}

REASONING: Wire = {"type": "reasoning", "id": "rs_1", "summary": []}

CHAT = "openai-chat"
RESPONSES = "openai-responses"
CLAUDE = "anthropic"

SEARCH: Wire = {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"query": "q"}}
FOUND: Wire = {"type": "web_search_tool_result", "tool_use_id": "s", "content": []}
CODE: Wire = {"type": "server_tool_use", "id": "c", "name": "code_execution", "input": {"code": "f()"}}
RAN: Wire = {"type": "code_execution_tool_result", "tool_use_id": "c", "content": {}}
BY_CODE: dict[str, Any] = {"caller": {"type": "code_execution_20260120", "tool_id": "c"}}
BY_PROGRAM = {"caller": {"type": "program", "caller_id": "p"}}
PROGRAM: Wire = {"type": "program", "id": "prog", "call_id": "p", "code": "f()"}
ASKED: Wire = {"type": "mcp_approval_request", "id": "m", "server_label": "s", "name": "deploy", "arguments": "{}"}
GIVEN: Wire = {"type": "mcp_approval_response", "approval_request_id": "m", "approve": True}

BROKEN: dict[tuple[str, str], list[Any]] = {
    **{("gemini", rule): case["contents"] for rule, case in GEMINI.items()},
    (CHAT, "empty-request"): [],
    (CHAT, "object"): [USER, "not an object"],
    (CHAT, "encoding"): [USER, says(HALF)],
    (CHAT, "role"): [{"role": "function", "name": "f", "content": "4"}],
    (CHAT, "content"): [{"role": "user", "content": []}],
    (CHAT, "call-shape"): [USER, {**chat_call("a"), "tool_calls": [{"id": "a", "type": "function"}]}, chat_result("a")],
    (CHAT, "result-without-call"): [USER, chat_result("gone")],
    (CHAT, "call-without-result"): [USER, chat_call("a", "b"), chat_result("b"), USER],
    (CHAT, "result-content"): [USER, chat_call("a"), chat_result("a", None)],
    (CHAT, "empty-calls"): [USER, {**says("x"), "tool_calls": []}],
    (CHAT, "call-ids"): [USER, chat_call("a", "a"), chat_result("a")],
    (CHAT, "arguments"): [USER, chat_call("a", arguments="{path: src}"), chat_result("a")],
    (CHAT, "says-nothing"): [USER, says("")],
    (RESPONSES, "empty-request"): [],
    (RESPONSES, "object"): [USER, {"id": "neither type nor role"}],
    (RESPONSES, "encoding"): [{"role": "user", "content": [{"type": "input_text", "text": HALF}]}],
    (RESPONSES, "role"): [{"role": "tool", "content": "x"}],
    (RESPONSES, "content"): [{"type": "message", "role": "user"}],
    (RESPONSES, "call-shape"): [{"type": "function_call", "name": "f", "arguments": "{}"}],
    (RESPONSES, "result-without-call"): [USER, item_output("a"), item_call("a")],
    (RESPONSES, "second-result"): [USER, item_call("a"), item_output("a"), item_output("a")],
    (RESPONSES, "call-without-result"): [USER, item_call("a"), USER],
    (RESPONSES, "result-content"): [USER, item_call("a"), {"type": "function_call_output", "call_id": "a"}],
    (RESPONSES, "call-ids"): [USER, item_call("a"), item_call("a", id="fc_2"), item_output("a")],
    (RESPONSES, "item-ids"): [USER, item_call("a"), item_output("a"), item_call("b", id="fc_a"), item_output("b")],
    (RESPONSES, "arguments"): [USER, item_call("a", arguments='{"a": '), item_output("a")],
    (RESPONSES, "reasoning-alone"): [USER, REASONING, USER],
    (RESPONSES, "approval-without-request"): [USER, GIVEN],
    (RESPONSES, "caller"): [USER, item_call("a", **BY_PROGRAM), item_output("a")],
    (CLAUDE, "empty-request"): [],
    (CLAUDE, "object"): [USER, None],
    (CLAUDE, "encoding"): [{"role": "user", "content": "x", HALF: 1}],
    (CLAUDE, "role"): [USER, {"role": "system", "content": "Be brief."}],
    (CLAUDE, "content"): [{"role": "user", "content": ["bare text"]}],
    (CLAUDE, "call-shape"): [USER, use("a", name=""), results("a")],
    (CLAUDE, "user-first"): [says("hi"), USER],
    (CLAUDE, "empty-content"): [USER, says([]), USER],
    (CLAUDE, "blank-text"): [USER, says([{"type": "text", "text": " \n"}]), USER],
    (CLAUDE, "result-without-call"): [USER, use("a"), results("a"), says("x"), results("a")],
    (CLAUDE, "call-without-result"): [USER, use("a", "b"), results("a"), results("b")],
    (CLAUDE, "second-result"): [USER, use("a"), results("a", "a")],
    (CLAUDE, "results-first"): [
        USER,
        use("a"),
        {"role": "user", "content": [{"type": "text", "text": "and?"}, *results("a")["content"]]},
    ],
    (CLAUDE, "empty-error"): [USER, use("a"), results("a", is_error=True, content="")],
    (CLAUDE, "block-place"): [USER, {"role": "assistant", "content": results("a")["content"]}],
    (CLAUDE, "call-ids"): [USER, use("a"), results("a"), use("a"), results("a")],
    (CLAUDE, "id-pattern"): [USER, use("functions.bash:0"), results("functions.bash:0")],
    (CLAUDE, "input-object"): [USER, use("a", input="{}"), results("a")],
    (CLAUDE, "signature"): [USER, says([{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "x"}])],
    (CLAUDE, "server-use-without-result"): [USER, says([SEARCH]), USER],
    (CLAUDE, "server-result-without-use"): [USER, says([FOUND]), USER],
    (CLAUDE, "caller"): [USER, use("a", **BY_CODE), results("a")],
    (CLAUDE, "system-text"): [USER],
    (CLAUDE, "tool-names"): [USER],
    (CHAT, "call-name"): [USER, named("read file"), chat_result("a")],
    (CHAT, "tool-name"): [USER],
    (CHAT, "call-id-length"): [USER, chat_call("c" * 65), chat_result("c" * 65)],
    (CHAT, "author"): [{**USER, "name": "Ann Lee"}],
    (CHAT, "image"): [{"role": "user", "content": [chat_image("image/svg+xml", "PHN2Zz4=")]}],
    (CHAT, "image-place"): [USER, says([chat_image("image/png", PNG)])],
    (CHAT, "result-text"): [USER, chat_call("a"), chat_result("a", [chat_image("image/png", PNG)])],
    (CHAT, "amount"): [{"role": "user", "content": [chat_image("image/png", PNG)] * 501}],
    (CHAT, "alternation"): [USER, USER],
    (RESPONSES, "call-name"): [USER, item_call("a", name="n" * 129), item_output("a")],
    (RESPONSES, "tool-name"): [USER],
    (RESPONSES, "call-id-length"): [USER, item_call("c" * 65, id="fc_1"), item_output("c" * 65)],
    (RESPONSES, "item-id-form"): [USER, item_call("a", id="call_a"), item_output("a")],
    (RESPONSES, "image"): [USER, item_call("a"), item_output("a", output=[item_image("image/svg+xml", "PHN2Zz4=")])],
    (RESPONSES, "amount"): [{"role": "user", "content": [item_image("image/png", PNG)] * 501}],
    (CLAUDE, "call-name"): [USER, use("a", name='view" path="a'), results("a")],
    (CLAUDE, "tool-name"): [USER],
    (CLAUDE, "failed-media"): [USER, use("a"), results("a", is_error=True, content=[image("image/png", PNG)])],
    (CLAUDE, "image"): [{"role": "user", "content": [image("image/png", "")]}],
    (CLAUDE, "amount"): [{"role": "user", "content": [image("image/png", PNG)] * 101}],
    (CLAUDE, "cache-thinking"): [
        USER,
        says([{"type": "thinking", "thinking": "t", "signature": "s", **MARK}, {"type": "text", "text": "a"}]),
    ],
    (CLAUDE, "cache-count"): [{"role": "user", "content": [{"type": "text", "text": "a", **MARK}] * 5}],
    (CLAUDE, "cache-order"): [
        {"role": "user", "content": [{"type": "text", "text": "a", **MARK}, {"type": "text", "text": "a", **HOUR}]}
    ],
}
BESIDE: dict[tuple[str, str], dict[str, Any]] = {
    ("gemini", "tool-name"): {"tools": GEMINI["tool-name"]["tools"]},
    (CLAUDE, "system-text"): {"system": [{"type": "text", "text": ""}]},
    (CLAUDE, "tool-names"): {"tools": [{"name": "f"}, {"name": "f"}]},
    (CLAUDE, "tool-name"): {"tools": [{"name": "n" * 129, "input_schema": {}}]},
    (RESPONSES, "tool-name"): {"tools": [{"type": "function", "name": "a.b"}]},
    (CHAT, "tool-name"): {"tools": [{"type": "function", "function": {"name": "a b"}}]},
    (CHAT, "alternation"): {"alternating": True},
}

LEGAL: dict[str, tuple[str, list[Wire]]] = {
    "parallel results in any order": (CHAT, [USER, chat_call("a", "b"), chat_result("b"), chat_result("a", "")]),
    "ids used again by a later turn": (
        CHAT,
        [USER, chat_call("a"), chat_result("a"), USER, chat_call("a"), chat_result("a")],
    ),
    "a refusal without content": (CHAT, [USER, {"role": "assistant", "content": None, "refusal": "no"}, USER]),
    "arguments left empty": (CHAT, [USER, chat_call("a", arguments=""), chat_result("a")]),
    "turns of one role in a row": (CHAT, [USER, USER, says("x"), says("y")]),
    "system text in the middle": (CHAT, [USER, says("x"), {"role": "developer", "content": "d"}]),
    "an empty last assistant message": (CLAUDE, [USER, says([])]),
    "users in a row, first": (CLAUDE, [USER, USER, says("x")]),
    "a result without content": (
        CLAUDE,
        [USER, use("a"), {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a"}]}],
    ),
    "text after the results": (
        CLAUDE,
        [USER, use("a"), {"role": "user", "content": [*results("a")["content"], {"type": "text", "text": "and?"}]}],
    ),
    "a loop that stops thinking": (CLAUDE, [USER, use("a", thinking=True), results("a"), use("b"), results("b")]),
    "a loop that never thought": (CLAUDE, [USER, use("a"), results("a"), use("b"), results("b")]),
    "a loop after an answer": (CLAUDE, [USER, says("x"), use("b", thinking=True), results("b")]),
    "a loop that has ended": (CLAUDE, [USER, use("a"), results("a"), use("b", thinking=True), results("b"), says("x")]),
    "thinking in an earlier turn only": (
        CLAUDE,
        [USER, use("a"), results("a"), says("x"), USER, use("b", thinking=True), results("b")],
    ),
    "a search and its result in one message": (CLAUDE, [USER, says([SEARCH, FOUND]), USER]),
    "a paused turn at the end": (CLAUDE, [USER, says([SEARCH])]),
    "a paused turn that went on": (CLAUDE, [USER, says([SEARCH]), says([FOUND, {"type": "text", "text": "x"}]), USER]),
    "a search beside a call of the client's": (
        CLAUDE,
        [USER, says([SEARCH, *use("a")["content"]]), results("a"), says([FOUND]), USER],
    ),
    "code that calls the client again and again": (
        CLAUDE,
        [
            USER,
            says([CODE, *use("a", **BY_CODE)["content"]]),
            results("a"),
            use("b", **BY_CODE),
            results("b"),
            says([RAN, {"type": "text", "text": "x"}]),
            USER,
        ],
    ),
    "code that still calls": (CLAUDE, [USER, says([CODE, *use("a", **BY_CODE)["content"]]), results("a")]),
    "a tool of the provider's that is yet to come": (
        CLAUDE,
        [
            USER,
            says([{"type": "future_tool_use", "id": "f"}, {"type": "future_tool_result", "tool_use_id": "f"}]),
            USER,
        ],
    ),
    "an approval after other items": (RESPONSES, [USER, ASKED, says("Shall I?"), GIVEN]),
    "an approval that nobody has given yet": (RESPONSES, [USER, ASKED, USER]),
    "an approval of a request that is referred to": (
        RESPONSES,
        [USER, {"type": "item_reference", "id": "m"}, GIVEN],
    ),
    "calls out of a program": (
        RESPONSES,
        [USER, PROGRAM, item_call("a", **BY_PROGRAM), item_output("a", **BY_PROGRAM)],
    ),
    "a call and an output of types that are yet to come": (
        RESPONSES,
        [USER, {"type": "future_call", "call_id": "a"}, {"type": "future_call_output", "call_id": "a", "output": "x"}],
    ),
    "outputs later and out of order": (
        RESPONSES,
        [USER, item_call("a"), item_call("b"), item_output("b"), item_output("a")],
    ),
    "reasoning before a search of the server": (
        RESPONSES,
        [USER, REASONING, {"type": "web_search_call", "id": "ws_1", "status": "completed"}, says("found"), USER],
    ),
    "reasoning before a call": (RESPONSES, [USER, REASONING, item_call("a"), item_output("a")]),
    "a local shell output that names its call by id": (
        RESPONSES,
        [
            USER,
            {"type": "local_shell_call", "call_id": "a", "action": {"type": "exec", "command": ["ls"]}},
            {"type": "local_shell_call_output", "id": "a", "output": "x"},
        ],
    ),
}


def test_every_rule_has_a_request_that_breaks_it() -> None:
    assert set(BROKEN) == {(dialect, rule) for dialect, row in ROWS.items() for rule in row.rules}


@pytest.mark.parametrize(("dialect", "rule"), sorted(BROKEN))
def test_a_broken_rule_is_named_with_its_document(dialect: str, rule: str) -> None:
    found = violations(BROKEN[dialect, rule], dialect, **BESIDE.get((dialect, rule), {}))
    named = [violation for violation in found if violation.rule == rule]
    assert named
    assert named[0].source == ROWS[dialect].rules[rule].source
    assert named[0].detail


@pytest.mark.parametrize("name", sorted(LEGAL))
def test_what_looks_odd_but_passes_is_left_alone(name: str) -> None:
    dialect, wires = LEGAL[name]
    assert violations(wires, dialect) == []


@pytest.mark.parametrize(
    ("dialect", "rule", "wires"),
    [
        (CLAUDE, "server-use-without-result", [USER, says([SEARCH]), USER, says([FOUND]), USER]),
        (CLAUDE, "server-use-without-result", [USER, says([SEARCH]), says("So it is.")]),
        (CLAUDE, "server-use-without-result", [USER, says([{"type": "mcp_tool_use", "id": "s", "name": "x"}]), USER]),
        (
            CLAUDE,
            "server-use-without-result",
            [
                USER,
                says([SEARCH, *use("a")["content"]]),
                {"role": "user", "content": [*results("a")["content"], {"type": "text", "text": "and?"}]},
            ],
        ),
        (CLAUDE, "second-result", [USER, says([SEARCH, FOUND]), says([FOUND, {"type": "text", "text": "x"}]), USER]),
        (CLAUDE, "block-place", [USER, says([SEARCH]), {"role": "user", "content": [FOUND]}]),
        (RESPONSES, "second-result", [USER, ASKED, GIVEN, GIVEN]),
        (RESPONSES, "result-without-call", [USER, {"type": "program_output", "call_id": "p", "result": "7"}]),
        (RESPONSES, "result-without-call", [USER, {"type": "tool_search_output", "call_id": "p", "tools": []}]),
        (RESPONSES, "caller", [USER, item_call("a"), item_output("a", **BY_PROGRAM)]),
    ],
)
def test_each_half_of_a_pair_of_the_providers_wants_the_other(dialect: str, rule: str, wires: list[Any]) -> None:
    assert rule in {violation.rule for violation in violations(wires, dialect)}


def test_a_violation_says_which_message() -> None:
    found = violations([USER, chat_call("a"), USER], CHAT)
    assert [violation.index for violation in found] == [2]
    assert "'a'" in found[0].detail


def test_what_stands_beside_the_messages_must_be_sendable() -> None:
    found = violations([USER], CHAT, system=HALF, tools=[{"name": float("inf")}])
    assert [(violation.index, violation.rule) for violation in found] == [(None, "encoding")] * 2


def test_an_unknown_dialect_is_refused() -> None:
    with pytest.raises(InvalidInput, match="openai-chat"):
        violations([USER], "klingon")


@costly
@given(any_dialect, st.lists(junk, min_size=1, max_size=4), junk, junk)
def test_junk_is_reported_never_raised(dialect: str, wires: list[Any], system: Any, tools: Any) -> None:
    found = violations(wires, dialect, system=system, tools=tools)
    assert {violation.index for violation in found if violation.rule == "object"} == set(range(len(wires)))


@pytest.mark.parametrize("wires", [None, {}, "text", 5, {"role": "user"}])
def test_what_is_no_list_of_messages_is_an_empty_request(wires: Any) -> None:
    assert [violation.rule for violation in violations(wires, CHAT)] == ["empty-request"]


@dear
@given(st.lists(in_dialect(broken=True), max_size=5))
def test_damaged_histories_never_raise(cases: list[tuple[str, Wire]]) -> None:
    for dialect in ROWS:
        found = violations([wire for _, wire in cases], dialect)
        assert all(violation.rule in ROWS[dialect].rules for violation in found)


def test_endless_nesting_is_reported() -> None:
    wire: Wire = {"role": "user", "content": "x"}
    wire["x-self"] = wire
    assert [violation.rule for violation in violations([wire], CHAT)] == ["encoding"]
