"""One session in tables, and its repair. Each append is one transaction that fails once the lease is lost."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace

from sqlalchemy import delete, insert, select
from sqlalchemy.exc import IntegrityError

from foldline.engine.context import Context
from foldline.errors import InvalidInput, SessionLost
from foldline.store.base import SessionWriter, Store
from foldline.store.checksums import Verifier, without_frame
from foldline.store.clock import Clock
from foldline.store.event_log import parse_object
from foldline.store.recording import Header, first_record, header_of_snapshot, snapshot_of
from foldline.store.records import Record
from foldline.store.repair import RawRecord, RepairReport, rebuild_log
from foldline.store.snapshot import Snapshot, snapshot_from, snapshot_record
from foldline.store.sql.lease import Lease, Leases
from foldline.store.sql.log import SessionRecords, SqlArchive, as_rows, columns_fault, length_fault
from foldline.store.sql.schema import originals, records, sessions
from foldline.view.archive import key_of
from foldline.view.transcript import Event

__all__ = [
    "SqlSession",
    "parse_snapshot",
    "repair_rows",
    "snapshot_text",
]


def snapshot_text(snapshot: Snapshot) -> str:
    """The stored form of a snapshot."""
    return json.dumps(snapshot_record(snapshot), allow_nan=False)


def parse_snapshot(text: str | None) -> Snapshot | None:
    """The snapshot in a text; None when there is none, or `snapshot_text` did not write it."""
    try:
        values = json.loads(text or "null")
    except (ValueError, RecursionError):
        return None
    return snapshot_from(values) if isinstance(values, dict) else None


class SqlSession(SessionWriter):
    """The one writer of a session, by its lease. Close it, or use it as a context manager.

    Use it in one thread at a time. With `header` the session is new: its first record is stored and its lease held.
    Otherwise the lease is acquired and the log read: raises SessionTaken, InvalidInput, OSError.
    """

    def __init__(
        self,
        log: SessionRecords,
        leases: Leases,
        agents: Store,
        *,
        clock: Clock,
        lease: Lease,
        header: Header | None = None,
    ) -> None:
        super().__init__(agents, clock)
        self._log = log
        self._leases = leases
        self._lease = lease
        self._archive = SqlArchive(log)
        self._commit_unknown = False
        self._closed = False
        self._length = 1
        self._checks = Verifier()  # seals the next record
        if header is not None:
            leases.register(lease)
            first = first_record(header)
            list(as_rows(log.session, self._checks, [first]))  # advances the checks past the stored header
            self._begin(header, first)
            return
        self._length = leases.acquire(lease)
        try:
            self._recount()
        except BaseException:
            leases.release([lease])
            raise

    @property
    def place(self) -> str:
        """The address of its database, and its id."""
        return self._log.place

    @property
    def archive(self) -> SqlArchive:
        """The originals of folded messages."""
        return self._archive

    def put_original(self, data: bytes) -> str:
        """Archive an original that is nowhere else. Returns its key. Raises SessionLost, OSError."""
        self._check_held()
        # In one transaction with the check of the lease. `SqlArchive.put` has none: the originals of folded messages
        # are content under their hash, so a stale writer can only store what is true anyway.
        key = key_of(data)
        database = self._log.database
        row = database.insert(originals).values(session=self._log.session, sha256=key, data=data)
        with database.writing() as connection:
            self._leases.update_row(connection, self._lease)
            connection.execute(row.on_conflict_do_nothing())
        return key

    def save(self, context: Context) -> None:
        """Write the snapshot. O(1). Raises SessionLost, OSError; nothing depends on the snapshot."""
        self._check_held()
        snapshot = snapshot_of(self._header, self._tally, context, self._length)
        with self._log.database.writing() as connection:
            self._leases.update_row(connection, self._lease, snapshot=snapshot_text(snapshot))

    def release(self) -> None:
        """Let other writers acquire the session, until `acquire`. Idempotent."""
        self._counted = None  # a session that waits for a person keeps no history in memory
        if self._commit_unknown:
            with suppress(OSError, SessionLost):  # the next writer reads what is there
                self._undo_unknown_commit()
        self._leases.release([self._lease])

    def acquire(self) -> bool:
        """Acquire it again; whether it is unchanged. O(log) if not.

        Raises SessionTaken, InvalidInput (deleted), OSError.
        """
        if self._lease.held:
            return True
        if self._closed:
            raise ValueError("this session is closed")
        # Records are only ever appended: an equal number means that nobody has written.
        length = self._leases.acquire(self._lease)
        if length == self._length:
            self._commit_unknown = False
            return True
        self._length = length
        self._commit_unknown = False
        try:
            self._recount()
        except BaseException:
            self._leases.release([self._lease])
            raise
        return False

    def discard(self) -> None:
        """Delete it with all that belongs to it, and close it. Raises SessionLost, OSError."""
        self._check_held()
        # One statement: it checks the lease and deletes, and the foreign keys delete the rest.
        with self._log.database.writing() as connection:
            if not connection.execute(delete(sessions).where(self._lease.ours())).rowcount:
                self._lease.held = False
                raise SessionLost(self.id)
        self.close()

    def close(self) -> None:
        """Release the session for good. Idempotent."""
        if not self._closed:
            self._closed = True
            self.release()

    def _check_held(self) -> None:
        if self._closed:
            raise ValueError("this session is closed")
        if not self._lease.held:
            raise SessionLost(self.id)

    def _extend(self, new: Sequence[Record]) -> None:
        # Sealed before the transaction, which holds the lock of the row. On a copy: a failed append leaves no trace.
        checks = replace(self._checks)
        rows = list(as_rows(self._log.session, checks, new))
        if self._commit_unknown:
            self._undo_unknown_commit()
        # The condition on the number of records is a second fence: should this writer be wrong about the end of the
        # log, it finds no row, instead of writing a number twice.
        length = self._length + len(rows)
        try:
            with self._log.database.writing() as connection:
                self._leases.update_row(connection, self._lease, sessions.c.records == self._length, records=length)
                connection.execute(insert(records), rows)
        except OSError:
            # The connection may have broken between the commit and its answer. The caller concludes from this error
            # that nothing was written, and will write again: so a commit must be undone first.
            self._commit_unknown = True
            with suppress(OSError):
                self._undo_unknown_commit()
            raise
        self._length, self._checks = length, checks

    def _undo_unknown_commit(self) -> None:
        """Delete records of an append that failed after its commit, as a log file is truncated.

        Raises SessionLost, OSError.
        """
        with self._log.database.writing() as connection:
            self._leases.update_row(connection, self._lease, records=self._length)
            connection.execute(
                delete(records).where(records.c.session == self._log.session, records.c.number >= self._length)
            )
        self._commit_unknown = False

    def _read(self) -> Iterator[tuple[Header, Record, Event | None]]:
        return self._log.decoded(self._length)

    def _recount(self) -> None:
        checks = Verifier()
        self._count(self._log.decoded(self._length, checks))
        self._checks = checks


def repair_rows(log: SessionRecords, leases: Leases) -> RepairReport | None:
    """Replace damaged rows by readable ones, in one transaction; None when nothing is damaged. O(log).

    The old rows go into the archive of the session. A session that was stored under another id gets the one of its
    first record. Raises SessionTaken while it is being written, InvalidInput when nothing identifies it, and OSError;
    then nothing has changed.
    """
    # Under a lease, like any writer. Not through `SqlSession`, which refuses a damaged log.
    lease = Lease(log.session, log.id, leases.owner())
    length = leases.acquire(lease)
    try:
        rows = log.rows()
        lines = [
            RawRecord(row.number if isinstance(row.number, int) else at, None, row.data) for at, row in enumerate(rows)
        ]
        other_damage = []
        if (fault := length_fault(length, rows[-1].number if rows else None)) is not None:
            other_damage.append(fault)
        for row in rows:
            record = parse_object(without_frame(row.data))
            if not isinstance(record, str) and (fault := columns_fault(row, record, log.id)) is not None:
                other_damage.append(fault)
        snapshot = _snapshot(log)
        rebuilt = rebuild_log(
            lines,
            header=None if snapshot is None else header_of_snapshot(snapshot),
            name=log.id,
            place=log.where(0),
            other_damage=other_damage,
            known_messages=0 if snapshot is None else snapshot.messages,
        )
        if rebuilt is None:
            return None
        name = str(rebuilt.records[0]["id"])
        archive = SqlArchive(replace(log, id=name))
        key = archive.put(b"\n".join(line.data for line in lines))
        new = list(as_rows(log.session, Verifier(), rebuilt.records))
        try:
            with log.database.writing() as connection:
                leases.update_row(connection, lease, id=name, records=len(new), snapshot=None)
                connection.execute(delete(records).where(records.c.session == log.session))
                connection.execute(insert(records), new)
        except IntegrityError:
            raise InvalidInput(f"another session already has its first id, {name}", place=log.place) from None
        return RepairReport(rebuilt.damage, archive.where(key), rebuilt.lost_messages, rebuilt.left_out)
    finally:
        leases.release([lease])


def _snapshot(log: SessionRecords) -> Snapshot | None:
    with log.database.reading() as connection:
        return parse_snapshot(connection.scalar(select(sessions.c.snapshot).where(sessions.c.number == log.session)))
