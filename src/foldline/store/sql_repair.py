"""Going on after damage in the tables of a database: as `repair` does it for files, in one transaction."""

from __future__ import annotations

from sqlalchemy import delete, insert, select

from foldline.store.checksums import Verifier, plain
from foldline.store.events import object_in
from foldline.store.recording import Header, header_of_snapshot
from foldline.store.repair import Line, Repaired, mended
from foldline.store.sql_lease import Lease, Leases
from foldline.store.sql_log import Log, SqlArchive, as_rows, columns_fault, length_fault
from foldline.store.sql_schema import records, sessions
from foldline.store.sql_session import snapshot_in

__all__ = ["repair_rows"]


def repair_rows(log: Log, leases: Leases) -> Repaired | None:
    """Puts rows that can be read in place of damaged ones; None when nothing is damaged. O(log).

    Nobody may be writing the session: raises SessionTaken. The old rows are kept in its archive. Raises InvalidInput
    where nothing tells what the session was, and OSError; then all is as it was.
    """
    lease = Lease(log.session, log.id, leases.owner())
    length = leases.take(lease)
    try:
        rows = log.rows()
        lines = [Line(row.number, None, row.body.encode("utf-8", "surrogatepass")) for row in rows]
        more = []
        if (fault := length_fault(length, rows[-1].number if rows else None)) is not None:
            more.append(fault)
        for row, line in zip(rows, lines, strict=True):
            record = object_in(plain(line.data))
            if not isinstance(record, str) and (fault := columns_fault(row, record)) is not None:
                more.append(fault)
        made = mended(lines, header=_header(log), name=log.id, place=log.where(0), more=more)
        if made is None:
            return None
        archive = SqlArchive(log)
        kept = archive.put(b"\n".join(line.data for line in lines))
        new = list(as_rows(log.session, Verifier(), made.records))
        with log.database.writing() as connection:
            leases.hold(connection, lease, records=len(new), snapshot=None)
            connection.execute(delete(records).where(records.c.session == log.session))
            connection.execute(insert(records), new)
        return Repaired(made.damage, archive.where(kept), made.lost_messages, made.left_out)
    finally:
        leases.let_go([lease])


def _header(log: Log) -> Header | None:
    with log.database.reading() as connection:
        kept = snapshot_in(connection.scalar(select(sessions.c.snapshot).where(sessions.c.number == log.session)))
    return None if kept is None else header_of_snapshot(kept)
