"""What every SQLite file of ours has in common: it is its owner's alone, and what its errors mean."""

from __future__ import annotations

import errno
import os
import sqlite3
import sys
from pathlib import Path
from typing import Final

from foldline.store.files import make_private_folder

__all__ = ["errno_of", "is_damaged", "make_private_file"]

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
    return code & 0xFF  # the upper bytes say in which place it happened


def errno_of(error: BaseException) -> int | None:
    """What the system calls an error of SQLite (disk full, no right, busy); None for one that is not the system's."""
    return _ERRNO.get(_code(error))


def is_damaged(error: BaseException) -> bool:
    """Whether an error says that a file is no database, or no longer a whole one."""
    return _code(error) in {sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT}


def make_private_file(path: Path) -> None:
    """Makes the file (0600) and its folder (0700) if need be. Raises OSError.

    Before SQLite would make it, which asks no mode of us. The files beside it (-wal, -shm) get its mode.
    """
    make_private_folder(path.parent)
    number = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        if sys.platform != "win32":
            os.fchmod(number, 0o600)  # it may have been made by someone less careful
    finally:
        os.close(number)
