"""The folder that an agent's file tools may see, and nothing outside it.

A path from a model is walked one name at a time, each folder opened relative to the one before it and no link followed
by the operating system: a link is read here and walked in its turn, so it can lead anywhere inside and nowhere else.
What was checked is what is then opened, since the folders stay open in between; a link that is swapped in meanwhile is
refused by the open call itself. Where the platform cannot open relative to a folder (Windows), paths are checked in
the same way and opened by name: the check holds, but not against something that swaps links at the same moment.

Hard links cannot be told from files; a write replaces the name, so what else shares the content keeps it.
"""

from __future__ import annotations

import os
import stat
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import BinaryIO, Final

from foldline.agent.tools.files.folders import BY_DESCRIPTOR, OpenFolder
from foldline.errors import InvalidInput

__all__ = ["IGNORED_FOLDERS", "FileLocation", "FolderEntry", "Workspace", "kind_of"]

IGNORED_FOLDERS: Final = frozenset(
    ".git .hg .svn .venv venv node_modules __pycache__ .mypy_cache .pytest_cache .ruff_cache .tox .nox .hypothesis "
    ".idea .cache .eggs .gradle .next".split()
)
"""Folders of generated or downloaded files: left out of listings and searches unless a call includes them."""

MAX_LINKS: Final = 40  # as Linux has it (path_resolution(7))
# Folders in a path. Each is an open descriptor during the walk.
MAX_DEPTH: Final = 100

# Not files but the kernel: reading may block, and writing changes the machine.
_KERNEL: Final = ("/proc", "/sys", "/dev")

_KINDS: Final = {
    stat.S_IFREG: "file",
    stat.S_IFDIR: "folder",
    stat.S_IFLNK: "link",
    stat.S_IFIFO: "pipe",
    stat.S_IFSOCK: "socket",
    stat.S_IFCHR: "device",
    stat.S_IFBLK: "device",
}


def kind_of(status: os.stat_result) -> str:
    """Return the kind of a file: "file", "folder", "link", "pipe", "socket", "device" or "unknown"."""
    return _KINDS.get(stat.S_IFMT(status.st_mode), "unknown")


@dataclass(frozen=True, slots=True)
class FileLocation:
    """The target of a path: a link-free name relative to the root, and the status of the file (None: there is none)."""

    name: str
    status: os.stat_result | None = None

    @property
    def kind(self) -> str:
        """The kind of the file; "" without one."""
        return "" if self.status is None else kind_of(self.status)

    @property
    def stamp(self) -> tuple[int, ...] | None:
        """A value that changes when the file is written or replaced; None without a file."""
        s = self.status
        return None if s is None else (s.st_dev, s.st_ino, s.st_size, s.st_mtime_ns, s.st_ctime_ns)


@dataclass(frozen=True, slots=True)
class FolderEntry:
    """An entry of a folder: path relative to the root, kind, size, and the target of a link."""

    path: str
    kind: str
    size_bytes: int = 0
    target: str = ""

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path.rpartition("/")[2]


class Workspace:
    """Files under a folder, by the paths that a model gives (relative, or absolute within it).

    Every method raises InvalidInput, with the path as its place and a reason that a model can act upon: for a path that
    leads outside, for anything but an ordinary file or folder, and for what the operating system refuses. Safe for
    threads. Hold `lock` to read a file and write it back.
    """

    def __init__(self, root: Path | str, *, by_descriptor: bool = BY_DESCRIPTOR) -> None:
        self._unresolved_root = os.path.abspath(root)
        self._root = os.path.realpath(root)
        self._by_descriptor = by_descriptor
        self.lock = threading.RLock()
        if not os.path.isdir(self._root):
            raise InvalidInput("is not a folder", place=str(root))

    @property
    def root(self) -> Path:
        """The root folder, with links resolved."""
        return Path(self._root)

    def find(self, path: str) -> FileLocation:
        """Return where a path leads. A missing file, and missing folders above it, are no error."""
        with self._walk(path) as (folder, name, rest):
            status = folder.status(name)
            return FileLocation("/".join([*folder.names, name, *rest]) if name != "." else _named(folder.names), status)

    def writable(self, path: str) -> FileLocation:
        """Return the location of a file that may be written: an ordinary one that is not read-only, or a new one."""
        place = self.find(path)
        if place.status is not None:
            _only_writable(place.status, path)
        return place

    @contextmanager
    def open(self, path: str) -> Iterator[tuple[BinaryIO, FileLocation]]:
        """Open an ordinary file for reading, with its location; closed at the end."""
        with ExitStack() as stack:
            with self._walk(path) as (folder, name, _):
                # Checked before the file is opened, since opening a device or a pipe may act; and again once it is,
                # since the name may be swapped in between.
                before = folder.status(name)
                _only_file(before, path)
                file = stack.enter_context(folder.open_file(name))
            status = os.fstat(file.fileno())
            _only_file(status, path)
            yield file, FileLocation("/".join([*folder.names, name]), status)

    def scan(
        self, path: str, *, most: int = sys.maxsize, check: Callable[[], None] = lambda: None
    ) -> list[FolderEntry]:
        """List a folder, sorted by name; links are not followed. Of more than `most` names any subset. O(names).

        `check` is called at each name, and may raise to end it.
        """
        with self._walk(path) as (above, last, _), ExitStack() as stack:
            if last == ".":
                folder = above
            else:
                _only_folder(above.status(last), path)
                folder = stack.enter_context(above.enter(last))
            prefix = "".join(f"{part}/" for part in folder.names)
            found = []
            for name in sorted(folder.list(most)):
                check()
                status = folder.status(name)
                if status is not None:  # it may have gone since the listing
                    kind = kind_of(status)
                    target = folder.target(name) if kind == "link" else ""
                    found.append(FolderEntry(prefix + name, kind, status.st_size, target))
            return found

    def write(self, place: FileLocation, data: bytes) -> None:
        """Write a file at a location that `find` returned, atomically; missing folders are made, the mode is kept.

        No link is followed, so that the file written is the one found. Refused if the file has changed since `find`; a
        change between that check and the rename, microseconds later, is lost.
        """
        with self.lock, self._walk(place.name, make=True, follow=False) as (folder, name, _):
            now = FileLocation(place.name, folder.status(name))
            if now.status is not None:
                _only_writable(now.status, place.name)
            # A person has allowed a change to the content that was shown, and to no other.
            if now.stamp != place.stamp:
                raise InvalidInput("has changed in the meantime: nothing was written", place=place.name)
            folder.replace(name, data, now.status)

    def _parts(self, path: str) -> list[str]:
        """Split a path into names below the root."""
        if "\0" in path:
            raise InvalidInput("has a NUL byte in it", place=repr(path))
        pure = PurePath(path)
        if not pure.anchor:
            return list(pure.parts)
        # An absolute path may name the root with its links resolved or not.
        for root in (self._root, self._unresolved_root):
            with suppress(ValueError):
                return list(pure.relative_to(root).parts)
        raise InvalidInput("is outside the workspace; use a path relative to it", place=path)

    @contextmanager
    def _walk(
        self, path: str, *, make: bool = False, follow: bool = True
    ) -> Iterator[tuple[OpenFolder, str, list[str]]]:
        """Walk to the open folder of a path. Yields it, the last name (no link; "." for the root), and missing names.

        The missing names are those below the last one, if folders on the way do not exist.
        """
        with _named_errors(path), ExitStack() as stack:
            # Each folder is opened relative to the one before, so that a path that was checked cannot be swapped.
            todo = deque(self._parts(path))
            top = stack.enter_context(OpenFolder.top(self._root, by_descriptor=self._by_descriptor))
            trail = [top]
            links = 0
            while todo:
                part, folder = todo.popleft(), trail[-1]
                # Resolved on the trail of opened folders: after a link, `..` leaves the target, not the link.
                if part == "..":
                    if len(trail) == 1:
                        raise InvalidInput("leads out of the workspace by '..'", place=path)
                    trail.pop()
                    continue
                self._refuse_kernel_files(os.path.join(folder.path, part), path)
                status = folder.status(part)
                if status is not None and stat.S_ISLNK(status.st_mode):
                    links += 1
                    trail = self._follow(folder, part, todo, trail, path, refused=not follow or links > MAX_LINKS)
                    continue
                if status is None and todo:
                    if not make:
                        yield folder, part, _missing(todo, path)
                        return
                    folder.make(part)
                elif not todo:
                    yield folder, part, []
                    return
                elif status is not None and not stat.S_ISDIR(status.st_mode):
                    raise InvalidInput(f"{part!r} in it is a {kind_of(status)}, not a folder", place=path)
                if len(trail) > MAX_DEPTH:
                    raise InvalidInput(f"has more than {MAX_DEPTH} folders in it", place=path)
                trail.append(stack.enter_context(folder.enter(part)))
            yield trail[-1], ".", []

    def _follow(
        self, folder: OpenFolder, part: str, todo: deque[str], trail: list[OpenFolder], path: str, *, refused: bool
    ) -> list[OpenFolder]:
        """Prepend the target of a link to the remaining names. Returns the folders to continue from."""
        if refused:
            raise InvalidInput(f"{part!r} in it is a link that is not followed", place=path)
        target = folder.target(part)
        if not target:
            raise InvalidInput(f"{part!r} in it is a link that cannot be read", place=path)
        try:
            parts = self._parts(target)
        except InvalidInput:
            raise InvalidInput(f"{part!r} in it is a link that leads out of the workspace", place=path) from None
        # The target is walked like any path, so that a link inside the target is checked as well.
        todo.extendleft(reversed(parts))
        return trail[:1] if PurePath(target).anchor else trail

    def _refuse_kernel_files(self, full: str, path: str) -> None:
        for place in _KERNEL:
            inside = full == place or full.startswith(f"{place}/")
            if inside and not (self._root == place or self._root.startswith(f"{place}/")):
                raise InvalidInput(f"is in {place}, where no ordinary files are", place=path)


def _named(names: tuple[str, ...]) -> str:
    return "/".join(names) or "."


def _missing(todo: deque[str], path: str) -> list[str]:
    if ".." in todo:
        raise InvalidInput("goes through a folder that is not there", place=path)
    return list(todo)


def _only_file(status: os.stat_result | None, path: str) -> None:
    if status is None:
        raise InvalidInput("there is no such file", place=path)
    kind = kind_of(status)
    if kind == "folder":
        raise InvalidInput("is a folder, not a file; list_files shows what is in it", place=path)
    if kind != "file":
        raise InvalidInput(f"is a {kind}, not an ordinary file", place=path)


def _only_writable(status: os.stat_result, path: str) -> None:
    _only_file(status, path)
    # A read-only file can be replaced by a rename all the same; whoever set the mode did not want that.
    if not status.st_mode & 0o222:
        raise InvalidInput("is read-only", place=path)


def _only_folder(status: os.stat_result | None, path: str) -> None:
    if status is None:
        raise InvalidInput("there is no such folder", place=path)
    if not stat.S_ISDIR(status.st_mode):
        raise InvalidInput(f"is a {kind_of(status)}, not a folder", place=path)


@contextmanager
def _named_errors(path: str) -> Iterator[None]:
    """Turn an error of the operating system into InvalidInput, with the path of the caller."""
    try:
        yield
    except (OSError, UnicodeError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise InvalidInput(reason[:1].lower() + reason[1:], place=path) from error
