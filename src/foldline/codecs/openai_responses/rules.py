"""The rules of the Responses API: items, calls and their outputs, and reasoning with the item that it led to."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from foldline.codecs.encoding import is_json
from foldline.codecs.limits import has_valid_item_id
from foldline.codecs.openai_responses.codec import CALL_FIELDS, NAMED_CALLS, ROLES, is_from_user, pair_ids
from foldline.codecs.openai_responses.outputs import OUTPUT, is_output
from foldline.codecs.rulebook import (
    Findings,
    Rule,
    check_call_id,
    check_call_name,
    check_content,
    check_media,
    read_role,
    table_of,
)
from foldline.messages import Json, Wire

__all__ = ["RULES", "check_responses"]

_RESPONSES = "OpenAI API reference, Responses: input"
_RESPONSES_CALLS = "OpenAI docs, Function calling: every call is answered by an output with its call_id"
_REASONING = "OpenAI docs, Reasoning models: keep reasoning items with the items they led to"
_NAME_PATTERN = 'OpenAI API, error "string does not match pattern" for function.name, '
_CALL_ID = 'OpenAI API, error "string too long. Expected a string with maximum length 64" for '
_IMAGES = "OpenAI docs, Images and vision: PNG, JPEG, WEBP and GIF, 20 MB each"
_MANY_IMAGES = "OpenAI docs, Images and vision: 500 images in a request"

RULES: Final = table_of(
    _RESPONSES,
    Rule("result-without-call", "An output stands after its call.", _RESPONSES_CALLS),
    Rule("second-result", "A call has one output, an approval one answer.", _RESPONSES_CALLS),
    Rule(
        "approval-without-request",
        "An approval stands after the request that it answers.",
        "OpenAI docs, MCP and connectors: Approvals",
    ),
    Rule(
        "caller",
        "A call out of a program, and its output, stand after the program.",
        "OpenAI docs, Programmatic tool calling: keep the program with its calls",
    ),
    Rule("call-without-result", "A call that the client answers has an output.", _RESPONSES_CALLS),
    Rule("result-content", "An output item has an output; an empty text will do.", _RESPONSES, alone=True),
    Rule("call-ids", "A call id stands for one call.", f"{_RESPONSES}: call_id, the unique id of the call"),
    Rule("item-ids", "An item id stands once.", 'OpenAI API, error "Duplicate item found with id"'),
    Rule("arguments", "Call arguments are JSON text.", f"{_RESPONSES}: function_call, arguments", alone=True),
    Rule("reasoning-alone", "Reasoning is followed by what it led to.", _REASONING),
    Rule(
        "call-name",
        "The name of a tool has 1 to 128 letters, digits, _ and -.",
        f"{_NAME_PATTERN}at most 128 characters",
        alone=True,
    ),
    Rule("tool-name", "The name of a tool has 1 to 128 letters, digits, _ and -.", f"{_RESPONSES}: tools, name"),
    Rule("call-id-length", "The id of a call has at most 64 characters.", f"{_CALL_ID}input.call_id", alone=True),
    Rule(
        "item-id-form",
        "The id of an item begins with the mark of its type: msg, fc, ct, rs; at most 64 letters, digits, _ and -.",
        'OpenAI API, errors "Expected an ID that begins with" and "Expected an ID that contains letters, numbers ..."',
        alone=True,
    ),
    Rule("image", "An image is one that can be read.", _IMAGES, alone=True),
    Rule("amount", "A request holds no more images than are taken.", _MANY_IMAGES),
)
"""The rules of the dialect by id."""


def _kind(item: Json) -> str | None:
    """Return the type of an item, "message" if it has a role alone, None if it has neither."""
    if not isinstance(item, Mapping):
        return None
    kind, role = item.get("type"), item.get("role")
    if kind in (None, "message"):
        return "message" if isinstance(role, str) and role else None
    return kind if isinstance(kind, str) and kind else None


def check_responses(found: Findings, items: Sequence[Wire]) -> None:
    """Note what the Responses API would refuse in the items. O(size)."""
    calls: dict[str, int] = {}
    answered: set[str] = set()
    ids: set[str] = set()
    opened: set[str] = set()
    referred = False  # after a reference, an output may answer a call that only the server has
    for index, item in enumerate(items):
        kind = _kind(item)
        if kind is None:
            found.add(index, "object")
            continue
        referred = referred or kind == "item_reference"
        item_id = item.get("id")
        if not has_valid_item_id(item, kind):
            found.add(index, "item-id-form", f"the id {item_id!r} is none of an item of the type {kind!r}")
        if isinstance(item_id, str) and item_id:
            if item_id in ids:
                found.add(index, "item-ids", f"the item id {item_id!r} was used before")
            ids.add(item_id)
        _check_pair(found, index, item, opened, answered)
        if kind == "message":
            _check_item_message(found, index, item)
        elif kind in CALL_FIELDS:
            call_id = _check_call_item(found, index, item, kind)
            if call_id is None:
                continue
            if call_id in calls:
                found.add(index, "call-ids", f"the call id {call_id!r} was used before")
            # The first one counts: a repeated id has been noted.
            calls.setdefault(call_id, index)
        elif is_output(kind):
            _check_output_item(found, index, item, None if referred else (calls, opened), answered)
        elif kind == "reasoning" and not _leads_on(items[index + 1] if index + 1 < len(items) else None):
            found.add(index, "reasoning-alone")
    # At the end, because an output may come anywhere after its call.
    for call_id, index in calls.items():
        if call_id not in answered:
            found.add(index, "call-without-result", f"call {call_id!r} has no output")


def _check_pair(found: Findings, index: int, item: Wire, opened: set[str], answered: set[str]) -> None:
    """Note half a pair of the provider's: an answer without its request, or a call without its program."""
    kind = _kind(item) or ""
    opens, answers, _ = pair_ids(item, kind)
    caller = item.get("caller")
    origin = caller.get("caller_id") if isinstance(caller, Mapping) else None
    if isinstance(origin, str) and origin not in opened:
        found.add(index, "caller", f"a {kind} out of {origin!r}, which is not there")
    if kind in CALL_FIELDS or is_output(kind) or kind == "message":
        return
    if answers and answers not in opened:
        what = "approval-without-request" if is_from_user(kind) else "result-without-call"
        found.add(index, what, f"a {kind} for {answers!r}, which is not there")
    elif answers in answered:
        found.add(index, "second-result", f"a second {kind} for {answers!r}")
    if answers:
        answered.add(answers)
    if opens:
        opened.add(opens)


def _check_item_message(found: Findings, index: int, item: Wire) -> None:
    read_role(found, index, item, ROLES)
    check_content(found, index, item.get("content"))
    check_media(found, index, item.get("content"), "input_text")
    if item.get("content") is None:
        found.add(index, "content", "a message without content")


def _check_call_item(found: Findings, index: int, item: Wire, kind: str) -> str | None:
    call_id = item.get("call_id")
    given = item.get(CALL_FIELDS[kind])
    if not isinstance(call_id, str) or not call_id:
        found.add(index, "call-shape", "a call without call_id")
        call_id = None
    else:
        check_call_id(found, index, call_id)
    if kind in NAMED_CALLS and (not isinstance(item.get("name"), str) or not item["name"]):
        found.add(index, "call-shape", f"call {call_id!r} names no tool")
    elif kind in NAMED_CALLS:
        check_call_name(found, index, item["name"])
    if kind == "function_call" and not is_json(given):
        found.add(index, "arguments", f"the arguments of call {call_id!r} are not JSON text")
    if kind == "custom_tool_call" and not isinstance(given, str):
        found.add(index, "call-shape", f"the input of call {call_id!r} is not text")
    return call_id


def _check_output_item(
    found: Findings, index: int, item: Wire, called: Sequence[Collection[str]] | None, answered: set[str]
) -> None:
    kind = item["type"]
    call_id = item.get("call_id")
    if call_id is None and kind == "local_shell_call_output":
        call_id = item.get("id")
    if not isinstance(call_id, str) or not call_id:
        found.add(index, "call-shape", "an output without call_id")
        return
    check_call_id(found, index, call_id)
    check_media(found, index, item.get(OUTPUT), "input_text")
    if called is not None and not any(call_id in ids for ids in called):
        found.add(index, "result-without-call", f"output {call_id!r} stands without its call")
    if call_id in answered:
        found.add(index, "second-result", f"a second output for {call_id!r}")
    answered.add(call_id)
    if item.get(OUTPUT) is None and kind != "apply_patch_call_output":
        found.add(index, "result-content")


def _leads_on(item: Json) -> bool:
    """Whether reasoning may have led to this item: one of the model, or a call that the server ran."""
    kind = _kind(item)
    if kind is None or is_output(kind) or is_from_user(kind):
        return False
    return kind != "message" or item.get("role") == "assistant"
