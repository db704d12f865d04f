"""Who writes a session: one owner over all processes, for a time that it prolongs, and a fence against those who slept.

A lease is a row's `owner`, `lease_until` and `fence`. It is taken when nobody has it, or when its time is over, by the
clock of the database. The time decides only when another *may* take a session. What keeps a sleeper from writing is
that each transaction names the owner and the fence, and finds no row once another has taken it.
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
"""What a session stays with a process that died: short for whoever waits, long for a database that is restarted."""

_AT_ONCE: Final = 500
"""Leases in one statement: the parameters of a statement are limited."""


@dataclass(slots=True, eq=False, weakref_slot=True)
class Lease:
    """A session in the hand of one writer: the number of its row, its name, and what it was taken with."""

    session: int
    id: str
    owner: str
    fence: int = 0
    held: bool = False

    def ours(self) -> ColumnElement[bool]:
        """Whether a row is still in this hand."""
        return and_(sessions.c.number == self.session, sessions.c.owner == self.owner, sessions.c.fence == self.fence)


@dataclass(slots=True, eq=False, weakref_slot=True)
class Leases:
    """The leases of one store object. A thread renews those that are held, every third of their time."""

    database: Database
    seconds: float = LEASE_SECONDS
    _store: str = field(default_factory=lambda: secrets.token_hex(8))
    _held: weakref.WeakSet[Lease] = field(default_factory=weakref.WeakSet)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _ended: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def owner(self) -> str:
        """A name that no other writer has."""
        return f"{self._store}.{secrets.token_hex(8)}"

    def until(self) -> ColumnElement[float]:
        """When a lease ends that begins, or is prolonged, now."""
        return self.database.now + min(self.seconds, LONGEST_LEASE_SECONDS)

    def free(self) -> ColumnElement[bool]:
        """Whether nobody has a row. A lease without an end, or with one that nobody may ask for, is a damaged one."""
        until = sessions.c.lease_until
        over = or_(until.is_(None), until < self.database.now, until > self.database.now + LONGEST_LEASE_SECONDS)
        return or_(sessions.c.owner.is_(None), over)

    def acquire(self, lease: Lease) -> int:
        """Have a session; how many records it has. Raises SessionTaken, InvalidInput (it was deleted) and OSError."""
        row = sessions.c.number == lease.session
        with self.database.writing() as connection:
            taken = connection.execute(
                update(sessions)
                .where(row, or_(self.free(), sessions.c.owner == lease.owner))
                .values(owner=lease.owner, fence=sessions.c.fence + 1, lease_until=self.until())
            )
            found = connection.execute(select(sessions.c.fence, sessions.c.records).where(row)).one_or_none()
        if found is None:
            raise InvalidInput("there is no such session any more", place=lease.id)
        if not taken.rowcount:
            raise SessionTaken(lease.id)
        lease.fence = found.fence
        self.register(lease)
        records: int = found.records  # or what a damaged row has there, which whoever reads the log names
        return records

    def register(self, lease: Lease) -> None:
        """Renew a lease that was taken, from now on."""
        lease.held = True
        with self._lock:
            self._held.add(lease)
            if self._thread is None and not self._ended.is_set():
                arguments = (weakref.ref(self), self._ended, self.seconds / 3)
                self._thread = threading.Thread(target=_renew, args=arguments, name="foldline leases", daemon=True)
                self._thread.start()

    def update_row(self, connection: Connection, lease: Lease, *more: ColumnElement[bool], **values: Any) -> None:
        """Change the row of a session that must still be ours, and prolong the lease. Raises SessionLost.

        The first statement of each transaction that writes: it takes the row until the transaction ends, as SELECT …
        FOR UPDATE would, and checks owner and fence in the same step.
        """
        held = update(sessions).where(lease.ours(), *more).values(lease_until=self.until(), **values)
        if not lease.held or not connection.execute(held).rowcount:
            lease.held = False
            raise SessionLost(lease.id)

    def release(self, leases: Sequence[Lease]) -> None:
        """Let others have sessions. A database that is away lets go of them by itself, when their time is over."""
        were = [lease for lease in leases if lease.held]
        for lease in were:
            lease.held = False
        with self._lock:
            self._held.difference_update(were)
        if were:
            with suppress(OSError), self.database.writing() as connection:
                connection.execute(
                    update(sessions).where(or_(*(lease.ours() for lease in were))).values(owner=None, lease_until=None)
                )

    def renew(self) -> None:
        """Prolong the leases that are held. Raises OSError."""
        with self._lock:
            held = [lease for lease in self._held if lease.held]
        for start in range(0, len(held), _AT_ONCE):
            some = held[start : start + _AT_ONCE]
            # A row that is being written is prolonged by its writer; waiting for it would keep the others waiting.
            mine = (
                select(sessions.c.number)
                .where(
                    sessions.c.number.in_([lease.session for lease in some]),
                    sessions.c.owner.in_([lease.owner for lease in some]),
                )
                .with_for_update(skip_locked=True)
            )
            with self.database.writing() as connection:
                connection.execute(update(sessions).where(sessions.c.number.in_(mine)).values(lease_until=self.until()))

    def close(self) -> None:
        """Let go of all sessions, and end the thread. Closing again does nothing."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        with self._lock:
            held = list(self._held)
        for start in range(0, len(held), _AT_ONCE):
            self.release(held[start : start + _AT_ONCE])


def _renew(of: weakref.ref[Leases], ended: threading.Event, pause_seconds: float) -> None:
    """Until the store is closed, or nobody has it any more."""
    while not ended.wait(pause_seconds):
        leases = of()
        if leases is None:
            return
        # A database that is away is asked again. Until then the lease runs: the writer learns by SessionLost whether
        # another has taken the session over.
        with suppress(OSError, FoldlineError):
            leases.renew()
        del leases
