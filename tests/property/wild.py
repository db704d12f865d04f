"""What real histories hold besides words and calls, as turns that a provider takes as they are.

Tools that the provider runs (whole, paused, beside a client's tool, calling a client's tool), approvals, compactions by
the provider, documents, pictures in results, reminders beside results, audio and calls of the first API. Shapes:
Anthropic docs, "Web search tool", "Code execution tool", "Programmatic tool calling", "MCP connector", "Handling stop
reasons", "Compaction"; OpenAI API reference, Chat Completions and Responses.
"""

from __future__ import annotations

import json
import zlib
from base64 import b64encode
from collections.abc import Callable
from typing import Any

__all__ = ["DAMAGES", "TURNS", "Wire", "compacted", "paused"]

Wire = dict[str, Any]
Turn = Callable[[int, str, str], list[Wire]]
"""A turn from its number, what the model says, and what a tool says."""

PDF = b64encode(b"%PDF-1.4\n" + b"".join(b"%d 0 obj<</Type/Page>>endobj\n" % n for n in range(3)) + b"%%EOF").decode()
PNG = b64encode(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x40\0\0\0\x40\x08\x02\0\0\0" + b"\0" * 60).decode()
REMINDER = "<system-reminder>\nThe file has changed. Do not mention this reminder.\n</system-reminder>"


def _assistant(*blocks: Wire) -> Wire:
    return {"role": "assistant", "content": list(blocks)}


def _user(*blocks: Wire) -> Wire:
    return {"role": "user", "content": list(blocks)}


def _text(words: str) -> Wire:
    return {"type": "text", "text": words}


# --- Messages -------------------------------------------------------------------------------------------------------


def _search(name: str, words: str) -> tuple[Wire, Wire]:
    use = {"type": "server_tool_use", "id": name, "name": "web_search", "input": {"query": words[:40]}}
    page = {
        "type": "web_search_result",
        "url": "https://example.com/a",
        "title": words[:30],
        "encrypted_content": "E" * 80,
    }
    return use, {"type": "web_search_tool_result", "tool_use_id": name, "content": [page]}


def _searched(number: int, words: str, found: str) -> list[Wire]:
    use, result = _search(f"srvtoolu_s{number}", found)
    return [_assistant(_text(words), use, result, _text(found))]


def paused(number: int, words: str, found: str) -> list[Wire]:
    use, result = _search(f"srvtoolu_p{number}", found)
    return [_assistant(_text(words), use), _assistant(result, _text(found))]


def _paused_twice(number: int, words: str, found: str) -> list[Wire]:
    first, one = _search(f"srvtoolu_q{number}", found)
    second, two = _search(f"srvtoolu_r{number}", words)
    return [_assistant(_text(words), first), _assistant(one, second), _assistant(two, _text(found))]


def _beside(number: int, words: str, found: str) -> list[Wire]:
    use, result = _search(f"srvtoolu_m{number}", words)
    call = {"type": "tool_use", "id": f"toolu_m{number}", "name": "read", "input": {"path": "a.py"}}
    answer = {"type": "tool_result", "tool_use_id": f"toolu_m{number}", "content": found}
    return [_assistant(use, call), _user(answer), _assistant(result, _text(words))]


def _programmatic(number: int, words: str, found: str) -> list[Wire]:
    server = f"srvtoolu_c{number}"
    use = {"type": "server_tool_use", "id": server, "name": "code_execution", "input": {"code": words}}
    ran = {"type": "code_execution_result", "stdout": found, "stderr": "", "return_code": 0, "content": []}
    caller = {"type": "code_execution_20250825", "tool_id": server}
    out: list[Wire] = []
    for step in range(2 + number % 2):
        name = f"toolu_c{number}_{step}"
        call = {"type": "tool_use", "id": name, "name": "query", "input": {"step": step}, "caller": caller}
        out.append(_assistant(*([use] if step == 0 else []), call))
        out.append(_user({"type": "tool_result", "tool_use_id": name, "content": found}))
    return [
        *out,
        _assistant({"type": "code_execution_tool_result", "tool_use_id": server, "content": ran}, _text(words)),
    ]


def _mcp(number: int, words: str, found: str) -> list[Wire]:
    use = {
        "type": "mcp_tool_use",
        "id": f"mcptoolu_{number}",
        "name": "deploy",
        "server_name": "ops",
        "input": {"to": "b"},
    }
    content = [_text(found)]
    result = {"type": "mcp_tool_result", "tool_use_id": f"mcptoolu_{number}", "is_error": False, "content": content}
    return (
        [_assistant(_text(words), use, result)] if number % 2 else [_assistant(use), _assistant(result, _text(words))]
    )


def _compaction(number: int, words: str, found: str) -> list[Wire]:
    return [_assistant({"type": "compaction", "content": f"Goal {number}. {found}"}, _text(words))]


def _document(number: int, words: str, found: str) -> list[Wire]:
    source = {"type": "base64", "media_type": "application/pdf", "data": PDF}
    if number % 2:
        source = {"type": "text", "media_type": "text/plain", "data": found}
    return [
        _user({"type": "document", "source": source, "title": f"report {number}"}, _text(words)),
        _assistant(_text(found)),
    ]


def _screenshot(number: int, words: str, found: str) -> list[Wire]:
    name = f"toolu_i{number}"
    source = {"type": "base64", "media_type": "image/png", "data": PNG}
    answer = {
        "type": "tool_result",
        "tool_use_id": name,
        "content": [_text(found), {"type": "image", "source": source}],
    }
    call = {"type": "tool_use", "id": name, "name": "screenshot", "input": {}}
    return [_assistant(_text(words), call), _user(answer, _text(REMINDER))]


def _failed(number: int, words: str, found: str) -> list[Wire]:
    name = f"toolu_f{number}"
    answer = {"type": "tool_result", "tool_use_id": name, "is_error": True, "content": found}
    return [_assistant({"type": "tool_use", "id": name, "name": "bash", "input": {"command": words}}), _user(answer)]


# --- Responses ------------------------------------------------------------------------------------------------------


def _said(words: str) -> Wire:
    content = [{"type": "output_text", "text": words, "annotations": []}]
    return {"type": "message", "role": "assistant", "content": content}


def _asked(words: str) -> Wire:
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": words}]}


def _hosted(number: int, words: str, found: str) -> list[Wire]:
    items: tuple[Wire, ...] = (
        {
            "type": "web_search_call",
            "id": f"ws_{number}",
            "status": "completed",
            "action": {"type": "search", "query": words[:40]},
        },
        {
            "type": "file_search_call",
            "id": f"fs_{number}",
            "status": "completed",
            "queries": [words[:30]],
            "results": [{"file_id": "file-1", "filename": "a.md", "score": 0.5, "text": found}],
        },
        {
            "type": "code_interpreter_call",
            "id": f"ci_{number}",
            "status": "completed",
            "container_id": "cntr_1",
            "code": words,
            "outputs": [{"type": "logs", "logs": found}],
        },
        {
            "type": "mcp_call",
            "id": f"mcp_{number}",
            "server_label": "ops",
            "name": "deploy",
            "arguments": "{}",
            "output": found,
        },
        {"type": "image_generation_call", "id": f"ig_{number}", "status": "completed", "result": PNG},
        {"type": "mcp_list_tools", "id": f"mcpl_{number}", "server_label": "ops", "tools": []},
    )
    return [items[number % len(items)], _said(words)]


def _approval(number: int, words: str, found: str) -> list[Wire]:
    name = f"mcpr_{number}"
    wanted = {"type": "mcp_approval_request", "id": name, "server_label": "ops", "name": "deploy", "arguments": "{}"}
    answer = {"type": "mcp_approval_response", "approval_request_id": name, "approve": number % 3 != 0}
    ran = {
        "type": "mcp_call",
        "id": f"mcp_a{number}",
        "server_label": "ops",
        "name": "deploy",
        "arguments": "{}",
        "output": found,
        "approval_request_id": name,
    }
    between = [_said(words)] if number % 2 else []
    return [wanted, *between, answer, *([ran] if number % 3 else []), _said(words)]


def _compacted(number: int, words: str, found: str) -> list[Wire]:
    sealed = f"gAAAA{zlib.crc32(found.encode()):x}" + "x" * (len(found) % 400)
    return [{"type": "compaction", "id": f"cmp_{number}", "encrypted_content": sealed}, _asked(words), _said(found)]


def _computer(number: int, words: str, found: str) -> list[Wire]:
    name = f"call_k{number}"
    shot = {"type": "computer_screenshot", "image_url": f"data:image/png;base64,{PNG}"}
    action = {"type": "click", "x": number, "y": 2, "button": "left"}
    call = {"type": "computer_call", "id": f"cu_{number}", "call_id": name, "status": "completed", "action": action}
    return [call | {"pending_safety_checks": []}, {"type": "computer_call_output", "call_id": name, "output": shot}]


def _shell(number: int, words: str, found: str) -> list[Wire]:
    name = f"call_x{number}"
    if number % 2:
        call: Wire = {"type": "custom_tool_call", "call_id": name, "name": "patch", "input": words}
        return [call, {"type": "custom_tool_call_output", "call_id": name, "output": found}]
    action = {"type": "exec", "command": ["ls", words[:20]], "env": {}}
    call = {"type": "local_shell_call", "id": f"lsh_{number}", "call_id": name, "status": "completed", "action": action}
    return [call, {"type": "local_shell_call_output", "id": name, "call_id": name, "output": found}]


def _late(number: int, words: str, found: str) -> list[Wire]:
    name = f"call_l{number}"
    call = {"type": "function_call", "call_id": name, "name": "pay", "arguments": json.dumps({"n": number})}
    return [call, _asked(words), _said(words), {"type": "function_call_output", "call_id": name, "output": found}]


def _file(number: int, words: str, found: str) -> list[Wire]:
    part = {"type": "input_file", "filename": "a.pdf", "file_data": f"data:application/pdf;base64,{PDF}"}
    text = {"type": "input_text", "text": words}
    return [{"type": "message", "role": "user", "content": [part, text]}, _said(found)]


# --- Chat Completions -----------------------------------------------------------------------------------------------


def _cited(number: int, words: str, found: str) -> list[Wire]:
    url = {"url": "https://example.com/a", "title": found[:30], "start_index": 0, "end_index": 3}
    return [{"role": "assistant", "content": words, "annotations": [{"type": "url_citation", "url_citation": url}]}]


def _spoken(number: int, words: str, found: str) -> list[Wire]:
    heard = {"type": "input_audio", "input_audio": {"data": PNG, "format": "wav"}}
    return [
        {"role": "user", "content": [heard, _text(words)]},
        {"role": "assistant", "content": None, "audio": {"id": f"audio_{number}", "transcript": found}},
    ]


def _refused(number: int, words: str, found: str) -> list[Wire]:
    return [{"role": "user", "content": words}, {"role": "assistant", "content": None, "refusal": found}]


def _attached(number: int, words: str, found: str) -> list[Wire]:
    file = {"type": "file", "file": {"filename": "a.pdf", "file_data": f"data:application/pdf;base64,{PDF}"}}
    return [{"role": "user", "content": [file, _text(words)]}, {"role": "assistant", "content": found}]


def _nudged(number: int, words: str, found: str) -> list[Wire]:
    call = {"id": f"call_n{number}", "type": "function", "function": {"name": "read", "arguments": "{}"}}
    return [
        {"role": "assistant", "content": words, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": f"call_n{number}", "content": [_text(found)]},
        {"role": "user", "content": REMINDER},
    ]


# --- Gemini ---------------------------------------------------------------------------------------------------------


def _contents(words: str, *pairs: tuple[Wire, Wire]) -> list[Wire]:
    """A turn with calls, signed as Gemini 3 does it, and their responses."""
    calls: list[Wire] = [{"functionCall": call} for call, _ in pairs]
    calls[0]["thoughtSignature"] = "c2ln"
    lead = [{"text": words, "thought": True}] if len(words) % 2 else []
    responses = [{"functionResponse": response} for _, response in pairs]
    return [{"role": "model", "parts": [*lead, *calls]}, {"role": "user", "parts": responses}]


def _nameless(number: int, words: str, found: str) -> list[Wire]:
    pair = {"name": "read", "args": {"path": "a.py"}}, {"name": "read", "response": {"output": found}}
    other = {"name": "ls", "args": {}}, {"name": "ls", "response": {"files": [found[:20]], "count": number}}
    return _contents(words, pair, other, (dict(pair[0]), {"name": "read", "response": {"output": words}}))


def _executed(number: int, words: str, found: str) -> list[Wire]:
    code = {"executableCode": {"language": "PYTHON", "code": f"print({number})"}}
    ran = {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": found}}
    return [{"role": "model", "parts": [{"text": words}, code, ran, {"text": found, "thoughtSignature": "c2ln"}]}]


def _closing_signature(number: int, words: str, found: str) -> list[Wire]:
    parts = [{"text": words, "thought": True}, {"text": found}, {"text": "", "thoughtSignature": "c2lnbmVk"}]
    return [{"role": "model", "parts": parts}]


def _seen(number: int, words: str, found: str) -> list[Wire]:
    picture = {"inlineData": {"mimeType": "image/png", "data": PNG}}
    response = {"name": "screenshot", "id": f"s{number}", "response": {"output": found}, "parts": [picture]}
    return _contents(words, ({"name": "screenshot", "id": f"s{number}", "args": {}}, response))


def _file_of_gemini(number: int, words: str, found: str) -> list[Wire]:
    data = {"inlineData": {"mimeType": "application/pdf", "data": PDF}}
    file = {"fileData": {"mimeType": "application/pdf", "fileUri": "gs://bucket/report.pdf"}}
    return [{"role": "user", "parts": [data if number % 2 else file, {"text": words}]}]


def _failed_function(number: int, words: str, found: str) -> list[Wire]:
    return _contents(
        words, ({"name": "bash", "args": {"command": words}}, {"name": "bash", "response": {"error": found}})
    )


def _snake(number: int, words: str, found: str) -> list[Wire]:
    call = {"function_call": {"name": "read", "args": {"path": words}}, "thought_signature": "c2ln"}
    response = {"function_response": {"name": "read", "response": {"result": found}}}
    return [{"role": "model", "parts": [call]}, {"role": "user", "parts": [response, {"text": REMINDER}]}]


TURNS: dict[str, tuple[Turn, ...]] = {
    "openai-chat": (_cited, _spoken, _refused, _attached, _nudged),
    "openai-responses": (_hosted, _hosted, _approval, _compacted, _computer, _shell, _late, _file),
    "anthropic": (
        *(_searched, paused, _paused_twice, _beside, _programmatic, _mcp),
        *(_compaction, _document, _screenshot, _failed),
    ),
    "gemini": (
        *(_nameless, _nameless, _executed, _closing_signature, _seen),
        *(_file_of_gemini, _failed_function, _snake),
    ),
}
"""By dialect, the kinds of turns besides plain ones."""


def compacted(dialect: str, number: int, words: str, found: str) -> list[Wire]:
    """A turn that begins with a compaction by the provider."""
    return (_compaction if dialect == "anthropic" else _compacted)(number, words, found)


# --- damages --------------------------------------------------------------------------------------------------------


def _blocks(wire: Wire) -> list[Wire]:
    content = wire.get("content", wire.get("parts"))
    blocks = content if isinstance(content, list) else []
    inner = [part[key] for part in blocks if isinstance(part, dict) for key in _BODIES if key in part]
    blocks = [*blocks, *inner]
    return [block for block in [wire, *blocks, *(wire.get("tool_calls") or ())] if isinstance(block, dict)]


_BODIES = ("functionCall", "functionResponse")


def _share_ids(wires: list[Wire], at: int) -> None:
    """Every call of a stretch and every result of it has one id, as some compatible servers give them."""
    name = ("", "call_0", "x" * 80)[at % 3]
    for wire in wires[at : at + 6]:
        for block in _blocks(wire):
            for key in ("id", "call_id", "tool_call_id", "tool_use_id"):
                if key in block and not str(block.get("type", "")).startswith(("server_tool", "mcp", "web_search")):
                    block[key] = name


def _late_result(wires: list[Wire], at: int) -> None:
    """The first result from here on comes at the end."""
    for index, wire in enumerate(wires[at:], at):
        kinds = {str(block.get("type", "")) for block in _blocks(wire)}
        answered = any("functionResponse" in block for block in _blocks(wire))
        if answered or wire.get("role") == "tool" or any(kind.endswith(("_result", "_output")) for kind in kinds):
            wires.append(wires.pop(index))
            return


def _lose_block(wires: list[Wire], at: int) -> None:
    content = wires[at].get("content", wires[at].get("parts"))
    if isinstance(content, list) and content:
        del content[at % len(content)]


def _odd_name(wires: list[Wire], at: int) -> None:
    name = ('view" path="a.py"', "bash -lc 'ls | wc'", "n" * 255, "a.b c")[at % 4]
    for block in _blocks(wires[at]):
        body = block.get("function") if isinstance(block.get("function"), dict) else block
        if isinstance(body, dict) and "name" in body:
            body["name"] = name


def _failed_picture(wires: list[Wire], at: int) -> None:
    for wire in wires[at : at + 4]:
        for block in _blocks(wire):
            if block.get("type") == "tool_result":
                block["is_error"] = True


def _picture_in_tool_message(wires: list[Wire], at: int) -> None:
    for wire in wires[at : at + 4]:
        if wire.get("role") == "tool":
            wire["content"] = [{"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}}]


def _markers(wires: list[Wire], at: int) -> None:
    for wire in wires[at : at + 6]:
        for block in _blocks(wire)[1:]:
            block["cache_control"] = {"type": "ephemeral"} | ({"ttl": "1h"} if at % 2 else {})


def _swap(wires: list[Wire], at: int) -> None:
    if at + 1 < len(wires):
        wires[at], wires[at + 1] = wires[at + 1], wires[at]


DAMAGES: tuple[Callable[[list[Wire], int], None], ...] = (
    *(_share_ids, _late_result, _lose_block, _odd_name, _failed_picture, _picture_in_tool_message, _markers, _swap),
)
"""What goes wrong with such parts on the way, at a place of a session."""
