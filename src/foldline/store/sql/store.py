"""Sessions in the tables of a database, which any number of servers may share."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import islice
from typing import Any, Final, Self

from sqlalchemy import ColumnElement, delete, func, insert, select, update
from sqlalchemy.exc import IntegrityError

from foldline.errors import FoldlineError, InvalidInput, SessionTaken
from foldline.messages import Json
from foldline.store.addresses import lease_of
from foldline.store.checksums import Verifier
from foldline.store.clock import Clock, now_utc, stamp
from foldline.store.recording import (
    Header,
    Recording,
    Tally,
    first_header,
    first_record,
    recording_of,
    resolve_id,
    snapshot_of,
    split_id,
)
from foldline.store.records import Record
from foldline.store.repair import RepairReport
from foldline.store.snapshot import LATEST, ListedSession, Snapshot, latest_of, newest_first
from foldline.store.sql.database import Database
from foldline.store.sql.keys import SqlKeys, encode_key
from foldline.store.sql.lease import LEASE_SECONDS, Lease, Leases
from foldline.store.sql.log import SessionRecords, SqlArchive, as_rows, as_text, length_fault
from foldline.store.sql.schema import ROOT, claims, migrate, originals, records, remembered, sessions
from foldline.store.sql.session import SqlSession, parse_snapshot, repair_rows, snapshot_text
from foldline.view.archive import key_of

__all__ = ["SqlStore"]

_AT_ONCE: Final = 100
"""Records in one statement of `import_session`."""


class SqlStore:
    """The sessions in a database, or those within one of them. `SqlStore.at` opens one.

    Use it in any thread, also in several at once; close it.
    """

    def __init__(self, database: Database, leases: Leases, *, scope: int = ROOT, clock: Clock = now_utc) -> None:
        self._database = database
        self._leases = leases
        self._scope = scope
        self._keys = SqlKeys(database, scope)
        self._clock = clock

    @classmethod
    def at(cls, address: str, *, clock: Clock = now_utc, lease_seconds: float = LEASE_SECONDS) -> Self:
        """The store at an address, its tables made or brought up to date. `?lease_seconds=` in it says how long a
        session stays with a process that died.

        Raises InvalidInput (no address, a newer version's tables), MissingExtra, and OSError: it cannot be reached, or
        lets nobody in.
        """
        address, named_seconds = lease_of(address)
        database = Database(address)
        try:
            migrate(database)
        except BaseException:
            database.close()
            raise
        return cls(database, Leases(database, named_seconds or lease_seconds), clock=clock)

    @property
    def place(self) -> str:
        """The address of the database without its password."""
        return self._database.place

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.place!r})"

    def create(
        self,
        *,
        dialect: str,
        model: str | None = None,
        policy: str = "balanced",
        window: int | None = None,
        title: str = "",
        parent: str | None = None,
    ) -> SqlSession:
        """A new session, open for writing. Raises OSError, and InvalidInput when the outer session was deleted."""
        lease = Lease(ROOT, "", self._leases.owner(), fence=1)
        held: dict[str, Any] = {"fence": 1, "owner": lease.owner, "lease_until": self._leases.until()}
        number: int | None = None
        while number is None:  # the chance in a name is 32 bits: another may have it
            header = first_header(
                self._clock, dialect=dialect, model=model, policy=policy, window=window, title=title, parent=parent
            )
            first = first_record(header)
            tally = Tally()
            tally.count(first)
            number = self._insert(header.id, [first], (), snapshot_of(header, tally, None, 1), **held)
        lease.session, lease.id = number, header.id
        return self._session(self._log(number, header.id), lease, header)

    def open(self, name: str) -> SqlSession:
        """Takes a session for writing; `name` as in `find`. O(log).

        Raises SessionTaken when another writer has it, InvalidInput when there is none or its log is damaged, OSError.
        """
        log = self._found(name)
        return self._session(log, Lease(log.session, log.id, self._leases.owner()))

    def find(self, name: str) -> str:
        """The id that a user means: all of it, a beginning that only one session has, or "latest". InvalidInput."""
        if name == LATEST:
            return latest_of(self.sessions(keep=False))
        try:
            return resolve_id(name, self._beginning)
        except InvalidInput:
            if name in self.names():  # an id that was altered: by this name it is listed, and can be repaired
                return name
            raise

    def names(self) -> list[str]:
        """The id of every session, oldest first. Raises OSError."""
        with self._database.reading(quick=True) as connection:
            return sorted(map(str, connection.scalars(select(sessions.c.id).where(*self._within()))))

    def sessions(self, *, keep: bool = True, stale: bool = False, at_work: Collection[str] = ()) -> list[ListedSession]:
        """Every session, the one written last first. A broken one is in the list, with the reason. Raises OSError.

        One query, and O(log) for each whose snapshot is lost or stale: it is made again. With `keep=False` nothing is
        written.
        """
        newest = select(func.max(records.c.number)).where(records.c.session == sessions.c.number).scalar_subquery()
        columns = (sessions.c.number, sessions.c.id, sessions.c.records, sessions.c.snapshot, newest.label("newest"))
        with self._database.reading() as connection:
            rows = connection.execute(select(*columns).where(*self._within())).all()
        return newest_first(self._listed(row, keep, stale, row.id in at_work) for row in rows)

    def repair(self, name: str) -> RepairReport | None:
        """Makes a session whose log is damaged fit to be opened; None when nothing is damaged. O(log).

        What is whole stays; the old rows are kept as one object of its archive. Raises SessionTaken, InvalidInput
        (nothing tells what it was), OSError; then it is as it was.
        """
        log = self._found(name)
        done = repair_rows(log, self._leases)
        if done is not None:
            with self._database.reading() as connection:
                own = connection.scalar(select(sessions.c.id).where(sessions.c.number == log.session))
            self._rebuilt(self._log(log.session, str(own)), keep=True)
        return done

    def read(self, name: str) -> Recording:
        """Reads a session without taking it; `name` as in `find`. O(log). Raises InvalidInput, OSError."""
        return _recording(self._found(name))

    # --- parts, and whole sessions -----------------------------------------------------------------------------------

    def records(self, name: str, *, start: int = 0, stop: int | None = None) -> Iterator[Record]:
        """The records of a log, oldest first, by their place in it. O(those). Raises InvalidInput, OSError."""
        return self._found(name).records(start, stop)

    def messages(self, name: str, *, start: int, stop: int) -> list[Record]:
        """The records of the messages with start <= seq < stop. O(those). Raises InvalidInput, OSError."""
        return self._found(name).messages(start, stop)

    def archive(self, name: str) -> SqlArchive:
        """The originals of a session."""
        return SqlArchive(self._found(name))

    def originals(self, name: str) -> Iterator[bytes]:
        """Each object of a session's archive. Raises InvalidInput for a damaged one, OSError."""
        archive = self.archive(name)
        for key in list(archive.keys()):
            try:
                yield archive.get(key)
            except KeyError:
                raise InvalidInput("an original has no key any more: it is damaged", place=archive.where(key)) from None

    def agents(self, name: str) -> SqlStore:
        """The sessions of the sub-agents of a session."""
        return self._inner(self._found(name))

    def import_session(
        self, records: Iterable[Record], originals: Iterable[bytes], *, snapshot: Snapshot | None = None
    ) -> str:
        """Take in a whole session of another store, in one transaction. Raises InvalidInput, OSError."""
        name, given = split_id(records)
        if self._insert(name, given, originals, snapshot, fence=0) is None:
            raise InvalidInput("there is a session with this id", place=name)
        return name

    def delete(self, name: str) -> None:
        """Remove a session and all that belongs to it. Raises SessionTaken, InvalidInput, OSError."""
        log = self._found(name)
        row = sessions.c.number == log.session
        with self._database.writing() as connection:
            done = connection.execute(delete(sessions).where(row, self._leases.free())).rowcount
            taken = not done and connection.scalar(select(sessions.c.number).where(row)) is not None
        if taken:
            raise SessionTaken(log.id)

    # --- keys --------------------------------------------------------------------------------------------------------

    def session_of(self, key: str) -> str | None:
        """The id of the session that goes by a key; None if there is none, or no more. Raises InvalidInput, OSError."""
        found = self._keys.first_session_of([key])
        return None if found is None else found[1]

    def first_session_of(self, keys: Sequence[str]) -> tuple[str, str] | None:
        """The first of these keys that is bound, and the id of its session. Raises InvalidInput, OSError.

        Two queries at most: one for the first keys, one for the others.
        """
        return self._keys.first_session_of(keys)

    def bind(self, key: str, name: str) -> None:
        """Have a session go by a key from now on. Raises InvalidInput, OSError."""
        self._keys.bind_all([key], self._found(name))

    def bind_all(self, keys: Iterable[str], name: str) -> None:
        """Have a session go by all these keys, or by none of them. Raises InvalidInput, OSError."""
        self._keys.bind_all(keys, self._found(name))

    def bindings(self) -> dict[str, str]:
        """Every key and its session. Raises OSError."""
        return self._keys.bindings()

    def claim(self, key: str) -> bool:
        """Whether this caller is the first ever to claim a key. Raises InvalidInput, OSError."""
        row = self._database.insert(claims).values(scope=self._scope, key=encode_key(key), at=stamp(self._clock))
        with self._within_what_there_is(), self._database.writing(quick=True) as connection:
            done = connection.execute(row.on_conflict_do_nothing(), execution_options={"preserve_rowcount": True})
            return done.rowcount == 1

    def remembered(self, key: str) -> dict[str, Json]:
        """The object that is kept by a key; {} where there is none. Raises InvalidInput, OSError."""
        asked = select(remembered.c.value).where(remembered.c.scope == self._scope, remembered.c.key == encode_key(key))
        with self._database.reading(quick=True) as connection:
            found = connection.scalar(asked)
        if found is None:
            return {}
        try:
            return dict(json.loads(found))
        except (TypeError, ValueError, RecursionError) as error:
            raise InvalidInput(f"what was remembered is damaged ({error})", place=f"{self.place} {key[:80]}") from None

    def remember(self, key: str, value: Mapping[str, Json]) -> None:
        """Keep an object by a key, in place of the one before. Raises InvalidInput, OSError."""
        text = as_text(dict(value))
        row = self._database.insert(remembered).values(scope=self._scope, key=encode_key(key), value=text)
        columns = [remembered.c.scope, remembered.c.key]
        with self._within_what_there_is(), self._database.writing(quick=True) as connection:
            connection.execute(row.on_conflict_do_update(index_elements=columns, set_={"value": text}))

    def close(self) -> None:
        """Let go of the sessions that are held, and of the connections. Closing again does nothing.

        The store of a session's sub-agents ends with the outer one.
        """
        if self._scope == ROOT:
            self._leases.close()
            self._database.close()

    # --- inside ------------------------------------------------------------------------------------------------------

    def _within(self) -> tuple[ColumnElement[bool], ...]:
        return sessions.c.scope == self._scope, sessions.c.number != ROOT

    def _gone(self) -> InvalidInput:
        return InvalidInput("there is no such session any more, to hold others", place=self.place)

    @contextmanager
    def _within_what_there_is(self) -> Iterator[None]:
        try:
            yield
        except IntegrityError:  # the session within which these lie was deleted
            raise self._gone() from None

    def _beginning(self, text: str) -> list[str]:
        """The ids that begin with a text of digits, letters and dashes: no character of it means anything to LIKE."""
        asked = select(sessions.c.id).where(*self._within(), sessions.c.id.like(f"{text}%"))
        with self._database.reading(quick=True) as connection:
            return list(connection.scalars(asked))

    def _found(self, name: str) -> SessionRecords:
        known = self.find(name)
        with self._database.reading(quick=True) as connection:
            number = connection.scalar(select(sessions.c.number).where(*self._within(), sessions.c.id == known))
            if number is None:  # an id that is no text any more
                rows = connection.execute(select(sessions.c.number, sessions.c.id).where(*self._within()))
                number = next((row.number for row in rows if str(row.id) == known), None)
        if number is None:
            raise InvalidInput(f"there is no session {known!r}", place="session")
        return self._log(number, known)

    def _log(self, number: int, name: str) -> SessionRecords:
        return SessionRecords(self._database, number, name)

    def _inner(self, log: SessionRecords) -> SqlStore:
        return SqlStore(self._database, self._leases, scope=log.session, clock=self._clock)

    def _session(self, log: SessionRecords, lease: Lease, header: Header | None = None) -> SqlSession:
        return SqlSession(log, self._leases, self._inner(log), clock=self._clock, lease=lease, header=header)

    def _insert(
        self, name: str, log: Iterable[Record], data: Iterable[bytes], snapshot: Snapshot | None = None, **row: Any
    ) -> int | None:
        """Put a session into the tables, in one transaction; its number, None when there is one of this name."""
        try:
            with self._database.writing() as connection:
                new = insert(sessions).values(scope=self._scope, id=name, records=0, **row)
                [number] = connection.execute(new).inserted_primary_key or [None]
                rows, count = as_rows(int(number), Verifier(), log), 0
                while some := list(islice(rows, _AT_ONCE)):
                    connection.execute(insert(records), some)
                    count += len(some)
                text = None if snapshot is None else snapshot_text(replace(snapshot, log_bytes=count))
                own = update(sessions).where(sessions.c.number == number)
                connection.execute(own.values(records=count, snapshot=text))
                rest = iter(data)
                while batch := list(islice(rest, _AT_ONCE)):
                    kept = [{"session": number, "sha256": key_of(each), "data": each} for each in batch]
                    connection.execute(self._database.insert(originals).on_conflict_do_nothing(), kept)
                return int(number)
        except IntegrityError:
            if name in self._beginning(name):
                return None
            raise self._gone() from None

    def _listed(self, row: Any, keep: bool, stale: bool, at_work: bool) -> ListedSession:
        log, kept = self._log(row.number, str(row.id)), parse_snapshot(row.snapshot)
        whole = length_fault(row.records, row.newest) is None
        if whole and kept is not None and kept.id == log.id:
            will_do = at_work or (stale and kept.messages > 0)
            if will_do or kept.log_bytes == row.records:
                return ListedSession(log.id, kept)
        try:
            return ListedSession(log.id, self._rebuilt(log, keep))
        except FoldlineError as error:
            return ListedSession(log.id, None, str(error))

    def _rebuilt(self, log: SessionRecords, keep: bool) -> Snapshot:
        recording = _recording(log)
        made = snapshot_of(recording.header, recording.tally, recording.replay(), recording.log_bytes)
        if keep:
            row = (sessions.c.number == log.session, sessions.c.records == made.log_bytes)
            with suppress(OSError), self._database.writing() as connection:  # the list can be shown all the same
                connection.execute(update(sessions).where(*row).values(snapshot=snapshot_text(made)))
        return made


def _recording(log: SessionRecords) -> Recording:
    length = log.length()
    return recording_of(log.decoded(length), log_bytes=length, place=log.place)
