"""Puts a schedule together from the settings of the agent that runs it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from foldline.doors.scheduling.deliver import TELEGRAM_URL, Courier
from foldline.doors.scheduling.entries import entries_of
from foldline.doors.scheduling.runner import Schedule
from foldline.hosting.session_pool import Actors

__all__ = ["schedule_of"]


def schedule_of(
    actors: Actors,
    *,
    tell: Callable[[str], None],
    environ: Mapping[str, str] | None = None,
    telegram_url: str | None = None,
) -> Schedule:
    """The schedule of the agent behind these sessions, at rest. Tells which variables its deliveries lack.

    Raises InvalidInput for a time zone that this machine does not know.
    """
    crew = actors.crew
    secrets = crew.environ if environ is None else environ
    courier = Courier(crew.workspace, secrets, telegram_url=(telegram_url or TELEGRAM_URL).rstrip("/"))
    schedule = Schedule(actors, entries_of(crew.settings), courier, tell=tell)
    for entry in schedule.entries.values():
        for name in {name for to in entry.settings.deliver for name in courier.missing(to)}:
            tell(f"Schedule {entry.name}: nothing can be delivered as set: the environment has no {name}")
    return schedule
