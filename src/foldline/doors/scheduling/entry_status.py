"""How the entries of a schedule stand, kept in the store: since when one is known, what was due last, how it ended.

Two objects for each entry, so that no writer overwrites what another one knows: `schedule:NAME` belongs to whoever has
claimed a due time, `schedule:NAME:run` to whoever runs it.
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
    "BEAT_SECONDS",
    "EntryRun",
    "EntryStatus",
    "is_running",
    "last_outcome",
    "load_run",
    "load_status",
    "parse_timestamp",
]

BEAT_SECONDS: Final = 10.0
"""How often a run says that it is alive."""

# A run that has said nothing for so long has lost its process: six beats, for a machine that is busy.
_ALIVE: Final = timedelta(seconds=60)


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryStatus:
    """What is known of an entry: the mark of its times, since when, the newest due time that somebody has claimed.

    `left_out` is the newest due time that nobody ran, on purpose, and `why`.
    """

    mark: str = ""
    since: str = ""
    due: str = ""
    left_out: str = ""
    why: str = ""

    def keep(self, store: Store, entry: ScheduleEntry) -> None:
        """Put it into the store. Raises OSError."""
        store.remember(entry.key, _plain(self))


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryRun:
    """One run. `ended` is "" while it is under way, `reason` that of its turn; `alive` when it last said that it runs.

    `delivered` are the places that were told, `failed` those that could not be, with the reason. `asked`: it was run by
    hand, at no due time.
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

    def keep(self, store: Store, entry: ScheduleEntry) -> None:
        """Put it into the store. Raises OSError."""
        store.remember(f"{entry.key}:run", _plain(self))


def new_run(due: datetime, now: datetime, *, asked: bool = False) -> EntryRun:
    """A run that begins here and now."""
    at = timestamp(now)
    return EntryRun(due=timestamp(due), began=at, asked=asked, alive=at, host=socket.gethostname(), pid=os.getpid())


def load_status(store: Store, entry: ScheduleEntry) -> EntryStatus:
    """What the store knows of an entry. Raises OSError."""
    return EntryStatus(**_own(EntryStatus, store.remembered(entry.key)))


def load_run(store: Store, entry: ScheduleEntry) -> EntryRun | None:
    """The last run of an entry; None before the first one. Raises OSError."""
    found = _own(EntryRun, store.remembered(f"{entry.key}:run"))
    if not {"due", "began"} <= found.keys():
        return None
    for name in ("delivered", "failed"):
        found[name] = tuple(found.get(name, ()))
    return EntryRun(**found)


def is_running(run: EntryRun | None, now: datetime) -> bool:
    """Whether a run is being done, by any server. One whose process is gone counts for a minute at most."""
    if run is None or run.ended:
        return False
    if run.host == socket.gethostname() and run.pid != os.getpid() and not _is_there(run.pid):
        return False
    return abs(now - parse_timestamp(run.alive or run.began)) < _ALIVE


def last_outcome(known: EntryStatus, run: EntryRun | None, now: datetime) -> EntryRun | None:
    """The last run as it is to be told: one that its process did not survive is "interrupted".

    A due time that was claimed, and of which nothing is written, was lost in the same way.
    """
    if known.due and known.left_out != known.due and (run is None or run.due < known.due):
        return EntryRun(due=known.due, began=known.due, reason="interrupted")
    if run is None or run.ended:
        return run
    return replace(run, reason="running" if is_running(run, now) else "interrupted")


def parse_timestamp(stamp: str) -> datetime:
    """The moment of a stamp; 1970 for one that is none."""
    try:
        return datetime.fromisoformat(stamp).astimezone(UTC)
    except ValueError:
        return datetime.fromtimestamp(0, UTC)


def _is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:  # it is somebody else's
        return True
    return True


def _plain(value: EntryStatus | EntryRun) -> dict[str, Json]:
    return {name: list(kept) if isinstance(kept, tuple) else kept for name, kept in asdict(value).items()}


def _own(kind: type[EntryStatus | EntryRun], found: Any) -> dict[str, Any]:
    """The fields that this version knows."""
    names = {field.name for field in fields(kind)}
    return {name: value for name, value in found.items() if name in names}
