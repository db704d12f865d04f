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

from foldline.doors.scheduling.entries import Entry, stamp_of
from foldline.messages import Json
from foldline.store.base import Store

__all__ = ["BEAT_SECONDS", "Known", "Run", "how_it_ended", "known_of", "moment_of", "run_of", "under_way"]

BEAT_SECONDS: Final = 10.0
"""How often a run says that it is alive."""

# A run that has said nothing for so long has lost its process: six beats, for a machine that is busy.
_ALIVE: Final = timedelta(seconds=60)


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What is known of an entry: the mark of its times, since when, the newest due time that somebody has claimed.

    `left_out` is the newest due time that nobody ran, on purpose, and `why`.
    """

    mark: str = ""
    since: str = ""
    due: str = ""
    left_out: str = ""
    why: str = ""

    def keep(self, store: Store, entry: Entry) -> None:
        """Put it into the store. Raises OSError."""
        store.remember(entry.key, _plain(self))


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
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

    def keep(self, store: Store, entry: Entry) -> None:
        """Put it into the store. Raises OSError."""
        store.remember(f"{entry.key}:run", _plain(self))


def begun(due: datetime, now: datetime, *, asked: bool = False) -> Run:
    """A run that begins here and now."""
    at = stamp_of(now)
    return Run(due=stamp_of(due), began=at, asked=asked, alive=at, host=socket.gethostname(), pid=os.getpid())


def known_of(store: Store, entry: Entry) -> Known:
    """What the store knows of an entry. Raises OSError."""
    return Known(**_own(Known, store.remembered(entry.key)))


def run_of(store: Store, entry: Entry) -> Run | None:
    """The last run of an entry; None before the first one. Raises OSError."""
    found = _own(Run, store.remembered(f"{entry.key}:run"))
    if not {"due", "began"} <= found.keys():
        return None
    for name in ("delivered", "failed"):
        found[name] = tuple(found.get(name, ()))
    return Run(**found)


def under_way(run: Run | None, now: datetime) -> bool:
    """Whether a run is being done, by any server. One whose process is gone counts for a minute at most."""
    if run is None or run.ended:
        return False
    if run.host == socket.gethostname() and run.pid != os.getpid() and not _is_there(run.pid):
        return False
    return abs(now - moment_of(run.alive or run.began)) < _ALIVE


def how_it_ended(known: Known, run: Run | None, now: datetime) -> Run | None:
    """The last run as it is to be told: one that its process did not survive is "interrupted".

    A due time that was claimed, and of which nothing is written, was lost in the same way.
    """
    if known.due and known.left_out != known.due and (run is None or run.due < known.due):
        return Run(due=known.due, began=known.due, reason="interrupted")
    if run is None or run.ended:
        return run
    return replace(run, reason="running" if under_way(run, now) else "interrupted")


def moment_of(stamp: str) -> datetime:
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


def _plain(value: Known | Run) -> dict[str, Json]:
    return {name: list(kept) if isinstance(kept, tuple) else kept for name, kept in asdict(value).items()}


def _own(kind: type[Known | Run], found: Any) -> dict[str, Any]:
    """The fields that this version knows."""
    names = {field.name for field in fields(kind)}
    return {name: value for name, value in found.items() if name in names}
