"""All sessions of a user: one folder for each, under one root."""

from __future__ import annotations

import os
import re
import secrets
import shutil
import stat
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC
from pathlib import Path
from typing import Final

from foldline.errors import FoldlineError, InvalidInput
from foldline.store.files import make_private_folder, sync_folder
from foldline.store.recording import LOG, STATE, Clock, Header, Recording, now_utc, read_recording, stamp
from foldline.store.repair import Repaired
from foldline.store.session import StoredSession, repaired, snapshot_of
from foldline.store.snapshot import Snapshot, read_snapshot, shown_messages, write_snapshot

__all__ = ["LATEST", "Listed", "SessionStore"]

LATEST: Final = "latest"
"""What names the session that was written last."""

# Time, then chance: names sort by age, and hold nothing that a path could be made of.
_ID = re.compile(r"\d{8}-\d{6}-[0-9a-f]{8}")
_PREFIX = re.compile(r"[0-9a-f-]{1,24}")


@dataclass(frozen=True, slots=True)
class Listed:
    """A session in a list; without a snapshot `damage` says why it cannot be read."""

    id: str
    snapshot: Snapshot | None
    damage: str = ""


class SessionStore:
    """The sessions under a folder. Nothing is touched before the first `create`; folders are 0700 and files 0600.

    The root may be a link; inside it links are refused, and no id leads out of it.
    """

    def __init__(self, root: Path | str, *, clock: Clock = now_utc, fsync: bool = True) -> None:
        self._root = Path(os.path.abspath(root))
        self._clock = clock
        self._fsync = fsync

    @property
    def root(self) -> Path:
        """The folder."""
        return self._root

    def create(
        self,
        *,
        dialect: str,
        model: str | None = None,
        policy: str = "balanced",
        window: int | None = None,
        title: str = "",
        parent: str | None = None,
    ) -> StoredSession:
        """A new session, open for writing. Raises OSError."""
        make_private_folder(self._root)
        moment = self._clock().astimezone(UTC)
        while True:
            name = f"{moment:%Y%m%d-%H%M%S}-{secrets.token_hex(4)}"
            with suppress(FileExistsError):
                (self._root / name).mkdir(mode=0o700)
                break
        header = Header(
            id=name,
            created=stamp(lambda: moment),
            dialect=dialect,
            model=model,
            policy=policy,
            window=window,
            title=title,
            parent=parent,
        )
        try:
            session = StoredSession(self._root / name, header=header, clock=self._clock, fsync=self._fsync)
        except OSError:  # a full disk: an empty log would be listed as damaged for ever
            shutil.rmtree(self._root / name, ignore_errors=True)
            raise
        if self._fsync:
            sync_folder(self._root / name)
            sync_folder(self._root)
        return session

    def open(self, name: str) -> StoredSession:
        """Takes a session for writing; `name` as in `find`. O(log).

        Raises InvalidInput when there is none, when another process has it, or when its log is damaged (file and line).
        """
        return StoredSession(self._folder(self.find(name)), clock=self._clock, fsync=self._fsync)

    def repair(self, name: str) -> Repaired | None:
        """Makes a session whose log is damaged fit to be opened; None when nothing is damaged. O(log).

        What can be read stays, what cannot is told and kept aside. Raises InvalidInput when another process has the
        session, or nothing tells what it was; OSError, then it is as it was.
        """
        return repaired(self._folder(self.find(name)))

    def read(self, name: str) -> Recording:
        """Reads a session without taking it; `name` as in `find`. O(log). Raises InvalidInput."""
        return read_recording(self._folder(self.find(name)))

    def names(self) -> list[str]:
        """The id of every session, oldest first. Raises OSError where the root cannot be read."""
        try:
            return sorted(name for name in os.listdir(self._root) if _ID.fullmatch(name))
        except (FileNotFoundError, NotADirectoryError):
            return []

    def sessions(self, *, keep: bool = True) -> list[Listed]:
        """Every session, the one written last first. A broken one is in the list, with the reason.

        Raises OSError where the root cannot be read. O(sessions), and O(log) for each whose snapshot is lost or stale:
        it is made again. With `keep=False` nothing is written.
        """
        found = [self._listed(name, keep) for name in self.names()]
        return sorted(found, key=lambda one: (one.snapshot.updated if one.snapshot else "", one.id), reverse=True)

    def find(self, name: str) -> str:
        """The id that a user means: all of it, a beginning that only one session has, or "latest". InvalidInput."""
        if name == LATEST:
            latest = next((one.id for one in self.sessions(keep=False) if one.snapshot is not None), None)
            if latest is None:
                raise InvalidInput("there is no session yet", place="session")
            return latest
        found = [known for known in self.names() if _PREFIX.fullmatch(name) and known.startswith(name)]
        if len(found) == 1:
            return found[0]
        if not found:
            raise InvalidInput(f"there is no session {name[:80]!r}", place="session")
        raise InvalidInput(f"{len(found)} sessions begin with {name!r}: {', '.join(found[:5])}", place="session")

    # --- inside ------------------------------------------------------------------------------------------------------

    def _folder(self, name: str) -> Path:
        folder = self._root / name
        if not stat.S_ISDIR(folder.lstat().st_mode):
            raise InvalidInput("not the folder of a session (a link, or a file)", place=str(folder))
        if not (folder / LOG).is_file() or (folder / LOG).is_symlink():
            raise InvalidInput("there is no log in the folder of this session", place=str(folder / LOG))
        return folder

    def _listed(self, name: str, keep: bool) -> Listed:
        try:
            folder = self._folder(name)
            kept = read_snapshot(folder / STATE)
            if kept is not None and kept.id == name and kept.log_bytes == (folder / LOG).stat().st_size:
                return Listed(name, kept)
            return Listed(name, _rebuilt(folder, keep))
        except (FoldlineError, OSError) as error:
            return Listed(name, None, str(error))


def _rebuilt(folder: Path, keep: bool) -> Snapshot:
    recording = read_recording(folder)
    context = recording.replay()
    made = snapshot_of(recording.header, recording.tally, context, recording.log_bytes)
    if not keep:
        return made
    with suppress(OSError):  # a disk that is full or read-only: the list can be shown all the same
        write_snapshot(folder / STATE, made, shown_messages(context.view, context.limits.window_tokens))
    return made
