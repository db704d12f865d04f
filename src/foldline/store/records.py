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
    make = _MAKERS.get(name) if isinstance(name, str) else None
    if make is not None:
        return make(record, codec)
    newer = f"; it was written by a newer version (form {version}, this one reads {VERSION})"
    raise InvalidInput(f"a record of the unknown type {name!r}{newer if version > VERSION else ''}", place="type")


def sealed(record: Record) -> Record:
    """The record itself, or wrapped as text when it is no strict JSON. Raises InvalidInput. O(size).

    Python accepts NaN, Infinity and 1e999 in the arguments of a model. A log that other programs read may not contain
    them, and a session must not fail over them.
    """
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
    seq: Seq = _get(_unsealed(record) if "json" in record else record, "seq", int)
    return seq


def _as_dict(value: object) -> dict[str, Json]:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is no JSON")


def _unsealed(record: Mapping[str, Json]) -> Mapping[str, Json]:
    try:
        inner = json.loads(_get(record, "json", str))
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"holds no JSON: {error}", place="json") from None
    if not isinstance(inner, dict) or "json" in inner:
        raise InvalidInput("holds no record", place="json")
    return inner


# --- messages ---------------------------------------------------------------------------------------------------------


def _record_of_entry(entry: Entry) -> Record:
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
    recorded = _get(record, "message", dict)
    hidden = _get(record, "hidden", bool, False)
    message = replace(
        codec.read(recorded),
        agent_visible=not hidden,
        user_visible=_get(record, "user_visible", bool, True),
        kind=_get(record, "kind", str, ""),
    )
    faults = tuple(map(str, _get(record, "faults", list, [])))
    seq = _get(record, "seq", int)
    return Entry(
        seq, _get(record, "group", int, seq), message, _get(record, "tokens", int, 0), recorded, faults, hidden
    )


def _record_of_fold(fold: Fold, codec: Codec) -> Record:
    out: Record = {"type": "fold", "id": fold.id, "batch": fold.batch, "start": fold.start, "stop": fold.stop}
    if fold.form:
        out["form"] = True
    out |= {"reducer": fold.reducer, "reason": fold.reason, "before_tokens": fold.before_tokens, "tokens": fold.tokens}
    if fold.archive is not None:
        out["archive"] = fold.archive
    return {**out, "shown": [_record_of_message(message, codec) for message in fold.shown]}


def _fold_of(record: Mapping[str, Json], codec: Codec) -> Fold:
    return Fold(
        start=_get(record, "start", int),
        stop=_get(record, "stop", int),
        shown=tuple(_message_of(shown, codec) for shown in _get(record, "shown", list)),
        tokens=_get(record, "tokens", int),
        reducer=_get(record, "reducer", str),
        reason=_get(record, "reason", str),
        before_tokens=_get(record, "before_tokens", int, 0),
        archive=_get(record, "archive", str, None),
        id=_get(record, "id", int),
        form=_get(record, "form", bool, False),
        batch=_get(record, "batch", int, -1),
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
        told = _told_of(message.parts, read.parts)
        if told is not None:
            out["told"] = told
        else:
            out["parts"] = [_record_of_part(part) for part in message.parts]
    return {**out, "message": message.wire}


def _message_of(record: Json, codec: Codec) -> Message:
    if not isinstance(record, Mapping):
        raise InvalidInput(f"must be an object, not {type(record).__name__}", place="shown")
    wire = _get(record, "message", dict, None)
    flags: dict[str, Any] = {key: _get(record, key, type(plain), plain) for key, plain in _FLAGS.items()}
    parts = tuple(_part_of(part) for part in _get(record, "parts", list, []))
    if wire is None:
        return Message(_get(record, "role", str), parts, **flags)
    message = replace(codec.read(wire), **flags)
    if "role" in record:
        message = replace(message, role=_get(record, "role", str))
    if "told" in record:
        return replace(message, parts=(Text(message.text, raw=_told(_get(record, "told", list))),))
    return replace(message, parts=parts) if "parts" in record else message


def _told_of(parts: tuple[Part, ...], read: tuple[Part, ...]) -> Json:
    """The items of a digest whose text equals what its JSON reads as; None for any other message."""
    match parts, read:
        case ((Text(text, DigestItems(items)),), (Text(same, _),)) if text == same and text:
            return [list(item) for item in items]
    return None


def _told(items: Json) -> DigestItems:
    try:
        return DigestItems(tuple((str(text), bool(user)) for text, user in items))
    except (TypeError, ValueError):
        raise InvalidInput("must be a list of [text, whether the user said it]", place="told") from None


# --- parts ------------------------------------------------------------------------------------------------------------

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
        raise InvalidInput("holds something that is no part of a message", place="parts")
    given: dict[str, Any] = {field.name: record[field.name] for field in fields(kind) if field.name in record}
    if "parts" in given:
        given["parts"] = tuple(_part_of(inner) for inner in _get(record, "parts", list))
    if "told" in record:
        given["raw"] = _told(_get(record, "told", list))
    try:
        part: Part = kind(**given)
    except TypeError as error:
        raise InvalidInput(f"holds an incomplete {record['part']}: {error}", place="parts") from None
    return part


# --- events that are figures ------------------------------------------------------------------------------------------

_PLAIN: Final[Mapping[str, type[Any]]] = MappingProxyType(
    {"unfold": Unfold, "usage": Usage, "limits": Limited, "pin": Pin, "branch": Branch}
)


def _values_of(value: Any) -> Record:
    given = {field.name: getattr(value, field.name) for field in fields(value)}
    usual = {field.name: field.default for field in fields(value)}
    return {
        name: _values_of(one) if isinstance(one, RentState) else one
        for name, one in given.items()
        if one != usual[name]
    }


def _plain(kind: type[T]) -> Callable[[Mapping[str, Json], Codec], T]:
    types = {field.name: _type_of(str(field.type)) for field in fields(kind)}  # type: ignore[arg-type]

    def make(record: Mapping[str, Json], codec: Codec) -> T:
        given = {name: _get(record, name, of) for name, of in types.items() if record.get(name) is not None}
        if "rent" in given:
            given["rent"] = _rent({"type": "rent", **given["rent"]}, codec)
        try:
            return kind(**given)
        except TypeError:
            missing = ", ".join(name for name in types if name not in given)
            raise InvalidInput(f"is incomplete: one of {missing} is missing", place=str(record["type"])) from None

    return make


def _type_of(annotation: str) -> type[Any]:
    if "RentState" in annotation:
        return dict
    return next((kind for kind in (bool, str) if kind.__name__ in annotation), int)


_rent: Final = _plain(RentState)

_MAKERS: Final[Mapping[str, Callable[[Mapping[str, Json], Codec], Event]]] = MappingProxyType(
    {"message": _entry_of, "fold": _fold_of, **{name: _plain(kind) for name, kind in _PLAIN.items()}}
)

_MUST: Final[Any] = object()


def _get(record: Mapping[str, Json], name: str, kind: type[T], default: Any = _MUST) -> Any:
    value = record.get(name)
    if value is None and default is not _MUST:
        return default
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise InvalidInput(f"must be of type {kind.__name__}, not {type(value).__name__}", place=name)
    return value
