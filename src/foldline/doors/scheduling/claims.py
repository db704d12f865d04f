"""Claims of due times. Each due time is claimed in the store first, so that it runs once or not at all.

The claim comes before the run. If a process is killed between the two, that run is lost, and `last_outcome` says so;
the other order would run it twice. A process whose store fails between the two keeps its claim, and runs it when the
store is back: nobody else can. Several missed due times are one run, of the newest.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from foldline.doors.scheduling.entries import ScheduleEntry
from foldline.doors.scheduling.entry_status import (
    EntryRun,
    EntryStatus,
    is_running,
    load_run,
    load_status,
    new_run,
    parse_timestamp,
)
from foldline.store.base import Store

__all__ = ["PendingClaim", "SkippedRun", "claim_due"]

# How far the clocks of two servers may differ. A time further ahead was written by a wrong clock.
_AHEAD: Final = timedelta(minutes=5)


class SkippedRun(str):
    """The reason, in a few words, why nobody runs a due time."""

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
    # A newer due time claimed by another server makes up for the one pending here.
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
    pending.due = None
    return claimed


def _record_due(store: Store, entry: ScheduleEntry, due: str) -> None:
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
    for unit, size in (("days", 86_400), ("hours", 3_600), ("minutes", 60)):
        if seconds >= 2 * size:
            return f"{seconds // size:,} {unit}"
    return f"{seconds} seconds"
