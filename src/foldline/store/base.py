"""The protocols `Store` and `StoredSession`, and `SessionWriter`, the base of both implementations.

Sessions are stored in folders (`folders`, `session`) or in a database (`sql`). A session has one writer at a time, over
all processes that share a store. A writer that waits (for a person, for its next turn) releases the session, and
acquires it again to continue: another may have written meanwhile.
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


# Protocols, not base classes: a store of another system implements them without importing ours.
class StoredSession(Protocol):
    """A session open for writing, by its one writer. Close it, or use it as a context manager.

    Writing methods return once a crash can no longer undo them: act on the result after that. They raise OSError (a
    full disk, an unreachable database), SessionLost, and InvalidInput for values that JSON cannot hold; then nothing
    was written.
    """

    @property
    def id(self) -> str:
        """The id of the session."""

    @property
    def place(self) -> str:
        """Where a person finds it: a folder, or the address of a database (without its password)."""

    @property
    def header(self) -> Header:
        """Its identity and current settings."""

    @property
    def tally(self) -> Tally:
        """Current counts over its log."""

    @property
    def archive(self) -> Archive:
        """The originals of folded messages. They may be less durable than the log, which holds them too."""

    def events(self) -> Iterator[Event]:
        """The events so far, oldest first, as `Context.replay` takes them. O(log).

        Limits that were learned for earlier models are omitted.
        """

    def append(self, events: Iterable[Event]) -> None:
        """Append events to the log, all or none. O(their size)."""

    def turn(self, state: Literal["begun", "ended"], **more: Json) -> None:
        """Record that a turn began (`key`: the client's name for it), or ended and why (`reason="done"`)."""

    def note(self, **more: Json) -> None:
        """Record anything else that a reader of the log should know."""

    def change(self, **settings: Json) -> None:
        """Change `model`, `policy`, `window` or `title`. Raises InvalidInput for another setting."""

    def put_original(self, data: bytes) -> str:
        """Archive an original that is nowhere else (a user's document), as safely as the log. Returns its key."""

    def save(self, context: Context) -> None:
        """Write the snapshot. O(messages shown, bounded). Raises OSError; nothing depends on the snapshot."""

    def agents(self) -> Store:
        """The sessions of its sub-agents."""

    def release(self) -> None:
        """Let other writers acquire it. Nothing may be written until `acquire` succeeds. Idempotent."""

    def acquire(self) -> bool:
        """Acquire it again; whether it is unchanged since. If not, rebuild all state from `events`. Idempotent.

        Raises SessionTaken while another writer has it, InvalidInput when it was deleted.
        """

    def discard(self) -> None:
        """Delete it with all that belongs to it, and close it."""

    def close(self) -> None:
        """Release the session for good. Idempotent."""


class Store(Protocol):
    """The sessions of a user or of several servers, by id. Ids sort by age.

    `name` is an id, an unambiguous prefix of one, or "latest". Reading never acquires a session. Methods raise
    InvalidInput for a session that cannot be found or read, and OSError when the store cannot be reached; those that
    look up or bind keys do so within ten seconds.
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
        """Create a session and open it for writing."""

    def open(self, name: str) -> StoredSession:
        """Open a session for writing. O(log). Raises SessionTaken while another writer has it."""

    def find(self, name: str) -> str:
        """The id for a name."""

    def names(self) -> list[str]:
        """The id of every session, oldest first."""

    def sessions(
        self, *, save: bool = True, allow_stale: bool = False, running: Collection[str] = ()
    ) -> list[ListedSession]:
        """List every session, last written first; a damaged one with the reason.

        O(sessions), and O(log) for each whose snapshot is lost or stale: it is made again, and stored unless
        `save=False`. With `allow_stale` an outdated snapshot is accepted (that of a running turn), except one without
        messages, which a crash may have left; for the sessions in `running` even that is accepted.
        """

    def repair(self, name: str) -> RepairReport | None:
        """Repair a damaged log so that the session can be opened; None when it is intact. O(log).

        Intact records stay, damaged ones are reported, and the old log is kept. Raises SessionTaken, and InvalidInput
        when nothing identifies the session.
        """

    def read(self, name: str) -> Recording:
        """Read a whole session. O(log)."""

    def records(self, name: str, *, start: int = 0, stop: int | None = None) -> Iterator[Record]:
        """The records of the log as they were written, oldest first; `start` and `stop` are positions in it.

        Record 0 is the header. O(log) in files, O(stop - start) in tables.
        """

    def messages(self, name: str, *, start: int, stop: int) -> list[Record]:
        """The records of the messages with start <= seq < stop. O(log) in files, O(stop - start) in tables."""

    def archive(self, name: str) -> Archive:
        """The archive of a session, for reading."""

    def originals(self, name: str) -> Iterator[bytes]:
        """Each object of a session's archive."""

    def agents(self, name: str) -> Store:
        """The sessions of the sub-agents of a session."""

    def import_session(
        self, records: Iterable[Record], originals: Iterable[bytes], *, snapshot: Snapshot | None = None
    ) -> str:
        """Store a session from the `records` and `originals` of another store, whole or not at all.

        With the `snapshot` of exactly these records it can be listed without being read. Returns its id. Raises
        InvalidInput when that id exists.
        """

    def delete(self, name: str) -> None:
        """Delete a session with all that belongs to it. Raises SessionTaken while another writer has it."""

    def session_of(self, key: str) -> str | None:
        """The id of the session bound to a key (of a chat, a schedule); None when there is none, or no longer."""

    def first_session_of(self, keys: Sequence[str]) -> tuple[str, str] | None:
        """The first bound key among these, in their order, and the id of its session.

        Made for thousands of keys with the likeliest first: it costs only the keys before the one found.
        """

    def bind(self, key: str, name: str) -> None:
        """Bind a key to a session, in place of an earlier binding."""

    def bind_all(self, keys: Iterable[str], name: str) -> None:
        """Bind all these keys to a session, or none when that cannot be written."""

    def bindings(self) -> Mapping[str, str]:
        """Every bound key and the id of its session."""

    def claim(self, key: str) -> bool:
        """Whether this caller is the first to claim a key, over all processes: for actions that happen once."""

    def load_state(self, key: str) -> Mapping[str, Json]:
        """The state stored under a key (of a schedule, an inbox); empty when there is none."""

    def save_state(self, key: str, value: Mapping[str, Json]) -> None:
        """Store a state under a key for ever, replacing an earlier one; the last of two writers wins.

        Raises InvalidInput for values that JSON cannot hold.
        """

    def close(self) -> None:
        """Close files and connections. Idempotent."""


class SessionWriter(ABC):
    """The common part of sessions open for writing: events become records and are counted.

    A subclass stores the records. It calls `_begin` with the first record of a new session, or `_recount` for an
    existing one.
    """

    _header: Header
    _tally: Tally
    _codec: Codec
    _counted: list[Event] | None = None
    # The events read by `_recount`, until something is written: opening a session asks for them next.

    def __init__(self, agents: Store, clock: Clock) -> None:
        self._agents = agents
        self._clock = clock

    @property
    def id(self) -> str:
        """The id of the session."""
        return self._header.id

    @property
    def header(self) -> Header:
        """Its identity and current settings."""
        return self._header

    @property
    def tally(self) -> Tally:
        """Current counts over its log."""
        return self._tally

    @property
    @abstractmethod
    def place(self) -> str:
        """Where a person finds it."""

    def events(self) -> Iterator[Event]:
        """The events so far, oldest first, read from the log. O(log). See `StoredSession.events`."""
        # Opening has decoded the whole log to count it, and a replay follows at once: decoding it again would double
        # the time to open a session. Handed out once, so that the list lives no longer than the replay.
        counted, self._counted = self._counted, None
        if counted is not None:
            return without_stale_limits(counted, self._tally)
        return without_stale_limits((event for _, _, event in self._read() if event is not None), self._tally)

    def append(self, events: Iterable[Event]) -> None:
        """Append events, all or none; they are safe on return. O(their size).

        Raises InvalidInput for values that JSON cannot hold, OSError (a full disk, an unreachable database) and
        SessionLost; then none of them is in the log.
        """
        # One time for all of them, because they were decided together.
        self._check_held()
        self._counted = None
        at = stamp(self._clock)
        new = tuple(events)
        if not new:
            return
        records = [{**record_of(event, self._codec), "at": at} for event in new]
        try:
            self._extend(records)
        except InvalidInput:  # one holds NaN or the like, for which strict JSON has no form
            # Tried only now: checking each record first would cost every append a second encoding.
            self._extend([{**sealed(record), "at": at} for record in records])
        # Counted only now: a count ahead of the log would outlive the error.
        for record, event in zip(records, new, strict=True):
            self._tally.count(record, event)

    def turn(self, state: Literal["begun", "ended"], **more: Json) -> None:
        """Record that a turn began (`key`: the client's name for it), or ended and why. Raises as `append` does."""
        self._write({"type": "turn", "state": state, **more})

    def note(self, **more: Json) -> None:
        """Record anything else that a reader of the log should know. Raises as `append` does."""
        self._write({"type": "note", **more})

    def change(self, **settings: Json) -> None:
        """Change `model`, `policy`, `window` or `title`. Raises InvalidInput, or as `append` does."""
        # Named, not ignored: a misspelt setting that seems to work would be found a session later.
        unknown = [name for name in settings if name not in CHANGEABLE]
        if unknown:
            raise InvalidInput(f"cannot be changed; what can: {', '.join(CHANGEABLE)}", place=unknown[0])
        # Validated, written, applied, in this order: a value of the wrong type must not get into the log, and a full
        # disk must not leave a setting in memory that the next process does not know.
        header = self._header.changed(settings)
        self._write({"type": "settings", **settings})
        self._header = header

    def agents(self) -> Store:
        """The sessions of its sub-agents."""
        return self._agents

    @abstractmethod
    def close(self) -> None:
        """Release the session for good. Idempotent."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @abstractmethod
    def _check_held(self) -> None:
        """Raise SessionLost when this writer knows that it no longer has the session."""

    @abstractmethod
    def _extend(self, records: Sequence[Record]) -> None:
        """Append records to the log, all or none. Raises InvalidInput for one that is no strict JSON."""

    @abstractmethod
    def _read(self) -> Iterator[tuple[Header, Record, Event | None]]:
        """The decoded log so far."""

    def _begin(self, header: Header, first: Record) -> None:
        self._header = header
        self._codec = codec_for(header.dialect)
        self._tally = Tally()
        self._tally.count(first)

    def _recount(self) -> None:
        self._count(self._read())

    def _count(self, log: Iterable[tuple[Header, Record, Event | None]]) -> None:
        # Assigned at the end, all or none: a damaged log raises in the middle, and must not leave half a count behind.
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
        self._check_held()
        record = {**record, "at": stamp(self._clock)}
        self._extend([record])
        self._tally.count(record)
