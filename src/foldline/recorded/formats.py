"""The formats of recorded sessions: plain lists of messages, session files of Claude Code, rollout files of Codex.

Each format has a test of one JSON value (`is_…`), by which `files` recognises it, and a reader of all values of a file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from foldline.codecs import DIALECTS
from foldline.codecs.dialect import form_of
from foldline.errors import InvalidInput
from foldline.messages import Json, Wire
from foldline.recorded.json_values import FileReading, Unread, Value, json_type
from foldline.recorded.sessions import Session, detect_dialect

__all__ = [
    "check_dialect",
    "is_claude_code",
    "is_codex",
    "is_message",
    "read_claude_code",
    "read_codex",
    "read_messages",
    "session_from_object",
]


# --- plain messages: a session object, a request body, a list, one message per line -----------------------------------

# Fields of which a message has one: a content of Gemini may do without a role.
_SIGNS: Final = ("role", "type", "parts")


def is_message(value: Json) -> bool:
    """Whether a JSON value looks like a message, or an item of the Responses API."""
    return isinstance(value, dict) and "messages" not in value and any(key in value for key in _SIGNS)


def check_dialect(value: Json, place: str) -> str:
    """The name of a dialect. Raises InvalidInput for an unknown one."""
    if value not in DIALECTS:
        raise InvalidInput(f"unknown dialect {value!r}; known are {', '.join(DIALECTS)}", place=place)
    return str(value)


def session_from_object(
    name: str, value: Mapping[str, Json], dialect: str | None, place: str, reading: FileReading
) -> Session:
    """The session in an object with a list of messages. Raises InvalidInput. O(size).

    `name` serves where the object has no id; `dialect`, if given, precedes what the object says.
    """
    # What the file says of itself goes before guessing: the fields of a request body, then its "dialect".
    form = form_of(value)
    list_field, system_field = ("messages", "system") if form is None else (form.messages, form.system or "")
    messages = value.get(list_field)
    if not isinstance(messages, list):
        what = "is missing" if messages is None else f"is {json_type(messages)}, not a list"
        raise InvalidInput(f'not a message list: "{list_field}" {what}', place=place)
    if not messages:
        raise InvalidInput(f'"{list_field}" is an empty list', place=place)
    system, tools = value.get(system_field), value.get("tools")
    system = system if form is None else form.system_in(system)
    if system is not None and not isinstance(system, str | list):
        raise InvalidInput(f'"{system_field}" is {json_type(system)}, not text or a list of blocks', place=place)
    if tools is not None and not (isinstance(tools, list) and all(isinstance(tool, dict) for tool in tools)):
        raise InvalidInput('"tools" is not a list of objects', place=place)
    named = dialect or (None if form is None else form.dialect)
    if named is None and value.get("dialect") is not None:
        named = check_dialect(value["dialect"], place)
    records = [Value(f"{place}: message {index}", item) for index, item in enumerate(messages)]
    texts = {key: value[key] for key in ("source", "licence") if isinstance(value.get(key), str)}
    return Session(
        name=value["id"] if isinstance(value.get("id"), str) and value["id"] else name,
        dialect=named or detect_dialect(messages, system=system),
        messages=tuple(read_messages(records, place, reading)),
        system=system,
        tools=None if tools is None else tuple(tools),
        model=value["model"] if isinstance(value.get("model"), str) else None,
        body=value,
        **texts,
    )


def read_messages(records: Sequence[Value], place: str, reading: FileReading) -> Iterator[Wire]:
    """The values that have the shape of a message; `reading` decides what happens to the others. O(values)."""
    for record in records:
        try:
            yield _message(record, alone=len(records) == 1 and record.place == place)
        except InvalidInput as error:
            reading.fault(error)


def _message(record: Value, *, alone: bool) -> Wire:
    """One message, its outer fields checked. Blocks are left to the codec: unknown ones must pass."""
    # Only what a reader of any dialect relies on. A codec mends the rest, or reports it with its place.
    value = record.value
    if not isinstance(value, dict):
        what = "message list" if alone else "message"
        raise InvalidInput(f"not a {what}: {json_type(value)}", place=record.place)
    if not any(key in value for key in _SIGNS):
        raise InvalidInput('"role" is missing', place=record.place)
    for key in ("role", "type"):
        if key in value and not isinstance(value[key], str):
            raise InvalidInput(f'"{key}" is {json_type(value[key])}, not text', place=record.place)
    if not isinstance(value.get("content"), str | list | None):
        kind = json_type(value["content"])
        raise InvalidInput(f'"content" is {kind}, not text or a list of blocks', place=record.place)
    return value


# --- Claude Code: one record per line, the message inside records of type "user" and "assistant" ----------------------


def is_claude_code(value: Json) -> bool:
    """Whether a JSON value is a message record of Claude Code."""
    has_role = isinstance(value, dict) and value.get("type") in ("user", "assistant")
    return has_role and isinstance(value.get("message"), dict)


def read_claude_code(records: Sequence[Value], reading: FileReading) -> tuple[list[dict[str, Any]], str | None]:
    """The messages as they were sent, and the model. O(size).

    A reply that was streamed over several records becomes one message again, and so do consecutive tool results.
    Omitted: side chains (unless the whole file is one), error notices shown as replies, the summaries of its own
    compaction, and records written twice.
    """
    messages = [record for record in records if is_claude_code(record.value) and not _is_internal(record.value)]
    # The file of a sub-agent consists of one side chain: there it is the session.
    main = [record for record in messages if not record.value.get("isSidechain")] or messages
    if reading.lenient:
        _note_missing(main, records, reading)
    out: list[dict[str, Any]] = []
    replies: dict[str, dict[str, Any]] = {}
    model: str | None = None
    # A record written twice has one id: its last copy counts, at the position of the first.
    for record in {str(record.value.get("uuid", record.place)): record for record in main}.values():
        message = record.value["message"]
        try:
            blocks = _blocks(message.get("content"), record.place)
        except InvalidInput as error:
            reading.fault(error)
            continue
        if record.value["type"] == "assistant":
            model = model or (message["model"] if isinstance(message.get("model"), str) else None)
            reply = replies.get(str(message.get("id")))
            if message.get("id") and reply is not None:
                # One record per streamed block; a tool may have answered in between, so the reply need not be last.
                reply["content"] += [block for block in blocks if block not in reply["content"]]
                continue
            out.append({"role": "assistant", "content": blocks})
            if message.get("id"):
                replies[str(message["id"])] = out[-1]
        elif out and out[-1]["role"] == "user" and any(block.get("type") == "tool_result" for block in blocks):
            out[-1]["content"] = _results_first(_blocks(out[-1]["content"], record.place) + blocks)
        else:
            content = message.get("content")
            out.append({"role": "user", "content": content if isinstance(content, str) else blocks})
    return out, model


def _note_missing(main: Sequence[Value], records: Sequence[Value], reading: FileReading) -> None:
    """Report values that are no records, and records whose parent is not in the file."""
    for record in records:
        if not isinstance(record.value, dict):
            reading.unread.append(Unread(record.place, f"not a record: {json_type(record.value)}"))
    ids = {str(record.value.get("uuid")) for record in records if isinstance(record.value, dict)}
    for record in main[1:]:  # the first one may continue another file
        parent = record.value.get("parentUuid")
        if isinstance(parent, str) and parent not in ids:
            reading.unread.append(Unread(record.place, "the record before it is not in the file"))


def _is_internal(value: Mapping[str, Json]) -> bool:
    """Whether Claude Code wrote a record for itself: the model never saw it, or saw it instead of the history."""
    synthetic = value["message"].get("model") == "<synthetic>"
    return bool(value.get("isApiErrorMessage") or value.get("isCompactSummary") or synthetic)


def _blocks(content: Json, place: str) -> list[dict[str, Any]]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    if not isinstance(content, list) or not all(isinstance(block, dict) for block in content):
        raise InvalidInput('"message.content" is not text or a list of blocks', place=place)
    return list(content)


def _results_first(blocks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    # Anthropic refuses a message in which text stands before the results of the calls.
    return sorted(blocks, key=lambda block: block.get("type") != "tool_result")


# --- Codex: one record per line, the item in `payload`; older files hold bare items -----------------------------------

_RECORD_TYPES: Final = ("session_meta", "response_item", "event_msg", "turn_context", "compacted")

# Items that the model was never sent: undo points, and the results of Codex's own compactions.
_INTERNAL_ITEMS: Final = ("ghost_snapshot", "compaction", "context_compaction", "other")


def is_codex(value: Json) -> bool:
    """Whether a JSON value is a record of a rollout file, of either form."""
    if not isinstance(value, dict):
        return False
    wrapped = value.get("type") in _RECORD_TYPES and "payload" in value
    bare_head = "type" not in value and {"id", "timestamp", "instructions"} <= value.keys()
    return wrapped or bare_head or value.get("record_type") == "state"


def read_codex(records: Sequence[Value], reading: FileReading) -> tuple[list[dict[str, Any]], str | None, Json]:
    """The items as they were sent, the model, and the system text. O(size).

    Omitted: events for the screen, turn settings, undo points, and compactions (the items they replaced are kept).
    """
    out: list[dict[str, Any]] = []
    model: str | None = None
    system: Json = None
    for record in records:
        if not isinstance(record.value, dict):
            reading.fault(InvalidInput(f"not a record: {json_type(record.value)}", place=record.place))
            continue
        kind, payload = record.value.get("type"), record.value.get("payload")
        if kind == "response_item" and not isinstance(payload, dict):
            reading.fault(InvalidInput('"payload" is not an object', place=record.place))
            continue
        if isinstance(payload, dict) and kind in ("session_meta", "turn_context"):
            base = payload.get("base_instructions")
            system = system or (base.get("text") if isinstance(base, dict) else None)
            model = model or (payload["model"] if isinstance(payload.get("model"), str) else None)
        item = payload if kind == "response_item" else record.value if "payload" not in record.value else None
        if isinstance(item, dict) and isinstance(item.get("type"), str) and item["type"] not in _INTERNAL_ITEMS:
            out.append(_sent_item(item))
    return out, model, system


def _sent_item(item: Mapping[str, Json]) -> dict[str, Any]:
    """An item in the form in which the API takes it: without a null id, an output object as its text."""
    wire = {key: value for key, value in item.items() if not (key == "id" and value is None)}
    output = wire.get("output")
    if isinstance(output, dict) and isinstance(output.get("content"), str):
        wire["output"] = output["content"]
    return wire
