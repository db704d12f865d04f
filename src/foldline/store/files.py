"""Private files: written atomically, shared JSON under a lock, and an archive with one file per object."""

from __future__ import annotations

import errno
import json
import os
import re
import secrets
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic, sleep
from typing import Final

from foldline.errors import InvalidInput
from foldline.messages import Json
from foldline.store.file_locks import try_lock
from foldline.view.archive import key_of

__all__ = [
    "FileArchive",
    "check_writable",
    "consume_json",
    "file_lock",
    "free_path",
    "make_private_folder",
    "read_json",
    "sync_folder",
    "sync_tree",
    "update_json",
    "write_atomic",
]

# A SHA-256 in hexadecimal digits. Nothing else becomes part of a path, so no key leads out of the archive.
_KEY = re.compile(r"[0-9a-f]{64}")
_NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0)  # not on Windows, where the check before opening must do
_BINARY = getattr(os, "O_BINARY", 0)


def make_private_folder(path: Path) -> None:
    """Create a folder and its missing parents, for the owner only; existing folders keep their mode."""
    # `mkdir(parents=True)` gives the mode to the last folder only; its parents would get that of the umask.
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    for folder in reversed(missing):
        with suppress(FileExistsError):  # another process was faster
            folder.mkdir(mode=0o700)


def check_writable(path: str | os.PathLike[str]) -> None:
    """Raise InvalidInput unless a file can be written there: to be called before long work."""
    folder = os.path.dirname(path) or "."
    if os.path.isdir(path):
        raise InvalidInput("is a directory", place=os.fspath(path))
    if not os.path.isdir(folder):
        raise InvalidInput("there is no such folder to write to", place=folder)
    if not os.access(folder, os.W_OK):
        raise InvalidInput("no right to write there", place=folder)


def write_atomic(path: Path, chunks: Iterable[bytes], *, fsync: bool = True) -> None:
    """Write a file atomically, for its owner only; with `fsync` it is on disk on return. Raises OSError."""
    # Beside the target, because a rename is atomic within one file system only. A random name, because two processes
    # may write the same file; O_EXCL, because in a shared folder somebody could have put a link under that name.
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}.part")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NO_FOLLOW | _BINARY
    try:
        with os.fdopen(os.open(draft, flags, 0o600), "wb") as file:
            file.writelines(chunks)
            # Before the rename: file systems may write the name before the data, and a power cut in between would leave
            # an empty file where the old one was.
            if fsync:
                file.flush()
                os.fsync(file.fileno())
        os.replace(draft, path)
    except BaseException:
        with suppress(OSError):  # the first error matters more
            draft.unlink()
        raise
    # After it: the new name is data of the folder. Until this returns a power cut may bring the old file back.
    if fsync:
        sync_folder(path.parent)


def free_path(path: Path) -> Path:
    """The path, with a number appended if it exists: a saved file is never overwritten."""
    number, free = 1, path
    while os.path.lexists(free):
        number += 1
        free = path.with_name(f"{path.name}.{number}")
    return free


class FileArchive:
    """Originals in a folder, as `root/ab/abcdef…`, named by the SHA-256 of their content; an `Archive`.

    Nothing is created before the first `put`. Files are 0600 and folders 0700: originals hold what the session held.
    A file appears whole or not at all (a temporary file, then a rename), so several processes may share a folder. With
    `fsync` each object is on disk when `put` returns; without it, one written just before a power cut may be missing or
    damaged, which `get` detects. Links inside the folder are refused; the folder itself may be one.
    """

    def __init__(self, root: Path | str, *, fsync: bool = False) -> None:
        self._root = Path(os.path.abspath(root))  # so that `where` survives a change of the working directory
        self._fsync = fsync

    @property
    def root(self) -> Path:
        """The folder."""
        return self._root

    def put(self, data: bytes, /) -> str:
        """Store the bytes and return their key. Idempotent; O(size).

        Raises InvalidInput when something else has the object's path, and OSError (a full disk).
        """
        key = key_of(data)
        path = self._path(key)
        self._refuse_links(path.parent)
        # Reading what is there costs as much as writing it, and heals an object that a disk or a power cut damaged.
        if self._size(path) == len(data) and self._is_intact(path, key):
            return key
        make_private_folder(path.parent)
        write_atomic(path, [data], fsync=self._fsync)
        return key

    def get(self, key: str, /) -> bytes:
        """The bytes under a key, verified against it; O(size).

        Raises KeyError for a malformed or unknown key, InvalidInput when the file is damaged, a link, or no regular
        file.
        """
        path = self._path(key)
        self._refuse_links(path.parent)
        if self._size(path) is None:
            raise KeyError(key)
        try:
            data = self._read(path)
        except FileNotFoundError:
            raise KeyError(key) from None
        if key_of(data) != key:
            raise InvalidInput("the content does not match its key: the file is damaged", place=str(path))
        return data

    def where(self, key: str, /) -> str:
        """The path for a key, whether the object exists or not. Raises KeyError for a malformed key."""
        return str(self._path(key))

    def __contains__(self, key: object, /) -> bool:
        if not isinstance(key, str) or not _KEY.fullmatch(key):
            return False
        path = self._path(key)
        return all(_is_kind(place, kind) for place, kind in ((path.parent, stat.S_IFDIR), (path, stat.S_IFREG)))

    def _path(self, key: object) -> Path:
        if not isinstance(key, str) or not _KEY.fullmatch(key):
            raise KeyError(key)
        # 256 subfolders: a long session archives thousands of objects, and some file systems search a folder from end
        # to end.
        return self._root / key[:2] / key

    def _refuse_links(self, folder: Path) -> None:
        # Whoever can write in the folder could plant a link. `put` would then write elsewhere, and `get` would show a
        # file of another place to a model.
        try:
            mode = folder.lstat().st_mode
        except FileNotFoundError:
            return
        if not stat.S_ISDIR(mode):
            raise InvalidInput("not a folder of this archive (a link, or a file)", place=str(folder))

    def _read(self, path: Path) -> bytes:
        with os.fdopen(os.open(path, os.O_RDONLY | _NO_FOLLOW | _BINARY), "rb") as file:
            return file.read()

    def _is_intact(self, path: Path, key: str) -> bool:
        """Whether the stored object matches its key; `put` replaces a damaged one."""
        return key_of(self._read(path)) == key

    def _size(self, path: Path) -> int | None:
        """The size of an object; None when it does not exist."""
        try:
            status = path.lstat()
        except FileNotFoundError:
            return None
        if not stat.S_ISREG(status.st_mode):
            raise InvalidInput("not an object of this archive (a link, or no regular file)", place=str(path))
        return status.st_size


def _is_kind(path: Path, kind: int) -> bool:
    try:
        return stat.S_IFMT(path.lstat().st_mode) == kind
    except OSError:
        return False


def sync_tree(root: Path) -> None:
    """Sync all files under a folder: with one `sync` of the system where it has one, else one by one."""
    if hasattr(os, "sync"):
        # It waits for the data of other programs too, once; a sync of each file waits for the disk thousands of times.
        os.sync()
        return
    for path in root.rglob("*"):
        if path.is_file():
            with path.open("r+b") as file:
                os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Sync a folder, which makes a rename in it durable; no operation on Windows."""
    if os.name == "nt":
        return
    number = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


_POLL_SECONDS: Final = 0.001  # a slow poll starves beside processes that lock again and again


def read_json(path: Path) -> dict[str, Json]:
    """The JSON object in a file; {} when there is no file. Raises InvalidInput for any other content, and OSError."""
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


def update_json(path: Path, change: Callable[[dict[str, Json]], None]) -> None:
    """Read the object, let `change` alter it, and write it back atomically (0600, its folder 0700).

    Other processes wait meanwhile. Raises InvalidInput as `read_json` does, and OSError.
    """
    make_private_folder(path.parent)
    # The lock spans reading and writing: otherwise the later of two processes would drop the change of the earlier one.
    with file_lock(path.with_name(f".{path.name}.lock")):
        value = read_json(path)
        change(value)
        write_atomic(path, [json.dumps(value, ensure_ascii=True, indent=1, sort_keys=True).encode()])


@contextmanager
def consume_json(path: Path) -> Iterator[dict[str, Json]]:
    """The object in a file, which is deleted when the block succeeds; other processes wait meanwhile.

    Raises as `read_json` does.
    """
    with file_lock(path.with_name(f".{path.name}.lock")):
        yield read_json(path)
        # Last: after a crash inside the block the file is still there, and its content is consumed a second time.
        path.unlink(missing_ok=True)
        sync_folder(path.parent)


@contextmanager
def file_lock(path: Path, *, seconds: float | None = None) -> Iterator[None]:
    """Hold the lock of a file, which is created if needed, while other processes wait.

    Raises OSError, with `seconds` also after that time.
    """
    # Not on the data file: each change replaces that, and a waiting process would lock the old one. The lock file is
    # never deleted, for the same reason. The system releases the lock with the handle, so also when the process dies.
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        _lock(handle, path, seconds)
        yield
    finally:
        os.close(handle)


def _lock(handle: int, path: Path, seconds: float | None) -> None:
    # `flock` has no time limit, a signal to interrupt it works in the main thread only, and Windows waits a second
    # between its tries: hence a poll.
    until = None if seconds is None else monotonic() + seconds
    while not try_lock(handle):
        if until is not None and monotonic() >= until:
            raise OSError(errno.EAGAIN, "another process holds its lock", str(path))
        sleep(_POLL_SECONDS)
