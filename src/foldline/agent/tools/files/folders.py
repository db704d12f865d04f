"""An open folder: its operations are relative to its descriptor, so that a change of its path does not mislead them."""

from __future__ import annotations

import os
import secrets
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from typing import BinaryIO, Final

from foldline.errors import InvalidInput

__all__ = ["BY_DESCRIPTOR", "OpenFolder"]

BY_DESCRIPTOR: Final = (
    {os.open, os.stat, os.readlink, os.mkdir, os.rename, os.unlink} <= os.supports_dir_fd
    and os.scandir in os.supports_fd
    and hasattr(os, "O_NOFOLLOW")
)
"""Whether this platform opens files relative to an open folder."""

_NO_FOLLOW: Final = getattr(os, "O_NOFOLLOW", 0)
_READ: Final = (
    os.O_RDONLY
    | _NO_FOLLOW
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_NONBLOCK", 0)  # a pipe that was swapped in does not block
    | getattr(os, "O_NOCTTY", 0)
    | getattr(os, "O_BINARY", 0)
)
_FOLDER: Final = os.O_RDONLY | _NO_FOLLOW | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_DIRECTORY", 0)
_DRAFT: Final = (
    os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NO_FOLLOW | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
)


@dataclass(frozen=True, slots=True)
class OpenFolder:
    """A folder under a root: real path, names below the root, and a descriptor if the platform has them.

    No method follows a link in the last name. All raise OSError.
    """

    path: str
    names: tuple[str, ...]
    descriptor: int | None

    @classmethod
    @contextmanager
    def top(cls, path: str, *, by_descriptor: bool) -> Iterator[OpenFolder]:
        """Open the root; closed at the end."""
        descriptor = os.open(path, _FOLDER) if by_descriptor else None
        try:
            yield cls(path, (), descriptor)
        finally:
            if descriptor is not None:
                os.close(descriptor)

    @contextmanager
    def enter(self, name: str) -> Iterator[OpenFolder]:
        """Open a folder in this one; closed at the end."""
        path, names = os.path.join(self.path, name), (*self.names, name)
        if self.descriptor is None:
            if os.path.realpath(path) != path:  # a junction, which is no link to Windows
                raise InvalidInput("leads through a folder that is elsewhere", place="/".join(names))
            yield OpenFolder(path, names, None)
            return
        descriptor = os.open(name, _FOLDER, dir_fd=self.descriptor)
        try:
            yield OpenFolder(path, names, descriptor)
        finally:
            os.close(descriptor)

    def _at(self, name: str) -> str:
        """Return the path for a system call that also gets `descriptor`."""
        return os.path.join(self.path, name) if self.descriptor is None else name

    def status(self, name: str) -> os.stat_result | None:
        """Return the status of a name; None if there is nothing."""
        try:
            return os.stat(self._at(name), dir_fd=self.descriptor, follow_symlinks=False)
        except FileNotFoundError:
            return None

    def target(self, name: str) -> str:
        """Return the target of a link; "" if it is gone, or no longer a link."""
        try:
            return os.readlink(self._at(name), dir_fd=self.descriptor)
        except OSError:
            return ""

    def list(self, most: int = sys.maxsize) -> list[str]:
        """Return up to `most` names, unordered. O(names returned)."""
        with os.scandir(self.path if self.descriptor is None else self.descriptor) as found:
            return [each.name for each in islice(found, most)]

    def make(self, name: str) -> None:
        """Make a folder, unless it exists."""
        with suppress(FileExistsError):
            os.mkdir(self._at(name), dir_fd=self.descriptor)

    def open_file(self, name: str) -> BinaryIO:
        """Open a file for reading."""
        return os.fdopen(os.open(self._at(name), _READ, dir_fd=self.descriptor), "rb")

    def replace(self, name: str, data: bytes, before: os.stat_result | None) -> None:
        """Replace a file atomically: synced under another name, then renamed. `before` gives mode and owner."""
        # In the same folder, since a rename is atomic within one file system only; by a name that nobody can guess.
        draft = f".{secrets.token_hex(8)}.part"
        descriptor = os.open(self._at(draft), _DRAFT, 0o666, dir_fd=self.descriptor)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
                file.flush()
                if before is not None:
                    _copy_owner_and_mode(file.fileno(), self._at(draft), before)
                # Before the rename: after a power cut the name must not lead to an empty file.
                os.fsync(file.fileno())
            self._rename(draft, name)
        except BaseException:
            with suppress(OSError):  # the first error matters more
                os.unlink(self._at(draft), dir_fd=self.descriptor)
            raise

    def _rename(self, draft: str, name: str) -> None:
        # Windows refuses to rename over a file; `os.replace` does there what a rename does elsewhere.
        if self.descriptor is None:
            os.replace(self._at(draft), self._at(name))
        else:
            os.rename(draft, name, src_dir_fd=self.descriptor, dst_dir_fd=self.descriptor)


def _copy_owner_and_mode(descriptor: int, path: str, before: os.stat_result) -> None:
    mode = stat.S_IMODE(before.st_mode) & 0o777  # never set-user-ID: what runs is new content
    if sys.platform == "win32":
        os.chmod(path, mode)
        return
    now = os.fstat(descriptor)
    if (now.st_uid, now.st_gid) != (before.st_uid, before.st_gid):
        with suppress(PermissionError):  # only the superuser may give a file away; the content matters more
            os.fchown(descriptor, before.st_uid, before.st_gid)
    os.fchmod(descriptor, mode)
