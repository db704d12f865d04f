"""One session on disk: a folder with its log, its archive and a snapshot of how it stands.

events.jsonl   the log: a record that names the session, then one per event, with the time at which it was written
archive/       originals of what was folded, by their hash
state.yaml     the snapshot
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Literal, Self, TypeAlias

from foldline.codecs import codec as codec_for
from foldline.context import Context
from foldline.errors import InvalidInput
from foldline.messages import Json
from foldline.store.events import ANOTHER_WRITER, EventLog, Torn, read_events
from foldline.store.files import FileArchive
from foldline.store.records import VERSION, Record, event_of, record_of
from foldline.store.snapshot import Snapshot, shown_messages, title_of, write_snapshot
from foldline.transcript import Entry, Event, Fold, Unfold

__all__ = ["Clock", "Header", "Recording", "StoredSession", "Tally", "now_utc", "read_recording"]

Clock: TypeAlias = Callable[[], datetime]

LOG: Final = "events.jsonl"
STATE: Final = "state.yaml"
ARCHIVE: Final = "archive"


def now_utc() -> datetime:
    """The time, in UTC."""
    return datetime.now(UTC)


def stamp(clock: Clock) -> str:
    """The time as records have it: ISO 8601, UTC, milliseconds."""
    return clock().astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """What a session is: its first record, with later changes of model, policy, window and title in it.

    `window` is what the user set, None where it was left to the server or the catalogue. `parent` is the session that
    this one was forked from. `version` is the form of the log.
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
        """The header with what a `settings` record says. Raises InvalidInput."""
        return replace(self, **_checked({name: record[name] for name in _CHANGEABLE if name in record}))


_CHANGEABLE: Final = ("model", "policy", "window", "title")
_KINDS: Final[Mapping[str, type | tuple[type, ...]]] = {
    "id": str, "created": str, "dialect": str, "model": (str, type(None)), "policy": str, "window": (int, type(None)),
    "title": str, "parent": (str, type(None)), "version": int,
}  # fmt: skip


def _checked(given: dict[str, Any]) -> dict[str, Any]:
    for name, value in given.items():
        if not isinstance(value, _KINDS[name]):
            raise InvalidInput(f"is no {name} of a session: {str(value)[:80]!r}", place=name)
    return given


def header_of(record: Mapping[str, Json]) -> Header:
    """The header in the first record of a log. Raises InvalidInput."""
    if record.get("type") != "session":
        raise InvalidInput("the log does not begin with the record of its session", place="type")
    given = {name: record[name] for name in _KINDS if name in record} | {"version": record.get("v")}
    missing = [name for name in ("id", "created", "dialect") if name not in given]
    if missing:
        raise InvalidInput(f"is missing in the record of the session: {missing[0]}", place=missing[0])
    header = Header(**_checked(given))
    codec_for(header.dialect)  # an unknown dialect is named here, not later
    return header


@dataclass(slots=True)
class Tally:
    """Counts over the records of a log, kept while it grows. O(1) per record."""

    updated: str = ""
    turns: int = 0
    messages: int = 0
    folds: set[int] = field(default_factory=set)
    title: str = ""

    def take(self, record: Mapping[str, Json], event: Event | None = None) -> None:
        """Count one record; with its event, the first words of the user become the title."""
        self.updated = str(record.get("at", self.updated))
        if record.get("type") == "turn" and record.get("state") == "begun":
            self.turns += 1
        if isinstance(event, Entry):
            self.messages += 1
            message = event.message
            if not self.title and message.role == "user" and message.agent_visible and not message.kind:
                self.title = title_of(message.text)
        elif isinstance(event, Fold):
            self.folds.add(event.id)
        elif isinstance(event, Unfold):
            self.folds.discard(event.fold)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """A session as it was read, without taking it: for lists, looks and exports.

    `other` are the records that are no events of the core (turns, settings, notes). `log_bytes` is the size that the
    log had.
    """

    header: Header
    events: tuple[Event, ...]
    other: tuple[Record, ...]
    tally: Tally
    log_bytes: int

    def replay(self, **settings: Any) -> Context:
        """The context that the log leads to, under the session's own settings unless others are given. O(log)."""
        own = {"dialect": self.header.dialect, "model": self.header.model, "policy": self.header.policy}
        return Context.replay(self.events, **{**own, "window": self.header.window, **settings})


def read_recording(folder: Path) -> Recording:
    """Reads the log of a session, which another process may be writing. O(log).

    Raises FileNotFoundError, and InvalidInput that names file and line.
    """
    path = folder / LOG
    log_bytes = _size(path)
    tally, header = Tally(), None
    events: list[Event] = []
    other: list[Record] = []
    for header, record, event in _read(path):  # noqa: B007 - the last one, with every change in it
        tally.take(record, event)
        if event is not None:
            events.append(event)
        elif record.get("type") != "session":
            other.append(record)
    if header is None:
        raise InvalidInput("the log is empty", place=str(path))
    return Recording(header=header, events=tuple(events), other=tuple(other), tally=tally, log_bytes=log_bytes)


def _size(path: Path) -> int:
    status = path.lstat()
    if not stat.S_ISREG(status.st_mode):
        raise InvalidInput("not a log (a link, or no regular file)", place=str(path))
    return status.st_size


def _read(path: Path) -> Iterator[tuple[Header, Record, Event | None]]:
    """Each record, the header as it is from there on, and the event where the record is one."""
    header: Header | None = None
    for line, record in enumerate(read_events(path), 1):
        event: Event | None = None
        try:
            if header is None:
                header, codec = header_of(record), codec_for(record["dialect"])
            elif record.get("type") == "settings":
                header = header.changed(record)
            elif record.get("type") not in ("turn", "note"):
                event = event_of(record, codec, version=header.version)
        except InvalidInput as error:
            raise InvalidInput(str(error), place=f"{path}, line {line}") from None
        yield header, record, event


class StoredSession:
    """A session that is being written; the one writer of its folder. Close it, or use it as a context manager.

    `append` puts events on the disk before it returns: act upon them after that. `torn` is what a crash had left of a
    last record; it was set aside in a file beside the log.
    """

    def __init__(
        self, folder: Path, *, header: Header | None = None, clock: Clock = now_utc, fsync: bool = True
    ) -> None:
        self._folder = folder
        self._clock = clock
        self._tally = Tally()
        self.archive = FileArchive(folder / ARCHIVE, fsync=fsync)
        self._log = _opened(folder / LOG, fsync)
        try:
            if header is not None:
                self._header = header
                self._log.append({**header.record(), "at": header.created})
                self._tally.take({"at": header.created})
            else:
                self._set_aside()
                self._header = self._counted()
        except BaseException:
            self._log.close()
            raise
        self._codec = codec_for(self._header.dialect)

    @property
    def id(self) -> str:
        """Its name."""
        return self._header.id

    @property
    def folder(self) -> Path:
        """Where it is kept."""
        return self._folder

    @property
    def header(self) -> Header:
        """What it is, as of now."""
        return self._header

    @property
    def torn(self) -> Torn | None:
        """The half record that a crash had left behind, None if there was none."""
        return self._log.torn

    def events(self) -> Iterator[Event]:
        """Every event so far, oldest first, read from the disk: what `Context.replay` wants. O(log)."""
        return (event for _, _, event in _read(self._log.path) if event is not None)

    def append(self, events: Iterable[Event]) -> None:
        """Write events down, all of them in one write and one fsync. O(their size).

        Raises InvalidInput for what is no JSON and OSError (a full disk); then none of them is in the log.
        """
        at = stamp(self._clock)
        given = tuple(events)
        records = [{**record_of(event, self._codec), "at": at} for event in given]
        self._log.extend(records)
        for record, event in zip(records, given, strict=True):
            self._tally.take(record, event)

    def turn(self, state: Literal["begun", "ended"], **more: Json) -> None:
        """Write down that a turn began, or ended and why (`reason="done"`). Raises as `append` does."""
        self._write({"type": "turn", "state": state, **more})

    def note(self, **more: Json) -> None:
        """Write down anything else that a reader of the log should know. Raises as `append` does."""
        self._write({"type": "note", **more})

    def change(self, **settings: Json) -> None:
        """Write down another `model`, `policy`, `window` or `title`. Raises InvalidInput, or as `append` does."""
        unknown = [name for name in settings if name not in _CHANGEABLE]
        if unknown:
            raise InvalidInput(f"cannot be changed; what can: {', '.join(_CHANGEABLE)}", place=unknown[0])
        header = self._header.changed(settings)
        self._write({"type": "settings", **settings})
        self._header = header

    def save(self, context: Context) -> None:
        """Put the snapshot in place. O(messages shown, bounded). Raises OSError; nothing depends on it."""
        made = snapshot_of(self._header, self._tally, context, self._log.size_bytes)
        write_snapshot(self._folder / STATE, made, shown_messages(context.view, context.limits.window_tokens))

    def close(self) -> None:
        """Let go of the session. Closing again does nothing."""
        self._log.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _write(self, record: Record) -> None:
        record = {**record, "at": stamp(self._clock)}
        self._log.append(record)
        self._tally.take(record)

    def _counted(self) -> Header:
        header: Header | None = None
        for header, record, event in _read(self._log.path):  # noqa: B007 - the last one counts
            self._tally.take(record, event)
        if header is None:
            raise InvalidInput("the log is empty", place=str(self._log.path))
        return header

    def _set_aside(self) -> None:
        """Keep what was torn: it was never acknowledged, but it may hold a person's words."""
        torn = self._log.torn
        if torn is None:
            return
        path = self._log.path.with_name(f"events.torn-{torn.at_byte}")
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(torn.data)


def snapshot_of(header: Header, tally: Tally, context: Context, log_bytes: int) -> Snapshot:
    """How a session stands."""
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
        tokens=context.figures.used_tokens,
        window_tokens=context.limits.window_tokens,
        log_bytes=log_bytes,
    )


def _opened(path: Path, fsync: bool) -> EventLog:
    try:
        return EventLog(path, fsync=fsync)
    except InvalidInput as error:
        if error.reason != ANOTHER_WRITER:
            raise
        why = "this session is open in another process; it can be read there, or here without being taken"
        raise InvalidInput(why, place=path.parent.name) from None
