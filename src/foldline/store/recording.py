"""The log of a session, decoded: its header, its events, and counts over them. The same for files and tables.

`decode_log` turns records into events and checks their order; `Recording` is the result for readers; `Tally` counts
while a log grows. Files and tables only supply the records.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import UTC
from itertools import chain
from typing import Any, Final

from foldline.catalog.models import lookup
from foldline.codecs import codec as codec_for
from foldline.engine.context import Context
from foldline.engine.policy import Policy
from foldline.engine.presets import policy
from foldline.errors import FoldlineError, InvalidInput
from foldline.messages import Json
from foldline.store.clock import Clock, stamp
from foldline.store.records import VERSION, Record, event_of
from foldline.store.snapshot import Snapshot, title_of
from foldline.view.transcript import Branch, Entry, Event, Fold, Limited, Pin, Seq, Unfold

__all__ = [
    "CHANGEABLE",
    "ID",
    "Header",
    "Recording",
    "Tally",
    "decode_log",
    "first_header",
    "first_record",
    "header_of",
    "header_of_snapshot",
    "recording_of",
    "resolve_id",
    "snapshot_of",
    "split_id",
    "stop_of",
    "without_stale_limits",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """The identity and settings of a session: its first record, updated by later `settings` records.

    `window` is the user's setting, None when the server or the catalogue decides. `parent` is the session from which
    this one was forked. `version` is the version of the log's format.
    """

    id: str
    created: str
    dialect: str
    model: str | None = None
    policy: str = "balanced"
    window: int | None = None
    title: str = ""
    parent: str | None = None
    version: int = VERSION

    def record(self) -> Record:
        """The first record of the log."""
        values = ((one.name, getattr(self, one.name)) for one in fields(self) if one.name != "version")
        return {"type": "session", "v": self.version, **{name: value for name, value in values if value is not None}}

    def changed(self, record: Mapping[str, Json]) -> Header:
        """The header with the changes of a `settings` record. Raises InvalidInput."""
        return replace(self, **_checked({name: record[name] for name in CHANGEABLE if name in record}))


# A client retries a turn within minutes. Without a bound the keys of a bot that runs for months would fill memory.
_MAX_TURN_KEYS: Final = 1_000

# The dialect is not among them: every message of the log is in it.
CHANGEABLE: Final = ("model", "policy", "window", "title")
_KINDS: Final[Mapping[str, type | tuple[type, ...]]] = {
    "id": str, "created": str, "dialect": str, "model": (str, type(None)), "policy": str, "window": (int, type(None)),
    "title": str, "parent": (str, type(None)), "version": int,
}  # fmt: skip


def _checked(values: dict[str, Any]) -> dict[str, Any]:
    for name, value in values.items():
        if not isinstance(value, _KINDS[name]):
            raise InvalidInput(f"is not a valid {name} of a session: {str(value)[:80]!r}", place=name)
    return values


def first_record(header: Header) -> Record:
    """The record that a log begins with."""
    return {**header.record(), "at": header.created}


def header_of(record: Mapping[str, Json]) -> Header:
    """The header in the first record of a log. Raises InvalidInput."""
    if record.get("type") != "session":
        raise InvalidInput("the log does not begin with the record of its session", place="type")
    values = {name: record[name] for name in _KINDS if name in record} | {"version": record.get("v")}
    missing = [name for name in ("id", "created", "dialect") if name not in values]
    if missing:
        raise InvalidInput(f"is missing in the record of the session: {missing[0]}", place=missing[0])
    header = Header(**_checked(values))
    codec_for(header.dialect)  # an unknown dialect is named here, not later
    return header


def header_of_snapshot(kept: Snapshot) -> Header:
    """The header of a session from its snapshot, which lacks only the window that the user set."""
    return Header(
        id=kept.id,
        created=kept.created,
        dialect=kept.dialect,
        model=kept.model,
        policy=kept.policy,
        title=kept.title,
        parent=kept.parent,
    )


@dataclass(slots=True)
class Tally:
    """Counts over the records of a log, updated as it grows. O(1) per record."""

    updated: str = ""
    turns: int = 0
    running: bool = False
    """Whether the newest turn has begun and not ended."""
    keys: dict[str, Seq] = field(default_factory=dict)
    """Client keys of the newest turns, each with the first message of its turn."""
    messages: int = 0
    folds: set[int] = field(default_factory=set)
    """Ids of the folds in effect."""
    title: str = ""
    model: str | None = None
    events: int = 0
    since: int = 0
    """Number of events before the current model was chosen: limits learned before then no longer apply."""
    _key: str = ""

    def count(self, record: Mapping[str, Json], event: Event | None = None) -> None:
        """Count one record, and its event if it has one; the first words of the user become the title."""
        # Without an "at" (a record of another program) the time before it stands.
        self.updated = str(record.get("at", self.updated))
        if record.get("type") == "turn":
            self.running = record.get("state") == "begun"
            self.turns += self.running
            self._key = str(record["key"]) if self.running and record.get("key") else ""
        if record.get("type") in ("session", "settings") and record.get("model", self.model) != self.model:
            # Limits are learned from a model's errors. Those of the model before would shrink the window of this one.
            self.model, self.since = record["model"], self.events
        self.events += event is not None
        if isinstance(event, Entry):
            self.messages += 1
            self._start_turn(event.seq)
            message = event.message
            # Messages of a `kind` are Foldline's own, and hidden ones were never the user's words to the model.
            if not self.title and message.role == "user" and message.agent_visible and not message.kind:
                self.title = title_of(message.text)
        elif isinstance(event, Fold):
            self.folds.add(event.id)
        elif isinstance(event, Unfold):
            self.folds.discard(event.fold)

    def _start_turn(self, seq: Seq) -> None:
        # A turn is known by its first message. One that crashed before that message was never accepted, so its key must
        # not be found: the client sends it again.
        if not self._key:
            return
        self.keys[self._key] = seq
        self._key = ""
        if len(self.keys) > _MAX_TURN_KEYS:
            del self.keys[next(iter(self.keys))]


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """A session read without being acquired: for lists, views and exports.

    `other` are the records that are no events of the core (turns, settings, notes). `log_bytes` is the size of the log
    when it was read.
    """

    header: Header
    events: tuple[Event, ...]
    other: tuple[Record, ...]
    tally: Tally
    log_bytes: int

    def replay(self, **settings: Any) -> Context:
        """The context that results from the log, for inspection. O(log).

        Settings default to the session's own. A policy that only its agent knows is replaced by "balanced", which
        changes nothing that is shown: folds come from the log. Raises InvalidInput for records that contradict each
        other.
        """
        # Folds come from the log, so a replay needs neither the policy's reducers nor a model for summaries. It only
        # needs a policy to start from.
        header = self.header
        own: dict[str, Any] = {
            "dialect": header.dialect,
            "model": header.model,
            "policy": _policy_or_balanced(header.policy),
            "window": _window(header),
        }
        try:
            return Context.replay(without_stale_limits(self.events, self.tally), **{**own, **settings})
        except FoldlineError:
            raise
        except (LookupError, ValueError, TypeError, AttributeError) as error:  # a fork from nowhere, and the like
            raise InvalidInput(f"the records of this log contradict each other: {error}", place=header.id) from error


def _window(header: Header) -> int:
    return header.window or lookup(header.model).window_tokens


def _policy_or_balanced(name: str) -> Policy:
    try:
        return policy(name)
    except InvalidInput:
        return policy("balanced")


def without_stale_limits(events: Iterable[Event], tally: Tally) -> Iterator[Event]:
    """The events without limits that were learned for earlier models."""
    return (event for at, event in enumerate(events) if at >= tally.since or not isinstance(event, Limited))


def recording_of(log: Iterable[tuple[Header, Record, Event | None]], *, log_bytes: int, place: str) -> Recording:
    """The session in a decoded log. O(log). Raises InvalidInput for an empty one."""
    # One pass: a log is decoded lazily, and a second reading could see what another process has written meanwhile.
    tally, header = Tally(), None
    events: list[Event] = []
    other: list[Record] = []
    for header, record, event in log:  # noqa: B007 - the last one, with every change in it
        tally.count(record, event)
        if event is not None:
            events.append(event)
        elif record.get("type") != "session":
            other.append(record)
    if header is None:
        raise InvalidInput("the log is empty", place=place)
    return Recording(header=header, events=tuple(events), other=tuple(other), tally=tally, log_bytes=log_bytes)


def snapshot_of(header: Header, tally: Tally, context: Context | None, log_bytes: int) -> Snapshot:
    """The snapshot of a session; without a context, of one that has no message yet."""
    window_tokens = _window(header) if context is None else context.limits.window_tokens
    return Snapshot(
        id=header.id,
        created=header.created,
        updated=tally.updated,
        dialect=header.dialect,
        model=header.model,
        policy=header.policy,
        title=header.title or tally.title,
        parent=header.parent,
        turns=tally.turns,
        messages=tally.messages,
        folds=len(tally.folds),
        tokens=0 if context is None else context.figures.used_tokens,
        window_tokens=window_tokens,
        log_bytes=log_bytes,
    )


def decode_log(records: Iterable[Record], place: Callable[[int], str]) -> Iterator[tuple[Header, Record, Event | None]]:
    """For each record: the header from there on, the record, and its event if it has one. O(log).

    Raises InvalidInput for a record that does not belong there; `place` names a record by its number, from 0.
    """
    # Checksums say that records are as written; this says that they make sense in this order. Logs of older versions
    # have no checksums: in them a lost or doubled message shows here alone, by its `seq`.
    header: Header | None = None
    seen: Seq = 0
    for number, record in enumerate(records):
        event: Event | None = None
        try:
            if header is None:
                header, codec = header_of(record), codec_for(record["dialect"])
            elif record.get("type") == "settings":
                header = header.changed(record)
            elif record.get("type") not in ("turn", "note"):
                event = event_of(record, codec, version=header.version)
                seen = _count_messages(event, seen)
        except InvalidInput as error:
            raise InvalidInput(str(error), place=place(number)) from None
        yield header, record, event


def stop_of(event: Event | None) -> Seq:
    """The number of messages that must precede an event."""
    # Unfold and Usage name no message. Their ids are checked by the replay, which knows the folds.
    match event:
        case Entry(seq=stop) | Fold(stop=stop) | Branch(stop=stop):
            return stop
        case Pin(seq=seq):
            return seq + 1
    return 0


def _count_messages(event: Event, seen: Seq) -> Seq:
    """The number of messages up to this event. Raises InvalidInput for a missing or repeated message."""
    stop = stop_of(event)
    if isinstance(event, Entry) and stop != seen:
        raise InvalidInput(f"message {stop:,} is here instead of {seen:,}: one is missing or doubled", place="seq")
    if stop > seen:
        raise InvalidInput(f"it refers to message {stop - 1:,}, but there are only {seen:,} messages", place="seq")
    return seen + isinstance(event, Entry)


ID: Final = re.compile(r"\d{8}-\d{6}-[0-9a-f]{8}")
"""Time, then chance: ids sort by age, and contain nothing special in a path or a pattern."""


def first_header(
    clock: Clock,
    *,
    dialect: str,
    model: str | None,
    policy: str,
    window: int | None,
    title: str,
    parent: str | None,
) -> Header:
    """The header of a session that begins now, with an id from the time and chance."""
    # 32 bits of chance behind the second: two servers that begin a session in one second must not meet, and whoever
    # stores the header checks for the rest (`mkdir`, UNIQUE).
    moment = clock().astimezone(UTC)
    return Header(
        id=f"{moment:%Y%m%d-%H%M%S}-{secrets.token_hex(4)}",
        created=stamp(lambda: moment),
        dialect=dialect,
        model=model,
        policy=policy,
        window=window,
        title=title,
        parent=parent,
    )


def split_id(records: Iterable[Record]) -> tuple[str, Iterator[Record]]:
    """The id in the first record of a log, and the whole log. Raises InvalidInput."""
    log = iter(records)
    first = next(log, None)
    if first is None:
        raise InvalidInput("the log is empty", place="records")
    name = header_of(first).id
    if not ID.fullmatch(name):
        raise InvalidInput(f"is not an id of a session: {name[:80]!r}", place="id")
    return name, chain([first], log)


# The characters and the length of an id. Anything else finds nothing, and reaches neither a path nor a LIKE pattern.
_PREFIX = re.compile(r"[0-9a-f-]{1,24}")


def resolve_id(name: str, beginning: Callable[[str], Iterable[str]]) -> str:
    """The one id that equals a name or begins with it. Raises InvalidInput when there is none, or several.

    `beginning` lists the ids that begin with a text. It is called only for hexadecimal digits and dashes, so it may
    build a pattern from the text.
    """
    found = sorted(beginning(name)) if _PREFIX.fullmatch(name) else []
    if len(found) == 1:
        return found[0]
    if not found:
        raise InvalidInput(f"there is no session {name[:80]!r}", place="session")
    raise InvalidInput(f"{len(found)} sessions begin with {name!r}: {', '.join(found[:5])}", place="session")
