"""The stored status of schedule entries: since when an entry is known, what was due last, how it ended.

Two objects for each entry, so that no writer overwrites another's: `schedule:NAME` belongs to the process that claimed
a due time, `schedule:NAME:run` to the one that runs it.
"""

from __future__ import annotations

import os
import socket
from dataclasses import asdict, dataclass, fields, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from foldline.doors.scheduling.entries import ScheduleEntry, timestamp
from foldline.messages import Json
from foldline.store.base import Store

__all__ = [
    "HEARTBEAT_SECONDS",
    "EntryRun",
    "EntryStatus",
    "is_running",
    "last_outcome",
    "load_run",
    "load_status",
    "parse_timestamp",
]

HEARTBEAT_SECONDS: Final = 10.0
"""How often a run says that it is alive."""

# A run without a heartbeat for this long has lost its process: six beats, to allow for a busy machine.
_ALIVE: Final = timedelta(seconds=60)


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryStatus:
    """The status of an entry: the mark of its times, since when, and the newest due time that somebody has claimed.

    `left_out` is the newest due time that was skipped on purpose, and `why`.
    """

    mark: str = ""
    since: str = ""
    due: str = ""
    left_out: str = ""
    why: str = ""

    def save(self, store: Store, entry: ScheduleEntry) -> None:
        """Write it to the store. Raises OSError."""
        store.remember(entry.key, _as_json(self))


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryRun:
    """One run. `ended` is "" while it runs, `reason` is that of its turn, `alive` the time of its last heartbeat.

    `delivered` are the places that received it, `failed` those that did not, with the reason. `asked`: it was started
    by hand, at no due time.
    """

    due: str
    began: str
    ended: str = ""
    reason: str = ""
    message: str = ""
    session: str = ""
    delivered: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    asked: bool = False
    alive: str = ""
    host: str = ""
    pid: int = 0

    def save(self, store: Store, entry: ScheduleEntry) -> None:
        """Write it to the store. Raises OSError."""
        store.remember(f"{entry.key}:run", _as_json(self))


def new_run(due: datetime, now: datetime, *, asked: bool = False) -> EntryRun:
    """A run that begins in this process now."""
    at = timestamp(now)
    return EntryRun(due=timestamp(due), began=at, asked=asked, alive=at, host=socket.gethostname(), pid=os.getpid())


def load_status(store: Store, entry: ScheduleEntry) -> EntryStatus:
    """Read the status of an entry. Raises OSError."""
    return EntryStatus(**_known_fields(EntryStatus, store.remembered(entry.key)))


def load_run(store: Store, entry: ScheduleEntry) -> EntryRun | None:
    """Read the last run of an entry; None before the first. Raises OSError."""
    found = _known_fields(EntryRun, store.remembered(f"{entry.key}:run"))
    if not {"due", "began"} <= found.keys():
        return None
    for name in ("delivered", "failed"):
        found[name] = tuple(found.get(name, ()))
    return EntryRun(**found)


def is_running(run: EntryRun | None, now: datetime) -> bool:
    """Whether any server is running it. A run whose process is gone counts for a minute at most."""
    if run is None or run.ended:
        return False
    # On this machine the process table is faster than a missing heartbeat: a restart need not wait a minute.
    if run.host == socket.gethostname() and run.pid != os.getpid() and not _process_exists(run.pid):
        return False
    return abs(now - parse_timestamp(run.alive or run.began)) < _ALIVE


def last_outcome(status: EntryStatus, run: EntryRun | None, now: datetime) -> EntryRun | None:
    """The last run, for display: one that its process did not survive is "interrupted".

    A claimed due time without a record was lost in the same way.
    """
    if status.due and status.left_out != status.due and (run is None or run.due < status.due):
        return EntryRun(due=status.due, began=status.due, reason="interrupted")
    if run is None or run.ended:
        return run
    return replace(run, reason="running" if is_running(run, now) else "interrupted")


def parse_timestamp(stamp: str) -> datetime:
    """The moment of a timestamp; 1970 for any other text."""
    try:
        return datetime.fromisoformat(stamp).astimezone(UTC)
    except ValueError:
        return datetime.fromtimestamp(0, UTC)


def _process_exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:  # it exists, and belongs to another user
        return True
    return True


def _as_json(value: EntryStatus | EntryRun) -> dict[str, Json]:
    return {name: list(kept) if isinstance(kept, tuple) else kept for name, kept in asdict(value).items()}


def _known_fields(kind: type[EntryStatus | EntryRun], found: Any) -> dict[str, Any]:
    """The fields that this version knows: a newer one may have stored more."""
    names = {field.name for field in fields(kind)}
    return {name: value for name, value in found.items() if name in names}
