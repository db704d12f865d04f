"""Leases: one writer of a session over all processes, for a time that it renews, with a fence against stale writers.

A lease is the `owner`, `lease_until` and `fence` of a row. It can be acquired when it is free, or when its time has
passed by the clock of the database. The time decides only when another writer *may* acquire a session. A writer that
slept cannot write, because each transaction names its owner and fence, and finds no row after another has acquired it.
"""

from __future__ import annotations

import secrets
import threading
import weakref
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, and_, or_, select, update

from foldline.errors import FoldlineError, InvalidInput, SessionLost, SessionTaken
from foldline.store.addresses import LONGEST_LEASE_SECONDS
from foldline.store.sql.database import Database
from foldline.store.sql.schema import sessions

__all__ = ["LEASE_SECONDS", "Lease", "Leases"]

LEASE_SECONDS: Final = 10.0
"""How long a session stays with a process that died: short for those who wait, long for a restart of the database."""

_BATCH: Final = 500  # leases per statement, whose parameters are limited


# Compared by identity, and weakly referenced: a session that is garbage-collected without `close` must not be renewed
# for the life of the process.
@dataclass(slots=True, eq=False, weakref_slot=True)
class Lease:
    """The lease of one writer on a session: the number of the row, the id, the owner and the fence."""

    session: int
    id: str
    owner: str
    fence: int = 0
    held: bool = False

    def ours(self) -> ColumnElement[bool]:
        """The condition that a row still belongs to this lease."""
        return and_(sessions.c.number == self.session, sessions.c.owner == self.owner, sessions.c.fence == self.fence)


@dataclass(slots=True, eq=False, weakref_slot=True)
class Leases:
    """The leases of one store object. A thread renews the held ones after every third of their time."""

    database: Database
    seconds: float = LEASE_SECONDS
    _store: str = field(default_factory=lambda: secrets.token_hex(8))
    _held: weakref.WeakSet[Lease] = field(default_factory=weakref.WeakSet)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _ended: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def owner(self) -> str:
        """A new name that no other writer has."""
        # New for each session object: two in one process are two writers, and exclude each other like two processes.
        return f"{self._store}.{secrets.token_hex(8)}"

    def until(self) -> ColumnElement[float]:
        """The end of a lease that is acquired or renewed now."""
        return self.database.now + min(self.seconds, LONGEST_LEASE_SECONDS)

    def free(self) -> ColumnElement[bool]:
        """The condition that nobody holds a row."""
        # A lease without an end, or with one beyond the allowed maximum, is damaged: it must not block for ever.
        until = sessions.c.lease_until
        expired = or_(until.is_(None), until < self.database.now, until > self.database.now + LONGEST_LEASE_SECONDS)
        return or_(sessions.c.owner.is_(None), expired)

    def acquire(self, lease: Lease) -> int:
        """Acquire a session; return its number of records. Raises SessionTaken, InvalidInput (deleted), OSError."""
        # One UPDATE decides, under the lock of the row. A SELECT before it could only say who had the session a moment
        # ago. The owner may acquire its own row: a commit whose answer was lost is repeated. The fence rises each time,
        # so statements of the earlier acquisition that are still under way find no row.
        row = sessions.c.number == lease.session
        with self.database.writing() as connection:
            result = connection.execute(
                update(sessions)
                .where(row, or_(self.free(), sessions.c.owner == lease.owner))
                .values(owner=lease.owner, fence=sessions.c.fence + 1, lease_until=self.until())
            )
            found = connection.execute(select(sessions.c.fence, sessions.c.records).where(row)).one_or_none()
        if found is None:
            raise InvalidInput("the session no longer exists", place=lease.id)
        if not result.rowcount:
            raise SessionTaken(lease.id)
        lease.fence = found.fence
        self.register(lease)
        records: int = found.records  # in a damaged row anything; reading the log reports that
        return records

    def register(self, lease: Lease) -> None:
        """Renew an acquired lease from now on."""
        # The thread starts with the first lease: a process that only reads has none.
        lease.held = True
        with self._lock:
            self._held.add(lease)
            if self._thread is None and not self._ended.is_set():
                arguments = (weakref.ref(self), self._ended, self.seconds / 3)
                self._thread = threading.Thread(target=_renew, args=arguments, name="foldline leases", daemon=True)
                self._thread.start()

    def update_row(self, connection: Connection, lease: Lease, *more: ColumnElement[bool], **values: Any) -> None:
        """Update the row of a session and renew its lease, if it is still ours. Raises SessionLost.

        It must be the first statement of each writing transaction: like SELECT … FOR UPDATE it locks the row until the
        transaction ends, and it checks owner and fence in the same step.
        """
        held = update(sessions).where(lease.ours(), *more).values(lease_until=self.until(), **values)
        if not lease.held or not connection.execute(held).rowcount:
            lease.held = False
            raise SessionLost(lease.id)

    def release(self, leases: Sequence[Lease]) -> None:
        """Release sessions. With the database unreachable, their leases simply expire."""
        # Marked first, and written without raising: whatever the database says, this process writes no more. An error
        # at the end of a turn would hide how the turn went, and costs nothing but the rest of the lease.
        releasing = [lease for lease in leases if lease.held]
        for lease in releasing:
            lease.held = False
        with self._lock:
            self._held.difference_update(releasing)
        if releasing:
            with suppress(OSError), self.database.writing() as connection:
                connection.execute(
                    update(sessions)
                    .where(or_(*(lease.ours() for lease in releasing)))
                    .values(owner=None, lease_until=None)
                )

    def renew(self) -> None:
        """Renew the held leases. Raises OSError."""
        with self._lock:
            held = [lease for lease in self._held if lease.held]
        for start in range(0, len(held), _BATCH):
            batch = held[start : start + _BATCH]
            # A locked row is being written, and its writer renews it; waiting for it would delay the other leases.
            unlocked = (
                select(sessions.c.number)
                .where(
                    sessions.c.number.in_([lease.session for lease in batch]),
                    sessions.c.owner.in_([lease.owner for lease in batch]),
                )
                .with_for_update(skip_locked=True)
            )
            with self.database.writing() as connection:
                connection.execute(
                    update(sessions).where(sessions.c.number.in_(unlocked)).values(lease_until=self.until())
                )

    def close(self) -> None:
        """Release all sessions and end the thread. Idempotent."""
        # The thread first: it must not use a database whose connections are about to be closed.
        self._ended.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        with self._lock:
            held = list(self._held)
        for start in range(0, len(held), _BATCH):
            self.release(held[start : start + _BATCH])


def _renew(of: weakref.ref[Leases], ended: threading.Event, pause_seconds: float) -> None:
    """Renew until the store is closed or garbage-collected: hence the weak reference."""
    while not ended.wait(pause_seconds):
        leases = of()
        if leases is None:
            return
        # With the database unreachable, the next round tries again. Should the lease expire meanwhile, the writer
        # learns from SessionLost whether another has acquired the session.
        with suppress(OSError, FoldlineError):
            leases.renew()
        del leases
