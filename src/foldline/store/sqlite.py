"""SQLite files of Foldline: private to their owner, with errors of the system, and the index of keys."""

from __future__ import annotations

import errno
import json
import os
import sqlite3
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Final

from foldline.errors import InvalidInput
from foldline.store.files import file_lock, make_private_folder

__all__ = [
    "KeyIndex",
    "errno_of",
    "is_damaged",
    "make_private_file",
]

# Whoever handles a full disk or a missing right of files handles that of SQLite then, without knowing its codes.
_ERRNO: Final = {
    sqlite3.SQLITE_FULL: errno.ENOSPC,
    sqlite3.SQLITE_IOERR: errno.EIO,
    sqlite3.SQLITE_CANTOPEN: errno.EACCES,
    sqlite3.SQLITE_READONLY: errno.EACCES,
    sqlite3.SQLITE_PERM: errno.EACCES,
    sqlite3.SQLITE_BUSY: errno.EAGAIN,
    sqlite3.SQLITE_LOCKED: errno.EAGAIN,
}


def _code(error: BaseException) -> int:
    code: int = getattr(error, "sqlite_errorcode", 0)
    return code & 0xFF  # the upper bytes hold the extended code


def errno_of(error: BaseException) -> int | None:
    """The errno for an error of SQLite (disk full, no permission, busy); None for an error of another kind."""
    return _ERRNO.get(_code(error))


def is_damaged(error: BaseException) -> bool:
    """Whether an error means that the file is not an SQLite database, or a damaged one."""
    return _code(error) in {sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT}


def make_private_file(path: Path) -> None:
    """Create a file (0600) and its folder (0700) unless they exist. Raises OSError.

    SQLite would create it with the mode of the umask. Its companions (-wal, -shm) inherit the mode of the file.
    """
    # An empty file is a valid empty database, so it can be created before SQLite opens it.
    make_private_folder(path.parent)
    number = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        if sys.platform != "win32":
            os.fchmod(number, 0o600)  # it may exist with a wider mode
    finally:
        os.close(number)


# In the header of the file ("PRAGMA application_id"): a file of another program at this path is refused, never altered.
_APPLICATION: Final = int.from_bytes(b"FLkb")

_VERSION: Final = 1

# WITHOUT ROWID stores the rows in the tree of the key itself: one search instead of two, and each key is stored once.
# The index serves the deletion of a session, which may have thousands of keys.
_SCHEMA: Final = (
    "CREATE TABLE keys (key TEXT NOT NULL PRIMARY KEY, session TEXT NOT NULL) WITHOUT ROWID",
    "CREATE INDEX keys_by_session ON keys (session)",
    f"PRAGMA application_id = {_APPLICATION}",
    f"PRAGMA user_version = {_VERSION}",
)


_BUSY_SECONDS: Final = 5.0  # keys are written in milliseconds: a longer wait means a stuck writer


class KeyIndex:
    """The keys in a file, which the first `put` creates (0600).

    Each call opens the file, which takes a fifth of a millisecond: nothing is shared between threads, and nothing stays
    open in a process that forks. All methods raise OSError (no permission, a full disk, a stuck writer) and
    InvalidInput for a file of another program.
    """

    def __init__(self, path: Path, *, fsync: bool = True) -> None:
        self._path = path
        self._fsync = fsync

    def find(self, keys: Sequence[str]) -> dict[str, str]:
        """The bound keys among these, with their sessions. O(keys)."""
        # As one JSON parameter: SQLite limits the number of parameters, and there may be thousands of keys. CROSS JOIN
        # fixes the order, so each wanted key is one search of the tree; else a large list could become a scan of all
        # keys.
        query = "SELECT wanted.key, session FROM json_each(?) AS wanted CROSS JOIN keys ON keys.key = wanted.value"
        with self._reading() as database:
            rows = database.execute(query, [json.dumps(list(map(_encode, keys)))]) if database is not None else ()
            return {keys[place]: session for place, session in rows}

    def all(self) -> dict[str, str]:
        """Every key and its session."""
        with self._reading() as database:
            rows = database.execute("SELECT key, session FROM keys") if database is not None else ()
            return dict(map(_decode, rows))

    def bind(self, bound: Mapping[str, str]) -> None:
        """Bind keys to sessions, all or none; they are on disk on return."""
        rows = [(_encode(key), session) for key, session in bound.items()]
        with self._writing() as database:
            database.executemany("INSERT OR REPLACE INTO keys VALUES (?, ?)", rows)

    def remove(self, session: str) -> None:
        """Remove the keys of a session. O(its keys)."""
        with self._writing() as database:
            database.execute("DELETE FROM keys WHERE session = ?", (session,))

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection | None]:
        """A read transaction; None while another process creates the file."""
        # A transaction also for reading: the check of the header and the query then see one state of the file.
        with self._opened() as database:
            database.execute("BEGIN")
            yield database if self._is_initialised(database) else None

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """A write transaction, committed at the end of the block."""
        make_private_file(self._path)
        # SQLite polls every tenth of a second, and may starve among busy writers: hence a lock of our own.
        lock = self._path.with_name(f".{self._path.name}.lock")
        with file_lock(lock, seconds=_BUSY_SECONDS), self._opened() as database:
            # FULL would not sync the folder after the journal was removed: a power cut could bring it back, and with
            # it what was there before ("PRAGMA synchronous" in SQLite's manual).
            database.execute(f"PRAGMA synchronous = {'EXTRA' if self._fsync else 'OFF'}")
            # IMMEDIATE takes the write lock now. A transaction that began by reading could not get it later while
            # others read, and would fail in the middle.
            database.execute("BEGIN IMMEDIATE")
            try:
                if not self._is_initialised(database):
                    for statement in _SCHEMA:
                        database.execute(statement)
                yield database
                database.execute("COMMIT")
            except BaseException:
                with suppress(sqlite3.Error):  # the first error matters more
                    database.execute("ROLLBACK")
                raise

    @contextmanager
    def _opened(self) -> Iterator[sqlite3.Connection]:
        try:
            # A plain path would create a file that was deleted meanwhile, readable for everyone.
            address = f"{self._path.as_uri()}?mode=rw"
            opened = sqlite3.connect(address, uri=True, timeout=_BUSY_SECONDS, isolation_level=None)
            with closing(opened) as database:
                yield database
        except sqlite3.DatabaseError as error:
            number = errno_of(error)
            if number is not None:
                raise OSError(number, f"the keys of sessions: {error}", str(self._path)) from error
            if is_damaged(error):
                raise InvalidInput(f"is damaged ({error}); it can be deleted", place=str(self._path)) from error
            raise

    def _is_initialised(self, database: sqlite3.Connection) -> bool:
        # Both are 0 in an empty file, which `make_private_file` leaves to the first writer.
        (application,) = database.execute("PRAGMA application_id").fetchone()
        (version,) = database.execute("PRAGMA user_version").fetchone()
        if (application, version) == (0, 0):
            return False
        if application != _APPLICATION or version > _VERSION:
            raise InvalidInput("was written by a newer Foldline, or by another program", place=str(self._path))
        return True


def _encode(key: str) -> str:
    """A key as stored: in ASCII, because SQLite accepts no lone surrogate."""
    return json.dumps(key)[1:-1]


def _decode(row: tuple[str, str]) -> tuple[str, str]:
    return json.loads(f'"{row[0]}"'), row[1]
