"""OpenAI Responses: a turn of the model arrives as several items, each an object of its own.

Source of the shapes: OpenAI API reference, Responses, request body `input`. A call that the client answers is a
`ToolCall` and its output a `ToolResult`. Calls that the server runs (web search, file search, code interpreter, MCP
...), references and compactions are `Opaque` and the assistant's. Most of these are complete in themselves; an approval
and its answer, and a program and its output, pair by id. Reasoning counts as signed, with or without encrypted content:
the server looks for it next to the item that it led to.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from foldline.codecs.base import MessageCodec
from foldline.codecs.blocks import mend_content, read_content, same_items, settle_block, settle_content
from foldline.codecs.encoding import (
    EMPTY,
    call_id_of,
    clean,
    is_json,
    json_text,
    mend_arguments,
    mend_encoding,
    named_id,
    object_of,
)
from foldline.codecs.limits import Caps, Limits, has_valid_item_id
from foldline.codecs.media import mend_media
from foldline.codecs.openai_responses.outputs import OUTPUT, empty_output, is_output, read_output, settle_output
from foldline.errors import InvalidInput
from foldline.messages import Json, Message, Opaque, Part, Reasoning, Role, Text, ToolCall, ToolResult, Wire

__all__ = [
    "CALL_FIELDS",
    "LIMITS",
    "NAMED_CALLS",
    "ROLES",
    "OpenAIResponses",
    "call_id_in",
    "is_from_user",
    "item_type",
    "pair_ids",
]

LIMITS: Final = Limits(
    call_name_chars=128,
    tool_name_chars=128,
    call_id_chars=64,
    image_chars=20 * 1024 * 1024 * 4 // 3,
    caps=Caps(max_images=500),
)
"""Names and ids: see the rules. OpenAI, "Images and vision": 20 MB, 500 images a request."""

ROLES: Final[dict[str, Role]] = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}

CALL_FIELDS: Final = {
    "function_call": "arguments",
    "custom_tool_call": "input",
    "computer_call": "action",
    "local_shell_call": "action",
    "shell_call": "action",
    "apply_patch_call": "operation",
}
"""The calls that wait for an output of the client, and the field with their input."""

NAMED_CALLS: Final = frozenset({"function_call", "custom_tool_call"})
"""The types of call that name their tool."""

_TEXT_FIELDS = frozenset({"arguments", "input"})
_APPROVAL, _GIVEN = "_approval_request", "_approval_response"


def is_from_user(kind: str) -> bool:
    """Whether the client writes items of this type for the user ("mcp_approval_response")."""
    return kind.endswith(_GIVEN)


def pair_ids(item: Wire, kind: str) -> tuple[str, str, str]:
    """Return the ids of the pair that an item opens, of the one it answers, of its origin; "" for none.

    Sources: OpenAI docs, "MCP and connectors" (an approval is answered by its id, and the call that follows names it),
    "Programmatic tool calling" (a program, its output, the calls it makes), "Tool search".
    """
    # Unknown types with a `call_id` pair by it too, because new tools of the API do. A reference may be to any item.
    call_id, item_id, asked = (call_id_of(item.get(field)) for field in ("call_id", "id", "approval_request_id"))
    caller = item.get("caller")
    origin = call_id_of(caller.get("caller_id")) if isinstance(caller, Mapping) else ""
    if kind.endswith(_APPROVAL) or kind == "item_reference":
        return item_id, "", origin
    if is_from_user(kind):
        return "", asked, origin
    if kind.endswith("_output"):
        return "", call_id, origin
    return call_id, "", origin or asked


def item_type(item: Wire) -> str:
    """Return the type of an item; with a role alone it is a message. Raises InvalidInput if it has neither."""
    if not isinstance(item, Mapping):
        raise InvalidInput(f"an item must be a JSON object, not {type(item).__name__}")
    kind = item.get("type")
    if kind is None and isinstance(item.get("role"), str) and item["role"]:
        return "message"
    if not isinstance(kind, str) or not kind:
        raise InvalidInput("an item must have a type, or a role, as text", place="type")
    if kind == "message" and not (isinstance(item.get("role"), str) and item["role"]):
        raise InvalidInput("a message must have a role, as text", place="role")
    return kind


def call_id_in(item: Wire, kind: str) -> str:
    """Return the id that pairs a call and its output."""
    # The output of a local shell call has it in the field `id`.
    found = call_id_of(item.get("call_id"))
    return found or (call_id_of(item.get("id")) if kind == "local_shell_call_output" else "")


# --- reading --------------------------------------------------------------------------------------------------------


def _read_call(item: Wire, kind: str) -> ToolCall:
    given = item.get(CALL_FIELDS[kind])
    arguments = given if isinstance(given, str) else "" if given is None else json_text(given)
    name = item.get("name")
    if not isinstance(name, str) or not name:
        # The calls of built-in tools have no name, so their type serves as one.
        name = kind.removesuffix("_call") if kind not in {"function_call", "custom_tool_call"} else ""
    call_id, _, caller = pair_ids(item, kind)
    return ToolCall(call_id, name, arguments, kind == "custom_tool_call", raw=item, caller=caller)


def _read_reasoning(item: Wire) -> Reasoning:
    parts = (*read_content(item.get("summary")), *read_content(item.get("content")))
    return Reasoning("\n".join(part.text for part in parts if isinstance(part, Text)), True, raw=item)


def _read(item: Wire, kind: str) -> tuple[Role, tuple[Part, ...]]:
    if kind == "message":
        return ROLES.get(item["role"], "user"), read_content(item.get("content"))
    if kind in CALL_FIELDS:
        return "assistant", (_read_call(item, kind),)
    if is_output(kind):
        return "tool", (ToolResult(call_id_in(item, kind), read_output(item, kind), raw=item),)
    if kind == "reasoning":
        return "assistant", (_read_reasoning(item),)
    opens, answers, caller = pair_ids(item, kind)
    part = Opaque(kind, raw=item, opens=opens, answers=answers, caller=caller)
    return "user" if is_from_user(kind) else "assistant", (part,)


# --- writing --------------------------------------------------------------------------------------------------------


def _text_type(role: str) -> str:
    return "output_text" if role == "assistant" else "input_text"


def _kind_of(call: ToolCall) -> str:
    """Return the type of the item of a call, or the type for one from another dialect."""
    kind = call.raw.get("type") if isinstance(call.raw, Mapping) else None
    if isinstance(kind, str) and kind in CALL_FIELDS:
        return kind
    return "custom_tool_call" if call.custom else "function_call"


def _call_wire(call: ToolCall) -> Wire:
    kind = _kind_of(call)
    # JSON of another dialect, or of another type of call, has fields that this item must not get.
    raw = call.raw if isinstance(call.raw, Mapping) and call.raw.get("type") == kind else {}
    field = CALL_FIELDS[kind]
    original = _read_call(raw, kind)
    if raw and original == call:
        return raw
    out = {**raw, "type": kind, "call_id": call.id}
    if field in _TEXT_FIELDS:
        out["name"] = call.name
    if not raw or call.arguments != original.arguments:
        out[field] = call.arguments if field in _TEXT_FIELDS else object_of(call.arguments)
    return out


def _result_wire(base: Wire, result: ToolResult) -> tuple[Wire, ToolResult]:
    kind = base.get("type")
    if not isinstance(kind, str) or not is_output(kind):
        base, kind = {"type": "function_call_output"}, "function_call_output"
    output, parts = settle_output(base.get(OUTPUT), result.parts, kind)
    wire = {**base, "call_id": result.call_id, OUTPUT: output}
    if OUTPUT not in base and not result.parts and kind == "apply_patch_call_output":
        # It came without one, which is allowed for this type alone.
        del wire[OUTPUT]
    if "call_id" not in base and "id" in base and result.call_id == call_id_in(base, kind):
        # The output of a local shell call names its call by `id`; both fields would be one too many.
        del wire["call_id"]
    return wire, replace(result, parts=parts, raw=wire)


def _message_wire(base: Wire, role: str, parts: Sequence[Part]) -> tuple[Wire, tuple[Part, ...]]:
    if any(isinstance(part, ToolCall | ToolResult) or _is_item(part) for part in parts):
        raise InvalidInput("a call, a result and reasoning are items of their own in this dialect")
    text_type = _text_type(role)
    content, settled = settle_content(base.get("content"), parts, lambda part: settle_block(part, text_type))
    # As in Chat, where an assistant message must have text or calls.
    if role == "assistant" and not parts:
        content = EMPTY
    return {**base, "content": content}, settled


def _is_item(part: Part) -> bool:
    """Whether the part is a whole item and no block of a message."""
    raw = part.raw
    return isinstance(part, Reasoning) or (
        isinstance(part, Opaque) and isinstance(raw, Mapping) and raw.get("type") == "item_reference"
    )


def _revise(message: Message, parts: Sequence[Part]) -> tuple[Wire, tuple[Part, ...]]:
    base = message.wire if message.wire is not None else {"role": message.role}
    if message.role == "tool":
        results = [part for part in parts if isinstance(part, ToolResult)]
        # Two results would need two items, and a message has one.
        if len(results) > 1 or (results and len(parts) > 1):
            raise InvalidInput("an output item holds one result and nothing else")
        if message.wire is None and results and isinstance(results[0].raw, Mapping):
            base = results[0].raw
        kind = base.get("type", "function_call_output")
        wire, result = _result_wire(base, results[0] if results else ToolResult(call_id_in(base, kind), tuple(parts)))
        return wire, (result,)
    if len(parts) == 1:
        part = parts[0]
        if isinstance(part, ToolCall):
            wire = _call_wire(part)
            return wire, (part if wire is part.raw else replace(part, raw=wire),)
        if isinstance(part, Reasoning | Opaque) and (message.wire is None or part.raw is message.wire):
            if not isinstance(part.raw, Mapping):
                raise InvalidInput(f"{type(part).__name__} without its JSON cannot be written here")
            return part.raw, (part,)
    if base.get("role") is None:  # a call, reasoning or a server item becomes a message
        base = {"type": "message", "role": message.role}
    return _message_wire(base, message.role, parts)


# --- mending --------------------------------------------------------------------------------------------------------


def _mend_call(item: Wire, kind: str, known: Collection[str], faults: list[str]) -> Wire:
    fixed: dict[str, Any] = {}
    field = CALL_FIELDS[kind]
    given = item.get(field)
    if kind in NAMED_CALLS:
        name = item.get("name")
        if not isinstance(name, str) or not name:
            fixed["name"] = "unknown_tool"
            faults.append("a call named no tool")
        elif (fit := LIMITS.call_name(name, known)) != name:
            fixed["name"] = fit
            faults.append(f"no tool can have the name of a call; it is sent as {fit!r}")
    # Compatible servers render earlier calls by chat templates, which parse the arguments.
    if kind == "function_call" and not is_json(given):
        fixed[field] = mend_arguments(given)
        faults.append("the arguments of a call were not JSON text")
    if kind == "custom_tool_call" and not isinstance(given, str):
        fixed[field] = "" if given is None else json_text(given)
        faults.append("the input of a call was not text")
    return {**item, **fixed} if fixed else item


def _mend_id(item: Wire, kind: str, faults: list[str]) -> Wire:
    call_id = item.get("call_id")
    if isinstance(call_id, str) and call_id:
        bounded = LIMITS.call_id(call_id)
        if bounded == call_id:
            return item
        faults.append(f"the id of a call had {len(call_id)} characters; sent as {bounded!r}")
        return {**item, "call_id": bounded}
    if call_id is None and kind == "local_shell_call_output" and isinstance(item.get("id"), str) and item["id"]:
        return item
    faults.append("a call or its output named no call, as text; it was given an id")
    return {**item, "call_id": call_id_in(item, kind) or named_id(call_id)}


def _mend_message(item: Wire, faults: list[str]) -> Wire:
    role = item["role"]
    if role not in ROLES:
        faults.append(f"the role {role!r} is unknown; sent as user")
        role = "user"
        item = {**item, "role": role}
    content: Json = _mend_parts(mend_content(item.get("content"), _text_type(role), faults), faults)
    if content is None:
        faults.append("a message had no content; it was given an empty text")
        content = ""
    return item if content is item.get("content") else {**item, "content": content}


def _mend_parts(content: Json, faults: list[str]) -> Json:
    """Mend the images of a list of blocks; the same object if all are accepted."""
    if not isinstance(content, list | tuple):
        return content
    media = (
        mend_media(block, LIMITS, "input_text", faults) if isinstance(block, Mapping) else block for block in content
    )
    mended = list(media)
    return content if same_items(mended, content) else mended


def _mend(item: Wire, faults: list[str], known: Collection[str]) -> Wire | None:
    item = mend_encoding(item, faults)
    kind = item_type(item)
    if not has_valid_item_id(item, kind):
        # Reasoning without its id is an orphan; any other item may come without one.
        if kind == "reasoning":
            faults.append(f"reasoning with the id {item['id']!r}, which is not taken, was left out")
            return None
        faults.append(f"the id {item['id']!r} of an item is not taken; it is sent without")
        item = {key: value for key, value in item.items() if key != "id"}
    if kind == "message":
        return _mend_message(item, faults)
    if kind in CALL_FIELDS:
        return _mend_id(_mend_call(item, kind, known, faults), kind, faults)
    if is_output(kind):
        item = _mend_id(item, kind, faults)
        # The output of a patch is optional: its `status` says enough (API reference, apply_patch_call_output).
        if item.get(OUTPUT) is None and kind != "apply_patch_call_output":
            faults.append("an output item had no output; it was given an empty one")
            return {**item, OUTPUT: empty_output(kind)}
        output = _mend_parts(item.get(OUTPUT), faults)
        return item if output is item.get(OUTPUT) else {**item, OUTPUT: output}
    return item


class OpenAIResponses(MessageCodec):
    """The codec of "openai-responses": each item is a message, and an output may come anywhere after its call."""

    dialect: Final = "openai-responses"
    user_first: Final = False
    system_inside: Final = True
    itemised: Final = True
    unique_calls: Final = True
    one_turn: Final = False

    def __init__(self) -> None:
        super().__init__(_mend, _revise)

    def read(self, wire: Wire) -> Message:
        """Read an item; an unknown role is read as "user". Raises InvalidInput without a type or a role."""
        role, parts = _read(wire, item_type(wire))
        return Message(role, parts, wire=wire)

    def note(self, text: str, *, role: str = "user", kind: str = "notice") -> Message:
        """Return a message of Foldline's own."""
        wire = {"role": role if role in ROLES else "user", "content": clean(text) or EMPTY}
        return replace(self.read(wire), kind=kind)

    def answer(self, call: ToolCall, text: str) -> Message:
        """Return an output item, of the type that matches the call, for a call that has none."""
        kind = _kind_of(call)
        wire = {"type": f"{kind}_output", "call_id": call.id, OUTPUT: empty_output(f"{kind}_output", clean(text))}
        if kind == "apply_patch_call":
            # A patch without a result was not applied, as far as anyone knows.
            wire["status"] = "failed"
        if call.caller and isinstance(call.raw, Mapping):  # an output names the program that its call came out of
            wire["caller"] = call.raw["caller"]
        return replace(self.read(wire), kind="notice")
