"""Going on after damage in the tables of a database: as `repair` does it for files, in one transaction."""

from __future__ import annotations

from dataclasses import replace

from sqlalchemy import delete, insert, select
from sqlalchemy.exc import IntegrityError

from foldline.errors import InvalidInput
from foldline.store.checksums import Verifier, plain
from foldline.store.events import object_in
from foldline.store.recording import header_of_snapshot
from foldline.store.repair import Line, Repaired, mended
from foldline.store.snapshot import Snapshot
from foldline.store.sql.lease import Lease, Leases
from foldline.store.sql.log import Log, SqlArchive, as_rows, columns_fault, length_fault
from foldline.store.sql.schema import records, sessions
from foldline.store.sql.session import snapshot_in

__all__ = ["repair_rows"]


def repair_rows(log: Log, leases: Leases) -> Repaired | None:
    """Puts rows that can be read in place of damaged ones; None when nothing is damaged. O(log).

    The session goes by the id in its first record again, if it was filed under another.

    Nobody may be writing the session: raises SessionTaken. The old rows are kept in its archive. Raises InvalidInput
    where nothing tells what the session was, and OSError; then all is as it was.
    """
    lease = Lease(log.session, log.id, leases.owner())
    length = leases.take(lease)
    try:
        rows = log.rows()
        lines = [Line(row.number if isinstance(row.number, int) else at, None, row.data) for at, row in enumerate(rows)]
        more = []
        if (fault := length_fault(length, rows[-1].number if rows else None)) is not None:
            more.append(fault)
        for row in rows:
            record = object_in(plain(row.data))
            if not isinstance(record, str) and (fault := columns_fault(row, record, log.id)) is not None:
                more.append(fault)
        kept = _snapshot(log)
        made = mended(
            lines,
            header=None if kept is None else header_of_snapshot(kept),
            name=log.id,
            place=log.where(0),
            more=more,
            known_messages=0 if kept is None else kept.messages,
        )
        if made is None:
            return None
        name = str(made.records[0]["id"])
        archive = SqlArchive(replace(log, id=name))
        key = archive.put(b"\n".join(line.data for line in lines))
        new = list(as_rows(log.session, Verifier(), made.records))
        try:
            with log.database.writing() as connection:
                leases.hold(connection, lease, id=name, records=len(new), snapshot=None)
                connection.execute(delete(records).where(records.c.session == log.session))
                connection.execute(insert(records), new)
        except IntegrityError:
            raise InvalidInput(f"there is another session of the id that it had, {name}", place=log.place) from None
        return Repaired(made.damage, archive.where(key), made.lost_messages, made.left_out)
    finally:
        leases.let_go([lease])


def _snapshot(log: Log) -> Snapshot | None:
    with log.database.reading() as connection:
        return snapshot_in(connection.scalar(select(sessions.c.snapshot).where(sessions.c.number == log.session)))
