"""Parts of Gemini's contents: what they hold, how a call and its result pair, and which of them the API accepts.

Sources: Gemini API reference, "Generating content" (Part, FunctionCall, FunctionResponse, FunctionDeclaration). JSON of
protocol buffers accepts each field in two spellings, `functionCall` and `function_call`: both are read.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from foldline.codecs.blocks import field_in, same_items
from foldline.codecs.encoding import EMPTY, call_id_of, json_text, mend_encoding, object_of
from foldline.codecs.limits import Caps, Limits
from foldline.messages import Json, Role, Wire

__all__ = [
    "DATA",
    "LIMITS",
    "NO_VALIDATION",
    "POSITIONAL",
    "ROLES",
    "SIGNATURE",
    "body_in",
    "calls_in",
    "field_in",
    "id_of",
    "is_signed",
    "key_of",
    "mended_content",
    "parts_of",
    "positional_ids",
    "responses_in",
    "signed_steps",
    "unsigned_steps",
]

LIMITS: Final = Limits(
    call_name_chars=128,
    tool_name_chars=128,
    name=re.compile(r"[a-zA-Z_][a-zA-Z0-9_.:-]*"),
    caps=Caps(max_images=3_600, max_pages=1_000),
)
"""Gemini API reference, FunctionDeclaration: names. "Image understanding": 3,600 images a request; "Document
understanding": 1,000 pages."""

ROLES: Final[dict[str, Role]] = {
    "user": "user",
    "model": "assistant",
    "function": "user",
    "assistant": "assistant",
    "system": "system",
    "developer": "system",
}
POSITIONAL: Final = "#"
"""The prefix of an id for a call without one. It names the tool and the place, and is never sent."""

NO_VALIDATION: Final = "skip_thought_signature_validator"
"""Replaces the signature of a call by another model ("Thought signatures", FAQ: calls of another model)."""

DATA: Final = (
    "text",
    "functionCall",
    "functionResponse",
    "inlineData",
    "fileData",
    "executableCode",
    "codeExecutionResult",
    "toolCall",
    "toolResponse",
)
"""The fields of a part that hold its data; a part has one of them (API reference: Part, union field `data`)."""

SIGNATURE: Final = "thoughtSignature"


def parts_of(wire: Json) -> list[Mapping[str, Any]]:
    """Return the parts of a content that are objects. O(parts)."""
    parts = wire.get("parts") if isinstance(wire, Mapping) else None
    return [part for part in parts if isinstance(part, Mapping)] if isinstance(parts, list | tuple) else []


def body_in(part: Mapping[str, Any], field: str) -> Mapping[str, Any] | None:
    """Return the object in a field of a part, in either spelling, or None."""
    found = field_in(part, field)
    return found if isinstance(found, Mapping) else None


def calls_in(wire: Json) -> list[Mapping[str, Any]]:
    """Return the function calls of a content. O(parts)."""
    return [body for part in parts_of(wire) if (body := body_in(part, "functionCall")) is not None]


def responses_in(wire: Json) -> list[Mapping[str, Any]]:
    """Return the function responses of a content. O(parts)."""
    return [body for part in parts_of(wire) if (body := body_in(part, "functionResponse")) is not None]


def is_signed(part: Mapping[str, Any]) -> bool:
    """Whether a part holds a thought signature."""
    return bool(field_in(part, SIGNATURE))


def positional_ids(bodies: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the id of each call or result of one content: its own, or its name and its place. O(calls)."""
    seen: Counter[str] = Counter()
    return [id_of(body, seen) for body in bodies]


def id_of(body: Mapping[str, Any], seen: Counter[str]) -> str:
    """Return the id of one more call or result; `seen` counts the names without one."""
    own = call_id_of(body.get("id"))
    if own:
        return own
    name = body.get("name")
    name = name if isinstance(name, str) else ""
    seen[name] += 1
    return f"{POSITIONAL}{name}" if seen[name] == 1 else f"{POSITIONAL}{name}:{seen[name]}"


def key_of(part: Mapping[str, Any], field: str) -> str:
    """Return the spelling in which a part has a field."""
    # Protocol buffers refuse a part with both spellings, so an edited field keeps its own.
    snake = re.sub(r"(?<!^)(?=[A-Z])", "_", field).lower()
    return snake if snake in part and field not in part else field


# --- signatures -----------------------------------------------------------------------------------------------------


def _steps(wires: Sequence[Json]) -> list[tuple[int, int, bool]]:
    """Return the steps with calls of the current turn: content, part of the first call, whether that is signed."""
    # Only the current turn is validated. It begins with the user's words ("Thought signatures": turns and steps), and
    # results continue it. Of parallel calls only the first is signed.
    out: list[tuple[int, int, bool]] = []
    for index in reversed(range(len(wires))):
        wire = wires[index]
        role = (wire.get("role") or "user") if isinstance(wire, Mapping) else ""
        if role == "user" and not responses_in(wire):
            break
        parts = wire.get("parts") if role == "model" else None
        for at, part in enumerate(parts if isinstance(parts, list | tuple) else ()):
            if isinstance(part, Mapping) and body_in(part, "functionCall") is not None:
                out.append((index, at, is_signed(part)))
                break
    return out[::-1]


def unsigned_steps(wires: Sequence[Json]) -> list[int]:
    """Return the contents of the current turn whose first call lacks a signature while others have one. O(the turn)."""
    # A model without thinking signs nothing, and then nothing is missing.
    steps = _steps(wires)
    return [index for index, _, signed in steps if not signed] if any(signed for *_, signed in steps) else []


def signed_steps(wires: Sequence[Wire]) -> list[Wire]:
    """Return the contents with a placeholder for each signature that `unsigned_steps` misses. O(contents)."""
    out = list(wires)
    missing = set(unsigned_steps(wires))
    for index, at, _ in _steps(wires):
        if index in missing:
            parts = list(out[index]["parts"])
            parts[at] = {**parts[at], SIGNATURE: NO_VALIDATION}
            out[index] = {**out[index], "parts": parts}
    return out


# --- mending --------------------------------------------------------------------------------------------------------


def _mend_named(part: Mapping[str, Any], field: str, known: Collection[str], faults: list[str]) -> Mapping[str, Any]:
    """Return a call or a result with an accepted name, and with an object where one is required."""
    key = key_of(part, field)
    body = part[key]
    fixed: dict[str, Any] = {}
    name = body.get("name")
    what = "call" if field == "functionCall" else "result"
    if not isinstance(name, str) or not name:
        fixed["name"] = "unknown_tool"
        faults.append(f"a {what} named no tool")
    elif (fit := LIMITS.call_name(name, known)) != name:
        fixed["name"] = fit
        faults.append(f"no tool can have the name of a {what}; it is sent as {fit!r}")
    if "id" in body and not isinstance(body["id"], str):
        fixed["id"] = call_id_of(body["id"])
        faults.append(f"the id of a {what} was no text")
    if what == "call" and not isinstance(body.get("args", {}), Mapping):
        fixed["args"] = object_of(body["args"] if isinstance(body["args"], str) else json_text(body["args"]))
        faults.append("the arguments of a call were not an object")
    if what == "result" and not isinstance(body.get("response"), Mapping):
        given = body.get("response")
        fixed["response"] = {"output": given if isinstance(given, str) else "" if given is None else json_text(given)}
        faults.append("the response of a result was not an object")
    return {**part, key: {**body, **fixed}} if fixed else part


def _mend_part(part: Json, model: bool, known: Collection[str], faults: list[str]) -> Mapping[str, Any] | None:
    if isinstance(part, str):
        faults.append("a part is not an object; it was made one")
        part = {"text": part}
    if not isinstance(part, Mapping):
        faults.append("a part is not an object; it was made one")
        return {"text": "" if part is None else json_text(part)} if part else None
    if body_in(part, "functionCall") is not None:
        if model:
            return _mend_named(part, "functionCall", known, faults)
        # Nobody but the model calls; its result, if there is one, is repaired as an orphan.
        faults.append("a function call in a content of the user was left out")
        return None
    if body_in(part, "functionResponse") is not None:
        if not model:
            return _mend_named(part, "functionResponse", known, faults)
        faults.append("a function response in a content of the model was left out")
        return None
    # As the user's, a thought would be read as an instruction.
    if part.get("thought") is True and not model:
        faults.append("a thought in a content of the user was left out")
        return None
    text = part.get("text")
    if all(field_in(part, name) is None for name in DATA):
        if is_signed(part):  # a stream closes with one: the signature stands beside an empty text
            faults.append("a part has only its signature; it was given an empty text")
            return {**part, "text": ""}
        faults.append("a part without data was left out")
        return None
    if "text" in part and text is not None and not isinstance(text, str):
        faults.append("the text of a part was no text")
        return {**part, "text": json_text(text)}
    if isinstance(text, str) and not text.strip() and not is_signed(part):
        faults.append("a part without words was left out")
        return None
    return part


def mended_content(wire: Wire, faults: list[str], known: Collection[str]) -> Wire | None:
    """Return the content as the API accepts it, seen alone: the same object if accepted, None if nothing is left."""
    wire = mend_encoding(wire, faults)
    role = wire.get("role")
    spoken = ROLES.get(role, "user") if isinstance(role, str) else "user"
    model = spoken == "assistant"
    if role and role not in ("user", "model"):
        sent = "model" if model else "user"
        faults.append(f"the role {role!r} is none of the API; sent as {sent}")
        wire = {**wire, "role": sent}
    given = wire.get("parts")
    if isinstance(given, str | Mapping):
        faults.append("parts are not a list; they were made one")
        given = [given]
    listed = given if isinstance(given, list | tuple) else ()
    kept = [mended for part in listed if (mended := _mend_part(part, model, known, faults)) is not None]
    if not kept:
        if model:
            faults.append("a content of the model that says nothing was left out")
            return None
        # Left out, it would let two turns of the model meet, which the API refuses.
        faults.append("a content of the user said nothing; it was given a text")
        return {**wire, "parts": [{"text": EMPTY}]}
    return wire if isinstance(given, list | tuple) and same_items(kept, given) else {**wire, "parts": kept}
