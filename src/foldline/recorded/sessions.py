"""Reading recorded sessions from files.

    a session object      {"messages": [...], "system"?, "tools"?, "id"?, "source"?, "licence"?, "model"?, "dialect"?}
    a request body        the same shape; for the Responses API {"input": [...], "instructions"?}
    a list of messages    [...], or one message per line (.jsonl)
    Claude Code           one record per line, `message` inside records of type "user" and "assistant"
    Codex                 one record per line, `payload` inside records of type "response_item"; older files: bare items

Each may be packed with gzip, whatever its name says. The messages are what the agent would have sent: records that a
tool keeps for itself are left out, and so are the summaries of its own context management.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from foldline.codecs import DIALECTS
from foldline.codecs import codec as codec_for
from foldline.errors import InvalidInput
from foldline.messages import Json, Wire
from foldline.recorded.json_values import Reading, Unread, Value, text_in, values_in

__all__ = ["Session", "detect_dialect", "parse_session", "read_session"]

_ENDINGS = (".gz", ".jsonl", ".ndjson", ".json")

_BLOCK_OF = {
    "input_text": "openai-responses",
    "output_text": "openai-responses",
    "input_image": "openai-responses",
    "input_file": "openai-responses",
    "summary_text": "openai-responses",
    "image_url": "openai-chat",
    "input_audio": "openai-chat",
    "tool_use": "anthropic",
    "tool_result": "anthropic",
    "thinking": "anthropic",
    "redacted_thinking": "anthropic",
    "image": "anthropic",
    "document": "anthropic",
    "server_tool_use": "anthropic",
}
"""Block types that only one dialect has; "text", "refusal" and "file" tell nothing."""

_CODEX_RECORDS = ("session_meta", "response_item", "event_msg", "turn_context", "compacted")
_CODEX_PRIVATE_ITEMS = ("ghost_snapshot", "compaction", "context_compaction", "other")
"""Items of a rollout that are not conversation: its undo points and its own compactions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """One recorded session: `messages` are wire messages of `dialect`, in order, as they were recorded.

    `system` and `tools` stand beside the messages where the dialect has them there. `source` and `licence` are where
    it comes from, "" when unknown. `body` is the object that held the messages, None when there was none.
    `unread` is what could not be read, where that was asked for.
    """

    name: str
    dialect: str
    messages: tuple[Wire, ...]
    system: Json = None
    tools: tuple[Wire, ...] | None = None
    model: str | None = None
    source: str = ""
    licence: str = ""
    body: Wire | None = None
    unread: tuple[Unread, ...] = ()


def read_session(path: str | os.PathLike[str], *, dialect: str | None = None, lenient: bool = False) -> Session:
    """Read one session from a file; the format is told from the content. O(size).

    Raises InvalidInput, with the file and the line, byte or message named, for what is not a session. With `lenient`
    what is whole of a damaged file is read, and what is not is in `unread`: it raises where nothing can be read.
    """
    place = os.fspath(path)
    try:
        with open(place, "rb") as file:
            data = file.read()
    except OSError as error:
        raise InvalidInput((error.strerror or str(error)).lower(), place=place) from error
    return parse_session(data, place=place, dialect=dialect, lenient=lenient)


def parse_session(data: bytes, *, place: str, dialect: str | None = None, lenient: bool = False) -> Session:
    """Read one session from the bytes of a file; `place` names it in errors. As `read_session` otherwise. O(size)."""
    if dialect is not None:
        _known_dialect(dialect, "dialect")
    reading = Reading(lenient)
    records = values_in(text_in(data, place, reading), place, reading)
    session = _session(records, place, dialect, reading)
    if not lenient:
        return session
    return replace(session, messages=_readable(session, place, reading), unread=tuple(reading.unread))


def _session(records: list[Value], place: str, dialect: str | None, reading: Reading) -> Session:
    name = _stem(place)
    values = [record.value for record in records]
    if any(map(_is_claude_code, values)):
        return _foreign(name, "anthropic", _claude_code(_once(records, reading), reading), dialect, place)
    if any(map(_is_codex, values)):
        return _foreign(name, "openai-responses", _codex(_once(records, reading), reading), dialect, place)
    alone = len(records) == 1 and isinstance(values[0], dict) and not _is_message(values[0])
    if alone and (records[0].place == place or (reading.lenient and "messages" in values[0])):
        return _from_object(name, values[0], dialect, place, reading)
    messages = tuple(_checked(_once(records, reading), place, reading))
    if not messages:
        raise _nothing(place, reading)
    return Session(name=name, dialect=dialect or detect_dialect(values), messages=messages)


def _readable(session: Session, place: str, reading: Reading) -> tuple[Wire, ...]:
    """The messages that the dialect can read at all."""
    codec, found = codec_for(session.dialect), []
    for index, message in enumerate(session.messages):
        try:
            codec.read(message)
        except InvalidInput as error:
            reading.unread.append(Unread(f"{place}: message {index}", str(error)))
        else:
            found.append(message)
    if not found:
        raise _nothing(place, reading)
    return tuple(found)


def _nothing(place: str, reading: Reading) -> InvalidInput:
    """The error for a file of which nothing can be read: what is wrong first."""
    if not reading.unread:
        return InvalidInput("holds no message that can be read", place=place)
    return InvalidInput(reading.unread[0].reason, place=reading.unread[0].place)


def _once(records: Sequence[Value], reading: Reading) -> list[Value]:
    """Without records that were written twice, one after the other, where each has a time or an id of its own."""
    if not reading.lenient:
        return list(records)
    out: list[Value] = []
    for record in records:
        if out and record.value == out[-1].value and isinstance(record.value, dict) and _is_own(record.value):
            reading.unread.append(Unread(record.place, "the same as the one before it: written twice"))
        else:
            out.append(record)
    return out


def _is_own(value: Mapping[str, Json]) -> bool:
    names = ("uuid", "timestamp", "id", "call_id", "tool_call_id", "tool_calls")
    return any(value.get(name) for name in names)


def detect_dialect(messages: Iterable[Json], *, system: Json = None) -> str:
    """The dialect in which these messages are written, told from shapes that only one has. O(blocks).

    Plain text fits all three: it is taken as "openai-chat", and with a list of system blocks as "anthropic".
    """
    votes: Counter[str] = Counter()
    for message in messages:
        votes.update(_hints(message))
    if not votes:
        return "anthropic" if isinstance(system, list) else "openai-chat"
    return max(DIALECTS, key=lambda name: votes[name])


def _stem(place: str) -> str:
    name = os.path.basename(place) or place
    for ending in _ENDINGS:
        name = name.removesuffix(ending)
    return name or place


# ------------------------------------------------------------------ plain messages


def _is_message(value: Json) -> bool:
    return isinstance(value, dict) and "messages" not in value and ("role" in value or "type" in value)


def _hints(message: Json) -> Iterator[str]:
    if not isinstance(message, dict):
        return
    if "role" not in message and "type" in message:
        yield "openai-responses"
    if message.get("role") in ("tool", "function") or message.get("tool_calls"):
        yield "openai-chat"
    content = message.get("content")
    for block in content if isinstance(content, list) else ():
        if isinstance(block, dict) and (known := _BLOCK_OF.get(str(block.get("type")))):
            yield known


def _known_dialect(value: Json, place: str) -> str:
    if value not in DIALECTS:
        raise InvalidInput(f"unknown dialect {value!r}; known are {', '.join(DIALECTS)}", place=place)
    return str(value)


def _from_object(name: str, value: Mapping[str, Json], dialect: str | None, place: str, reading: Reading) -> Session:
    body_of_responses = "input" in value and "messages" not in value
    field, beside = ("input", "instructions") if body_of_responses else ("messages", "system")
    messages = value.get(field)
    if not isinstance(messages, list):
        what = "is missing" if messages is None else f"is {_kind(messages)}, not a list"
        raise InvalidInput(f'not a message list: "{field}" {what}', place=place)
    if not messages:
        raise InvalidInput(f'"{field}" is an empty list', place=place)
    system, tools = value.get(beside), value.get("tools")
    if system is not None and not isinstance(system, str | list):
        raise InvalidInput(f'"{beside}" is {_kind(system)}, not text or a list of blocks', place=place)
    if tools is not None and not (isinstance(tools, list) and all(isinstance(tool, dict) for tool in tools)):
        raise InvalidInput('"tools" is not a list of objects', place=place)
    named = dialect or ("openai-responses" if body_of_responses else None)
    if named is None and value.get("dialect") is not None:
        named = _known_dialect(value["dialect"], place)
    records = [Value(f"{place}: message {index}", item) for index, item in enumerate(messages)]
    texts = {key: value[key] for key in ("source", "licence") if isinstance(value.get(key), str)}
    return Session(
        name=value["id"] if isinstance(value.get("id"), str) and value["id"] else name,
        dialect=named or detect_dialect(messages, system=system),
        messages=tuple(_checked(records, place, reading)),
        system=system,
        tools=None if tools is None else tuple(tools),
        model=value["model"] if isinstance(value.get("model"), str) else None,
        body=value,
        **texts,
    )


def _checked(records: Sequence[Value], place: str, reading: Reading) -> Iterator[Wire]:
    for record in records:
        try:
            yield _message(record, alone=len(records) == 1 and record.place == place)
        except InvalidInput as error:
            reading.fault(error)


def _message(record: Value, *, alone: bool) -> Wire:
    value = record.value
    if not isinstance(value, dict):
        what = "message list" if alone else "message"
        raise InvalidInput(f"not a {what}: {_kind(value)}", place=record.place)
    if "role" not in value and "type" not in value:
        raise InvalidInput('"role" is missing', place=record.place)
    for key in ("role", "type"):
        if key in value and not isinstance(value[key], str):
            raise InvalidInput(f'"{key}" is {_kind(value[key])}, not text', place=record.place)
    if not isinstance(value.get("content"), str | list | None):
        kind = _kind(value["content"])
        raise InvalidInput(f'"content" is {kind}, not text or a list of blocks', place=record.place)
    return value


def _kind(value: Json) -> str:
    for types, name in ((bool, "true or false"), (int | float, "a number"), (str, "text"), (list, "a list")):
        if isinstance(value, types):
            return name
    return "null" if value is None else "an object"


def _foreign(
    name: str, own: str, found: tuple[list[dict[str, Any]], str | None, Json], dialect: str | None, place: str
) -> Session:
    messages, model, system = found
    if dialect not in (None, own):
        raise InvalidInput(f"this session is {own}, not {dialect}", place=place)
    if not messages:
        raise InvalidInput("holds no messages of a conversation", place=place)
    return Session(name=name, dialect=own, messages=tuple(messages), system=system, model=model)


# ------------------------------------------------------------------ Claude Code


def _is_claude_code(value: Json) -> bool:
    spoken = isinstance(value, dict) and value.get("type") in ("user", "assistant")
    return spoken and isinstance(value.get("message"), dict)


def _claude_code(records: Sequence[Value], reading: Reading) -> tuple[list[dict[str, Any]], str | None, Json]:
    """The conversation of a Claude Code file: a reply streamed over several records is one message again, and results
    that follow each other are one message, as they were sent.

    Left out: side chains (unless the whole file is one), error notices shown as replies, summaries of its own
    compaction, records that were written twice.
    """
    spoken = [record for record in records if _is_claude_code(record.value) and not _is_private(record.value)]
    main = [record for record in spoken if not record.value.get("isSidechain")] or spoken
    if reading.lenient:
        _note_missing(main, records, reading)
    out: list[dict[str, Any]] = []
    replies: dict[str, dict[str, Any]] = {}
    model: str | None = None
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
    return out, model, None


def _note_missing(main: Sequence[Value], records: Sequence[Value], reading: Reading) -> None:
    """Name what is no record, and the places where the record that another follows is not in the file."""
    for record in records:
        if not isinstance(record.value, dict):
            reading.unread.append(Unread(record.place, f"not a record: {_kind(record.value)}"))
    known = {str(record.value.get("uuid")) for record in records if isinstance(record.value, dict)}
    for record in main[1:]:
        parent = record.value.get("parentUuid")
        if isinstance(parent, str) and parent not in known:
            reading.unread.append(Unread(record.place, "what stood before it is not in the file"))


def _is_private(value: Mapping[str, Json]) -> bool:
    synthetic = value["message"].get("model") == "<synthetic>"
    return bool(value.get("isApiErrorMessage") or value.get("isCompactSummary") or synthetic)


def _blocks(content: Json, place: str) -> list[dict[str, Any]]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    if not isinstance(content, list) or not all(isinstance(block, dict) for block in content):
        raise InvalidInput('"message.content" is not text or a list of blocks', place=place)
    return list(content)


def _results_first(blocks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(blocks, key=lambda block: block.get("type") != "tool_result")


# ------------------------------------------------------------------ Codex


def _is_codex(value: Json) -> bool:
    if not isinstance(value, dict):
        return False
    wrapped = value.get("type") in _CODEX_RECORDS and "payload" in value
    bare_head = "type" not in value and {"id", "timestamp", "instructions"} <= value.keys()
    return wrapped or bare_head or value.get("record_type") == "state"


def _codex(records: Sequence[Value], reading: Reading) -> tuple[list[dict[str, Any]], str | None, Json]:
    """The conversation of a Codex rollout file, of the wrapped and of the older bare kind.

    Left out: events for the screen, turn settings, undo points, and compactions (the items they replaced are kept).
    """
    out: list[dict[str, Any]] = []
    model: str | None = None
    system: Json = None
    for record in records:
        if not isinstance(record.value, dict):
            reading.fault(InvalidInput(f"not a record: {_kind(record.value)}", place=record.place))
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
        if isinstance(item, dict) and isinstance(item.get("type"), str) and item["type"] not in _CODEX_PRIVATE_ITEMS:
            out.append(_item(item))
    return out, model, system


def _item(item: Mapping[str, Json]) -> dict[str, Any]:
    """An item as it was sent: no null id, and an output that was written as an object is its text."""
    wire = {key: value for key, value in item.items() if not (key == "id" and value is None)}
    output = wire.get("output")
    if isinstance(output, dict) and isinstance(output.get("content"), str):
        wire["output"] = output["content"]
    return wire
