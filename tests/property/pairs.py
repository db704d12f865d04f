"""Random histories with pairs of the provider's: tools that it runs, approvals, code that calls, paused turns."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from hypothesis import strategies as st

from tests.property.sessions import BUILDERS, Wire, text

__all__ = ["HISTORIES", "broken_history", "halves", "history"]

_SERVER_TOOLS = (
    ("server_tool_use", "web_search", "web_search_tool_result"),
    ("server_tool_use", "web_fetch", "web_fetch_tool_result"),
    ("server_tool_use", "bash_code_execution", "bash_code_execution_tool_result"),
    ("server_tool_use", "tool_search_tool_regex", "tool_search_tool_result"),
    ("mcp_tool_use", "deploy", "mcp_tool_result"),
    ("future_tool_use", "think", "future_tool_result"),
)


def _says(*blocks: Wire) -> Wire:
    return {"role": "assistant", "content": list(blocks)}


def _text(words: str) -> Wire:
    return {"type": "text", "text": words}


def _use(number: int, words: str) -> Wire:
    kind, name, _ = _SERVER_TOOLS[number % len(_SERVER_TOOLS)]
    return {"type": kind, "id": f"srv_{number}", "name": name, "input": {"query": words}}


def _came(number: int, words: str) -> Wire:
    content = [{"type": "text", "text": words}]
    return {"type": _SERVER_TOOLS[number % len(_SERVER_TOOLS)][2], "tool_use_id": f"srv_{number}", "content": content}


def _call(call_id: str, words: str, caller: str = "") -> Wire:
    block = {"type": "tool_use", "id": call_id, "name": "read", "input": {"path": words}}
    return {**block, "caller": {"type": "code_execution_20260120", "tool_id": caller}} if caller else block


def _gave(call_id: str, words: str) -> Wire:
    return {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call_id, "content": words}]}


def _code(number: int, words: Sequence[str]) -> list[Wire]:
    """Code that calls a client's tool once for each text, and ends."""
    opened = f"code_{number}"
    begin = {"type": "server_tool_use", "id": opened, "name": "code_execution", "input": {"code": "run()"}}
    out: list[Wire] = []
    for at, said in enumerate(words):
        call = _call(f"by_{number}_{at}", said[:20], opened)
        out += [_says(*([begin] if at == 0 else []), call), _gave(f"by_{number}_{at}", said)]
    ended = {"type": "code_execution_tool_result", "tool_use_id": opened, "content": {"type": "code_execution_result"}}
    return [*out, _says(ended, _text("It ran."))]


def _turns_of_messages(draw: st.DrawFn, number: int) -> list[Wire]:
    words = [draw(text(60)) for _ in range(3)]
    use, came = _use(number, words[0][:40]), _came(number, words[1])
    match draw(st.integers(0, 5)):
        case 0:
            return [_says(_text(words[0]), use, came, _text(words[2]))]
        case 1:
            return [_says(_text(words[0]), use), _says(came, _text(words[2]))]
        case 2:
            client = _call(f"t_{number}", words[0][:20])
            return [_says(use, client), _gave(f"t_{number}", words[1]), _says(came, _text(words[2]))]
        case 3:
            other = {**_use(number, "q"), "id": f"srv_{number}_b"}
            found = {**_came(number, words[1]), "tool_use_id": f"srv_{number}_b"}
            return [_says(use), _says(came, other), _says(found, _text(words[2]))]
        case 4:
            return _code(number, words)
        case _:
            return [*BUILDERS["anthropic"].user(words[0], False), _says(_text(words[1]))]


def _turns_of_items(draw: st.DrawFn, number: int) -> list[Wire]:
    words = [draw(text(60)) for _ in range(3)]
    said = BUILDERS["openai-responses"].says(words[0], None)
    end = BUILDERS["openai-responses"].says(words[2], None)
    asked = {"type": "mcp_approval_request", "id": f"m_{number}", "name": "deploy", "arguments": words[0][:40]}
    given = {"type": "mcp_approval_response", "approval_request_id": f"m_{number}", "approve": number % 3 > 0}
    ran = {"type": "mcp_call", "id": f"mc_{number}", "name": "deploy", "output": words[1]}
    if draw(st.booleans()):
        ran["approval_request_id"] = f"m_{number}"
    match draw(st.integers(0, 5)):
        case 0:
            return [asked, given, ran, *end]
        case 1:
            return [asked, *said, given, ran, *end]
        case 2:
            return [asked, *BUILDERS["openai-responses"].user(words[1], False), *said, given, ran, *end]
        case 3:
            caller = {"type": "program", "caller_id": f"p_{number}"}
            out: list[Wire] = [{"type": "program", "id": f"pi_{number}", "call_id": f"p_{number}", "code": "run()"}]
            for at, said_ in enumerate(words):
                call_id = f"by_{number}_{at}"
                call = {"type": "function_call", "call_id": call_id, "name": "read", "arguments": "{}"}
                output = {"type": "function_call_output", "call_id": call_id, "output": said_}
                out += [{**call, "caller": caller}, {**output, "caller": caller}]
            return [*out, {"type": "program_output", "call_id": f"p_{number}", "result": words[1]}, *end]
        case 4:
            search = {"type": "tool_search_call", "call_id": f"ts_{number}", "execution": "client", "arguments": {}}
            return [search, {"type": "tool_search_output", "call_id": f"ts_{number}", "tools": []}, *end]
        case _:
            found = {"type": "web_search_call", "id": f"ws_{number}", "action": {"query": words[0]}}
            return [*BUILDERS["openai-responses"].user(words[0], False), found, *end]


HISTORIES = {"anthropic": _turns_of_messages, "openai-responses": _turns_of_items}


@st.composite
def history(draw: st.DrawFn, dialect: str, most: int = 8) -> list[Wire]:
    """A history that the provider would take; its last turn may be cut off where no call of the client's waits."""
    out = BUILDERS[dialect].user(draw(text()), False)
    last: list[Wire] = []
    for number in range(draw(st.integers(1, most))):
        out += last
        last = HISTORIES[dialect](draw, number)
    out += last[: draw(st.integers(1, len(last)))]
    while out[-1].get("type") == "function_call" or any(_is_call(block) for block in _blocks(out[-1])):
        out.pop()
    return out


@st.composite
def broken_history(draw: st.DrawFn, dialect: str) -> list[Wire]:
    """A history with messages lost, doubled and moved, and words of the user where they do not belong."""
    wires = [json.loads(json.dumps(wire)) for wire in draw(history(dialect))]
    for _ in range(draw(st.integers(1, 5))):
        at = draw(st.integers(0, len(wires) - 1))
        match draw(st.integers(0, 4)):
            case 0 if len(wires) > 1:
                del wires[at]
            case 1:
                wires.insert(at, json.loads(json.dumps(wires[at])))
            case 2:
                wires.insert((at * 7 + 3) % len(wires), wires.pop(at))
            case 3:
                wires[at:at] = BUILDERS[dialect].user("by the way", False)
            case _:
                blocks = _blocks(wires[at])
                if len(blocks) > 1:
                    del blocks[at % len(blocks)]
    return wires


def _blocks(wire: Wire) -> list[Wire]:
    content = wire.get("content")
    return content if isinstance(content, list) else []


def _is_call(block: Wire) -> bool:
    return block.get("type") == "tool_use"


def halves(wires: Iterable[Mapping[str, Any]]) -> tuple[dict[str, int], dict[str, int]]:
    """What opens pairs, and what closes them, by id: how often each stands there."""
    opened: dict[str, int] = {}
    closed: dict[str, int] = {}
    for wire in wires:
        content = wire.get("content")
        for block in [wire, *(content if isinstance(content, list) else [])]:
            kind = block.get("type") or ""
            if kind.endswith("_tool_use"):
                opened[block["id"]] = opened.get(block["id"], 0) + 1
            elif kind in {"program", "tool_search_call"}:
                opened[block["call_id"]] = opened.get(block["call_id"], 0) + 1
            elif kind == "mcp_approval_request":
                opened[block["id"]] = opened.get(block["id"], 0) + 1
            elif kind.endswith("_tool_result"):
                closed[block["tool_use_id"]] = closed.get(block["tool_use_id"], 0) + 1
            elif kind in {"program_output", "tool_search_output"}:
                closed[block["call_id"]] = closed.get(block["call_id"], 0) + 1
            elif kind == "mcp_approval_response":
                closed[block["approval_request_id"]] = closed.get(block["approval_request_id"], 0) + 1
    return opened, closed
