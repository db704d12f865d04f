"""The rules of Gemini's `generateContent`: turns, parts, calls and their responses, and thought signatures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from foldline.codecs.gemini.parts import (
    DATA,
    body_in,
    calls_in,
    field_in,
    is_signed,
    parts_of,
    positional_ids,
    responses_in,
    unsigned_steps,
)
from foldline.codecs.rulebook import Findings, Rule, check_call_name, quoted, table_of
from foldline.messages import Json, Wire

__all__ = ["RULES", "check_gemini"]

_GEMINI = "Gemini API reference, Generating content"
_GEMINI_CALLS = "Gemini API docs, Function calling"
_RESPONSE_PARTS = (
    'Gemini API, error "Please ensure that the number of function response parts is equal to the number of function '
    'call parts of the function call turn"'
)

RULES: Final = table_of(
    _GEMINI,
    Rule(
        "user-first",
        "A first content of the model has no calls.",
        # Words of the model may come first: python-genai#529. Calls may not: archestra#6287.
        'Gemini API docs, error "Please ensure that function call turn comes immediately after a user turn or after a '
        'function response turn"',
    ),
    Rule("empty-content", "A content has a part.", f"{_GEMINI}: Content, parts", alone=True),
    Rule(
        "empty-part",
        "A part holds data; a text without words stands only beside a signature.",
        'Gemini API, errors "required oneof field \'data\' must have one initialized field" and "Unable to submit '
        'request because it must have a text parameter"',
        alone=True,
    ),
    Rule("result-without-call", "A function response answers a call of the turn before.", _RESPONSE_PARTS),
    Rule("call-without-result", "All calls of a turn are answered in the next content of the user.", _RESPONSE_PARTS),
    Rule(
        "call-place",
        "A turn with calls follows the user, or function responses.",
        'Gemini API, error "Please ensure that function call turn comes immediately after a user turn or after a '
        'function response turn"',
    ),
    Rule(
        "part-place",
        "Calls and thoughts are the model's, function responses are the user's.",
        f"{_GEMINI_CALLS}: the model calls, the user answers",
        alone=True,
    ),
    Rule("call-ids", "The calls of a turn have different ids.", f"{_GEMINI}: FunctionCall, id"),
    Rule("args-object", "The arguments of a call are an object.", f"{_GEMINI}: FunctionCall, args", alone=True),
    Rule(
        "response-object",
        "The response of a function is an object.",
        f"{_GEMINI}: FunctionResponse, response",
        alone=True,
    ),
    Rule(
        "signature",
        "Where calls of the current turn are signed, the first call of each of its steps is.",
        'Gemini API docs, Thought signatures; error "Function call is missing a thought_signature"',
    ),
    Rule(
        "call-name",
        "The name of a function has 1 to 128 letters, digits, _, :, . and -, and begins with a letter or _.",
        f"{_GEMINI}: FunctionDeclaration, name",
        alone=True,
    ),
    Rule(
        "tool-name",
        "The name of a function has 1 to 128 letters, digits, _, :, . and -, and begins with a letter or _.",
        f"{_GEMINI}: FunctionDeclaration, name",
    ),
    Rule(
        "amount",
        "A request holds at most 3,600 images and 1,000 PDF pages.",
        "Gemini API docs, Image understanding; Document understanding",
    ),
)
"""The rules of the dialect by id."""

_ROLES = ("user", "model")


def check_gemini(found: Findings, wires: Sequence[Wire]) -> None:
    """Note what the API would refuse in the contents. O(size)."""
    waiting: list[str] = []
    before = ""
    for index, wire in enumerate(wires):
        role = _check_role(found, index, wire)
        if role is None:
            continue
        _check_parts(found, index, wire, role)
        calls = calls_in(wire) if role == "model" else []
        # The first content that has a role decides: a broken one before it is noted by itself.
        if not before and calls:
            found.add(index, "user-first")
        if role == "user":
            _check_answers(found, index, positional_ids(responses_in(wire)), waiting)
        elif waiting:
            found.add(
                index, "call-without-result", f"calls {quoted(set(waiting))} have no response in the next content"
            )
        # The error names both places: "immediately after a user turn or after a function response turn".
        if calls and before == "model":
            found.add(index, "call-place")
        waiting = positional_ids(calls)
        if len(set(waiting)) < len(waiting):
            found.add(index, "call-ids")
        before = role
    if waiting:
        found.add(None, "call-without-result", f"calls {quoted(set(waiting))} have no response at the end")
    for index in unsigned_steps(wires):
        found.add(index, "signature")


def _check_role(found: Findings, index: int, wire: Json) -> str | None:
    """Return the role of a content, "user" by default; None for anything else, which is noted."""
    given = wire.get("role") if isinstance(wire, Mapping) else None
    if not isinstance(wire, Mapping) or not ("parts" in wire or (isinstance(given, str) and given)):
        found.add(index, "object")
        return None
    role = given or "user"
    if role not in _ROLES:
        found.add(index, "role", f"unknown role {role!r}")
        return "user"
    return str(role)


def _check_parts(found: Findings, index: int, wire: Wire, role: str) -> None:
    parts = wire.get("parts")
    if parts is None or parts == []:
        found.add(index, "empty-content")
        return
    if not isinstance(parts, list | tuple) or len(parts_of(wire)) < len(parts):
        found.add(index, "content", "parts are no list of objects")
    for part in parts_of(wire):
        _check_part(found, index, part, role)


def _check_part(found: Findings, index: int, part: Mapping[str, Any], role: str) -> None:
    call, response = body_in(part, "functionCall"), body_in(part, "functionResponse")
    text = part.get("text")
    # Null counts as absent: JSON of protocol buffers does not tell them apart.
    if all(field_in(part, name) is None for name in DATA):
        found.add(index, "empty-part", "a part without data")
    elif text is not None and not isinstance(text, str):
        found.add(index, "content", "the text of a part is no text")
    elif isinstance(text, str) and not text.strip() and part.get("thought") is not True and not is_signed(part):
        found.add(index, "empty-part", "a text without words")
    if role == "user" and (call is not None or part.get("thought") is True):
        found.add(index, "part-place", "a call or a thought in a content of the user")
    if role == "model" and response is not None:
        found.add(index, "part-place", "a function response in a content of the model")
    for body in (call, response):
        if body is None:
            continue
        if not isinstance(body.get("name"), str) or not body["name"]:
            found.add(index, "call-shape", "a call or a response names no function")
        else:
            check_call_name(found, index, body["name"])
        if body.get("id") is not None and not isinstance(body["id"], str):
            found.add(index, "call-shape", "the id of a call is no text")
    if call is not None and not isinstance(call.get("args", {}), Mapping):
        found.add(index, "args-object")
    if response is not None and not isinstance(response.get("response"), Mapping):
        found.add(index, "response-object")


def _check_answers(found: Findings, index: int, answers: Sequence[str], waiting: Sequence[str]) -> None:
    """Note responses without a call in the turn before, and calls of that turn without a response."""
    # A list, not a set: calls without ids of their own may repeat, and the API compares numbers of parts.
    left = list(waiting)
    for answer in answers:
        if answer in left:
            left.remove(answer)
        else:
            found.add(index, "result-without-call", f"the response {answer!r} answers no call of the turn before")
    if left:
        found.add(index, "call-without-result", f"calls {quoted(set(left))} have no response in the next content")
