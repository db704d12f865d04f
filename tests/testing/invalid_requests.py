"""For each rule of each dialect a history that breaks it, as a client might send it."""

from __future__ import annotations

from typing import Any

USER = {"role": "user", "content": "Hello"}
SURROGATE = {"role": "user", "content": "\ud800"}


def _chat(*messages: Any) -> dict[str, Any]:
    return {"messages": [USER, *messages]}


def _calls(*calls: Any, content: Any = None) -> dict[str, Any]:
    return {"role": "assistant", "content": content, "tool_calls": list(calls)}


def _call(call_id: str = "c1", arguments: str = "{}") -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": "ls", "arguments": arguments}}


def _result(call_id: str = "c1", content: Any = "done") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def _picture(media_type: str) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": f"data:{media_type};base64,AAAA"}}


CHAT: dict[str, dict[str, Any]] = {
    "empty-request": {"messages": []},
    "object": _chat("a text"),
    "encoding": _chat(SURROGATE),
    "role": _chat({"role": "banana", "content": "hi"}),
    "content": _chat({"role": "user", "content": 7}),
    "call-shape": _chat({"role": "tool", "content": "done"}),
    "result-without-call": _chat(_result()),
    "call-without-result": _chat(_calls(_call()), USER),
    "result-content": _chat(_calls(_call()), _result(content=None)),
    "empty-calls": _chat({"role": "assistant", "content": "hi", "tool_calls": []}),
    "call-ids": _chat(_calls(_call(), _call()), _result()),
    "arguments": _chat(_calls(_call(arguments="{")), _result()),
    "says-nothing": _chat({"role": "assistant", "content": None}),
    "call-name": _chat(_calls(_call() | {"function": {"name": "ls -l", "arguments": "{}"}}), _result()),
    "tool-name": {"messages": [USER], "tools": [{"type": "function", "function": {"name": "a.b"}}]},
    "call-id-length": _chat(_calls(_call("c" * 80)), _result("c" * 80)),
    "author": _chat(USER | {"name": "Ann Lee"}),
    "image": _chat({"role": "user", "content": [_picture("image/svg+xml")]}),
    "image-place": _chat({"role": "assistant", "content": [_picture("image/png")]}),
    "result-text": _chat(_calls(_call()), _result(content=[_picture("image/png")])),
    "amount": _chat({"role": "user", "content": [_picture("image/png")] * 501}),
}


def _item_picture(media_type: str) -> dict[str, Any]:
    return {"type": "input_image", "image_url": f"data:{media_type};base64,AAAA"}


def _items(*items: Any) -> dict[str, Any]:
    return {"input": [USER, *items]}


def _fc(call_id: str = "c1", item_id: str = "fc_1", arguments: str = "{}") -> dict[str, Any]:
    return {"type": "function_call", "id": item_id, "call_id": call_id, "name": "ls", "arguments": arguments}


def _out(call_id: str = "c1", output: Any = "done") -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": call_id, "output": output}


RESPONSES: dict[str, dict[str, Any]] = {
    "empty-request": {"input": []},
    "object": _items({"content": "who"}),
    "encoding": _items(SURROGATE),
    "role": _items({"role": "banana", "content": "hi"}),
    "content": _items({"role": "user", "content": 7}),
    "call-shape": _items({"type": "function_call_output", "output": "done"}),
    "result-without-call": _items(_out()),
    "second-result": _items(_fc(), _out(), _out()),
    "call-without-result": _items(_fc(), USER),
    "result-content": _items(_fc(), _out(output=None)),
    "call-ids": _items(_fc(), _fc(item_id="fc_2"), _out()),
    "item-ids": _items(_fc(), _out(), _fc("c2"), _out("c2")),
    "arguments": _items(_fc(arguments="{"), _out()),
    "reasoning-alone": _items({"type": "reasoning", "id": "rs_1", "summary": []}),
    "call-name": _items(_fc() | {"name": "a b"}, _out()),
    "tool-name": {"input": [USER], "tools": [{"type": "function", "name": "a b", "parameters": {}}]},
    "call-id-length": _items(_fc("c" * 65), _out("c" * 65)),
    "item-id-form": _items(_fc(item_id="item_1"), _out()),
    "image": _items({"role": "user", "content": [_item_picture("image/svg+xml")]}),
    "approval-without-request": _items(
        {"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": True}
    ),
    "caller": _items(_fc() | {"caller": {"type": "program", "caller_id": "prog_1"}}, _out()),
    "amount": _items({"role": "user", "content": [_item_picture("image/png")] * 501}),
}


def _uses(*blocks: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": list(blocks)}


def _use(call_id: str = "t1", **more: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": "ls", "input": {}} | more


def _results(*blocks: Any) -> dict[str, Any]:
    return {"role": "user", "content": list(blocks)}


def _tr(call_id: str = "t1", content: Any = "done", **more: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call_id, "content": content} | more


def _image(media_type: str = "image/png", data: str = "AAAA") -> dict[str, Any]:
    return {"type": "image", "source": {"type": "base64", "media_type": media_type, "data": data}}


MARK = {"cache_control": {"type": "ephemeral"}}
HOUR = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}
THOUGHT = {"type": "thinking", "thinking": "hm", "signature": "s"}
TEXT = {"type": "text", "text": "hi"}
SEARCH = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "q"}}
FOUND = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []}

ANTHROPIC: dict[str, dict[str, Any]] = {
    "empty-request": {"messages": []},
    "object": _chat("a text"),
    "encoding": _chat(SURROGATE),
    "role": _chat({"role": "system", "content": "hi"}),
    "content": _chat({"role": "user", "content": 7}),
    "call-shape": _chat(_uses({"type": "tool_use", "name": "ls", "input": {}})),
    "user-first": {"messages": [_uses({"type": "text", "text": "hi"}), USER]},
    "empty-content": _chat({"role": "assistant", "content": ""}, USER),
    "blank-text": _chat(_results({"type": "text", "text": " "})),
    "result-without-call": _chat(_uses({"type": "text", "text": "hi"}), _results(_tr())),
    "call-without-result": _chat(_uses(_use()), USER),
    "second-result": _chat(_uses(_use()), _results(_tr(), _tr())),
    "results-first": _chat(_uses(_use()), _results({"type": "text", "text": "so"}, _tr())),
    "empty-error": _chat(_uses(_use()), _results(_tr(content="", is_error=True))),
    "block-place": _chat(_results(_use())),
    "call-ids": _chat(_uses(_use()), _results(_tr()), _uses(_use()), _results(_tr())),
    "id-pattern": _chat(_uses(_use("t 1")), _results(_tr("t 1"))),
    "input-object": _chat(_uses(_use(input="{}")), _results(_tr())),
    "signature": _chat(_uses({"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "hi"}), USER),
    "system-text": {"messages": [USER], "system": [{"type": "text", "text": " "}]},
    "tool-names": {"messages": [USER], "tools": [{"name": "ls", "input_schema": {}}, {"name": "ls"}]},
    "call-name": _chat(_uses(_use(name="a b")), _results(_tr())),
    "tool-name": {"messages": [USER], "tools": [{"name": "a b", "input_schema": {}}]},
    "failed-media": _chat(_uses(_use()), _results(_tr(content=[_image()], is_error=True))),
    "image": _chat(_results(_image("image/svg+xml"))),
    "amount": _chat(_results(*[_image()] * 101)),
    "caller": _chat(_uses(_use(caller={"type": "code_execution_20250825", "tool_id": "srvtoolu_1"})), _results(_tr())),
    "server-use-without-result": _chat(_uses(SEARCH), USER),
    "server-result-without-use": _chat(_uses(FOUND), USER),
    "cache-thinking": _chat(_uses(THOUGHT | MARK, TEXT), USER),
    "cache-count": _chat(_results(*[TEXT | MARK] * 5)),
    "cache-order": _chat(_results(TEXT | MARK, TEXT | HOUR)),
}


def _contents(*contents: Any) -> dict[str, Any]:
    return {"contents": [{"role": "user", "parts": [{"text": "Hello"}]}, *contents]}


def _model(*parts: Any) -> dict[str, Any]:
    return {"role": "model", "parts": list(parts)}


def _answers(*parts: Any) -> dict[str, Any]:
    return {"role": "user", "parts": list(parts)}


def _function(name: str = "ls", **more: Any) -> dict[str, Any]:
    return {"functionCall": {"name": name, "args": {}, **more}}


def _response(name: str = "ls", **more: Any) -> dict[str, Any]:
    return {"functionResponse": {"name": name, "response": {"output": "done"}, **more}}


PICTURE = {"inlineData": {"mimeType": "image/png", "data": "AAAA"}}
ASKS = {"role": "user", "parts": [{"text": "so?"}]}
GEMINI: dict[str, dict[str, Any]] = {
    "empty-request": {"contents": []},
    "object": _contents("a text"),
    "encoding": _contents({"role": "user", "parts": [{"text": "\ud800"}]}),
    "role": _contents({"role": "assistant", "parts": [{"text": "hi"}]}),
    "content": _contents({"role": "user", "parts": ["hi"]}),
    "call-shape": _contents(_model(_function("")), _answers(_response(""))),
    "user-first": {"contents": [_model({"text": "hi"}, _function()), _answers(_response())]},
    "empty-content": _contents({"role": "user", "parts": []}),
    "empty-part": _contents({"role": "user", "parts": [{"text": " "}]}),
    "result-without-call": _contents(_model({"text": "hi"}), _answers(_response())),
    "call-without-result": _contents(_model(_function(), _function()), _answers(_response())),
    "call-place": _contents(_model({"text": "hi"}), _model(_function()), _answers(_response())),
    "part-place": _contents({"role": "user", "parts": [{"text": "hm", "thought": True}]}),
    "call-ids": _contents(_model(_function(id="a"), _function(id="a")), _answers(_response(id="a"), _response(id="a"))),
    "args-object": _contents(_model(_function(args="{}")), _answers(_response())),
    "response-object": _contents(_model(_function()), _answers(_response(response="done"))),
    "signature": _contents(
        _model(_function() | {"thoughtSignature": "s"}),
        _answers(_response()),
        _model(_function()),
        _answers(_response()),
    ),
    "call-name": _contents(_model(_function("a b")), _answers(_response("a b"))),
    "tool-name": {"contents": [ASKS], "tools": [{"functionDeclarations": [{"name": "a b"}]}]},
    "amount": _contents({"role": "user", "parts": [PICTURE] * 3_601}),
}

BROKEN = {"openai-chat": CHAT, "openai-responses": RESPONSES, "anthropic": ANTHROPIC, "gemini": GEMINI}
CASES = [(dialect, rule, given) for dialect, rules in BROKEN.items() for rule, given in rules.items()]
