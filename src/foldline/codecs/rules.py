"""Whether a provider would take a request: the rules of `rulebook` applied to JSON as it is, nothing repaired.

Works on whatever it is given: junk is reported, never raised. O(size of the request).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from foldline.codecs.anthropic import CALL_ID, is_empty
from foldline.codecs.base import Violation
from foldline.codecs.blocks import mend_content
from foldline.codecs.encoding import ABSENT, is_json, sendable
from foldline.codecs.openai_chat import ROLES as CHAT_ROLES
from foldline.codecs.openai_chat import says_nothing
from foldline.codecs.openai_responses import CALL_FIELDS, FROM_USER
from foldline.codecs.openai_responses import ROLES as RESPONSES_ROLES
from foldline.codecs.outputs import OUTPUT, is_output
from foldline.codecs.rulebook import RULES, Findings, Rule
from foldline.errors import InvalidInput
from foldline.messages import Json, Wire

__all__ = ["RULES", "Rule", "violations"]

_THOUGHTS: Final = ("thinking", "redacted_thinking")  # compared, not hashed: a type may be anything here


def violations(wires: Sequence[Wire], dialect: str, *, system: Json = None, tools: Json = None) -> list[Violation]:
    """Why a provider of the dialect would refuse the request; [] means that it would take it.

    `system` and `tools` are what is sent beside the messages. Raises InvalidInput for an unknown dialect only.
    """
    check = _CHECKS.get(dialect)
    if check is None:
        raise InvalidInput(f"unknown dialect {dialect!r}; known are {', '.join(_CHECKS)}", place="dialect")
    found = Findings(dialect)
    if not isinstance(wires, list | tuple) or not wires:
        found.add(None, "empty-request")
    else:
        for index, wire in enumerate(wires):
            if not sendable(wire):
                found.add(index, "encoding")
        check(found, wires)
    _check_outside(found, system, tools)
    return found.found


def _check_outside(found: Findings, system: Json, tools: Json) -> None:
    for name, value in (("system text", system), ("tools", tools)):
        if not sendable(value):
            found.add(None, "encoding", f"the {name} cannot be sent as UTF-8 JSON")
    if found.dialect != "anthropic":
        return
    blocks = system if isinstance(system, list | tuple) else ()
    if any(_is_blank(block) for block in blocks if isinstance(block, Mapping)):
        found.add(None, "system-text")
    given = tools if isinstance(tools, list | tuple) else ()
    names = [tool["name"] for tool in given if isinstance(tool, Mapping) and isinstance(tool.get("name"), str)]
    if len(set(names)) < len(names):
        found.add(None, "tool-names")


def _is_blank(block: Mapping[str, Any]) -> bool:
    text = block.get("text")
    return block.get("type") == "text" and (text is None or (isinstance(text, str) and not text.strip()))


def _check_content(found: Findings, index: int, content: Json) -> None:
    faults: list[str] = []
    mend_content(content, "text", faults)
    for fault in faults:
        found.add(index, "content", fault.partition(";")[0])


def _role(found: Findings, index: int, wire: Json, known: Mapping[str, Any]) -> str | None:
    """The role of a message; None when it is not even an object with a role (which is noted)."""
    role = wire.get("role") if isinstance(wire, Mapping) else None
    if not isinstance(role, str) or not role:
        found.add(index, "object")
        return None
    if role not in known:
        found.add(index, "role", f"unknown role {role!r}")
    return role


def _named(ids: set[str]) -> str:
    return ", ".join(map(repr, sorted(ids)))


# --- Chat Completions -----------------------------------------------------------------------------------------------


def _check_chat(found: Findings, wires: Sequence[Wire]) -> None:
    waiting: set[str] = set()
    for index, wire in enumerate(wires):
        role = _role(found, index, wire, CHAT_ROLES)
        if role is None:
            continue
        content = wire.get("content")
        _check_content(found, index, content)
        if role == "tool":
            _check_tool_message(found, index, wire, waiting)
            continue
        if waiting:
            found.add(index, "call-without-result", f"{role} message while calls {_named(waiting)} have no result")
            waiting = set()
        if role == "assistant":
            waiting = _check_tool_calls(found, index, wire.get("tool_calls"))
            if says_nothing(wire):
                found.add(index, "says-nothing")
        elif content is None or content == []:
            found.add(index, "content", f"{role} message without content")
    if waiting:
        found.add(None, "call-without-result", f"calls {_named(waiting)} have no result at the end")


def _check_tool_message(found: Findings, index: int, wire: Wire, waiting: set[str]) -> None:
    call_id = wire.get("tool_call_id")
    if not isinstance(call_id, str) or not call_id:
        found.add(index, "call-shape", "tool message without tool_call_id")
    elif call_id not in waiting:
        found.add(index, "result-without-call", f"result {call_id!r} answers no open call")
    else:
        waiting.discard(call_id)
    if wire.get("content") is None:
        found.add(index, "result-content")


def _check_tool_calls(found: Findings, index: int, calls: Json) -> set[str]:
    if calls is None:
        return set()
    if not isinstance(calls, list | tuple) or not calls:
        found.add(index, "empty-calls")
        return set()
    ids = [call_id for call in calls if (call_id := _check_tool_call(found, index, call)) is not None]
    if len(set(ids)) < len(ids):
        found.add(index, "call-ids")
    return set(ids)


def _check_tool_call(found: Findings, index: int, call: Json) -> str | None:
    if not isinstance(call, Mapping):
        found.add(index, "call-shape", "a call is not an object")
        return None
    call_id, kind = call.get("id"), call.get("type", "function")
    if not isinstance(call_id, str) or not call_id:
        found.add(index, "call-shape", "a call without id")
        call_id = None
    body = call.get(kind) if kind in ("function", "custom") else None
    if not isinstance(body, Mapping) or not isinstance(body.get("name"), str) or not body["name"]:
        found.add(index, "call-shape", f"call {call_id!r} names no tool")
    elif kind == "function" and not is_json(body.get("arguments", ABSENT)):
        found.add(index, "arguments", f"the arguments of call {call_id!r} are not JSON text")
    elif kind == "custom" and not isinstance(body.get("input"), str):
        found.add(index, "call-shape", f"the input of call {call_id!r} is not text")
    return call_id


# --- Messages -------------------------------------------------------------------------------------------------------


def _blocks(wire: Json) -> list[Mapping[str, Any]]:
    content = wire.get("content") if isinstance(wire, Mapping) else None
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [block for block in content if isinstance(block, Mapping)] if isinstance(content, list | tuple) else []


def _check_anthropic(found: Findings, wires: Sequence[Json]) -> None:
    if not isinstance(wires[0], Mapping) or wires[0].get("role") != "user":
        found.add(0, "user-first")
    waiting: set[str] = set()
    used: set[str] = set()
    for index, wire in enumerate(wires):
        role = _role(found, index, wire, {"user": 1, "assistant": 1})
        if role is None:
            continue
        _check_content(found, index, wire.get("content"))
        blocks = _blocks(wire)
        last_assistant = role == "assistant" and index == len(wires) - 1
        if is_empty(wire.get("content")) and not (last_assistant and wire.get("content") == []):
            found.add(index, "empty-content")
        if any(map(_is_blank, blocks)):
            found.add(index, "blank-text")
        results = [block for block in blocks if block.get("type") == "tool_result"]
        if role == "user":
            _check_results(found, index, results, waiting)
            _check_user_blocks(found, index, blocks)
            waiting = set()
            continue
        if results:
            found.add(index, "block-place", "a result in an assistant message")
        if waiting:
            found.add(index, "call-without-result", f"calls {_named(waiting)} have no result in the next user message")
        waiting = _check_uses(found, index, blocks, used)
    if waiting:
        found.add(None, "call-without-result", f"calls {_named(waiting)} have no result at the end")


def _check_results(found: Findings, index: int, results: Sequence[Mapping[str, Any]], waiting: set[str]) -> None:
    seen: set[str] = set()
    for block in results:
        call_id = _pattern_id(found, index, block.get("tool_use_id"), "result")
        if call_id in seen:
            found.add(index, "second-result", f"two results for call {call_id!r}")
        elif call_id is not None and call_id not in waiting:
            found.add(index, "result-without-call", f"result {call_id!r} answers no call of the message before")
        if call_id is not None:
            seen.add(call_id)
        _check_content(found, index, block.get("content"))
        if block.get("is_error") is True and is_empty(block.get("content")):
            found.add(index, "empty-error")
    if waiting - seen:
        detail = f"calls {_named(waiting - seen)} have no result in the next user message"
        found.add(index, "call-without-result", detail)


def _check_user_blocks(found: Findings, index: int, blocks: Sequence[Mapping[str, Any]]) -> None:
    kinds = [block.get("type") for block in blocks]
    for kind in ("tool_use", *_THOUGHTS):
        if kind in kinds:
            found.add(index, "block-place", f"a {kind} block in a user message")
    flags = [kind != "tool_result" for kind in kinds]
    if flags != sorted(flags):
        found.add(index, "results-first")


def _check_uses(found: Findings, index: int, blocks: Sequence[Mapping[str, Any]], used: set[str]) -> set[str]:
    here: set[str] = set()
    for block in blocks:
        kind = block.get("type")
        if kind == "thinking" and not block.get("signature"):
            found.add(index, "signature")
        if kind != "tool_use":
            continue
        call_id = _pattern_id(found, index, block.get("id"), "call")
        if call_id is not None:
            if call_id in used:
                found.add(index, "call-ids", f"the call id {call_id!r} was used before")
            used.add(call_id)
            here.add(call_id)
        if not isinstance(block.get("name"), str) or not block["name"]:
            found.add(index, "call-shape", f"call {call_id!r} names no tool")
        if not isinstance(block.get("input"), Mapping):
            found.add(index, "input-object", f"the input of call {call_id!r} is not an object")
    return here


def _pattern_id(found: Findings, index: int, value: Json, what: str) -> str | None:
    if not isinstance(value, str):
        found.add(index, "call-shape", f"a {what} without the id of its call")
        return None
    if not CALL_ID.fullmatch(value):
        found.add(index, "id-pattern", f"the id {value!r} of a {what} holds more than letters, digits, _ and -")
    return value


# --- Responses ------------------------------------------------------------------------------------------------------


def _kind(item: Json) -> str | None:
    """The type of an item, "message" where only a role is given; None for what is neither."""
    if not isinstance(item, Mapping):
        return None
    kind, role = item.get("type"), item.get("role")
    if kind in (None, "message"):
        return "message" if isinstance(role, str) and role else None
    return kind if isinstance(kind, str) and kind else None


def _check_responses(found: Findings, items: Sequence[Wire]) -> None:
    calls: dict[str, int] = {}
    answered: set[str] = set()
    ids: set[str] = set()
    for index, item in enumerate(items):
        kind = _kind(item)
        if kind is None:
            found.add(index, "object")
            continue
        item_id = item.get("id")
        if isinstance(item_id, str) and item_id:
            if item_id in ids:
                found.add(index, "item-ids", f"the item id {item_id!r} was used before")
            ids.add(item_id)
        if kind == "message":
            _check_item_message(found, index, item)
        elif kind in CALL_FIELDS:
            call_id = _check_call_item(found, index, item, kind)
            if call_id is None:
                continue
            if call_id in calls:
                found.add(index, "call-ids", f"the call id {call_id!r} was used before")
            calls.setdefault(call_id, index)
        elif is_output(kind):
            _check_output_item(found, index, item, calls, answered)
        elif kind == "reasoning" and not _leads_on(items[index + 1] if index + 1 < len(items) else None):
            found.add(index, "reasoning-alone")
    for call_id, index in calls.items():
        if call_id not in answered:
            found.add(index, "call-without-result", f"call {call_id!r} has no output")


def _check_item_message(found: Findings, index: int, item: Wire) -> None:
    _role(found, index, item, RESPONSES_ROLES)
    _check_content(found, index, item.get("content"))
    if item.get("content") is None:
        found.add(index, "content", "a message without content")


def _check_call_item(found: Findings, index: int, item: Wire, kind: str) -> str | None:
    call_id = item.get("call_id")
    given = item.get(CALL_FIELDS[kind])
    if not isinstance(call_id, str) or not call_id:
        found.add(index, "call-shape", "a call without call_id")
        call_id = None
    if kind in ("function_call", "custom_tool_call") and (not isinstance(item.get("name"), str) or not item["name"]):
        found.add(index, "call-shape", f"call {call_id!r} names no tool")
    if kind == "function_call" and not is_json(given):
        found.add(index, "arguments", f"the arguments of call {call_id!r} are not JSON text")
    if kind == "custom_tool_call" and not isinstance(given, str):
        found.add(index, "call-shape", f"the input of call {call_id!r} is not text")
    return call_id


def _check_output_item(found: Findings, index: int, item: Wire, calls: Mapping[str, int], answered: set[str]) -> None:
    kind = item["type"]
    call_id = item.get("call_id")
    if call_id is None and kind == "local_shell_call_output":
        call_id = item.get("id")
    if not isinstance(call_id, str) or not call_id:
        found.add(index, "call-shape", "an output without call_id")
        return
    if call_id not in calls:
        found.add(index, "result-without-call", f"output {call_id!r} stands without its call")
    if call_id in answered:
        found.add(index, "second-result", f"a second output for {call_id!r}")
    answered.add(call_id)
    if item.get(OUTPUT) is None and kind != "apply_patch_call_output":
        found.add(index, "result-content")


def _leads_on(item: Json) -> bool:
    """Whether this item is one that reasoning may have led to: the model's, or one that the server ran."""
    kind = _kind(item)
    if kind is None or is_output(kind) or kind in FROM_USER:
        return False
    return kind != "message" or item.get("role") == "assistant"


_CHECKS: Final[dict[str, Callable[[Findings, Sequence[Wire]], None]]] = {
    "openai-chat": _check_chat,
    "openai-responses": _check_responses,
    "anthropic": _check_anthropic,
}
