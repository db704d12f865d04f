"""Takes what is due: each due time is claimed in the store first, so that it is run once or not at all.

A claim comes before its run. A process that is killed between the two has lost that run, and `how_it_ended` says so;
the other order would run it twice. Several due times that were missed are one run, of the newest.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from foldline.interfaces.scheduling.entries import Entry
from foldline.interfaces.scheduling.standing import Known, Run, begun, known_of, moment_of, run_of, under_way
from foldline.store.base import Store

__all__ = ["LeftOut", "take"]

_AHEAD: Final = timedelta(minutes=5)
"""By how much the clocks of two servers may differ. What lies further ahead was written by a clock that was wrong."""


class LeftOut(str):
    """Why a due time is not run by anybody, in a few words."""

    __slots__ = ()


def take(store: Store, entry: Entry, now: datetime, *, running: bool) -> Run | LeftOut | None:
    """The run that is to begin now, claimed and written down; None where nothing is due.

    `running`: this process still runs the entry. The first look at an entry runs nothing: its times count from there.
    Raises OSError, and what the store raises; then nothing was begun.
    """
    known = known_of(store, entry)
    since = max(moment_of(known.since), moment_of(known.due))
    # Times far ahead: the clock has gone back. From here on, then; what was run stays claimed.
    if known.mark != entry.mark or not known.since or since > now + _AHEAD:
        Known(mark=entry.mark, since=now.isoformat()).keep(store, entry)
        return None
    due = entry.times.latest(since, now) if since < now else None
    if due is None:
        return None
    run = begun(due, now)
    if not store.claim(entry.claim_key(due)):  # another server has it, or had it before it ended
        known = known_of(store, entry)
        if known.due < run.due:
            replace(known, due=run.due).keep(store, entry)
        return None
    known = replace(known, due=run.due)
    if why := _why_not(store, entry, now, due, running=running):
        replace(known, left_out=run.due, why=why).keep(store, entry)
        return LeftOut(f"{entry.local(due)} is left out: {why}")
    run.keep(store, entry)
    known.keep(store, entry)
    return run


def _why_not(store: Store, entry: Entry, now: datetime, due: datetime, *, running: bool) -> str:
    most_seconds = entry.settings.max_late_seconds
    if most_seconds is not None and (now - due).total_seconds() > most_seconds:
        return f"{_span(now - due)} late"
    if running or under_way(run_of(store, entry), now):
        return "the run before it was still under way"
    return ""


def _span(span: timedelta) -> str:
    seconds = int(span.total_seconds())
    for unit, size in (("days", 86_400), ("hours", 3_600), ("minutes", 60)):
        if seconds >= 2 * size:
            return f"{seconds // size:,} {unit}"
    return f"{seconds} seconds"
