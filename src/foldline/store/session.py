"""One session on disk: a folder with its log, its archive and a snapshot.

    events.jsonl   the log: a record that names the session, then one per event, each with its time
    archive/       originals of folded messages, by their hash
    state.yaml     the snapshot: title, counts and the newest messages, made from the log

A crash or a repair may leave two more: `events.torn-N`, a partial record that began at byte N, and
`events.damaged-N.jsonl`, the log of N bytes before its repair.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from foldline.engine.context import Context
from foldline.errors import InvalidInput, SessionLost, SessionTaken
from foldline.store.base import SessionWriter, Store
from foldline.store.clock import Clock, now_utc
from foldline.store.event_log import ANOTHER_WRITER, EventLog, Torn, read_events_with_ends
from foldline.store.files import FileArchive, free_path, write_atomic
from foldline.store.keys import FileKeys
from foldline.store.recording import (
    Header,
    Recording,
    decode_log,
    first_record,
    header_of_snapshot,
    recording_of,
    snapshot_of,
)
from foldline.store.records import Record
from foldline.store.repair import RepairReport, repair_log
from foldline.store.snapshot import read_snapshot, shown_messages, write_snapshot
from foldline.view.transcript import Event

__all__ = [
    "AGENTS",
    "ARCHIVE",
    "LOG",
    "STATE",
    "FileSession",
    "command_name",
    "forget_keys",
    "open_log",
    "read_log",
    "read_recording",
    "read_records",
    "repair_folder",
]


class FileSession(SessionWriter):
    """The one writer of a session's folder. Close it, or use it as a context manager.

    `append` returns once the events are on disk, after one write and one fsync: act on them after that. `torn` is the
    partial record that a crash left; opening moved it to a file beside the log.
    """

    def __init__(
        self, folder: Path, agents: Store, *, header: Header | None = None, clock: Clock = now_utc, fsync: bool = True
    ) -> None:
        super().__init__(agents, clock)
        self._folder = folder
        self._archive = FileArchive(folder / ARCHIVE)  # not synced: a replay of the log restores it
        self._released_at_bytes: int | None = None
        # Before anything else is read or deleted in the folder: the lock of the log is the lock of the session.
        self._log = open_log(folder / LOG, fsync)
        try:
            if header is not None:
                # The first record makes it a session. A crash before it leaves a folder with an empty log, which is
                # listed as damaged.
                first = first_record(header)
                self._log.append(first)
                self._begin(header, first)
                with suppress(OSError):  # so that a list need not read the log of a session without messages
                    write_snapshot(folder / STATE, snapshot_of(header, self._tally, None, self._log.size_bytes), ())
            else:
                _save_torn(self._log)
                for draft in folder.glob(".*.part"):  # of a process that died while it wrote a snapshot
                    draft.unlink(missing_ok=True)
                self._recount()
        except BaseException:
            self._log.close()
            raise

    @property
    def folder(self) -> Path:
        """The folder of the session."""
        return self._folder

    @property
    def place(self) -> str:
        """The folder, as text."""
        return str(self._folder)

    @property
    def archive(self) -> FileArchive:
        """The originals of folded messages."""
        return self._archive

    @property
    def torn(self) -> Torn | None:
        """The partial record that a crash left, None if there was none."""
        return self._log.torn

    def put_original(self, data: bytes) -> str:
        """Archive an original that is nowhere else; it is on disk on return. Returns its key. Raises OSError."""
        # Synced, unlike the originals of folded messages: the log holds those too, but this one is nowhere else.
        self._check_held()
        return FileArchive(self._archive.root, fsync=True).put(data)

    def save(self, context: Context) -> None:
        """Write the snapshot. O(messages shown, bounded). Raises OSError; nothing depends on the snapshot."""
        self._check_held()
        snapshot = snapshot_of(self._header, self._tally, context, self._log.size_bytes)
        write_snapshot(self._folder / STATE, snapshot, shown_messages(context.view, context.limits.window_tokens))

    def release(self) -> None:
        """Let other processes write the session until `acquire`. Idempotent."""
        self._counted = None  # a session that waits for a person keeps no history in memory
        if self._released_at_bytes is None:
            self._released_at_bytes = self._log.size_bytes
            self._log.release()

    def acquire(self) -> bool:
        """Acquire it again; whether it is unchanged. O(log) if not. Raises SessionTaken, InvalidInput (deleted)."""
        if self._released_at_bytes is None:
            return True
        try:
            self._log.acquire()
        except InvalidInput as error:
            raise SessionTaken(self.id) if error.reason == ANOTHER_WRITER else error from None
        # A log only grows: an equal size means that nobody has written.
        same = self._log.size_bytes == self._released_at_bytes
        if not same:
            self._recount()
        self._released_at_bytes = None
        return same

    def discard(self) -> None:
        """Delete the session. Raises OSError."""
        self._check_held()
        forget_keys(self._folder)
        shutil.rmtree(self._folder)  # before the lock is released: nobody may write into a folder that vanishes
        self.close()

    def close(self) -> None:
        """Release the session for good. Idempotent."""
        self._log.close()

    def _check_held(self) -> None:
        if self._released_at_bytes is not None:
            raise SessionLost(self.id)

    def _extend(self, records: Sequence[Record]) -> None:
        self._log.extend(records)

    def _read(self) -> Iterator[tuple[Header, Record, Event | None]]:
        return read_log(self._log.path)


def open_log(path: Path, fsync: bool) -> EventLog:
    """Open the log of a session for writing. Raises SessionTaken."""
    try:
        return EventLog(path, fsync=fsync)
    except InvalidInput as error:
        raise SessionTaken(path.parent.name) if error.reason == ANOTHER_WRITER else error from None


def forget_keys(folder: Path) -> None:
    """Remove the keys of a session that is about to be deleted.

    Before the deletion, so that no key leads to half a folder.
    """
    # Neither a full disk nor a broken index may prevent the deletion: a key without its session counts as unbound.
    with suppress(OSError, InvalidInput):
        FileKeys(folder.parent).forget(folder.name)


def _save_torn(log: EventLog) -> None:
    """Save a partial record in a file beside the log."""
    # It was never acknowledged, but it may hold a person's words. Under a free name: two crashes may tear at one byte.
    if log.torn is not None:
        write_atomic(free_path(log.path.with_name(f"events.torn-{log.torn.at_byte}")), [log.torn.data])


def repair_folder(folder: Path) -> RepairReport | None:
    """Repair the log of a session that nobody writes; None when it is intact. O(log). Raises as `open_log` does."""
    # Any snapshot can name the session. Only one with a checksum proves how long the log was: from a flipped digit a
    # repair would conclude that messages are lost.
    snapshot = read_snapshot(folder / STATE)
    header = None if snapshot is None else header_of_snapshot(snapshot)
    sealed = read_snapshot(folder / STATE, sealed=True)
    with open_log(folder / LOG, True) as log:
        _save_torn(log)
        known = {} if sealed is None else {"known_bytes": sealed.log_bytes, "known_messages": sealed.messages}
        report = repair_log(log.path, header, **known)
        if report is not None:
            (folder / STATE).unlink(missing_ok=True)  # it describes the old log
    return report


LOG: Final = "events.jsonl"


STATE: Final = "state.yaml"


ARCHIVE: Final = "archive"


AGENTS: Final = "agents"
"""The subfolder with the sessions of the sub-agents."""


_BLOCK_BYTES: Final = 65_536


def read_recording(folder: Path) -> Recording:
    """Read the log of a session, which another process may be writing. O(log).

    Raises FileNotFoundError, and InvalidInput, which names file and line.
    """
    # The size first: what is written while the log is read makes the snapshot stale, which is harmless. The other order
    # would mark a snapshot as current that lacks the newest records.
    path = folder / LOG
    log_bytes = _size(path)
    return recording_of(read_log(path), log_bytes=log_bytes, place=str(path))


def _size(path: Path) -> int:
    """The size of a log without a partial record at its end. O(partial record)."""
    # Links are refused here as in the archive; opening a named pipe would wait for ever.
    if not stat.S_ISREG(path.lstat().st_mode):
        raise InvalidInput("not a log (a link, or no regular file)", place=str(path))
    with path.open("rb") as log:
        end = log.seek(0, os.SEEK_END)
        while end > 0:
            start = max(0, end - _BLOCK_BYTES)
            log.seek(start)
            found = log.read(end - start).rfind(b"\n")
            if found >= 0:
                return start + found + 1
            end = start
    return 0


def read_records(path: Path) -> Iterator[Record]:
    """The records of a log. O(log). Raises InvalidInput for a damaged one, with the place and the remedy.

    The log must be as long as the snapshot says: nothing else reveals a log that was cut off at the end of a line.
    """
    snapshot, name, read = read_snapshot(path.parent / STATE, sealed=True), None, 0
    try:
        for record, end in read_events_with_ends(path):
            name, read = (record.get("id") if name is None else name), end
            yield record
        if snapshot is not None and snapshot.id == name and read < snapshot.log_bytes:
            why = (
                f"damaged at byte {read:,}: the last {snapshot.log_bytes - read:,} bytes that were written are missing"
            )
            raise InvalidInput(why, place=str(path))
    except InvalidInput as error:
        how = f"foldline sessions repair {command_name(path.parent)}"
        raise InvalidInput(f"{error.reason} ({how} keeps what can be read)", place=error.place) from error


def command_name(folder: Path) -> str:
    """The name of a folder's session in commands: ID, or ID/agents/ID for a sub-agent."""
    outer = folder.parent
    return f"{command_name(outer.parent)}/{AGENTS}/{folder.name}" if outer.name == AGENTS else folder.name


def read_log(path: Path) -> Iterator[tuple[Header, Record, Event | None]]:
    """The decoded log of a session. O(log). Raises InvalidInput, which names file and line."""
    return decode_log(read_records(path), lambda number: f"{path}, line {number + 1}")
