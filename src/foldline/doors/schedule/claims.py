"""Stored status of schedule entries, and claims of due times: each runs once or not at all.

Each entry has two objects in the store, so that no writer overwrites another's: `schedule:NAME` belongs to the process
that claimed a due time, `schedule:NAME:run` to the one that runs it.

The claim comes before the run. If a process is killed between the two, that run is lost, and `last_outcome` says so;
the other order would run it twice. A process whose store fails between the two keeps its claim, and runs it when the
store is back: nobody else can. Several missed due times are one run, of the newest.
"""

from __future__ import annotations

import os
import socket
from dataclasses import asdict, dataclass, fields, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from foldline.doors.schedule.entries import ScheduleEntry, timestamp
from foldline.hosting.process import is_running_process
from foldline.messages import Json
from foldline.store.base import Store

__all__ = [
    "HEARTBEAT_SECONDS",
    "EntryRun",
    "EntryStatus",
    "PendingClaim",
    "SkippedRun",
    "claim_due",
    "is_running",
    "last_outcome",
    "load_run",
    "load_status",
    "parse_timestamp",
]

HEARTBEAT_SECONDS: Final = 10.0
"""The pause between two heartbeats of a run."""

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
        store.save_state(entry.key, _as_json(self))


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
        store.save_state(f"{entry.key}:run", _as_json(self))


def new_run(due: datetime, now: datetime, *, asked: bool = False) -> EntryRun:
    """A run that begins in this process now."""
    at = timestamp(now)
    return EntryRun(due=timestamp(due), began=at, asked=asked, alive=at, host=socket.gethostname(), pid=os.getpid())


def load_status(store: Store, entry: ScheduleEntry) -> EntryStatus:
    """Read the status of an entry. Raises OSError."""
    return EntryStatus(**_known_fields(EntryStatus, store.load_state(entry.key)))


def load_run(store: Store, entry: ScheduleEntry) -> EntryRun | None:
    """Read the last run of an entry; None before the first. Raises OSError."""
    found = _known_fields(EntryRun, store.load_state(f"{entry.key}:run"))
    # An object without them was not written by `EntryRun.save`; there is nothing to report then.
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
    if run.host == socket.gethostname() and run.pid != os.getpid() and not is_running_process(run.pid):
        return False
    # The absolute value: on a machine whose clock is ahead of this one, the heartbeat lies in the future.
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


def _as_json(value: EntryStatus | EntryRun) -> dict[str, Json]:
    return {name: list(item) if isinstance(item, tuple) else item for name, item in asdict(value).items()}


def _known_fields(kind: type[EntryStatus | EntryRun], found: Any) -> dict[str, Any]:
    """The fields that this version knows: a newer one may have stored more."""
    names = {field.name for field in fields(kind)}
    return {name: value for name, value in found.items() if name in names}


# --- claims of due times ----------------------------------------------------------------------------------------------


# How far the clocks of two servers may differ. A time further ahead was written by a wrong clock.
_AHEAD: Final = timedelta(minutes=5)


class SkippedRun(str):
    """The reason, in a few words, why a due time is not run."""

    __slots__ = ()


@dataclass(slots=True)
class PendingClaim:
    """A due time that this process has claimed and not yet recorded; None without one."""

    due: datetime | None = None


def claim_due(
    store: Store, entry: ScheduleEntry, now: datetime, pending: PendingClaim, *, running: bool
) -> EntryRun | SkippedRun | None:
    """Claim and record the run that is due; None if nothing is due.

    `pending` is this process's own for the entry, kept between checks. `running` says whether this process still runs
    the entry. The first check of an entry runs nothing: its times count from there. Raises OSError, and what the store
    raises; nothing has begun then, and a claim stays in `pending` for the next check.
    """
    status = load_status(store, entry)
    since = max(parse_timestamp(status.since), parse_timestamp(status.due))
    # A time far ahead means that the clock went back: count from now. Past runs stay claimed.
    if status.mark != entry.mark or not status.since or since > now + _AHEAD:
        EntryStatus(mark=entry.mark, since=now.isoformat()).save(store, entry)
        return None
    # Another server has claimed a newer due time. Several missed times are one run, so the one pending here is done.
    if pending.due is not None and parse_timestamp(status.due) > pending.due:
        pending.due = None
    newest = entry.times.latest(since, now) if since < now else None
    if newest is not None and (pending.due is None or newest > pending.due):
        is_ours = store.claim(entry.claim_key(newest))
        pending.due = newest if is_ours else None
        if not is_ours:  # another server has it, or had it before it ended
            _record_due(store, entry, new_run(newest, now).due)
    if pending.due is None:
        return None
    claimed = _record(store, entry, now, pending.due, running=running)
    # Cleared only now: if the store fails while recording, the next check records this claim again.
    pending.due = None
    return claimed


def _record_due(store: Store, entry: ScheduleEntry, due: str) -> None:
    # Read again: another server may have recorded a newer time since. Timestamps compare as text: all are UTC.
    status = load_status(store, entry)
    if status.due < due:
        replace(status, due=due).save(store, entry)


def _record(
    store: Store, entry: ScheduleEntry, now: datetime, due: datetime, *, running: bool
) -> EntryRun | SkippedRun:
    """Record the outcome of a claim. Safe to repeat after it failed half way."""
    run = new_run(due, now)
    status = replace(load_status(store, entry), due=run.due)
    if why := _skip_reason(store, entry, now, run, running=running):
        replace(status, left_out=run.due, why=why).save(store, entry)
        return SkippedRun(f"{entry.local(due)} is left out: {why}")
    # The run first: a crash between the two leaves a run without heartbeats, which `last_outcome` reports. The other
    # order would leave a claim without a run, as if the process had died before it.
    run.save(store, entry)
    status.save(store, entry)
    return run


def _skip_reason(store: Store, entry: ScheduleEntry, now: datetime, run: EntryRun, *, running: bool) -> str:
    most_seconds = entry.settings.max_late_seconds
    late = now - parse_timestamp(run.due)
    if most_seconds is not None and late.total_seconds() > most_seconds:
        return f"{_duration_text(late)} late"
    last = load_run(store, entry)
    # The same due time is this very run, recorded by a check that failed after it.
    itself = last is not None and last.due == run.due and not last.asked
    if running or (is_running(last, now) and not itself):
        return "the run before it was still under way"
    return ""


def _duration_text(span: timedelta) -> str:
    seconds = int(span.total_seconds())
    # From two units on: "1 days" would need a singular, and 47 hours are more exact than a day.
    for unit, size in (("days", 86_400), ("hours", 3_600), ("minutes", 60)):
        if seconds >= 2 * size:
            return f"{seconds // size:,} {unit}"
    return f"{seconds} seconds"
