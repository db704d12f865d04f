"""The rules of Chat Completions: calls and their tool messages, and what an assistant message must say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from foldline.codecs.encoding import ABSENT, is_json
from foldline.codecs.limits import valid_author
from foldline.codecs.media import only_text
from foldline.codecs.openai_chat.codec import ROLES, says_nothing
from foldline.codecs.rulebook import (
    Findings,
    Rule,
    check_call_id,
    check_call_name,
    check_content,
    check_media,
    quoted,
    read_role,
    table_of,
)
from foldline.messages import Json, Wire

__all__ = ["RULES", "check_chat"]

_CHAT = "OpenAI API reference, Chat Completions"
_CHAT_CALLS = "OpenAI docs, Function calling: every call is answered by a tool message with its tool_call_id"
_NAME_PATTERN = 'OpenAI API, error "string does not match pattern" for function.name, '
_CALL_ID = 'OpenAI API, error "string too long. Expected a string with maximum length 64" for '
_IMAGES = "OpenAI docs, Images and vision: PNG, JPEG, WEBP and GIF, 20 MB each"
_MANY_IMAGES = "OpenAI docs, Images and vision: 500 images in a request"

RULES: Final = table_of(
    _CHAT,
    Rule("result-without-call", "A tool message answers a call of the assistant message before it.", _CHAT_CALLS),
    Rule("call-without-result", "A call is answered before any other message.", _CHAT_CALLS),
    Rule("result-content", "A tool message has content; an empty text will do.", f"{_CHAT}: tool message", alone=True),
    Rule(
        "empty-calls", "tool_calls, where it stands, is a list with a call in it.", f"{_CHAT}: tool_calls", alone=True
    ),
    Rule("call-ids", "The calls of a message have different ids.", _CHAT_CALLS),
    Rule(
        "arguments",
        "Call arguments are JSON text.",
        "vLLM documentation, Tool calling: chat templates parse the arguments of earlier calls",
        alone=True,
    ),
    Rule(
        "says-nothing",
        "An assistant message has text or calls.",
        "Mistral AI API, chat completions: an assistant message has either content or tool_calls",
        alone=True,
    ),
    Rule(
        "call-name",
        "The name of a tool has 1 to 64 letters, digits, _ and -.",
        f"{_NAME_PATTERN}at most 64 characters",
        alone=True,
    ),
    Rule("tool-name", "The name of a tool has 1 to 64 letters, digits, _ and -.", f"{_CHAT}: tools, function.name"),
    Rule("call-id-length", "The id of a call has at most 64 characters.", f"{_CALL_ID}tool_calls.id", alone=True),
    Rule(
        "author",
        "The name of who speaks has at most 64 characters, no blanks, no <, |, \\, / and >.",
        'OpenAI API, error "string does not match pattern" for messages.name',
        alone=True,
    ),
    Rule("image", "An image is one that can be read.", _IMAGES, alone=True),
    Rule(
        "image-place",
        "Images and files stand in messages of the user.",
        "OpenAI API, error \"Image URLs are only allowed for messages with role 'user'\"",
        alone=True,
    ),
    Rule("result-text", "A tool message holds only text.", f"{_CHAT}: tool message, content"),
    Rule("amount", "A request holds no more images than are taken.", _MANY_IMAGES),
    Rule(
        "alternation",
        "One system message first, then the user and the assistant in turn.",
        'chat templates of Mistral, Gemma and Qwen, error "conversation roles must alternate"',
    ),
)
"""The rules of the dialect by id."""


def check_chat(found: Findings, wires: Sequence[Wire]) -> None:
    """Note what a server of Chat Completions would refuse in the messages. O(size)."""
    # The results of a message with calls follow it directly, in any order; the next other message closes the group.
    waiting: set[str] = set()
    for index, wire in enumerate(wires):
        role = read_role(found, index, wire, ROLES)
        if role is None:
            continue
        content = wire.get("content")
        check_content(found, index, content)
        _check_place(found, index, role, content)
        # Also of the user and of system text: OpenAI checks the pattern in every role.
        name = wire.get("name")
        if name is not None and (not isinstance(name, str) or not name or valid_author(name) != name):
            found.add(index, "author", f"the name {name!r} of who speaks is not taken")
        if role == "tool":
            _check_tool_message(found, index, wire, waiting)
            continue
        if waiting:
            found.add(index, "call-without-result", f"{role} message while calls {quoted(waiting)} have no result")
            waiting = set()
        if role == "assistant":
            waiting = _check_tool_calls(found, index, wire.get("tool_calls"))
            if says_nothing(wire):
                found.add(index, "says-nothing")
        elif content is None or content == []:
            found.add(index, "content", f"{role} message without content")
    if waiting:
        found.add(None, "call-without-result", f"calls {quoted(waiting)} have no result at the end")


def _check_place(found: Findings, index: int, role: str, content: Json) -> None:
    """Note images that would be refused, and those outside messages of the user."""
    faults: list[str] = []
    if role in ("user", "developer", "function"):
        check_media(found, index, content, "text")
    # Whatever an image is, a message of another role may not have it.
    elif isinstance(content, list | tuple):
        only_text(content, "text", f"a message of the role {role!r}", faults)
    for fault in faults:
        found.add(index, "result-text" if role == "tool" else "image-place", fault.partition(";")[0])


def _check_tool_message(found: Findings, index: int, wire: Wire, waiting: set[str]) -> None:
    call_id = wire.get("tool_call_id")
    if not isinstance(call_id, str) or not call_id:
        found.add(index, "call-shape", "tool message without tool_call_id")
    elif call_id not in waiting:
        found.add(index, "result-without-call", f"result {call_id!r} answers no open call")
    else:
        waiting.discard(call_id)
    if isinstance(call_id, str):
        check_call_id(found, index, call_id)
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
    else:
        check_call_id(found, index, call_id)
    body = call.get(kind) if kind in ("function", "custom") else None
    if not isinstance(body, Mapping) or not isinstance(body.get("name"), str) or not body["name"]:
        found.add(index, "call-shape", f"call {call_id!r} names no tool")
        return call_id
    check_call_name(found, index, body["name"])
    # Null and "" stand for no arguments with all servers; a missing field fails the templates of some.
    if kind == "function" and not is_json(body.get("arguments", ABSENT)):
        found.add(index, "arguments", f"the arguments of call {call_id!r} are not JSON text")
    elif kind == "custom" and not isinstance(body.get("input"), str):
        found.add(index, "call-shape", f"the input of call {call_id!r} is not text")
    return call_id
