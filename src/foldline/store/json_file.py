"""A small JSON object in a file that several processes share: read whole, changed under a lock, replaced whole."""

from __future__ import annotations

import errno
import json
import os
import secrets
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic, sleep
from typing import Final

from foldline.errors import InvalidInput
from foldline.messages import Json
from foldline.store.files import make_private_folder, sync_folder

if sys.platform != "win32":
    import fcntl

__all__ = ["change_json", "locked", "read_json", "take_json"]

_AGAIN_SECONDS: Final = 0.001
"""Who asks for a lock seldom does not get it beside those who take it again and again."""


def read_json(path: Path) -> dict[str, Json]:
    """The object in a file; {} where there is none. Raises InvalidInput when it is something else, and OSError."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return {}
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"is not JSON ({error}); it can be deleted", place=str(path)) from None
    if not isinstance(value, dict):
        raise InvalidInput("must hold a JSON object; it can be deleted", place=str(path))
    return value


def change_json(path: Path, change: Callable[[dict[str, Json]], None]) -> None:
    """Reads the object, lets `change` alter it, and writes it back (0600, its folder 0700); whole or not at all.

    Other processes wait meanwhile, where the system knows locks. Raises InvalidInput as `read_json` does, and OSError.
    """
    make_private_folder(path.parent)
    with locked(path.with_name(f".{path.name}.lock")):
        value = read_json(path)
        change(value)
        draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}.part")
        try:
            handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                json.dump(value, file, ensure_ascii=True, indent=1, sort_keys=True)
                file.flush()
                os.fsync(file.fileno())
            os.replace(draft, path)
        except BaseException:
            with suppress(OSError):  # the reason why it could not be written matters more
                draft.unlink()
            raise


@contextmanager
def take_json(path: Path) -> Iterator[dict[str, Json]]:
    """The object in a file, which is removed when the block ends well; other processes wait meanwhile.

    Raises as `read_json` does.
    """
    with locked(path.with_name(f".{path.name}.lock")):
        yield read_json(path)
        path.unlink(missing_ok=True)
        sync_folder(path.parent)


@contextmanager
def locked(path: Path, *, seconds: float | None = None) -> Iterator[None]:
    """What one process at a time does: it has the lock of a file, which is made if need be, and the others wait.

    Raises OSError; with `seconds` also after those. Where the system knows no such locks nobody waits.
    """
    # A file of its own: the one that is replaced would be another file for whoever waits for it.
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        if sys.platform != "win32":
            _lock(handle, path, seconds)
        yield
    finally:
        os.close(handle)


def _lock(handle: int, path: Path, seconds: float | None) -> None:
    if seconds is None:
        fcntl.flock(handle, fcntl.LOCK_EX)
        return
    until = monotonic() + seconds
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if monotonic() >= until:
                raise OSError(errno.EAGAIN, "another process does not let go of it", str(path)) from None
        sleep(_AGAIN_SECONDS)
