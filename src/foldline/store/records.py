"""Events as JSON objects: one record per event, and back.

A record holds what `Context.replay` needs and what a person wants to read: the message as it arrived, the decision as
it was made. Derived data (the repaired form of a message) is computed again. Fields with their default are omitted;
unknown fields are ignored.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from types import MappingProxyType
from typing import Any, Final, TypeAlias, TypeVar

from foldline.codecs.base import Codec
from foldline.errors import InvalidInput
from foldline.messages import Document, Image, Json, Message, Opaque, Part, Reasoning, Text, ToolCall, ToolResult
from foldline.reducers.digest import DigestItems
from foldline.view.transcript import Branch, Entry, Event, Fold, Limited, Pin, RentState, Seq, Unfold, Usage

__all__ = ["VERSION", "Record", "event_of", "record_of", "sealed", "seq_of"]

Record: TypeAlias = dict[str, Json]
T = TypeVar("T")

VERSION: Final = 1
"""The version of the log's format. It rises only when an older reader would misread a newer log."""

# Fields of a message outside its JSON, with their defaults.
_FLAGS: Final = MappingProxyType({"agent_visible": True, "user_visible": True, "pinned": False, "kind": ""})


def record_of(event: Event, codec: Codec) -> Record:
    """The record of an event. O(size of the messages in it)."""
    # Messages and folds have forms of their own, for they hold JSON of a provider. Other events are a few plain fields.
    if isinstance(event, Entry):
        return _record_of_entry(event)
    if isinstance(event, Fold):
        return _record_of_fold(event, codec)
    name = next(name for name, kind in _PLAIN.items() if isinstance(event, kind))
    return {"type": name, **_values_of(event)}


def event_of(record: Mapping[str, Json], codec: Codec, *, version: int = VERSION) -> Event:
    """The event of a record. Raises InvalidInput, which names the field, or a type unknown to this version."""
    if "json" in record:
        record = _unsealed(record)
    name = record.get("type")
    reader = _READERS.get(name) if isinstance(name, str) else None
    if reader is not None:
        return reader(record, codec)
    # Refused, not skipped: an event that this version does not know may change what the model is shown.
    newer = f"; it was written by a newer version (form {version}, this one reads {VERSION})"
    raise InvalidInput(f"a record of the unknown type {name!r}{newer if version > VERSION else ''}", place="type")


def sealed(record: Record) -> Record:
    """The record itself, or wrapped as text when it is no strict JSON. Raises InvalidInput. O(size).

    Python accepts NaN, Infinity and 1e999 in the arguments of a model. A log that other programs read may not contain
    them, and a session must not fail over them.
    """
    # Text in JSON, and not a substitute for the number: the arguments must be replayed as the model wrote them.
    try:
        json.dumps(record, allow_nan=False)
    except (ValueError, TypeError, RecursionError):
        try:
            return {"type": record["type"], "json": json.dumps(record, default=_as_dict)}
        except (ValueError, TypeError, RecursionError) as error:
            raise InvalidInput(f"cannot be written as JSON: {error}", place=str(record["type"])) from error
    return record


def seq_of(record: Mapping[str, Json]) -> Seq | None:
    """The seq of the record of a message, sealed or not; None for any other. Raises InvalidInput."""
    if record.get("type") != "message":
        return None
    seq: Seq = _field(_unsealed(record) if "json" in record else record, "seq", int)
    return seq


def _as_dict(value: object) -> dict[str, Json]:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is no JSON")


def _unsealed(record: Mapping[str, Json]) -> Mapping[str, Json]:
    try:
        inner = json.loads(_field(record, "json", str))
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"holds no JSON: {error}", place="json") from None
    # One level, as it is written: a record that wraps another could be nested without end.
    if not isinstance(inner, dict) or "json" in inner:
        raise InvalidInput("holds no record", place="json")
    return inner


# --- messages ---------------------------------------------------------------------------------------------------------


def _record_of_entry(entry: Entry) -> Record:
    # The JSON as it arrived, never the repaired form: a later version may repair it better, and a request must be able
    # to hold the very bytes that the client sent.
    message = entry.message
    out: Record = {"type": "message", "seq": entry.seq, "group": entry.group, "tokens": entry.tokens}
    if entry.hidden:
        out["hidden"] = True
    if not message.user_visible:
        out["user_visible"] = False
    if message.kind:
        out["kind"] = message.kind
    if entry.faults:
        out["faults"] = list(entry.faults)
    return {**out, "message": entry.recorded}


def _entry_of(record: Mapping[str, Json], codec: Codec) -> Entry:
    # `tokens` is read, not counted again: the log decides what a fold saved, whatever counter this process has.
    recorded = _field(record, "message", dict)
    hidden = _field(record, "hidden", bool, False)
    message = replace(
        codec.read(recorded),
        agent_visible=not hidden,
        user_visible=_field(record, "user_visible", bool, True),
        kind=_field(record, "kind", str, ""),
    )
    faults = tuple(map(str, _field(record, "faults", list, [])))
    seq = _field(record, "seq", int)
    return Entry(
        seq, _field(record, "group", int, seq), message, _field(record, "tokens", int, 0), recorded, faults, hidden
    )


def _record_of_fold(fold: Fold, codec: Codec) -> Record:
    # What a fold shows is stored whole. Computing it again would need the same reducer, counter and model, and a
    # request must not change because one of them did.
    out: Record = {"type": "fold", "id": fold.id, "batch": fold.batch, "start": fold.start, "stop": fold.stop}
    if fold.form:
        out["form"] = True
    out |= {"reducer": fold.reducer, "reason": fold.reason, "before_tokens": fold.before_tokens, "tokens": fold.tokens}
    if fold.archive is not None:
        out["archive"] = fold.archive
    return {**out, "shown": [_record_of_message(message, codec) for message in fold.shown]}


def _fold_of(record: Mapping[str, Json], codec: Codec) -> Fold:
    return Fold(
        start=_field(record, "start", int),
        stop=_field(record, "stop", int),
        shown=tuple(_message_of(shown, codec) for shown in _field(record, "shown", list)),
        tokens=_field(record, "tokens", int),
        reducer=_field(record, "reducer", str),
        reason=_field(record, "reason", str),
        before_tokens=_field(record, "before_tokens", int, 0),
        archive=_field(record, "archive", str, None),
        id=_field(record, "id", int),
        form=_field(record, "form", bool, False),
        batch=_field(record, "batch", int, -1),
    )


def _record_of_message(message: Message, codec: Codec) -> Record:
    """The record of a shown message: its JSON, and its parts only when they differ from what the JSON reads as."""
    out: Record = {key: getattr(message, key) for key, plain in _FLAGS.items() if getattr(message, key) != plain}
    if message.wire is None:
        return {"role": message.role, **out, "parts": [_record_of_part(part) for part in message.parts]}
    # Parts are derived from the JSON wherever possible: a newer reader may understand more of it than this one.
    read = codec.read(message.wire)
    if read.role != message.role:
        out["role"] = message.role
    if read.parts != message.parts:
        items_record = _digest_items_of(message.parts, read.parts)
        if items_record is not None:
            out["told"] = items_record
        else:
            out["parts"] = [_record_of_part(part) for part in message.parts]
    return {**out, "message": message.wire}


def _message_of(record: Json, codec: Codec) -> Message:
    if not isinstance(record, Mapping):
        raise InvalidInput(f"must be an object, not {type(record).__name__}", place="shown")
    wire = _field(record, "message", dict, None)
    flags: dict[str, Any] = {key: _field(record, key, type(plain), plain) for key, plain in _FLAGS.items()}
    parts = tuple(_part_of(part) for part in _field(record, "parts", list, []))
    if wire is None:
        return Message(_field(record, "role", str), parts, **flags)
    message = replace(codec.read(wire), **flags)
    if "role" in record:
        message = replace(message, role=_field(record, "role", str))
    if "told" in record:
        return replace(message, parts=(Text(message.text, raw=_digest_items(_field(record, "told", list))),))
    return replace(message, parts=parts) if "parts" in record else message


def _digest_items_of(parts: tuple[Part, ...], read: tuple[Part, ...]) -> Json:
    """The items of a digest whose text equals what its JSON reads as; None for any other message."""
    # A digest is merged into the next one by its items, which its text alone does not give back. The text itself is not
    # stored twice.
    match parts, read:
        case ((Text(text, DigestItems(items)),), (Text(same, _),)) if text == same and text:
            return [list(item) for item in items]
    return None


def _digest_items(items: Json) -> DigestItems:
    try:
        return DigestItems(tuple((str(text), bool(user)) for text, user in items))
    except (TypeError, ValueError):
        raise InvalidInput("must be a list of [text, whether the user said it]", place="told") from None


# --- parts ------------------------------------------------------------------------------------------------------------

# The names are part of the stored form: an old log must be readable after a class is renamed.
_PARTS: Final[Mapping[str, type[Any]]] = MappingProxyType(
    {
        "text": Text,
        "image": Image,
        "document": Document,
        "reasoning": Reasoning,
        "call": ToolCall,
        "result": ToolResult,
        "opaque": Opaque,
    }
)


def _record_of_part(part: Part) -> Record:
    out: Record = {"part": next(name for name, kind in _PARTS.items() if isinstance(part, kind))}
    for field in fields(part):
        value = getattr(part, field.name)
        if value == field.default:
            continue
        if isinstance(value, DigestItems):
            out["told"] = [list(item) for item in value.items]
        elif field.name == "parts":
            out["parts"] = [_record_of_part(inner) for inner in value]
        else:
            out[field.name] = value
    return out


def _part_of(record: Json) -> Part:
    kind = _PARTS.get(record.get("part", "")) if isinstance(record, Mapping) else None
    if kind is None:
        raise InvalidInput("holds something that is not a part of a message", place="parts")
    values: dict[str, Any] = {field.name: record[field.name] for field in fields(kind) if field.name in record}
    if "parts" in values:
        values["parts"] = tuple(_part_of(inner) for inner in _field(record, "parts", list))
    if "told" in record:
        values["raw"] = _digest_items(_field(record, "told", list))
    try:
        part: Part = kind(**values)
    except TypeError as error:
        raise InvalidInput(f"holds an incomplete {record['part']}: {error}", place="parts") from None
    return part


# --- events that are figures ------------------------------------------------------------------------------------------

# Likewise: names as stored. The fields are those of the dataclasses, so renaming a field is a change of the format.
_PLAIN: Final[Mapping[str, type[Any]]] = MappingProxyType(
    {"unfold": Unfold, "usage": Usage, "limits": Limited, "pin": Pin, "branch": Branch}
)


def _values_of(value: Any) -> Record:
    values = {field.name: getattr(value, field.name) for field in fields(value)}
    usual = {field.name: field.default for field in fields(value)}
    return {
        name: _values_of(one) if isinstance(one, RentState) else one
        for name, one in values.items()
        if one != usual[name]
    }


def _plain(kind: type[T]) -> Callable[[Mapping[str, Json], Codec], T]:
    # Annotations are text here (`from __future__ import annotations`); the few types that occur are found by name.
    types = {field.name: _type_of(str(field.type)) for field in fields(kind)}  # type: ignore[arg-type]

    def reader(record: Mapping[str, Json], codec: Codec) -> T:
        values = {name: _field(record, name, of) for name, of in types.items() if record.get(name) is not None}
        if "rent" in values:
            values["rent"] = _rent({"type": "rent", **values["rent"]}, codec)
        try:
            return kind(**values)
        except TypeError:
            missing = ", ".join(name for name in types if name not in values)
            raise InvalidInput(f"is incomplete: one of {missing} is missing", place=str(record["type"])) from None

    return reader


def _type_of(annotation: str) -> type[Any]:
    if "RentState" in annotation:
        return dict
    return next((kind for kind in (bool, str) if kind.__name__ in annotation), int)


_rent: Final = _plain(RentState)

_READERS: Final[Mapping[str, Callable[[Mapping[str, Json], Codec], Event]]] = MappingProxyType(
    {"message": _entry_of, "fold": _fold_of, **{name: _plain(kind) for name, kind in _PLAIN.items()}}
)

_REQUIRED: Final[Any] = object()


def _field(record: Mapping[str, Json], name: str, kind: type[T], default: Any = _REQUIRED) -> Any:
    # null counts as absent: programs that rewrite JSON add it. A bool is an int to Python, but no number of a log.
    value = record.get(name)
    if value is None and default is not _REQUIRED:
        return default
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise InvalidInput(f"must be of type {kind.__name__}, not {type(value).__name__}", place=name)
    return value
