"""A lock keeps a second opening of the file out, by each of the two ways that systems have."""

from __future__ import annotations

import os
import struct
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from foldline.store.file_locks import LOCKED_BYTE, try_byte_lock, try_lock

if sys.platform != "win32":
    import fcntl

Lock = Callable[[int], bool]


def lock_one_byte(handle: int) -> None:
    """As `_locking` of Windows does: one byte at the position, for this opening of the file (a lock of Linux's)."""
    # struct flock: type, whence, start, length, process. `l_pid` must be 0 (Linux, fcntl_locking).
    position = os.lseek(handle, 0, os.SEEK_CUR)
    wanted = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, position, 1, 0)
    try:
        fcntl.fcntl(handle, fcntl.F_OFD_SETLK, wanted)
    except BlockingIOError as error:
        raise PermissionError(13, "Permission denied") from error


def by_byte(handle: int) -> bool:
    return try_byte_lock(handle, lock_one_byte)


WAYS = [
    pytest.param(try_lock, id="the system's"),
    pytest.param(
        by_byte, id="a byte", marks=pytest.mark.skipif(sys.platform != "linux", reason="locks of one opening: Linux")
    ),
]


@pytest.fixture
def openings(tmp_path: Path) -> Iterator[Callable[[], int]]:
    path = tmp_path / "log"
    path.write_bytes(b"one\ntwo\n")
    with ExitStack() as stack:

        def opened() -> int:
            file = stack.enter_context(path.open("r+b", buffering=0))
            return file.fileno()

        yield opened


@pytest.mark.parametrize("lock", WAYS)
def test_one_opening_at_a_time_has_the_lock(lock: Lock, openings: Callable[[], int]) -> None:
    first, second = openings(), openings()
    assert lock(first)
    assert not lock(second)


@pytest.mark.parametrize("lock", WAYS)
def test_the_lock_ends_with_the_opening_that_has_it_and_with_no_other(lock: Lock, tmp_path: Path) -> None:
    path = tmp_path / "log"
    with path.open("w+b") as second:
        with path.open("r+b") as first:
            assert lock(first.fileno())
            path.read_bytes()  # a reader in this process opens and closes it too
            assert not lock(second.fileno())
        assert lock(second.fileno())


@pytest.mark.parametrize("lock", WAYS)
def test_who_has_not_the_lock_reads_the_file(lock: Lock, openings: Callable[[], int]) -> None:
    first, second = openings(), openings()
    assert lock(first)
    assert os.read(second, 100) == b"one\ntwo\n"


@pytest.mark.parametrize("taken", [False, True])
def test_the_byte_is_locked_far_behind_the_end_and_the_position_stays(taken: bool, openings: Callable[[], int]) -> None:
    handle = openings()
    os.lseek(handle, 4, os.SEEK_SET)
    at = []

    def lock(number: int) -> None:
        at.append(os.lseek(number, 0, os.SEEK_CUR))
        if taken:
            raise PermissionError(13, "Permission denied")

    assert try_byte_lock(handle, lock) is not taken
    assert at == [LOCKED_BYTE]
    assert os.lseek(handle, 0, os.SEEK_CUR) == 4
    assert os.fstat(handle).st_size == 8


def test_a_position_fits_what_windows_locks_by() -> None:
    """`_locking` reads the position as a number of 32 bits with a sign."""
    assert 2**30 < LOCKED_BYTE <= 2**31 - 1
