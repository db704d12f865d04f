"""Repair of a message for servers of Chat Completions, seen alone."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

from foldline.codecs.blocks import mend_content, same_items
from foldline.codecs.encoding import (
    ABSENT,
    is_json,
    json_text,
    mend_arguments,
    mend_encoding,
    named_id,
)
from foldline.codecs.limits import Caps, Limits, valid_author
from foldline.codecs.media import mend_media, only_text
from foldline.messages import Json, Role, Wire

__all__ = ["LIMITS", "OTHER_FIELDS", "ROLES", "mended_wire", "says_nothing"]

LIMITS: Final = Limits(
    call_name_chars=64,
    tool_name_chars=64,
    call_id_chars=64,
    image_chars=20 * 1024 * 1024 * 4 // 3,
    caps=Caps(max_images=500),
)
"""Names: see the rules. OpenAI, "Images and vision": 20 MB, 500 images a request. Older Chat servers accept ids of 40
characters only, but vLLM itself gives out ids of 46."""

ROLES: Final[dict[str, Role]] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
}
"""The roles on the wire. "developer" is the system role of newer OpenAI models."""

OTHER_FIELDS: Final = ("audio", "function_call")
"""Fields of a message that hold an answer and are neither content nor calls."""


def says_nothing(wire: Wire) -> bool:
    """Whether an assistant message has neither text nor calls nor anything in their place."""
    if wire.get("content") not in (None, "", []):
        return False
    return not any(wire.get(field) for field in ("tool_calls", "refusal", *OTHER_FIELDS))


def _mend_call(call: Mapping[str, Any], known: Collection[str], faults: list[str]) -> Mapping[str, Any]:
    fixed: dict[str, Any] = {}
    call_id = call.get("id")
    if not isinstance(call_id, str) or not call_id:
        call_id = named_id(call_id)
        faults.append("a call had no id, as text; it was given one")
    call_id = _bounded(call_id, faults)
    if call_id != call.get("id"):
        fixed["id"] = call_id
    # The type is required by the reference, and left out by some servers in their own replies.
    kind = call.get("type", "function")
    if kind not in ("function", "custom"):
        kind = fixed["type"] = "function"
        faults.append("a call was of an unknown type; it was made a function call")
    body = call.get(kind)
    if not isinstance(body, Mapping) or not isinstance(body.get("name"), str) or not body["name"]:
        name = {"name": "unknown_tool"}
        body = fixed[kind] = {**body, **name} if isinstance(body, Mapping) else name
        faults.append("a call named no tool")
    elif (fit := LIMITS.call_name(body["name"], known)) != body["name"]:
        body = fixed[kind] = {**body, "name": fit}
        faults.append(f"no tool can have the name of a call; it is sent as {fit!r}")
    if kind == "function" and not is_json(body.get("arguments", ABSENT)):
        # Chat templates parse the arguments of earlier calls (vLLM, "Tool calling"): one broken call fails every
        # request.
        fixed[kind] = {**body, "arguments": mend_arguments(body.get("arguments", {}))}
        faults.append(f"the arguments of call {call_id!r} were not JSON text")
    if kind == "custom" and not isinstance(body.get("input"), str):
        fixed[kind] = {**body, "input": "" if body.get("input") is None else json_text(body["input"])}
        faults.append(f"the input of call {call_id!r} was not text")
    # Repaired and never left out: the result that follows would answer no call.
    return {**call, **fixed} if fixed else call


def _bounded(call_id: str, faults: list[str]) -> str:
    # A function of the id alone, so that a result still finds its call.
    bounded = LIMITS.call_id(call_id)
    if bounded != call_id:
        faults.append(f"the id of a call had {len(call_id)} characters; sent as {bounded!r}")
    return bounded


def _mend_author(wire: Wire, known: Collection[str], faults: list[str]) -> Wire:
    """Return the message with an accepted `name`, or without one if nothing is left of it."""
    name = wire.get("name")
    if name is None:
        return wire
    given = name if isinstance(name, str) else ""
    # The `name` of a tool message is that of its tool and must agree with the call; any other is an author's.
    fit = LIMITS.call_name(given, known) if wire["role"] == "tool" and given else valid_author(given)
    if fit and fit == name:
        return wire
    faults.append(f"the name {name!r} of who speaks is not taken; " + (f"sent as {fit!r}" if fit else "left out"))
    return {**wire, "name": fit} if fit else {key: value for key, value in wire.items() if key != "name"}


def _mend_parts(content: Json, role: str, faults: list[str]) -> Json:
    """Mend the images and files of a `content`; the same object if all are accepted where they are."""
    if not isinstance(content, list | tuple):
        return content
    if role == "tool":
        return content  # `apart` moves its images into a message of the user
    if role != "user":
        return only_text(content, "text", f"a message of the role {role!r}", faults)
    mended = [mend_media(block, LIMITS, "text", faults) for block in content]
    return content if same_items(mended, content) else mended


def _mend_calls(wire: Wire, known: Collection[str], faults: list[str]) -> Wire:
    given = wire["tool_calls"]
    calls = [call for call in given if isinstance(call, Mapping)] if isinstance(given, list | tuple) else []
    if not isinstance(given, list | tuple) or len(calls) < len(given):
        faults.append("what was no call was taken out of tool_calls")
    elif not calls:
        faults.append("an empty list of calls was taken out")
    mended = [_mend_call(call, known, faults) for call in calls]
    if not mended:  # an empty list is refused ("array with minimum length 1"), a missing one is not
        return {key: value for key, value in wire.items() if key != "tool_calls"}
    return wire if same_items(mended, given) else {**wire, "tool_calls": mended}


def mended_wire(wire: Wire, faults: list[str], known: Collection[str]) -> Wire | None:
    """Return a message as servers accept it: the same object if it is accepted, None if nothing can be sent.

    `faults` gets a sentence for each repair. O(size).
    """
    wire = mend_encoding(wire, faults)
    # `read` has seen to it that there is a role.
    role = wire["role"]
    if role not in ROLES:
        faults.append(f"the role {role!r} is unknown; sent as user")
        role = "user"
        wire = {**wire, "role": role}
    if role == "assistant" and wire.get("tool_calls") is not None:
        wire = _mend_calls(wire, known, faults)
    if role == "tool":
        call_id = wire.get("tool_call_id")
        if not isinstance(call_id, str) or not call_id:
            faults.append("a result named no call, as text; it was given an id")
            wire = {**wire, "tool_call_id": named_id(call_id)}
        elif (bounded := _bounded(call_id, faults)) != call_id:
            wire = {**wire, "tool_call_id": bounded}
    wire = _mend_author(wire, known, faults)
    content = _mend_parts(mend_content(wire.get("content"), "text", faults), role, faults)
    if role == "assistant":
        if content is not wire.get("content"):
            wire = {**wire, "content": content}
        if says_nothing(wire):
            faults.append("an assistant message that says nothing was left out")
            return None
        return wire
    # An empty list is refused in a message of the user, and accepted as the result of a tool.
    if content is None or (role != "tool" and content == []):
        faults.append(f"a {role} message had no content; it was given an empty text")
        content = ""
    return wire if content is wire.get("content") else {**wire, "content": content}
