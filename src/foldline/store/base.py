"""What keeps sessions: two Protocols. Folders (`folders`, `session`) are the default, tables (`sql`) the other way.

One session has one writer at a time, over all processes that share a store. A writer that waits (for a person, for its
next turn) lets go of the session, and takes it up again when it goes on: another may have written meanwhile.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Literal, Protocol, Self

from foldline.codecs import codec as codec_for
from foldline.codecs.base import Codec
from foldline.engine.context import Context
from foldline.errors import InvalidInput
from foldline.messages import Json
from foldline.store.clock import Clock, stamp
from foldline.store.recording import CHANGEABLE, Header, Recording, Tally, without_stale_limits
from foldline.store.records import Record, record_of, sealed
from foldline.store.repair import RepairReport
from foldline.store.snapshot import ListedSession, Snapshot
from foldline.view.archive import Archive
from foldline.view.transcript import Event

__all__ = [
    "SessionWriter",
    "Store",
    "StoredSession",
]


class StoredSession(Protocol):
    """A session that is being written, by its one writer. Close it, or use it as a context manager.

    Methods that write put it where a crash cannot take it away before they return: act upon it after that. They raise
    OSError (a full disk, a database that is gone), SessionLost, and InvalidInput for what has no form in JSON; then
    nothing of it is in the log.
    """

    @property
    def id(self) -> str:
        """Its name."""

    @property
    def place(self) -> str:
        """Where a person finds it: a folder, or the address of a database (without its password)."""

    @property
    def header(self) -> Header:
        """What it is, as of now."""

    @property
    def tally(self) -> Tally:
        """Counts over its log, as of now."""

    @property
    def archive(self) -> Archive:
        """The originals of folded messages. They may be less durable than the log, which holds them too."""

    def events(self) -> Iterator[Event]:
        """The events so far, oldest first: what `Context.replay` wants. O(log).

        Limits of a model that the session has left are not among them.
        """

    def append(self, events: Iterable[Event]) -> None:
        """Write events down, all of them or none. O(their size)."""

    def turn(self, state: Literal["begun", "ended"], **more: Json) -> None:
        """Write down that a turn began (`key`: the client's own name for it), or ended and why (`reason="done"`)."""

    def note(self, **more: Json) -> None:
        """Write down anything else that a reader of the log should know."""

    def change(self, **settings: Json) -> None:
        """Write down another `model`, `policy`, `window` or `title`. Raises InvalidInput for another name."""

    def put_original(self, data: bytes) -> str:
        """Put into the archive what is nowhere else (a document of the user); as safe as the log. Returns its key."""

    def save(self, context: Context) -> None:
        """Put the snapshot in place. O(messages shown, bounded). Raises OSError; nothing depends on it."""

    def agents(self) -> Store:
        """The sessions of its sub-agents."""

    def release(self) -> None:
        """Let another writer have it. Nothing may be written until `acquire` has it back. Again: nothing."""

    def acquire(self) -> bool:
        """Have it again; whether it is as it was left. If not, make everything anew from `events`. Idempotent.

        Raises SessionTaken while another writer has it, InvalidInput when it was deleted.
        """

    def discard(self) -> None:
        """Remove it and all that belongs to it, and close it."""

    def close(self) -> None:
        """Let go of it for good. Closing again does nothing."""


class Store(Protocol):
    """The sessions of a user or of several servers, by id. Names sort by age.

    `name` is an id, a beginning that only one id has, or "latest". Reading never takes a session. What cannot be found
    or read raises InvalidInput; a place that cannot be reached OSError. Who looks up
    or binds keys is told so within ten seconds.
    """

    @property
    def place(self) -> str:
        """Where a person finds it: a folder, or the address of a database (without its password)."""

    def create(
        self,
        *,
        dialect: str,
        model: str | None = None,
        policy: str = "balanced",
        window: int | None = None,
        title: str = "",
        parent: str | None = None,
    ) -> StoredSession:
        """A new session, open for writing."""

    def open(self, name: str) -> StoredSession:
        """Takes a session for writing. O(log). Raises SessionTaken when another writer has it."""

    def find(self, name: str) -> str:
        """The id that a name means."""

    def names(self) -> list[str]:
        """The id of every session, oldest first."""

    def sessions(self, *, keep: bool = True, stale: bool = False, at_work: Collection[str] = ()) -> list[ListedSession]:
        """Every session, the one written last first; a broken one too, with the reason. With `keep=False` nothing is
        written. O(sessions), and O(log) for each whose snapshot is lost or stale.

        With `stale=True` one that is behind its log will do, as that of a turn that runs, but for one in which nothing
        was said yet: a crash may have left it. Of sessions that are known to be `at_work` that one will do too.
        """

    def repair(self, name: str) -> RepairReport | None:
        """Makes a session whose log is damaged fit to be opened; None when nothing is damaged. O(log).

        What is whole stays, what is not is told, and the old log is kept. Raises SessionTaken, and InvalidInput where
        nothing tells what the session was.
        """

    def read(self, name: str) -> Recording:
        """All that a session holds. O(log)."""

    def records(self, name: str, *, start: int = 0, stop: int | None = None) -> Iterator[Record]:
        """The records of the log as they were written, oldest first, by their place in it (0: that of the session).

        O(log) in files, O(those) in tables.
        """

    def messages(self, name: str, *, start: int, stop: int) -> list[Record]:
        """The records of the messages with start <= seq < stop. O(log) in files, O(those) in tables."""

    def archive(self, name: str) -> Archive:
        """The originals of a session, to be read."""

    def originals(self, name: str) -> Iterator[bytes]:
        """Each object of a session's archive."""

    def agents(self, name: str) -> Store:
        """The sessions of the sub-agents of a session."""

    def import_session(
        self, records: Iterable[Record], originals: Iterable[bytes], *, snapshot: Snapshot | None = None
    ) -> str:
        """Take in a whole session, as `records` and `originals` of another store give it: all of it or nothing.

        With the `snapshot` of these very records it can be listed without being read.

        Returns its id. Raises InvalidInput when there is a session with that id.
        """

    def delete(self, name: str) -> None:
        """Remove a session and all that belongs to it. Raises SessionTaken when another writer has it."""

    def session_of(self, key: str) -> str | None:
        """The id of the session that goes by a key of ours (a chat, a schedule); None if there is none, or no more."""

    def first_session_of(self, keys: Sequence[str]) -> tuple[str, str] | None:
        """The first of these keys, in their order, that is bound, and the id of its session.

        Made for thousands of keys, of which the first are the likeliest: it costs those before the one that it finds.
        """

    def bind(self, key: str, name: str) -> None:
        """Have a session go by a key from now on."""

    def bind_all(self, keys: Iterable[str], name: str) -> None:
        """Have a session go by all these keys from now on, or by none of them where that cannot be written."""

    def bindings(self) -> Mapping[str, str]:
        """Every key and its session."""

    def claim(self, key: str) -> bool:
        """Whether this caller is the first one ever to claim a key, over all processes: what is done once."""

    def remembered(self, key: str) -> Mapping[str, Json]:
        """The object that is kept by a key of ours (how a schedule stands); empty where there is none."""

    def remember(self, key: str, value: Mapping[str, Json]) -> None:
        """Keep an object by a key from now on, in place of the one before, and for ever; of two writers the last one
        counts. Raises InvalidInput for what has no form in JSON.
        """

    def close(self) -> None:
        """Let go of files and connections. Closing again does nothing."""


class SessionWriter(ABC):
    """A session that is being written, by its one writer; what keeps it fills in the abstract methods.

    Whoever derives from it calls `_begin` with the first record of a new session, or `_recount` for one that is there.
    """

    _header: Header
    _tally: Tally
    _codec: Codec
    _counted: list[Event] | None = None
    """The events that were read to count them, until something is written: whoever opens a session asks for them."""

    def __init__(self, agents: Store, clock: Clock) -> None:
        self._agents = agents
        self._clock = clock

    @property
    def id(self) -> str:
        """Its name."""
        return self._header.id

    @property
    def header(self) -> Header:
        """What it is, as of now."""
        return self._header

    @property
    def tally(self) -> Tally:
        """Counts over its log, as of now."""
        return self._tally

    @property
    @abstractmethod
    def place(self) -> str:
        """Where a person finds it."""

    def events(self) -> Iterator[Event]:
        """The events so far, oldest first, read from where they are kept: what `Context.replay` wants. O(log).

        Limits of a model that the session has left are not among them.
        """
        counted, self._counted = self._counted, None
        if counted is not None:
            return without_stale_limits(counted, self._tally)
        return without_stale_limits((event for _, _, event in self._read() if event is not None), self._tally)

    def append(self, events: Iterable[Event]) -> None:
        """Write events down, all of them or none; they are safe when it returns. O(their size).

        Raises InvalidInput for what is no JSON, OSError (a full disk, a database that is gone) and SessionLost; then
        none of them is in the log.
        """
        self._held()
        self._counted = None
        at = stamp(self._clock)
        given = tuple(events)
        if not given:
            return
        records = [{**record_of(event, self._codec), "at": at} for event in given]
        try:
            self._extend(records)
        except InvalidInput:  # one of them holds what strict JSON has no form for
            self._extend([{**sealed(record), "at": at} for record in records])
        for record, event in zip(records, given, strict=True):
            self._tally.count(record, event)

    def turn(self, state: Literal["begun", "ended"], **more: Json) -> None:
        """Write down that a turn began (`key`: the client's name for it), or ended and why. Raises as `append` does."""
        self._write({"type": "turn", "state": state, **more})

    def note(self, **more: Json) -> None:
        """Write down anything else that a reader of the log should know. Raises as `append` does."""
        self._write({"type": "note", **more})

    def change(self, **settings: Json) -> None:
        """Write down another `model`, `policy`, `window` or `title`. Raises InvalidInput, or as `append` does."""
        unknown = [name for name in settings if name not in CHANGEABLE]
        if unknown:
            raise InvalidInput(f"cannot be changed; what can: {', '.join(CHANGEABLE)}", place=unknown[0])
        header = self._header.changed(settings)
        self._write({"type": "settings", **settings})
        self._header = header

    def agents(self) -> Store:
        """The sessions of its sub-agents."""
        return self._agents

    @abstractmethod
    def close(self) -> None:
        """Let go of the session for good. Closing again does nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @abstractmethod
    def _held(self) -> None:
        """Raises SessionLost when this writer knows that it does not have the session."""

    @abstractmethod
    def _extend(self, records: Sequence[Record]) -> None:
        """Put records into the log, all of them or none. Raises InvalidInput for one that is no strict JSON."""

    @abstractmethod
    def _read(self) -> Iterator[tuple[Header, Record, Event | None]]:
        """The log so far, as `decode_log` gives it."""

    def _begin(self, header: Header, first: Record) -> None:
        self._header = header
        self._codec = codec_for(header.dialect)
        self._tally = Tally()
        self._tally.count(first)

    def _recount(self) -> None:
        self._count(self._read())

    def _count(self, log: Iterable[tuple[Header, Record, Event | None]]) -> None:
        header, tally = None, Tally()
        events: list[Event] = []
        for header, record, event in log:  # noqa: B007 - the last one counts
            tally.count(record, event)
            if event is not None:
                events.append(event)
        if header is None:
            raise InvalidInput("the log is empty", place=self.place)
        self._counted = events
        self._header, self._tally, self._codec = header, tally, codec_for(header.dialect)

    def _write(self, record: Record) -> None:
        self._held()
        record = {**record, "at": stamp(self._clock)}
        self._extend([record])
        self._tally.count(record)
