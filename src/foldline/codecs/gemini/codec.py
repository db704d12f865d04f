"""Gemini `generateContent`: contents are lists of parts, and the results of a turn are one content of the user.

Sources of the shapes: Gemini API reference, "Generating content" (Content, Part, FunctionCall, FunctionResponse, Blob,
FileData); Gemini API docs, "Function calling", "Thought signatures", "Code execution". JSON of protocol buffers
accepts each field in two spellings (`functionCall`, `function_call`); both are read, and a block keeps its own.

The id of a call is optional. A call without one pairs by its name and its place among the calls of that name, so it
gets an id here that never reaches the wire: `#name` for the first of a message, `#name:2` for the second. A content
with results has the role "user", as on the wire. A thought signature belongs to the very part that it came in ("Thought
signatures": return it in that part, never merge parts), so it stays in the `raw` of the part and is never moved.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from foldline.codecs.base import MessageCodec
from foldline.codecs.blocks import field_in, read_block
from foldline.codecs.encoding import EMPTY, call_id_of, clean, json_text, object_of
from foldline.codecs.gemini.parts import (
    DATA,
    NO_VALIDATION,
    POSITIONAL,
    ROLES,
    SIGNATURE,
    body_in,
    id_of,
    is_signed,
    key_of,
    mended_content,
)
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

__all__ = ["Gemini", "signed_call"]

_WIRE_ROLES: Final = {"user": "user", "tool": "user", "assistant": "model", "system": "system"}
# The keys of a response that hold its text (API reference: FunctionResponse). Without them, all of it is the output.
_OUTPUTS: Final = ("output", "error")

_OLD_RESULTS: Final = ("result", "content")  # from LangChain, LiteLLM and the first examples of the docs

# --- reading --------------------------------------------------------------------------------------------------------


def _read_call(part: Mapping[str, Any], body: Mapping[str, Any], call_id: str) -> ToolCall:
    given = body.get("args")
    arguments = given if isinstance(given, str) else "{}" if given is None else json_text(given)
    name = body.get("name")
    return ToolCall(call_id, name if isinstance(name, str) else "", arguments, raw=part)


def _output_key(response: Mapping[str, Any]) -> str | None:
    """Return the key of a response whose value is the text of the result; None if all of it is."""
    # Only where it is the single key: a tool may return an object that happens to have a field `output`.
    found = [key for key in _OUTPUTS if isinstance(response.get(key), str)]
    if not found and len(response) == 1:
        found = [key for key in _OLD_RESULTS if isinstance(response.get(key), str)]
    return found[0] if found and len(response) == 1 else None


def _read_response(part: Mapping[str, Any], body: Mapping[str, Any], call_id: str) -> ToolResult:
    response = body.get("response")
    failed = False
    texts: list[Part] = []
    if isinstance(response, Mapping):
        key = _output_key(response)
        # API reference, FunctionResponse: "error" has the details of a failure, "output" the result.
        failed = "error" in response and "output" not in response
        text = response[key] if key is not None else json_text(response) if response else ""
        texts = [Text(text)] if text else []
    elif response is not None:
        texts = [Text(response if isinstance(response, str) else json_text(response))]
    media = body.get("parts")  # pictures and files of a result: "Function calling", multimodal function responses
    shown = [_read_data(each) for each in media] if isinstance(media, list | tuple) else []
    return ToolResult(call_id, (*texts, *shown), failed, raw=part)


def _read_data(part: Json) -> Part:
    """Read a part that is neither a call nor a result."""
    if not isinstance(part, Mapping):
        return Opaque("unknown", raw=part)
    media = read_block(part)
    if isinstance(media, Image | Document):
        return media
    text = part.get("text")
    if part.get("thought") is True:
        return Reasoning(text if isinstance(text, str) else "", is_signed(part), raw=part)
    if isinstance(text, str):
        return Text(text, raw=part)
    return Opaque(next((name for name in DATA if field_in(part, name) is not None), "unknown"), raw=part)


def _read_parts(parts: Json) -> tuple[Part, ...]:
    if isinstance(parts, str):
        return (Text(parts),) if parts else ()
    if isinstance(parts, Mapping):
        parts = [parts]
    out: list[Part] = []
    called: Counter[str] = Counter()
    answered: Counter[str] = Counter()
    for part in parts if isinstance(parts, list | tuple) else ():
        if isinstance(part, Mapping) and (body := body_in(part, "functionCall")) is not None:
            out.append(_read_call(part, body, id_of(body, called)))
        elif isinstance(part, Mapping) and (body := body_in(part, "functionResponse")) is not None:
            out.append(_read_response(part, body, id_of(body, answered)))
        else:
            out.append(_read_data(part))
    return tuple(out)


# --- writing --------------------------------------------------------------------------------------------------------


def _with_id(body: Mapping[str, Any], call_id: str) -> dict[str, Any]:
    """Return a call or a result with its id, unless it pairs by its place."""
    out = dict(body)
    if call_id and not call_id.startswith(POSITIONAL):
        out["id"] = call_id
    elif "id" in out and call_id_of(out["id"]):
        del out["id"]
    return out


def _same_id(body: Mapping[str, Any], call_id: str) -> bool:
    own = call_id_of(body.get("id"))
    # Without an id on the wire, a positional id agrees with every place: it says what was read, not what is sent.
    return own == call_id if own else call_id.startswith(POSITIONAL) or not call_id


def _settle_call(call: ToolCall) -> ToolCall:
    raw = call.raw if isinstance(call.raw, Mapping) else {}
    key = key_of(raw, "functionCall")
    body = raw[key] if isinstance(raw.get(key), Mapping) else {}
    original = _read_call(raw, body, call.id)
    if body and original == call and _same_id(body, call.id):
        return call
    out = {**_with_id(body, call.id), "name": call.name}
    if not body or original.arguments != call.arguments:
        out["args"] = object_of(call.arguments)
    return replace(call, raw={**raw, key: out})


def _settle_response(result: ToolResult) -> ToolResult:
    raw = result.raw if isinstance(result.raw, Mapping) else {}
    key = key_of(raw, "functionResponse")
    body = raw[key] if isinstance(raw.get(key), Mapping) else {}
    original = _read_response(raw, body, result.call_id)
    if body and original == result and _same_id(body, result.call_id):
        return result
    out = _with_id(body, result.call_id)
    if "name" not in out:  # required, and a result from another dialect has only the id of its call
        out["name"] = name_of(result.call_id)
    inner = tuple(_settle(part) for part in result.parts)
    text = "\n".join(part.text for part in inner if isinstance(part, Text))
    if not body or result.is_error != original.is_error or text != original.text:
        given = body.get("response")
        # The key of the tool stays unless the result changed from success to failure, or back.
        before = _output_key(given) if isinstance(given, Mapping) and result.is_error == original.is_error else None
        out["response"] = {before or ("error" if result.is_error else "output"): text}
    shown = [part.raw for part in inner if isinstance(part, Image | Document)]
    if shown:
        out["parts"] = shown
    else:
        out.pop("parts", None)
    kept = tuple(part for part in inner if isinstance(part, Image | Document))
    settled = {**raw, key: out}
    return replace(result, parts=((Text(text),) if text else ()) + kept, raw=settled)


def name_of(call_id: str) -> str:
    """Return the tool's name in a positional id; a placeholder for any other id."""
    named = call_id.removeprefix(POSITIONAL).rpartition(":") if call_id.startswith(POSITIONAL) else ("", "", "")
    return (named[0] or named[2]) or "unknown_tool"


def _settle(part: Part) -> Part:
    """Return the part with `raw` as it is sent. Raises InvalidInput for a part without JSON in this dialect."""
    raw = part.raw
    match part:
        case ToolCall():
            return _settle_call(part)
        case ToolResult():
            return _settle_response(part)
        case Text():
            if isinstance(raw, Mapping):
                return part if raw.get("text") == part.text else replace(part, raw={**raw, "text": part.text})
            return replace(part, raw={"text": part.text})
        case Document() if part.text and raw is None:
            return Text(part.text, raw={"text": part.text})
        case Reasoning() if isinstance(raw, Mapping) and raw.get("text", "") != part.text:
            if part.signed:  # the signature covers the text, so an edited thought would be refused
                raise InvalidInput("signed reasoning is sent as it came or not at all")
            return replace(part, raw={**raw, "text": part.text})
    if raw is None:
        raise InvalidInput(f"{type(part).__name__} without its JSON cannot be written here")
    return part


def _is_blank(part: Part) -> bool:
    # The API refuses a text without words ("must have a text parameter") except beside a signature, which may not move.
    signed = isinstance(part.raw, Mapping) and is_signed(part.raw)
    return isinstance(part, Text) and not part.text.strip() and not signed


def _revise(message: Message, parts: Sequence[Part]) -> tuple[Wire, tuple[Part, ...]]:
    base = message.wire if message.wire is not None else {"role": _WIRE_ROLES[message.role]}
    settled = tuple(_settle(part) for part in parts if not _is_blank(part))
    if not settled:
        # A content without parts is refused ("contents.parts must not be empty").
        settled = (Text(EMPTY, raw={"text": EMPTY}),)
    return {**base, "parts": [part.raw for part in settled]}, settled


def signed_call(call: ToolCall) -> ToolCall:
    """Return a call of another model with the placeholder of a signature."""
    # The FAQ names this placeholder for calls that were made by another model.
    body = {"name": call.name, "args": object_of(call.arguments)}
    return replace(call, raw={"functionCall": _with_id(body, call.id), SIGNATURE: NO_VALIDATION})


class Gemini(MessageCodec):
    """The codec of "gemini": the user speaks first, system text is outside the contents, a turn is one content."""

    dialect: Final = "gemini"
    user_first: Final = True
    system_inside: Final = False
    itemised: Final = False
    unique_calls: Final = False
    one_turn: Final = True

    def __init__(self) -> None:
        super().__init__(mended_content, _revise, "parts")

    def read(self, wire: Wire) -> Message:
        """Read a content; without a role it is the user's. Raises InvalidInput for anything but an object."""
        if not isinstance(wire, Mapping):
            raise InvalidInput(f"a message must be a JSON object, not {type(wire).__name__}")
        role = wire.get("role") or "user"
        if "parts" not in wire and not (isinstance(wire.get("role"), str) and wire["role"]):
            raise InvalidInput("a content must have parts", place="parts")
        spoken = ROLES.get(role, "user") if isinstance(role, str) else "user"
        return Message(spoken, _read_parts(wire.get("parts")), wire=wire)

    def note(self, text: str, *, role: str = "user", kind: str = "notice") -> Message:
        """Return a content of Foldline's own, from the user unless `role` is "assistant"."""
        text = clean(text)
        part = {"text": text if text.strip() else EMPTY}
        return replace(self.read({"role": "model" if role == "assistant" else "user", "parts": [part]}), kind=kind)

    def answer(self, call: ToolCall, text: str) -> Message:
        """Return a content with a function response for a call that has none."""
        body = {**_with_id({}, call.id), "name": call.name, "response": {"output": clean(text)}}
        part = {"functionResponse": body}
        # Not read back: a positional id is not on the wire, and a lone response would be the first of its name.
        result = _read_response(part, body, call.id)
        return Message("user", (result,), wire={"role": "user", "parts": [part]}, kind="notice")
