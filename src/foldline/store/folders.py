"""The store of sessions in folders: one folder per session, under one root."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import stat
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from itertools import islice, takewhile
from pathlib import Path

from foldline.errors import FoldlineError, InvalidInput
from foldline.messages import Json
from foldline.store.clock import Clock, now_utc, stamp
from foldline.store.event_log import EventLog
from foldline.store.files import FileArchive, make_private_folder, read_json, sync_folder, sync_tree, update_json
from foldline.store.keys import FileKeys
from foldline.store.recording import ID, Header, Recording, first_header, resolve_id, snapshot_of, split_id
from foldline.store.records import Record, seq_of
from foldline.store.repair import RepairReport
from foldline.store.session import (
    AGENTS,
    ARCHIVE,
    LOG,
    STATE,
    FileSession,
    forget_keys,
    open_log,
    read_recording,
    read_records,
    repair_folder,
)
from foldline.store.snapshot import (
    LATEST,
    ListedSession,
    Snapshot,
    latest_of,
    newest_first,
    read_snapshot,
    shown_messages,
    write_snapshot,
)

__all__ = ["FileStore"]

_CLAIMS = "claims.json"
# A claim matters while its action could come a second time: days. The file is rewritten with each claim, so it is
# bounded.
_CLAIMS_KEPT = 10_000
_STATES = "remembered.json"

# Tells a file from another that replaced it: inode, time of the last write (ns), size.
_FileVersion = tuple[int, int, int]


class FileStore:
    """The sessions under a folder. Nothing is created before the first `create`; folders are 0700 and files 0600.

    The root may be a link. Inside it links are refused, and no id leads out of it.
    """

    def __init__(self, root: Path | str, *, clock: Clock = now_utc, fsync: bool = True) -> None:
        self._root = Path(os.path.abspath(root))
        self._clock = clock
        self._fsync = fsync
        self._keys = FileKeys(self._root, fsync=fsync)
        self._snapshots: dict[str, tuple[_FileVersion, Snapshot | None]] = {}  # as last read, of existing sessions

    @property
    def root(self) -> Path:
        """The folder of the store."""
        return self._root

    @property
    def place(self) -> str:
        """The folder, as text."""
        return str(self._root)

    def create(
        self,
        *,
        dialect: str,
        model: str | None = None,
        policy: str = "balanced",
        window: int | None = None,
        title: str = "",
        parent: str | None = None,
    ) -> FileSession:
        """Create a session and open it for writing. Raises OSError."""
        make_private_folder(self._root)
        while True:  # until the id is unused: `mkdir` decides, so two processes cannot both have it
            header = first_header(
                self._clock, dialect=dialect, model=model, policy=policy, window=window, title=title, parent=parent
            )
            name = header.id
            with suppress(FileExistsError):
                (self._root / name).mkdir(mode=0o700)
                break
        try:
            session = self._session(self._root / name, header)
        except OSError:  # a full disk: an empty log would be listed as damaged for ever
            shutil.rmtree(self._root / name, ignore_errors=True)
            raise
        # `append` synced the log, but not its name in the folder, nor the folder's name in the root: without both a
        # power cut may remove a session whose messages were acknowledged.
        if self._fsync:
            sync_folder(self._root / name)
            sync_folder(self._root)
        return session

    def open(self, name: str) -> FileSession:
        """Open a session for writing; `name` as in `find`. O(log).

        Raises SessionTaken while another process has it, InvalidInput when there is none or its log is damaged.
        """
        return self._session(self._folder(self.find(name)))

    def repair(self, name: str) -> RepairReport | None:
        """Repair a damaged log; None when it is intact. O(log).

        Intact records stay; the old log is saved aside. Raises SessionTaken, InvalidInput when nothing identifies the
        session, and OSError; then nothing has changed.
        """
        folder = self._folder(self.find(name))
        done = repair_folder(folder)
        if done is not None:
            _rebuilt(folder, save=True)
        return done

    def read(self, name: str) -> Recording:
        """Read a session without acquiring it; `name` as in `find`. O(log). Raises InvalidInput."""
        return read_recording(self._folder(self.find(name)))

    def names(self) -> list[str]:
        """The id of every session, oldest first. Raises OSError when the root cannot be read."""
        try:
            return sorted(name for name in os.listdir(self._root) if ID.fullmatch(name))
        except (FileNotFoundError, NotADirectoryError):
            return []

    def sessions(
        self, *, save: bool = True, allow_stale: bool = False, running: Collection[str] = ()
    ) -> list[ListedSession]:
        """List every session, last written first; a damaged one with the reason.

        O(sessions), and O(log) for each whose snapshot is lost or stale: it is made again, and stored unless
        `save=False`. Raises OSError when the root cannot be read.
        """
        # Sessions are not locked here: a list must not wait for a turn, nor make one fail.
        names = self.names()
        for gone in self._snapshots.keys() - set(names):
            self._snapshots.pop(gone, None)
        return newest_first(self._listed(name, save, allow_stale, name in running) for name in names)

    def find(self, name: str) -> str:
        """The id for a name: an id, an unambiguous prefix, or "latest". Raises InvalidInput."""
        if name == LATEST:
            return latest_of(self.sessions(save=False))
        if self._exists(name):  # no need to list the folder
            return name
        return resolve_id(name, lambda text: [known for known in self.names() if known.startswith(text)])

    # --- parts, and whole sessions -----------------------------------------------------------------------------------

    def records(self, name: str, *, start: int = 0, stop: int | None = None) -> Iterator[Record]:
        """The records of a log by position, oldest first. O(log). Raises InvalidInput, which names file and line."""
        return islice(read_records(self._folder(self.find(name)) / LOG), start, stop)

    def messages(self, name: str, *, start: int, stop: int) -> list[Record]:
        """The records of the messages with start <= seq < stop. O(log). Raises as `records` does."""
        found = ((seq, record) for record in self.records(name) if (seq := seq_of(record)) is not None)
        before_stop = takewhile(lambda one: one[0] < stop, found)
        return [record for seq, record in before_stop if seq >= start]

    def archive(self, name: str) -> FileArchive:
        """The archive of a session."""
        return FileArchive(self._folder(self.find(name)) / ARCHIVE)

    def originals(self, name: str) -> Iterator[bytes]:
        """Each object of a session's archive. Raises InvalidInput for a damaged one."""
        archive = self.archive(name)
        return (archive.get(path.name) for path in sorted(archive.root.glob("??/*")) if path.name in archive)

    def agents(self, name: str) -> FileStore:
        """The sessions of the sub-agents of a session."""
        return self._agents(self._folder(self.find(name)))

    def import_session(
        self, records: Iterable[Record], originals: Iterable[bytes], *, snapshot: Snapshot | None = None
    ) -> str:
        """Store a session of another store, whole or not at all. Raises InvalidInput, OSError."""
        name, given = split_id(records)
        # Made under a name that no list shows, then renamed: a crash leaves no half of a session.
        make_private_folder(self._root)
        draft = self._root / f".{name}.{secrets.token_hex(8)}.part"
        try:
            archive = FileArchive(draft / ARCHIVE)
            for original in originals:
                archive.put(original)
            if self._fsync:
                sync_tree(archive.root)  # thousands of small files: one wait instead of one each
            with EventLog(draft / LOG, fsync=self._fsync) as log:
                log.extend(given)
                if snapshot is not None:
                    write_snapshot(draft / STATE, replace(snapshot, log_bytes=log.size_bytes), ())
            # A clear error for the usual case; the rename below is what decides.
            if (self._root / name).exists():
                raise InvalidInput("there is a session with this id", place=name)
            draft.rename(self._root / name)  # fails on a session created meanwhile: a folder replaces no full one
        except BaseException:
            shutil.rmtree(draft, ignore_errors=True)
            raise
        if self._fsync:
            sync_folder(self._root)
        return name

    def delete(self, name: str) -> None:
        """Delete a session with all that belongs to it. Raises SessionTaken, OSError."""
        # Under the lock of the log: no writer may append to a folder that vanishes. A released one finds no log later.
        folder = self._folder(self.find(name))
        with open_log(folder / LOG, self._fsync):
            forget_keys(folder)
            shutil.rmtree(folder)

    # --- keys --------------------------------------------------------------------------------------------------------

    def session_of(self, key: str) -> str | None:
        """The id of the session bound to a key; None when there is none. Raises InvalidInput, OSError."""
        found = self.first_session_of([key])
        return None if found is None else found[1]

    def first_session_of(self, keys: Sequence[str]) -> tuple[str, str] | None:
        """The first bound key of these and the id of its session. O(keys before it). Raises as `session_of`."""
        bound = self._keys.bound(keys)
        with closing(bound):
            return next(((key, name) for key, name in bound if self._exists(name)), None)

    def bind(self, key: str, name: str) -> None:
        """Bind a key to a session. Raises InvalidInput, OSError."""
        self._keys.bind([key], self.find(name))

    def bind_all(self, keys: Iterable[str], name: str) -> None:
        """Bind all these keys to a session, or none. Raises InvalidInput, OSError."""
        self._keys.bind(keys, self.find(name))

    def bindings(self) -> dict[str, str]:
        """Every bound key and the id of its session. Raises InvalidInput, OSError."""
        # The index may be ahead of the folders: removing keys is best effort when a session is deleted.
        existing = set(self.names())
        return {key: name for key, name in self._keys.all().items() if name in existing}

    def claim(self, key: str) -> bool:
        """Whether this caller is the first to claim a key, among the newest 10,000. Raises as `bind` does."""
        # The answer comes from inside the lock: between a separate look and the write another process could claim it
        # too.
        first = False

        def change(claims: dict[str, Json]) -> None:
            nonlocal first
            first = key not in claims
            if first:
                claims[key] = stamp(self._clock)
            for old in sorted(claims, key=claims.__getitem__)[:-_CLAIMS_KEPT]:
                del claims[old]

        update_json(self._root / _CLAIMS, change)
        return first

    def load_state(self, key: str) -> dict[str, Json]:
        """The object stored under a key; {} when there is none. Raises InvalidInput, OSError."""
        value = read_json(self._root / _STATES).get(key)
        return value if isinstance(value, dict) else {}

    def save_state(self, key: str, value: Mapping[str, Json]) -> None:
        """Store an object under a key, replacing an earlier one. Raises InvalidInput, OSError."""
        try:
            # Through JSON before the lock: a value that cannot be written must not hold up others, and what is stored
            # is then a copy, whatever the caller does with its own.
            stored = json.loads(json.dumps(dict(value), allow_nan=False))
        except (TypeError, ValueError, RecursionError) as error:
            raise InvalidInput(f"cannot be written as JSON: {error}", place=key[:80]) from None
        update_json(self._root / _STATES, lambda states: states.update({key: stored}))

    def close(self) -> None:
        """Do nothing: no file stays open between calls."""

    # --- inside ------------------------------------------------------------------------------------------------------

    def _session(self, folder: Path, header: Header | None = None) -> FileSession:
        return FileSession(folder, self._agents(folder), header=header, clock=self._clock, fsync=self._fsync)

    def _agents(self, folder: Path) -> FileStore:
        return FileStore(folder / AGENTS, clock=self._clock, fsync=self._fsync)

    def _folder(self, name: str) -> Path:
        return self._locate(name)[0]

    def _locate(self, name: str) -> tuple[Path, os.stat_result]:
        """The folder of a session, and the status of its log. Raises InvalidInput, OSError."""
        # `lstat`, never `stat`: a link in the root could lead to the sessions of another user.
        folder = self._root / name
        if not stat.S_ISDIR(folder.lstat().st_mode):
            raise InvalidInput("not the folder of a session (a link, or a file)", place=str(folder))
        log = _status(folder / LOG)
        if log is None or not stat.S_ISREG(log.st_mode):
            raise InvalidInput("there is no log in the folder of this session", place=str(folder / LOG))
        return folder, log

    def _exists(self, name: str) -> bool:
        return ID.fullmatch(name) is not None and os.path.lexists(self._root / name)

    def _listed(self, name: str, save: bool, allow_stale: bool, running: bool) -> ListedSession:
        try:
            folder, log = self._locate(name)
            kept, kept_at = self._snapshot(name, folder / STATE)
            if kept is not None and kept.id == name and log.st_size >= kept.log_bytes:
                acceptable = running or (allow_stale and kept.messages > 0)
                # Equal lengths are not enough: an edit may keep the length, but not the time of the last write.
                if acceptable or (kept.log_bytes == log.st_size and log.st_mtime_ns <= kept_at):
                    return ListedSession(name, kept)
            return ListedSession(name, _rebuilt(folder, save))
        except (FoldlineError, OSError) as error:
            return ListedSession(name, None, str(error))

    def _snapshot(self, name: str, path: Path) -> tuple[Snapshot | None, int]:
        """A snapshot and the time of its last write in nanoseconds; None and 0 when there is none.

        An unchanged file is not read again: opening one waits for the interpreter lock several times, which is slow
        beside threads that compute.
        """
        status = _status(path)
        if status is None:
            return None, 0
        mark = status.st_ino, status.st_mtime_ns, status.st_size
        known = self._snapshots.get(name)
        if known is None or known[0] != mark:
            known = self._snapshots[name] = mark, read_snapshot(path)
        return known[1], status.st_mtime_ns


def _status(path: Path) -> os.stat_result | None:
    """The status of a path, links not followed; None when it does not exist."""
    try:
        return os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None


def _rebuilt(folder: Path, save: bool) -> Snapshot:
    recording = read_recording(folder)
    context = recording.replay()
    snapshot = snapshot_of(recording.header, recording.tally, context, recording.log_bytes)
    if not save:
        return snapshot
    with suppress(OSError):  # a full or read-only disk must not prevent the list
        write_snapshot(folder / STATE, snapshot, shown_messages(context.view, context.limits.window_tokens))
    return snapshot
