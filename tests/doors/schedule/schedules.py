"""A schedule over a fake model and a clock that is set by hand."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from tests.hosting.pools import session_pool

from foldline.agent.settings.connections import ScheduleSettings
from foldline.agent.settings.model import AgentSettings
from foldline.doors.schedule.delivery import TELEGRAM_URL, Courier
from foldline.doors.schedule.entries import ScheduleEntry, entries_of
from foldline.doors.schedule.runner import ScheduleRunner
from foldline.text.cron import Cron

MONDAY = datetime(2026, 11, 30, 6, 0, tzinfo=UTC)


class ManualClock:
    """A clock that stands still until it is set."""

    def __init__(self, now: datetime = MONDAY) -> None:
        self.now = now

    def __call__(self) -> datetime:
        """The time."""
        return self.now

    def on(self, **span: float) -> None:
        """Set it forward, or back."""
        self.now += timedelta(**span)


def entry_of(cron: str = "0 7 * * *", name: str = "morning", **more: Any) -> ScheduleEntry:
    """An entry, as settings give it."""
    settings = ScheduleSettings(cron=Cron.read(cron), prompt=more.pop("prompt", "What is new?"), **more)
    [entry] = entries_of(AgentSettings(schedule={name: settings}))
    return entry


class ManualSchedule:
    """A schedule, its clock, and its notices."""

    def __init__(self, schedule: ScheduleRunner, clock: ManualClock, lines: list[str]) -> None:
        self.schedule, self.clock, self.lines = schedule, clock, lines

    async def at(self, moment: datetime) -> None:
        """Look at all entries at a moment, and wait for what begins."""
        self.clock.now = moment
        await self.schedule.check_all()
        await self.schedule.wait_idle()


@asynccontextmanager
async def manual_schedule(
    url: str,
    folder: Path,
    yaml: str,
    *,
    clock: ManualClock | None = None,
    telegram_url: str = TELEGRAM_URL,
    **more: Any,
) -> AsyncIterator[ManualSchedule]:
    """The schedule of a settings file, checked by `ManualSchedule.at` only. Retries of deliveries do not wait."""
    clock, lines = clock or ManualClock(), []
    async with session_pool(url, folder, yaml=yaml, **more) as pool:
        runtime = pool.runtime

        async def at_once(seconds: float) -> None:
            lines.append(f"waited {seconds:g}")

        courier = Courier(runtime.workspace, runtime.environ, sleep=at_once, telegram_url=telegram_url)
        schedule = ScheduleRunner(pool, entries_of(runtime.settings), courier, notice=lines.append, clock=clock)
        try:
            yield ManualSchedule(schedule, clock, lines)
        finally:
            await schedule.stop(5)
