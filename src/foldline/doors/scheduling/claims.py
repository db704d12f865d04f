"""Takes what is due: each due time is claimed in the store first, so that it is run once or not at all.

A claim comes before its run. A process that is killed between the two has lost that run, and `how_it_ended` says so;
the other order would run it twice. A process that lives on when its store fails between the two holds what it has
claimed, and takes it when the store is back: nobody else can. Several due times that were missed are one run, of the
newest.
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

# By how much the clocks of two servers may differ. What lies further ahead was written by a clock that was wrong.
_AHEAD: Final = timedelta(minutes=5)


class SkippedRun(str):
    """Why a due time is not run by anybody, in a few words."""

    __slots__ = ()


@dataclass(slots=True)
class PendingClaim:
    """The due time of an entry that this process has claimed and not written down yet; None where there is none."""

    due: datetime | None = None


def claim_due(
    store: Store, entry: ScheduleEntry, now: datetime, pending: PendingClaim, *, running: bool
) -> EntryRun | SkippedRun | None:
    """The run that is to begin now, claimed and written down; None where nothing is due.

    `held` is this process's own for the entry, from one look to the next; `running`: this process still runs the entry.
    The first look at an entry runs nothing: its times count from there. Raises OSError, and what the store raises; then
    nothing was begun, and what was claimed is in `held` for the next look.
    """
    known = load_status(store, entry)
    since = max(parse_timestamp(known.since), parse_timestamp(known.due))
    # Times far ahead: the clock has gone back. From here on, then; what was run stays claimed.
    if known.mark != entry.mark or not known.since or since > now + _AHEAD:
        EntryStatus(mark=entry.mark, since=now.isoformat()).keep(store, entry)
        return None
    # A newer one that another server has claimed makes up for what is held.
    if pending.due is not None and parse_timestamp(known.due) > pending.due:
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
    known = load_status(store, entry)
    if known.due < due:
        replace(known, due=due).keep(store, entry)


def _record(
    store: Store, entry: ScheduleEntry, now: datetime, due: datetime, *, running: bool
) -> EntryRun | SkippedRun:
    """What becomes of a due time that is claimed, as it is written down. May be done again after it failed half way."""
    run = new_run(due, now)
    known = replace(load_status(store, entry), due=run.due)
    if why := _skip_reason(store, entry, now, run, running=running):
        replace(known, left_out=run.due, why=why).keep(store, entry)
        return SkippedRun(f"{entry.local(due)} is left out: {why}")
    run.keep(store, entry)
    known.keep(store, entry)
    return run


def _skip_reason(store: Store, entry: ScheduleEntry, now: datetime, run: EntryRun, *, running: bool) -> str:
    most_seconds = entry.settings.max_late_seconds
    late = now - parse_timestamp(run.due)
    if most_seconds is not None and late.total_seconds() > most_seconds:
        return f"{_duration_text(late)} late"
    last = load_run(store, entry)
    # The same due time is this very run, written down by a look that failed after it.
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
