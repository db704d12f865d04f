"""The rules of Gemini's `generateContent`: turns, parts, calls and their responses, and thought signatures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from foldline.codecs.gemini_parts import (
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
from foldline.codecs.rules.rulebook import Findings
from foldline.codecs.rules.shared import check_call_name, named
from foldline.messages import Json, Wire

__all__ = ["check_gemini"]

_ROLES = ("user", "model")


def check_gemini(found: Findings, wires: Sequence[Wire]) -> None:
    """Note what the API would refuse in the contents. O(size)."""
    waiting: list[str] = []
    before = ""
    for index, wire in enumerate(wires):
        role = _check_role(found, index, wire)
        if role is None:
            continue
        if not before and role != "user":
            found.add(index, "user-first")
        _check_parts(found, index, wire, role)
        calls = calls_in(wire) if role == "model" else []
        if role == "user":
            _check_answers(found, index, positional_ids(responses_in(wire)), waiting)
        elif waiting:
            found.add(index, "call-without-result", f"calls {named(set(waiting))} have no response in the next content")
        if calls and before == "model":
            found.add(index, "call-place")
        waiting = positional_ids(calls)
        if len(set(waiting)) < len(waiting):
            found.add(index, "call-ids")
        before = role
    if waiting:
        found.add(None, "call-without-result", f"calls {named(set(waiting))} have no response at the end")
    for index in unsigned_steps(wires):
        found.add(index, "signature")


def _check_role(found: Findings, index: int, wire: Json) -> str | None:
    """The role of a content, the user's where it names none; None for what is no content (which is noted)."""
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
    """Note responses without a call in the turn before, and calls of it without a response."""
    left = list(waiting)
    for answer in answers:
        if answer in left:
            left.remove(answer)
        else:
            found.add(index, "result-without-call", f"the response {answer!r} answers no call of the turn before")
    if left:
        found.add(index, "call-without-result", f"calls {named(set(left))} have no response in the next content")
