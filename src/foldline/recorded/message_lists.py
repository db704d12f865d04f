"""Plain files of messages: a session object, a request body, a list of messages, or one message per line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from foldline.codecs import DIALECTS
from foldline.codecs.dialect import form_of
from foldline.errors import InvalidInput
from foldline.messages import Json, Wire
from foldline.recorded.json_values import FileReading, Value, json_type
from foldline.recorded.sessions import Session, detect_dialect

__all__ = ["check_dialect", "is_message", "read_messages", "session_from_object"]


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
