"""One session on disk: a folder with its log, its archive and a snapshot of how it stands.

    events.jsonl   the log: a record that names the session, then one per event, with the time at which it was written
    archive/       originals of what was folded, by their hash
    state.yaml     the snapshot

Beside them may stand what a crash has left: `events.torn-N`, a half record that began at byte N, and
`events.damaged-N.jsonl`, the log as it was before its N bytes were repaired.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

from foldline.codecs import codec as codec_for
from foldline.context import Context
from foldline.errors import InvalidInput, SessionLost, SessionTaken
from foldline.messages import Json
from foldline.store.base import Store
from foldline.store.events import ANOTHER_WRITER, EventLog, Torn
from foldline.store.files import FileArchive, unused, write_whole
from foldline.store.recording import (
    ARCHIVE,
    CHANGEABLE,
    LOG,
    STATE,
    Clock,
    Header,
    Tally,
    in_force,
    now_utc,
    read_log,
    stamp,
)
from foldline.store.records import Record, record_of, sealed
from foldline.store.repair import Repaired, repair_log
from foldline.store.snapshot import Snapshot, read_snapshot, shown_messages, write_snapshot
from foldline.transcript import Event

__all__ = ["FileSession", "opened", "repaired", "snapshot_of"]


class FileSession:
    """A session that is being written; the one writer of its folder. Close it, or use it as a context manager.

    `append` puts events on the disk before it returns: act upon them after that. `torn` is what a crash had left of a
    last record; it was set aside in a file beside the log.
    """

    def __init__(
        self, folder: Path, agents: Store, *, header: Header | None = None, clock: Clock = now_utc, fsync: bool = True
    ) -> None:
        self._folder = folder
        self._agents = agents
        self._clock = clock
        self._tally = Tally()
        self._archive = FileArchive(folder / ARCHIVE)  # not synced: it is in the log, and a replay puts it back
        self._left_at: int | None = None
        self._log = opened(folder / LOG, fsync)
        try:
            if header is not None:
                self._header = header
                first = {**header.record(), "at": header.created}
                self._log.append(first)
                self._tally.take(first)
            else:
                _set_aside(self._log)
                for draft in folder.glob(".*.part"):  # of a process that ended while it wrote a snapshot
                    draft.unlink(missing_ok=True)
                self._header = self._counted()
        except BaseException:
            self._log.close()
            raise
        self._codec = codec_for(self._header.dialect)

    @property
    def id(self) -> str:
        """Its name."""
        return self._header.id

    @property
    def folder(self) -> Path:
        """Where it is kept."""
        return self._folder

    @property
    def place(self) -> str:
        """Its folder."""
        return str(self._folder)

    @property
    def archive(self) -> FileArchive:
        """The originals of what was folded."""
        return self._archive

    @property
    def header(self) -> Header:
        """What it is, as of now."""
        return self._header

    @property
    def tally(self) -> Tally:
        """Counts over its log, as of now."""
        return self._tally

    @property
    def torn(self) -> Torn | None:
        """The half record that a crash had left behind, None if there was none."""
        return self._log.torn

    def events(self) -> Iterator[Event]:
        """The events so far, oldest first, read from the disk: what `Context.replay` wants. O(log).

        Limits of a model that the session has left are not among them.
        """
        return in_force((event for _, _, event in read_log(self._log.path) if event is not None), self._tally)

    def append(self, events: Iterable[Event]) -> None:
        """Write events down, all of them in one write and one fsync. O(their size).

        Raises InvalidInput for what is no JSON and OSError (a full disk); then none of them is in the log.
        """
        self._held()
        at = stamp(self._clock)
        given = tuple(events)
        records = [{**record_of(event, self._codec), "at": at} for event in given]
        try:
            self._log.extend(records)
        except InvalidInput:  # one of them holds what strict JSON has no form for
            self._log.extend([{**sealed(record), "at": at} for record in records])
        for record, event in zip(records, given, strict=True):
            self._tally.take(record, event)

    def turn(self, state: Literal["begun", "ended"], **more: Json) -> None:
        """Write down that a turn began (`key`: the client's name for it), or ended and why. Raises as `append` does."""
        self._write({"type": "turn", "state": state, **more})

    def note(self, **more: Json) -> None:
        """Write down anything else that a reader of the log should know. Raises as `append` does."""
        self._write({"type": "note", **more})

    def change(self, **settings: Json) -> None:
        """Write down another `model`, `policy`, `window` or `title`. Raises InvalidInput, or as `append` does."""
        unknown = [name for name in settings if name not in CHANGEABLE]
        if unknown:
            raise InvalidInput(f"cannot be changed; what can: {', '.join(CHANGEABLE)}", place=unknown[0])
        header = self._header.changed(settings)
        self._write({"type": "settings", **settings})
        self._header = header

    def keep(self, data: bytes) -> str:
        """Put into the archive what is nowhere else, on the disk before it returns. Returns its key. Raises OSError."""
        self._held()
        return FileArchive(self._archive.root, fsync=True).put(data)

    def save(self, context: Context) -> None:
        """Put the snapshot in place. O(messages shown, bounded). Raises OSError; nothing depends on it."""
        self._held()
        made = snapshot_of(self._header, self._tally, context, self._log.size_bytes)
        write_snapshot(self._folder / STATE, made, shown_messages(context.view, context.limits.window_tokens))

    def agents(self) -> Store:
        """The sessions of its sub-agents."""
        return self._agents

    def let_go(self) -> None:
        """Let another process have it, until `take`. Again: nothing."""
        if self._left_at is None:
            self._left_at = self._log.size_bytes
            self._log.let_go()

    def take(self) -> bool:
        """Have it again; whether it is as it was left. O(log) if not. Raises SessionTaken, and InvalidInput (gone)."""
        if self._left_at is None:
            return True
        try:
            self._log.take()
        except InvalidInput as error:
            raise SessionTaken(self.id) if error.reason == ANOTHER_WRITER else error from None
        same = self._log.size_bytes == self._left_at
        if not same:
            self._tally = Tally()
            self._header = self._counted()
        self._left_at = None
        return same

    def discard(self) -> None:
        """Remove its folder. Raises OSError."""
        self._held()
        shutil.rmtree(self._folder)
        self.close()

    def close(self) -> None:
        """Let go of the session. Closing again does nothing."""
        self._log.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _held(self) -> None:
        if self._left_at is not None:
            raise SessionLost(self.id)

    def _write(self, record: Record) -> None:
        self._held()
        record = {**record, "at": stamp(self._clock)}
        self._log.append(record)
        self._tally.take(record)

    def _counted(self) -> Header:
        header: Header | None = None
        for header, record, event in read_log(self._log.path):  # noqa: B007 - the last one counts
            self._tally.take(record, event)
        if header is None:
            raise InvalidInput("the log is empty", place=str(self._log.path))
        return header


def snapshot_of(header: Header, tally: Tally, context: Context, log_bytes: int) -> Snapshot:
    """How a session stands."""
    return Snapshot(
        id=header.id,
        created=header.created,
        updated=tally.updated,
        dialect=header.dialect,
        model=header.model,
        policy=header.policy,
        title=header.title or tally.title,
        parent=header.parent,
        turns=tally.turns,
        messages=tally.messages,
        folds=len(tally.folds),
        tokens=context.figures.used_tokens,
        window_tokens=context.limits.window_tokens,
        log_bytes=log_bytes,
    )


def opened(path: Path, fsync: bool) -> EventLog:
    """The log of a session, taken for writing. Raises SessionTaken."""
    try:
        return EventLog(path, fsync=fsync)
    except InvalidInput as error:
        raise SessionTaken(path.parent.name) if error.reason == ANOTHER_WRITER else error from None


def _set_aside(log: EventLog) -> None:
    """Keep what was torn: it was never acknowledged, but it may hold a person's words."""
    if log.torn is not None:
        write_whole(unused(log.path.with_name(f"events.torn-{log.torn.at_byte}")), [log.torn.data])


def repaired(folder: Path) -> Repaired | None:
    """Repairs the log of a session that nobody writes; None when nothing is damaged. O(log). Raises as `open` does."""
    kept = read_snapshot(folder / STATE)
    header = None
    if kept is not None:
        header = Header(
            id=kept.id,
            created=kept.created,
            dialect=kept.dialect,
            model=kept.model,
            policy=kept.policy,
            title=kept.title,
            parent=kept.parent,
        )
    with opened(folder / LOG, True) as log:
        _set_aside(log)
        return repair_log(log.path, header)
