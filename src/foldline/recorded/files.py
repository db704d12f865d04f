"""Read a recorded session from a file, whichever of these formats it has.

    a session object      {"messages": [...], "system"?, "tools"?, "id"?, "source"?, "licence"?, "model"?, "dialect"?}
    a request body        the same shape; for the Responses API {"input": [...], "instructions"?}
    a list of messages    [...], or one message per line (.jsonl)
    Claude Code           one record per line, `message` inside records of type "user" and "assistant"
    Codex                 one record per line, `payload` inside records of type "response_item"; older files: bare items

`formats` reads each of them; `_session` chooses. A file may be
compressed with gzip under any name. The messages are what the agent would have sent: records that a tool keeps
for itself are omitted, and so are the summaries of its own context management.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from foldline.codecs import codec as codec_for
from foldline.errors import InvalidInput
from foldline.messages import Json, Wire
from foldline.recorded.formats import (
    check_dialect,
    is_claude_code,
    is_codex,
    is_message,
    read_claude_code,
    read_codex,
    read_messages,
    session_from_object,
)
from foldline.recorded.json_values import FileReading, Unread, Value, text_in, values_in
from foldline.recorded.sessions import Session, detect_dialect

__all__ = ["parse_session", "read_session"]

_ENDINGS: Final = (".gz", ".jsonl", ".ndjson", ".json")


def read_session(path: str | os.PathLike[str], *, dialect: str | None = None, lenient: bool = False) -> Session:
    """Read one session from a file; the content tells the format. O(size).

    Raises InvalidInput, which names the file and the line, byte or message, for anything that is no session. With
    `lenient` the intact parts of a damaged file are read and the others listed in `unread`; it raises when nothing can
    be read.
    """
    place = os.fspath(path)
    # Whole, in memory: what is compressed or damaged can only be judged as a whole, and sessions have megabytes at
    # most.
    try:
        with open(place, "rb") as file:
            data = file.read()
    except OSError as error:
        raise InvalidInput((error.strerror or str(error)).lower(), place=place) from error
    return parse_session(data, place=place, dialect=dialect, lenient=lenient)


def parse_session(data: bytes, *, place: str, dialect: str | None = None, lenient: bool = False) -> Session:
    """Read one session from the bytes of a file, as `read_session` does; errors name it by `place`. O(size)."""
    if dialect is not None:
        check_dialect(dialect, "dialect")
    reading = FileReading(lenient)
    records = values_in(text_in(data, place, reading), place, reading)
    session = _session(records, place, dialect, reading)
    if not lenient:
        return session
    return replace(session, messages=_readable(session, place, reading), unread=tuple(reading.unread))


def _session(records: list[Value], place: str, dialect: str | None, reading: FileReading) -> Session:
    # The agents' own formats come first: their records have a "type" too, and would pass for items of Responses.
    name = _stem(place)
    values = [record.value for record in records]
    if any(map(is_claude_code, values)):
        messages, model = read_claude_code(_without_repeats(records, reading), reading)
        return _checked(Session(name=name, dialect="anthropic", messages=tuple(messages), model=model), dialect, place)
    if any(map(is_codex, values)):
        messages, model, system = read_codex(_without_repeats(records, reading), reading)
        items = tuple(messages)
        own = Session(name=name, dialect="openai-responses", messages=items, system=system, model=model)
        return _checked(own, dialect, place)
    # One object is a session object, unless it is one message. Lenient also when it came from a line of a damaged file.
    alone = len(records) == 1 and isinstance(values[0], dict) and not is_message(values[0])
    if alone and (records[0].place == place or (reading.lenient and "messages" in values[0])):
        return session_from_object(name, values[0], dialect, place, reading)
    found = tuple(read_messages(_without_repeats(records, reading), place, reading))
    if not found:
        raise _nothing(place, reading)
    return Session(name=name, dialect=dialect or detect_dialect(values), messages=found)


def _checked(session: Session, dialect: str | None, place: str) -> Session:
    """The session of an agent's file, which has one dialect. Raises InvalidInput when it is empty or of another."""
    if dialect not in (None, session.dialect):
        raise InvalidInput(f"this session is {session.dialect}, not {dialect}", place=place)
    if not session.messages:
        raise InvalidInput("holds no messages of a conversation", place=place)
    return session


def _readable(session: Session, place: str, reading: FileReading) -> tuple[Wire, ...]:
    """The messages that the codec of the dialect accepts."""
    # The codec decides at the end: a message of the right shape may still hold a part that cannot be read, and would
    # make the whole replay fail.
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


def _nothing(place: str, reading: FileReading) -> InvalidInput:
    """The error for a file without a readable message: its first fault."""
    if not reading.unread:
        return InvalidInput("holds no message that can be read", place=place)
    return InvalidInput(reading.unread[0].reason, place=reading.unread[0].place)


def _without_repeats(records: Sequence[Value], reading: FileReading) -> list[Value]:
    """The records without immediate repeats, when lenient.

    Only a record with a time or an id of its own is dropped: two equal messages in a row may both have been sent.
    """
    if not reading.lenient:
        return list(records)
    out: list[Value] = []
    for record in records:
        if out and record.value == out[-1].value and isinstance(record.value, dict) and _has_identity(record.value):
            reading.unread.append(Unread(record.place, "the same as the one before it: written twice"))
        else:
            out.append(record)
    return out


def _has_identity(value: Mapping[str, Json]) -> bool:
    # Two processes that append to one file, or a writer that repeats after an error, leave such doubles.
    names = ("uuid", "timestamp", "id", "call_id", "tool_call_id", "tool_calls")
    return any(value.get(name) for name in names)


def _stem(place: str) -> str:
    name = os.path.basename(place) or place
    for ending in _ENDINGS:
        name = name.removesuffix(ending)
    return name or place
