"""OpenAI Chat Completions: the dialect of most servers.

Source of the shapes: OpenAI API reference, Chat Completions, request body `messages`. Fields of other servers with
content are read too: `reasoning_content` (DeepSeek, vLLM), `reasoning` and `reasoning_details` (OpenRouter),
`thinking_blocks` (LiteLLM). They, `refusal`, `audio` and `function_call` are fields of the message, not blocks: the
`raw` of such a part is the field with its value, for example {"refusal": "No."}.

Not all servers of the dialect accept the retired role "function" any more: such a message is read as one from the user.
A retired `function_call` waits for no result and passes as `Opaque`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from foldline.codecs.base import MessageCodec
from foldline.codecs.blocks import (
    read_block,
    read_content,
    role_of,
    settle_block,
    settle_content,
    with_session_fields,
)
from foldline.codecs.encoding import (
    EMPTY,
    call_id_of,
    clean,
    json_text,
)
from foldline.codecs.media import mend_media, only_text
from foldline.codecs.openai_chat.repair import LIMITS, OTHER_FIELDS, ROLES, mended_wire, says_nothing
from foldline.errors import InvalidInput
from foldline.messages import (
    Document,
    Image,
    Json,
    Message,
    Opaque,
    Part,
    Reasoning,
    Text,
    ToolCall,
    ToolResult,
    Wire,
)

__all__ = ["LIMITS", "ROLES", "OpenAIChat", "says_nothing"]

# Fields with reasoning; True if it may hold signatures, which the provider behind the server verifies.
_THOUGHT_FIELDS = {"reasoning_content": False, "reasoning": False, "reasoning_details": True, "thinking_blocks": True}

_PART_FIELDS = frozenset({"refusal", *OTHER_FIELDS, *_THOUGHT_FIELDS})
_OWN_FIELDS = frozenset({"content", "tool_calls", *_PART_FIELDS})

APART: Final = "[What the results above hold besides text:]"
"""Introduces the images of tool messages, which hold only text (OpenAI API reference, tool message)."""


# --- reading --------------------------------------------------------------------------------------------------------


def _read_thought(field: str, value: Json) -> Reasoning:
    # A list has details of several forms. Their text is joined for people; `raw` keeps what is sent back.
    text = value if isinstance(value, str) else ""
    if isinstance(value, list):
        blocks = [block for block in value if isinstance(block, Mapping)]
        found = (block.get("thinking") or block.get("text") or block.get("summary") for block in blocks)
        text = "\n".join(thought for thought in found if isinstance(thought, str))
    return Reasoning(text, _THOUGHT_FIELDS[field], raw={field: value})


def _read_call(call: Json) -> Part:
    if not isinstance(call, Mapping):
        # Junk among the calls keeps its place, and is taken out before the message is sent.
        return Opaque("tool_call", raw=call)
    kind = call.get("type")
    custom = kind == "custom"
    body = call.get("custom" if custom else "function")
    body = body if isinstance(body, Mapping) else {}
    name = body.get("name")
    arguments = body.get("input" if custom else "arguments")
    if not isinstance(arguments, str):
        arguments = "" if arguments is None else json_text(arguments)
    return ToolCall(call_id_of(call.get("id")), name if isinstance(name, str) else "", arguments, custom, raw=call)


def _assistant_parts(wire: Wire) -> tuple[Part, ...]:
    # Thoughts first and calls last: the order in which a model writes them, and in which other dialects send them.
    parts: list[Part] = [_read_thought(field, wire[field]) for field in _THOUGHT_FIELDS if wire.get(field)]
    parts += read_content(wire.get("content"))
    refusal = wire.get("refusal")
    if isinstance(refusal, str) and refusal:
        parts.append(Text(refusal, raw={"refusal": refusal}))
    parts += [Opaque(field, raw={field: wire[field]}) for field in OTHER_FIELDS if wire.get(field)]
    calls = wire.get("tool_calls")
    if isinstance(calls, list | tuple):
        parts += map(_read_call, calls)
    return tuple(parts)


# --- writing --------------------------------------------------------------------------------------------------------


def _field_of(part: Part) -> str | None:
    """Return the message field that a part stands for, None for a content block or a call."""
    # A block has a type, a field has none: that tells {"refusal": "No."} from a block of the type "refusal".
    raw = part.raw
    if isinstance(raw, Mapping) and "type" not in raw:
        return next((field for field in raw if field in _PART_FIELDS), None)
    return "reasoning_content" if isinstance(part, Reasoning) and raw is None else None


def _settle_call(call: ToolCall) -> ToolCall:
    raw = call.raw if isinstance(call.raw, Mapping) else {}
    if raw and _read_call(raw) == call:
        return call
    kind, field = ("custom", "input") if call.custom else ("function", "arguments")
    body = raw.get(kind)
    body = {**(body if isinstance(body, Mapping) else {}), "name": call.name, field: call.arguments}
    return replace(call, raw={**raw, "id": call.id, "type": kind, kind: body})


def _settle_field(part: Part, field: str) -> Part:
    if not isinstance(part.raw, Mapping):
        return replace(part, raw={field: part.text}) if isinstance(part, Reasoning) else part
    value = part.raw[field]
    if isinstance(part, Text) and value != part.text:
        return replace(part, raw={field: part.text})
    if isinstance(part, Reasoning) and part.text != _read_thought(field, value).text:
        # A signature covers the text, and a list of details has no single text to replace.
        if part.signed or not isinstance(value, str):
            raise InvalidInput("signed reasoning is sent as it came or not at all")
        return replace(part, raw={field: part.text})
    return part


def _settle(part: Part) -> Part:
    field = _field_of(part)
    if field is not None:
        return _settle_field(part, field)
    return _settle_call(part) if isinstance(part, ToolCall) else settle_block(part, "text")


def _is_call(part: Part) -> bool:
    return isinstance(part, ToolCall) or (isinstance(part, Opaque) and part.type == "tool_call")


def _rebuilt(base: Wire, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the message with other values in the fields that parts stand for."""
    # Order, unknown fields and nulls stay: the bytes of an unchanged prefix are what a provider's cache compares.
    out = {
        key: fields.get(key) if key in _OWN_FIELDS else value
        for key, value in base.items()
        if key not in _OWN_FIELDS or key in fields or value is None
    }
    out.update((key, value) for key, value in fields.items() if key not in out)
    return out


def _revise_plain(base: Wire, parts: Sequence[Part], assistant: bool) -> tuple[Wire, tuple[Part, ...]]:
    if any(isinstance(part, ToolResult) for part in parts):
        raise InvalidInput("a tool result is a message of its own in this dialect")
    inner = [part for part in parts if _field_of(part) is None and not _is_call(part)]
    content, settled = settle_content(base.get("content"), inner, _settle)
    blocks = iter(settled)
    out = tuple(next(blocks) if _field_of(part) is None and not _is_call(part) else _settle(part) for part in parts)
    fields: dict[str, Any] = {}
    for part in out:
        field = _field_of(part)
        if field is not None and isinstance(part.raw, Mapping):
            fields[field] = part.raw[field]
    calls = [part.raw for part in out if _is_call(part)]
    if calls:
        fields["tool_calls"] = calls
    # Without text: servers require the field, null is accepted only beside calls, and Mistral refuses a message with
    # neither text nor calls. An empty content that was there stays as it was, "" or [].
    if inner:
        fields["content"] = content
    elif not assistant:
        fields["content"] = ""
    elif says_nothing(fields):
        fields["content"] = EMPTY
    else:
        fields["content"] = base["content"] if base.get("content") in ("", []) else None
    return _rebuilt(base, fields), out


def _revise_result(base: Wire, parts: Sequence[Part]) -> tuple[Wire, tuple[Part, ...]]:
    results = [part for part in parts if isinstance(part, ToolResult)]
    if len(results) > 1 or (results and len(parts) > 1):
        raise InvalidInput("a tool message holds one result and nothing else")
    call_id = results[0].call_id if results else call_id_of(base.get("tool_call_id"))
    inner = results[0].parts if results else tuple(parts)
    content, settled = settle_content(base.get("content"), inner, _settle)
    # An empty text, because null is refused for a tool message.
    fields = {"role": "tool", "tool_call_id": call_id, "content": content or ""}
    wire = {**base, **fields}
    return wire, (ToolResult(call_id, settled, results[0].is_error if results else False, raw=wire),)


def _revise(message: Message, parts: Sequence[Part]) -> tuple[Wire, tuple[Part, ...]]:
    base = message.wire if message.wire is not None else {"role": message.role}
    if message.role == "tool":
        return _revise_result(base, parts)
    return _revise_plain(base, parts, message.role == "assistant")


class OpenAIChat(MessageCodec):
    """The codec of "openai-chat": one result per message, system text among the messages."""

    dialect: Final = "openai-chat"
    user_first: Final = False
    system_inside: Final = True
    itemised: Final = False
    unique_calls: Final = False
    one_turn: Final = False

    def __init__(self) -> None:
        super().__init__(mended_wire, _revise)

    def read(self, wire: Wire) -> Message:
        """Read a JSON object; an unknown role is read as "user". Raises InvalidInput without a role."""
        role = role_of(wire)
        if role == "assistant":
            return Message("assistant", _assistant_parts(wire), wire=wire)
        content = read_content(wire.get("content"))
        if role == "tool":
            return Message("tool", (ToolResult(call_id_of(wire.get("tool_call_id")), content, raw=wire),), wire=wire)
        return Message(ROLES.get(role, "user"), content, wire=wire)

    def note(self, text: str, *, role: str = "user", kind: str = "notice") -> Message:
        """Return a message of Foldline's own."""
        wire = {"role": role if role in ROLES else "user", "content": clean(text) or EMPTY}
        return replace(self.read(wire), kind=kind)

    def answer(self, call: ToolCall, text: str) -> Message:
        """Return a result for a call that has none."""
        content = clean(text)
        wire = {"role": "tool", "tool_call_id": call.id, "content": content}
        return Message("tool", (ToolResult(call.id, read_content(content), raw=wire),), wire=wire, kind="notice")

    def separate_media(self, results: Sequence[Message]) -> tuple[list[Message], Message | None]:
        """Return the results of a turn as text, and a message of the user with their images and files."""
        # Behind all results of the turn: any other message between a call and its results is refused.
        out: list[Message] = []
        seen: list[Part] = []
        for message in results:
            content = (message.wire or {}).get("content")
            text = only_text(content, "text", "a result", []) if isinstance(content, list | tuple) else content
            if text is content:
                out.append(message)
                continue
            media = [part for result in message.results for part in result.parts if isinstance(part, Image | Document)]
            raws = [mend_media(part.raw, LIMITS, "text", []) for part in media]
            seen += [read_block(raw) for raw in raws]
            out.append(with_session_fields(message, self.read({**(message.wire or {}), "content": text})))
        if not seen:
            return list(results), None
        blocks = [{"type": "text", "text": APART}, *(part.raw for part in seen)]
        return out, replace(self.read({"role": "user", "content": blocks}), kind="notice")
