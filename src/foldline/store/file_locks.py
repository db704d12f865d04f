"""Locks on open files, between processes and within one: `flock` where the system has it, a locked byte on Windows.

The lock belongs to the open file: it ends when that is closed, so also when its process dies.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Final

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

__all__ = ["LOCKED_BYTE", "try_byte_lock", "try_lock"]

LOCKED_BYTE: Final = 2**31 - 2
"""The byte that is locked on Windows.

No process can read a locked byte there, so it lies behind the end of every file that is locked here, as a lock may
(Windows, LockFile). It is no farther because the position of `_locking` has 32 bits.
"""


def try_lock(handle: int) -> bool:
    """Take the lock of an open file, unless another opening of it has it. Raises OSError (a disk without locks)."""
    if sys.platform == "win32":
        return try_byte_lock(handle, lambda number: msvcrt.locking(number, msvcrt.LK_NBLCK, 1))
    else:  # noqa: RET505 - mypy knows the platform of a branch, and not that of what follows it
        # `flock` and no POSIX lock (`lockf`): a process loses those when it closes any descriptor of the file.
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


def try_byte_lock(handle: int, lock: Callable[[int], object]) -> bool:
    """Lock the one byte with `lock`, which locks at the position of the file and raises PermissionError if it is taken.

    The position stays as it was.
    """
    before = os.lseek(handle, 0, os.SEEK_CUR)
    os.lseek(handle, LOCKED_BYTE, os.SEEK_SET)
    try:
        lock(handle)
    except PermissionError:  # EACCES (Windows, _locking): another one has it
        return False
    finally:
        os.lseek(handle, before, os.SEEK_SET)
    return True
