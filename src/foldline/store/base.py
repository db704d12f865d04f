"""What keeps sessions: two Protocols. Folders (`folders`, `session`) are the default, tables (`sql`) the other way.

One session has one writer at a time, over all processes that share a store. A writer that waits (for a person, for its
next turn) lets go of the session, and takes it up again when it goes on: another may have written meanwhile.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from foldline.engine.context import Context
from foldline.messages import Json
from foldline.store.recording import Header, Recording, Tally
from foldline.store.records import Record
from foldline.store.repair import Repaired
from foldline.store.snapshot import Snapshot
from foldline.view.archive import Archive
from foldline.view.transcript import Event

__all__ = ["Listed", "Store", "StoredSession"]


@dataclass(frozen=True, slots=True)
class Listed:
    """A session in a list; without a snapshot `damage` says why it cannot be read."""

    id: str
    snapshot: Snapshot | None
    damage: str = ""


class StoredSession(Protocol):
    """A session that is being written, by its one writer. Close it, or use it as a context manager.

    Methods that write put it where a crash cannot take it away before they return: act upon it after that. They raise
    OSError (a full disk, a database that is gone), SessionLost, and InvalidInput for what has no form in JSON; then
    nothing of it is in the log.
    """

    @property
    def id(self) -> str:
        """Its name."""

    @property
    def place(self) -> str:
        """Where a person finds it: a folder, or the address of a database (without its password)."""

    @property
    def header(self) -> Header:
        """What it is, as of now."""

    @property
    def tally(self) -> Tally:
        """Counts over its log, as of now."""

    @property
    def archive(self) -> Archive:
        """The originals of what was folded. They may be less safe than the log, which holds them too: see `keep`."""

    def events(self) -> Iterator[Event]:
        """The events so far, oldest first: what `Context.replay` wants. O(log).

        Limits of a model that the session has left are not among them.
        """

    def append(self, events: Iterable[Event]) -> None:
        """Write events down, all of them or none. O(their size)."""

    def turn(self, state: Literal["begun", "ended"], **more: Json) -> None:
        """Write down that a turn began (`key`: the client's own name for it), or ended and why (`reason="done"`)."""

    def note(self, **more: Json) -> None:
        """Write down anything else that a reader of the log should know."""

    def change(self, **settings: Json) -> None:
        """Write down another `model`, `policy`, `window` or `title`. Raises InvalidInput for another name."""

    def keep(self, data: bytes) -> str:
        """Put into the archive what is nowhere else (a document of the user); as safe as the log. Returns its key."""

    def save(self, context: Context) -> None:
        """Put the snapshot in place. O(messages shown, bounded). Raises OSError; nothing depends on it."""

    def agents(self) -> Store:
        """The sessions of its sub-agents."""

    def let_go(self) -> None:
        """Let another writer have it. Nothing may be written until `take` has it back. Again: nothing."""

    def take(self) -> bool:
        """Have it again; whether it is as it was left. If not, make everything anew from `events`. Idempotent.

        Raises SessionTaken while another writer has it, InvalidInput when it was deleted.
        """

    def discard(self) -> None:
        """Remove it and all that belongs to it, and close it."""

    def close(self) -> None:
        """Let go of it for good. Closing again does nothing."""


class Store(Protocol):
    """The sessions of a user or of several servers, by id. Names sort by age.

    `name` is an id, a beginning that only one id has, or "latest". Reading never takes a session. What cannot be found
    or read raises InvalidInput; a place that cannot be reached OSError. Who looks up
    or binds keys is told so within ten seconds.
    """

    @property
    def place(self) -> str:
        """Where a person finds it: a folder, or the address of a database (without its password)."""

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
        """A new session, open for writing."""

    def open(self, name: str) -> StoredSession:
        """Takes a session for writing. O(log). Raises SessionTaken when another writer has it."""

    def find(self, name: str) -> str:
        """The id that a name means."""

    def names(self) -> list[str]:
        """The id of every session, oldest first."""

    def sessions(self, *, keep: bool = True, stale: bool = False, at_work: Collection[str] = ()) -> list[Listed]:
        """Every session, the one written last first; a broken one too, with the reason. With `keep=False` nothing is
        written. O(sessions), and O(log) for each whose snapshot is lost or stale.

        With `stale=True` one that is behind its log will do, as that of a turn that runs, but for one in which nothing
        was said yet: a crash may have left it. Of sessions that are known to be `at_work` that one will do too.
        """

    def repair(self, name: str) -> Repaired | None:
        """Makes a session whose log is damaged fit to be opened; None when nothing is damaged. O(log).

        What is whole stays, what is not is told, and the old log is kept. Raises SessionTaken, and InvalidInput where
        nothing tells what the session was.
        """

    def read(self, name: str) -> Recording:
        """All that a session holds. O(log)."""

    def records(self, name: str, *, start: int = 0, stop: int | None = None) -> Iterator[Record]:
        """The records of the log as they were written, oldest first, by their place in it (0: that of the session).

        O(log) in files, O(those) in tables.
        """

    def messages(self, name: str, *, start: int, stop: int) -> list[Record]:
        """The records of the messages with start <= seq < stop. O(log) in files, O(those) in tables."""

    def archive(self, name: str) -> Archive:
        """The originals of a session, to be read."""

    def originals(self, name: str) -> Iterator[bytes]:
        """Each object of a session's archive."""

    def agents(self, name: str) -> Store:
        """The sessions of the sub-agents of a session."""

    def put(self, records: Iterable[Record], originals: Iterable[bytes], *, snapshot: Snapshot | None = None) -> str:
        """Take in a whole session, as `records` and `originals` of another store give it: all of it or nothing.

        With the `snapshot` of these very records it can be listed without being read.

        Returns its id. Raises InvalidInput when there is a session with that id.
        """

    def delete(self, name: str) -> None:
        """Remove a session and all that belongs to it. Raises SessionTaken when another writer has it."""

    def bound(self, key: str) -> str | None:
        """The id of the session that goes by a key of ours (a chat, a schedule); None if there is none, or no more."""

    def first_bound(self, keys: Sequence[str]) -> tuple[str, str] | None:
        """The first of these keys, in their order, that is bound, and the id of its session.

        Made for thousands of keys, of which the first are the likeliest: it costs those before the one that it finds.
        """

    def bind(self, key: str, name: str) -> None:
        """Have a session go by a key from now on."""

    def bind_all(self, keys: Iterable[str], name: str) -> None:
        """Have a session go by all these keys from now on, or by none of them where that cannot be written."""

    def bindings(self) -> Mapping[str, str]:
        """Every key and its session."""

    def claim(self, key: str) -> bool:
        """Whether this caller is the first one ever to claim a key, over all processes: what is done once."""

    def remembered(self, key: str) -> Mapping[str, Json]:
        """The object that is kept by a key of ours (how a schedule stands); empty where there is none."""

    def remember(self, key: str, value: Mapping[str, Json]) -> None:
        """Keep an object by a key from now on, in place of the one before, and for ever; of two writers the last one
        counts. Raises InvalidInput for what has no form in JSON.
        """

    def close(self) -> None:
        """Let go of files and connections. Closing again does nothing."""
