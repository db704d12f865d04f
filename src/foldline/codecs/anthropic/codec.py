"""Anthropic Messages: messages are lists of blocks, and the results of a turn start one message of the user.

Sources of the shapes: Anthropic API reference, Messages; Anthropic docs, "Implement tool use" and "Extended thinking".
The blocks of tools that the provider runs (`server_tool_use`, `web_search_tool_result`, `mcp_tool_use` ...) are
`Opaque` and pair by id. Their result may come several messages later: after a paused turn, or where the result of a
client tool had to come first (docs, "Server tools"). A message with results has the role "user", as on the wire.

System text is outside the messages. A message of the role "system" or "developer" is read as one, so that the session
can move it there; `sanitize`, which sees one message, can only send it as the user's.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from foldline.codecs.base import MessageCodec
from foldline.codecs.blocks import (
    mend_content,
    read_block,
    read_content,
    role_of,
    same_items,
    settle_block,
    settle_content,
)
from foldline.codecs.encoding import EMPTY, call_id_of, clean, json_text, mend_encoding, named_id, object_of
from foldline.codecs.limits import Caps, Limits
from foldline.codecs.media import mend_media
from foldline.messages import Json, Message, Opaque, Part, Role, Text, ToolCall, ToolResult, Wire

__all__ = ["CALL_ID", "FAILED", "LIMITS", "THOUGHTS", "Anthropic", "is_blank", "is_empty"]

LIMITS: Final = Limits(
    call_name_chars=200,
    tool_name_chars=128,
    image_chars=5 * 1024 * 1024,
    image_side_px=8_000,
    strict_media=True,
    caps=Caps(max_media=100, max_messages=100_000, many_images=20),
    large_media=600,
)
"""Names: see the rules. Anthropic, "Vision": 5 MB (of base64, as its errors count), 8,000 pixels; with more than 20
images, 2,000 pixels each. "Vision" and "PDF support": 100 images and pages for models with a window of 200,000 tokens,
which its errors add up ("Too much media: 0 document pages + 103 images > 100"), 600 for larger windows. Messages API
reference: 100,000 messages."""

ROLES: Final[dict[str, Role]] = {"user": "user", "assistant": "assistant", "system": "system", "developer": "system"}

CALL_ID: Final = re.compile(r"[a-zA-Z0-9_-]+")
"""The whole id of a call, as the API accepts it (its error: "String should match pattern")."""

_NOT_IN_ID = re.compile(r"[^a-zA-Z0-9_-]")
_ONLY_ASSISTANT = frozenset({"tool_use", "thinking", "redacted_thinking"})
# A tuple, because membership then compares: unchecked JSON may have a type that cannot be hashed.
THOUGHTS: Final = ("thinking", "redacted_thinking")

FAILED: Final = "[The call failed.]"
"""Stands for the flag of a failed result that cannot be sent as failed."""


def is_blank(block: Mapping[str, Any]) -> bool:
    """Whether this is a text block without visible text, which the API refuses ("must be non-empty")."""
    return block.get("type") == "text" and not block["text"].strip()


def is_empty(content: Json) -> bool:
    """Whether a `content` is empty: null, an empty list, or text without visible characters."""
    if isinstance(content, str):
        return not content.strip()
    return content is None or content == []


# --- reading --------------------------------------------------------------------------------------------------------


def _read_call(block: Mapping[str, Any]) -> ToolCall:
    given = block.get("input")
    # Some gateways send the input as JSON text. It is kept as it is, and mended before it is sent.
    arguments = given if isinstance(given, str) else "{}" if given is None else json_text(given)
    name = block.get("name")
    call_id = call_id_of(block.get("id"))
    return ToolCall(call_id, name if isinstance(name, str) else "", arguments, raw=block, caller=_caller(block))


def _caller(block: Mapping[str, Any]) -> str:
    """Return the id of the code execution that made a call (docs, "Programmatic tool calling")."""
    caller = block.get("caller")
    return call_id_of(caller.get("tool_id")) if isinstance(caller, Mapping) else ""


def _read_pair(block: Mapping[str, Any], part: Opaque) -> Opaque:
    """Return a block of a tool that the provider runs with the ids that pair it."""
    opens = call_id_of(block.get("id")) if is_use(part.type) else ""
    answers = call_id_of(block.get("tool_use_id")) if is_server_result(part.type) else ""
    return replace(part, opens=opens, answers=answers, caller=_caller(block))


def is_use(kind: Json) -> bool:
    """Whether a block of this type calls a tool that the provider runs: "server_tool_use", "mcp_tool_use" ..."""
    # By the ending: each new tool of the provider brings new types, and all so far end like this.
    return isinstance(kind, str) and kind.endswith("_tool_use")


def is_server_result(kind: Json) -> bool:
    """Whether a block of this type is the result of such a call: "web_search_tool_result", "mcp_tool_result" ..."""
    return isinstance(kind, str) and kind.endswith("_tool_result")


def _read_block(block: Json) -> Part:
    kind = block.get("type") if isinstance(block, Mapping) else None
    if kind == "tool_use":
        return _read_call(block)
    if kind == "tool_result":
        parts = read_content(block.get("content"))
        return ToolResult(call_id_of(block.get("tool_use_id")), parts, block.get("is_error") is True, raw=block)
    part = read_block(block)
    return _read_pair(block, part) if isinstance(part, Opaque) and isinstance(block, Mapping) else part


# --- writing --------------------------------------------------------------------------------------------------------


def _settle_call(call: ToolCall) -> ToolCall:
    raw = call.raw if isinstance(call.raw, Mapping) else {}
    original = _read_call(raw)
    if raw.get("type") == "tool_use" and original == call:
        return call
    # Arguments that did not change keep their object: its order of keys is part of the cached prefix.
    same = raw and original.arguments == call.arguments
    block = {**raw, "type": "tool_use", "id": call.id, "name": call.name}
    return replace(call, raw={**block, "input": raw.get("input") if same else object_of(call.arguments)})


def _inner(part: Part) -> Part:
    return settle_block(part, "text")


def _settle_result(result: ToolResult) -> ToolResult:
    raw = result.raw if isinstance(result.raw, Mapping) and result.raw.get("type") == "tool_result" else {}
    if raw and result == _read_block(raw):
        return result
    # Blank text is refused inside a result as well, if it comes as a block.
    listed = isinstance(raw.get("content"), list)
    parts = [part for part in result.parts if not (listed and isinstance(part, Text) and not part.text.strip())]
    content, settled = settle_content(raw.get("content"), parts, _inner)
    # The API refuses an empty failure ("content cannot be empty if `is_error` is true"), and accepts an empty success.
    if result.is_error and is_empty(content):
        content = EMPTY
    fields: dict[str, Any] = {"type": "tool_result", "tool_use_id": result.call_id}
    # The field is optional, so a result without content keeps its JSON.
    if content or "content" in raw or not raw:
        fields["content"] = content or ""
    # A flag that was sent as false stays, because the bytes of an unchanged message must not change.
    if result.is_error or "is_error" in raw:
        fields["is_error"] = result.is_error
    return replace(result, parts=settled, raw={**raw, **fields})


def _settle(part: Part) -> Part:
    if isinstance(part, ToolCall):
        return _settle_call(part)
    return _settle_result(part) if isinstance(part, ToolResult) else settle_block(part, "text")


def _revise(message: Message, parts: Sequence[Part]) -> tuple[Wire, tuple[Part, ...]]:
    base = message.wire
    if base is None:
        base = {"role": "user" if message.role == "tool" else message.role}
    # Blank text is left out: the API refuses it.
    visible = [part for part in parts if not (isinstance(part, Text) and not part.text.strip())]
    content, settled = settle_content(base.get("content"), visible, _settle)
    return {**base, "content": EMPTY if is_empty(content) else content}, settled


# --- mending --------------------------------------------------------------------------------------------------------


def _mend_id(value: Json, what: str, faults: list[str]) -> str:
    # A function of the value alone, so that a call and its result get the same id without knowing each other.
    if isinstance(value, str) and CALL_ID.fullmatch(value):
        return value
    fixed = _NOT_IN_ID.sub("_", named_id(value))
    faults.append(f"the id of a {what} may only hold letters, digits, _ and -; sent as {fixed!r}")
    return fixed


def _mend_use(block: Mapping[str, Any], known: Collection[str], faults: list[str]) -> Mapping[str, Any]:
    fixed: dict[str, Any] = {}
    call_id = _mend_id(block.get("id"), "call", faults)
    if call_id != block.get("id"):
        fixed["id"] = call_id
    # A call is repaired, never left out: its result, in another message, would lose its partner.
    if not isinstance(block.get("name"), str) or not block["name"]:
        fixed["name"] = "unknown_tool"
        faults.append("a call named no tool")
    elif (name := LIMITS.call_name(block["name"], known)) != block["name"]:
        fixed["name"] = name
        faults.append(f"no tool can have the name of a call; it is sent as {name!r}")
    if not isinstance(block.get("input"), Mapping):
        fixed["input"] = object_of(_read_call(block).arguments)
        faults.append(f"the input of call {call_id!r} was not an object")
    return {**block, **fixed} if fixed else block


def _mend_listed(content: Json, faults: list[str]) -> Json:
    """Mend the images and documents of a list of blocks; the same object if all are accepted."""
    if not isinstance(content, list | tuple):
        return content
    mended = [mend_media(block, LIMITS, "text", faults) for block in content]
    return content if same_items(mended, content) else mended


def _mend_failed(block: Mapping[str, Any], faults: list[str]) -> Mapping[str, Any]:
    """Send a failed result with more than text as one that did not fail."""
    # The API accepts only text in failed results ("all content must be type `text` if `is_error` is true"). Without
    # its images the result would lose the screenshot of the failure; the flag can be replaced by a line.
    content = block.get("content")
    if block.get("is_error") is not True or not isinstance(content, list | tuple):
        return block
    if all(inner["type"] == "text" for inner in content):
        return block
    faults.append("a failed result may hold only text; it is sent with a line that says that the call failed")
    return {**block, "is_error": False, "content": [{"type": "text", "text": FAILED}, *content]}


def _mend_result(block: Mapping[str, Any], faults: list[str]) -> Mapping[str, Any]:
    call_id = _mend_id(block.get("tool_use_id"), "result", faults)
    content = _mend_listed(mend_content(block.get("content"), "text", faults), faults)
    if block.get("is_error") is True and is_empty(content):
        content = EMPTY
        faults.append("a failed result said nothing; it was given a text")
    if call_id != block.get("tool_use_id") or content is not block.get("content"):
        block = {**block, "tool_use_id": call_id, "content": content}
    return _mend_failed(block, faults)


def _mend_assistant(block: Mapping[str, Any], known: Collection[str], faults: list[str]) -> Mapping[str, Any] | None:
    kind = block["type"]
    if kind == "tool_use":
        return _mend_use(block, known, faults)
    if kind == "thinking" and not block.get("signature"):
        # The signature is required ("signature: Field required") and nobody but the provider can make one. As
        # text it would become an answer that the model never gave.
        faults.append("thinking without its signature was left out")
        return None
    if kind == "tool_result":
        # It can answer no call: those are in messages of the assistant too.
        faults.append("a result in an assistant message was left out")
        return None
    if kind in THOUGHTS and "cache_control" in block:  # docs, "Prompt caching": what cannot be cached
        faults.append("thinking takes no cache marker; it was left out")
        return {key: value for key, value in block.items() if key != "cache_control"}
    return _mend_pair(block, faults)


def _mend_pair(block: Mapping[str, Any], faults: list[str]) -> Mapping[str, Any]:
    # Both halves of a pair without an id get the same substitute, so they still find each other.
    for name, applies, what in (
        ("id", is_use, "call of the provider's"),
        ("tool_use_id", is_server_result, "result of the provider's"),
    ):
        if applies(block["type"]) and (fixed := _mend_id(block.get(name), what, faults)) != block.get(name):
            block = {**block, name: fixed}
    return block


def _mend_user(block: Mapping[str, Any], known: Collection[str], faults: list[str]) -> Mapping[str, Any] | None:
    kind = block["type"]
    if kind == "tool_result":
        return _mend_result(block, faults)
    # The API's errors: "blocks can only be in `assistant` messages", "... in `user` messages".
    if kind in _ONLY_ASSISTANT or is_use(kind) or is_server_result(kind):
        faults.append(f"a {kind} block in a user message was left out")
        return None
    return mend_media(block, LIMITS, "text", faults)


def _mend_blocks(
    blocks: Sequence[Mapping[str, Any]], assistant: bool, known: Collection[str], faults: list[str]
) -> Sequence[Mapping[str, Any]]:
    mend = _mend_assistant if assistant else _mend_user
    kept: list[Mapping[str, Any]] = []
    for block in blocks:
        if is_blank(block):
            faults.append("a blank text block was left out")
        elif (mended := mend(block, known, faults)) is not None:
            kept.append(mended)
    if not assistant:
        # A text before a result reads as if the user had answered first: the API then reports the call as unanswered.
        # The sort is stable, so results keep their order, and so do the other blocks.
        ordered = sorted(kept, key=lambda block: block["type"] != "tool_result")
        if not same_items(ordered, kept):
            faults.append("results were put before the other blocks")
            kept = ordered
    return blocks if same_items(kept, blocks) else kept


def _mend(wire: Wire, faults: list[str], known: Collection[str]) -> Wire | None:
    wire = mend_encoding(wire, faults)
    role = wire["role"]
    if role not in {"user", "assistant"}:  # the user's, since nobody may put words into the mouth of the model
        why = "has no place among the messages" if ROLES.get(role) == "system" else "is unknown"
        faults.append(f"the role {role!r} {why}; sent as user")
        role = "user"
        wire = {**wire, "role": role}
    content = mend_content(wire.get("content"), "text", faults)
    if isinstance(content, list | tuple):
        content = _mend_blocks(content, role == "assistant", known, faults)
    if is_empty(content):
        # A last assistant message may be empty (a prefill), but one message does not know that it is the last.
        faults.append(f"{'an assistant' if role == 'assistant' else 'a user'} message that says nothing was left out")
        return None
    return wire if content is wire.get("content") else {**wire, "content": content}


def _failed(opened: Opaque, text: str) -> Wire:
    """Return the result block of a failed use."""
    # Two shapes: MCP results carry text, those of the provider's own tools an error object of a type of their own
    # (docs, the page of each tool). Both variants of tool search share one type of result.
    if opened.type != "server_tool_use":
        kind = f"{opened.type.removesuffix('_tool_use')}_tool_result"
        content: Json = [{"type": "text", "text": text}]
        return {"type": kind, "tool_use_id": opened.opens, "is_error": True, "content": content}
    name = opened.raw.get("name") if isinstance(opened.raw, Mapping) else ""
    kind = f"{'tool_search' if str(name).startswith('tool_search_') else name}_tool_result"
    return {
        "type": kind,
        "tool_use_id": opened.opens,
        "content": {"type": f"{kind}_error", "error_code": "unavailable"},
    }


class Anthropic(MessageCodec):
    """The codec of "anthropic": the user speaks first, system text is outside the messages."""

    dialect: Final = "anthropic"
    user_first: Final = True
    system_inside: Final = False
    itemised: Final = False
    unique_calls: Final = True
    one_turn: Final = False

    def __init__(self) -> None:
        super().__init__(_mend, _revise, "content")

    def read(self, wire: Wire) -> Message:
        """Read a JSON object; an unknown role is read as "user". Raises InvalidInput without a role."""
        role = role_of(wire)
        return Message(ROLES.get(role, "user"), read_content(wire.get("content"), _read_block), wire=wire)

    def note(self, text: str, *, role: str = "user", kind: str = "notice") -> Message:
        """Return a message of Foldline's own, from the user unless `role` is "assistant"."""
        text = clean(text)
        wire = {"role": "assistant" if role == "assistant" else "user", "content": text if text.strip() else EMPTY}
        return replace(self.read(wire), kind=kind)

    def answer(self, call: ToolCall, text: str) -> Message:
        """Return a message of the user with a result for a call that has none."""
        block = {"type": "tool_result", "tool_use_id": call.id, "content": clean(text)}
        return replace(self.read({"role": "user", "content": [block]}), kind="notice")

    def missing_result(self, opened: Opaque, text: str) -> Message | None:
        """Return a failed result for the use of a tool that the provider runs, in a message of the assistant."""
        return replace(self.read({"role": "assistant", "content": [_failed(opened, clean(text))]}), kind="notice")
