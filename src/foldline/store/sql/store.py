"""The store of sessions in a database, which any number of servers may share."""

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

_BATCH: Final = 100  # records per statement of `import_session`


class SqlStore:
    """The sessions in a database, or those of one session's sub-agents. `SqlStore.at` opens one.

    Safe to use in several threads at once. Close it.
    """

    def __init__(self, database: Database, leases: Leases, *, scope: int = ROOT, clock: Clock = now_utc) -> None:
        self._database = database
        self._leases = leases
        self._scope = scope
        self._keys = SqlKeys(database, scope)
        self._clock = clock

    @classmethod
    def at(cls, address: str, *, clock: Clock = now_utc, lease_seconds: float = LEASE_SECONDS) -> Self:
        """Open the store at an address; create or migrate its tables.

        `?lease_seconds=` in the address sets how long a session stays with a process that died. Raises InvalidInput (no
        address, tables of a newer version), MissingExtra, and OSError (unreachable, access denied).
        """
        # The address wins over the argument: it is what an operator sets without changing a program.
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
        """Create a session and open it for writing. Raises OSError, and InvalidInput without the outer session."""
        # The row is inserted with its lease: between an insert and an acquisition another writer could take the
        # session.
        lease = Lease(ROOT, "", self._leases.owner(), fence=1)
        lease_columns: dict[str, Any] = {"fence": 1, "owner": lease.owner, "lease_until": self._leases.until()}
        number: int | None = None
        while number is None:  # 32 bits of chance: the id may exist
            header = first_header(
                self._clock, dialect=dialect, model=model, policy=policy, window=window, title=title, parent=parent
            )
            first = first_record(header)
            tally = Tally()
            tally.count(first)
            number = self._insert(header.id, [first], (), snapshot_of(header, tally, None, 1), **lease_columns)
        lease.session, lease.id = number, header.id
        return self._session(self._log(number, header.id), lease, header)

    def open(self, name: str) -> SqlSession:
        """Open a session for writing; `name` as in `find`. O(log).

        Raises SessionTaken while another writer has it, InvalidInput when there is none or its log is damaged, OSError.
        """
        log = self._records_of(name)
        return self._session(log, Lease(log.session, log.id, self._leases.owner()))

    def find(self, name: str) -> str:
        """The id for a name: an id, an unambiguous prefix, or "latest". Raises InvalidInput, OSError."""
        if name == LATEST:
            return latest_of(self.sessions(save=False))
        try:
            return resolve_id(name, self._ids_with_prefix)
        except InvalidInput:
            if name in self.names():  # a damaged id is listed under this name, and can be repaired
                return name
            raise

    def names(self) -> list[str]:
        """The id of every session, oldest first. Raises OSError."""
        with self._database.reading(quick=True) as connection:
            return sorted(map(str, connection.scalars(select(sessions.c.id).where(*self._within()))))

    def sessions(
        self, *, save: bool = True, allow_stale: bool = False, running: Collection[str] = ()
    ) -> list[ListedSession]:
        """List every session, last written first; a damaged one with the reason. Raises OSError.

        One query, and O(log) for each whose snapshot is lost or stale: it is made again, and stored unless
        `save=False`.
        """
        # The newest record comes from the index of the primary key, so the list reads no log. It shows a log cut at its
        # end.
        newest = select(func.max(records.c.number)).where(records.c.session == sessions.c.number).scalar_subquery()
        columns = (sessions.c.number, sessions.c.id, sessions.c.records, sessions.c.snapshot, newest.label("newest"))
        with self._database.reading() as connection:
            rows = connection.execute(select(*columns).where(*self._within())).all()
        return newest_first(self._listed(row, save, allow_stale, row.id in running) for row in rows)

    def repair(self, name: str) -> RepairReport | None:
        """Repair a damaged log; None when it is intact. O(log).

        Intact records stay; the old rows become one object of the archive. Raises SessionTaken, InvalidInput (nothing
        identifies the session), OSError; then nothing has changed.
        """
        log = self._records_of(name)
        done = repair_rows(log, self._leases)
        if done is not None:
            with self._database.reading() as connection:
                own = connection.scalar(select(sessions.c.id).where(sessions.c.number == log.session))
            self._rebuilt(self._log(log.session, str(own)), save=True)
        return done

    def read(self, name: str) -> Recording:
        """Read a session without acquiring it; `name` as in `find`. O(log). Raises InvalidInput, OSError."""
        return _recording(self._records_of(name))

    # --- parts, and whole sessions -----------------------------------------------------------------------------------

    def records(self, name: str, *, start: int = 0, stop: int | None = None) -> Iterator[Record]:
        """The records of a log by position, oldest first. O(those). Raises InvalidInput, OSError."""
        return self._records_of(name).records(start, stop)

    def messages(self, name: str, *, start: int, stop: int) -> list[Record]:
        """The records of the messages with start <= seq < stop. O(those). Raises InvalidInput, OSError."""
        return self._records_of(name).messages(start, stop)

    def archive(self, name: str) -> SqlArchive:
        """The archive of a session."""
        return SqlArchive(self._records_of(name))

    def originals(self, name: str) -> Iterator[bytes]:
        """Each object of a session's archive. Raises InvalidInput for a damaged one, OSError."""
        archive = self.archive(name)
        for key in list(archive.keys()):
            try:
                yield archive.get(key)
            except KeyError:
                raise InvalidInput("an original has lost its key: it is damaged", place=archive.where(key)) from None

    def agents(self, name: str) -> SqlStore:
        """The sessions of the sub-agents of a session."""
        return self._inner(self._records_of(name))

    def import_session(
        self, records: Iterable[Record], originals: Iterable[bytes], *, snapshot: Snapshot | None = None
    ) -> str:
        """Store a session of another store in one transaction. Raises InvalidInput, OSError."""
        name, log = split_id(records)
        if self._insert(name, log, originals, snapshot, fence=0) is None:
            raise InvalidInput("there is a session with this id", place=name)
        return name

    def delete(self, name: str) -> None:
        """Delete a session with all that belongs to it. Raises SessionTaken, InvalidInput, OSError."""
        # The condition is in the statement: a writer that acquires the session in between makes it delete nothing.
        log = self._records_of(name)
        row = sessions.c.number == log.session
        with self._database.writing() as connection:
            done = connection.execute(delete(sessions).where(row, self._leases.free())).rowcount
            taken = not done and connection.scalar(select(sessions.c.number).where(row)) is not None
        if taken:
            raise SessionTaken(log.id)

    # --- keys --------------------------------------------------------------------------------------------------------

    def session_of(self, key: str) -> str | None:
        """The id of the session bound to a key; None when there is none. Raises InvalidInput, OSError."""
        found = self._keys.first_session_of([key])
        return None if found is None else found[1]

    def first_session_of(self, keys: Sequence[str]) -> tuple[str, str] | None:
        """The first bound key among these and the id of its session. Raises InvalidInput, OSError.

        At most two queries: one for the first keys, one for the others.
        """
        return self._keys.first_session_of(keys)

    def bind(self, key: str, name: str) -> None:
        """Bind a key to a session. Raises InvalidInput, OSError."""
        self._keys.bind_all([key], self._records_of(name))

    def bind_all(self, keys: Iterable[str], name: str) -> None:
        """Bind all these keys to a session, or none. Raises InvalidInput, OSError."""
        self._keys.bind_all(keys, self._records_of(name))

    def bindings(self) -> dict[str, str]:
        """Every bound key and the id of its session. Raises OSError."""
        return self._keys.bindings()

    def claim(self, key: str) -> bool:
        """Whether this caller is the first to claim a key. Raises InvalidInput, OSError."""
        # The primary key decides, for all servers: of any number of inserts one counts a row.
        row = self._database.insert(claims).values(scope=self._scope, key=encode_key(key), at=stamp(self._clock))
        with self._require_outer_session(), self._database.writing(quick=True) as connection:
            done = connection.execute(row.on_conflict_do_nothing(), execution_options={"preserve_rowcount": True})
            return done.rowcount == 1

    def load_state(self, key: str) -> dict[str, Json]:
        """The object stored under a key; {} when there is none. Raises InvalidInput, OSError."""
        query = select(remembered.c.value).where(remembered.c.scope == self._scope, remembered.c.key == encode_key(key))
        with self._database.reading(quick=True) as connection:
            found = connection.scalar(query)
        if found is None:
            return {}
        try:
            return dict(json.loads(found))
        except (TypeError, ValueError, RecursionError) as error:
            raise InvalidInput(f"the stored state is damaged ({error})", place=f"{self.place} {key[:80]}") from None

    def save_state(self, key: str, value: Mapping[str, Json]) -> None:
        """Store an object under a key, replacing an earlier one. Raises InvalidInput, OSError."""
        text = as_text(dict(value))
        row = self._database.insert(remembered).values(scope=self._scope, key=encode_key(key), value=text)
        columns = [remembered.c.scope, remembered.c.key]
        with self._require_outer_session(), self._database.writing(quick=True) as connection:
            connection.execute(row.on_conflict_do_update(index_elements=columns, set_={"value": text}))

    def close(self) -> None:
        """Release the held sessions and close the connections. Idempotent.

        Closing the store of a session's sub-agents does nothing: it shares both with the outer one.
        """
        if self._scope == ROOT:
            self._leases.close()
            self._database.close()

    # --- inside ------------------------------------------------------------------------------------------------------

    def _within(self) -> tuple[ColumnElement[bool], ...]:
        return sessions.c.scope == self._scope, sessions.c.number != ROOT

    def _gone(self) -> InvalidInput:
        return InvalidInput("the outer session no longer exists", place=self.place)

    @contextmanager
    def _require_outer_session(self) -> Iterator[None]:
        try:
            yield
        except IntegrityError:  # the outer session was deleted
            raise self._gone() from None

    def _ids_with_prefix(self, text: str) -> list[str]:
        """The ids that begin with a text of digits, letters and dashes, none of them special to LIKE."""
        query = select(sessions.c.id).where(*self._within(), sessions.c.id.like(f"{text}%"))
        with self._database.reading(quick=True) as connection:
            return list(connection.scalars(query))

    def _records_of(self, name: str) -> SessionRecords:
        known = self.find(name)
        with self._database.reading(quick=True) as connection:
            number = connection.scalar(select(sessions.c.number).where(*self._within(), sessions.c.id == known))
            if number is None:  # a damaged id, no longer text
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
        """Insert a session in one transaction; its number, or None when the id exists."""
        try:
            with self._database.writing() as connection:
                new = insert(sessions).values(scope=self._scope, id=name, records=0, **row)
                [number] = connection.execute(new).inserted_primary_key or [None]
                rows, count = as_rows(int(number), Verifier(), log), 0
                while batch := list(islice(rows, _BATCH)):
                    connection.execute(insert(records), batch)
                    count += len(batch)
                text = None if snapshot is None else snapshot_text(replace(snapshot, log_bytes=count))
                own = update(sessions).where(sessions.c.number == number)
                connection.execute(own.values(records=count, snapshot=text))
                objects = ({"session": number, "sha256": key_of(each), "data": each} for each in data)
                while batch := list(islice(objects, _BATCH)):
                    connection.execute(self._database.insert(originals).on_conflict_do_nothing(), batch)
                return int(number)
        except IntegrityError:
            # Either the id exists, or the outer session does not. Databases name the constraint in different words, so
            # the table is asked.
            if name in self._ids_with_prefix(name):
                return None
            raise self._gone() from None

    def _listed(self, row: Any, save: bool, allow_stale: bool, running: bool) -> ListedSession:
        log, kept = self._log(row.number, str(row.id)), parse_snapshot(row.snapshot)
        whole = length_fault(row.records, row.newest) is None
        if whole and kept is not None and kept.id == log.id:
            acceptable = running or (allow_stale and kept.messages > 0)
            if acceptable or kept.log_bytes == row.records:
                return ListedSession(log.id, kept)
        try:
            return ListedSession(log.id, self._rebuilt(log, save))
        except FoldlineError as error:
            return ListedSession(log.id, None, str(error))

    def _rebuilt(self, log: SessionRecords, save: bool) -> Snapshot:
        # Stored only if nobody has written since: it would be the snapshot of a shorter log. Without a lease, for a
        # list must not take a session from its writer.
        recording = _recording(log)
        snapshot = snapshot_of(recording.header, recording.tally, recording.replay(), recording.log_bytes)
        if save:
            row = (sessions.c.number == log.session, sessions.c.records == snapshot.log_bytes)
            with suppress(OSError), self._database.writing() as connection:  # must not prevent the list
                connection.execute(update(sessions).where(*row).values(snapshot=snapshot_text(snapshot)))
        return snapshot


def _recording(log: SessionRecords) -> Recording:
    length = log.length()
    return recording_of(log.decoded(length), log_bytes=length, place=log.place)
