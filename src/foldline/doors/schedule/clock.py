"""The timers of a schedule, in the process of `foldline serve`, `foldline telegram` or `foldline schedule`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, timedelta
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from foldline.hosting.process import stop_with_grace
from foldline.hosting.session_pool import SessionPool

if TYPE_CHECKING:
    from foldline.doors.schedule.runner import ScheduleRunner

__all__ = ["run_schedule", "run_timers"]

# All entries are checked this often as well as at their own times: timers stand still while a machine sleeps.
_CHECK_SECONDS: Final = 20.0

# A clock that is set moves by more than this; its drift between two checks is far less.
_JUMP: Final = timedelta(seconds=5)


@asynccontextmanager
async def run_schedule(
    pool: SessionPool,
    *,
    notice: Callable[[str], None],
    grace_seconds: float = 30.0,
    environ: Mapping[str, str] | None = None,
    telegram_url: str | None = None,
) -> AsyncIterator[ScheduleRunner | None]:
    """Run the agent's `schedule` until the end of the block; None if nothing is scheduled.

    Missed runs start at once. At the end, running ones may end or pause within `grace_seconds`; a cancellation of the
    block cuts them off, one during the first check does not. `notice` receives a line on each run. `environ` (None:
    that of the agent) holds the secrets of deliveries; `telegram_url` is another Bot API server. Raises
    MissingExtra without APScheduler, and InvalidInput for an unknown time zone.
    """
    if not any(entry.enabled for entry in pool.runtime.settings.schedule.values()):
        yield None
        return
    # Imported on use: most agents have no schedule, and APScheduler is an extra that they need not install.
    from foldline.doors.schedule.runner import runner_for

    schedule = runner_for(pool, notice=notice, environ=environ, telegram_url=telegram_url)
    async with run_timers(schedule, grace_seconds=grace_seconds):
        yield schedule


@asynccontextmanager
async def run_timers(schedule: ScheduleRunner, *, grace_seconds: float) -> AsyncIterator[None]:
    """Check each entry when it is due, and all of them now and then, until the end of the block."""
    from apscheduler.schedulers.asyncio import AsyncIOScheduler

    # APScheduler only wakes us up. `claim_due` ensures that nothing runs twice and that missed times run once, as it
    # knows what other processes did. So a job may be late by any span, and many late ones are one.
    job_defaults = {"misfire_grace_time": None, "coalesce": True, "max_instances": 1}
    scheduler: Any = AsyncIOScheduler(timezone=UTC, job_defaults=job_defaults)
    for entry in schedule.entries.values():
        if entry.settings.enabled:
            scheduler.add_job(schedule.check, entry.times, args=(entry.name,), id=entry.name)
    spared = 0
    try:
        try:
            # Before the timers start: a run that was missed while no process was up begins now, not at its next time.
            await schedule.check_all()
        except asyncio.CancelledError:  # the door is not open yet; claimed runs get the grace, as nobody else has them
            spared = 1
            raise
        scheduler.start()
        watcher = asyncio.create_task(_watch(schedule, scheduler))
        try:
            yield
        finally:
            watcher.cancel()
            # Its jobs only start checks, and `stop_with_grace` below waits for those.
            scheduler.shutdown(wait=False)
            await asyncio.gather(watcher, return_exceptions=True)
    finally:
        await stop_with_grace(schedule.stop, grace_seconds, spared=spared)


async def _watch(schedule: ScheduleRunner, scheduler: Any) -> None:
    """Check again, and reset the timers when the clock is set: after a step back they would fire far too late."""
    while True:
        # The monotonic clock cannot be set, so the difference of the two clocks is how far the wall clock was moved.
        wall, steady = schedule.now(), monotonic()
        await asyncio.sleep(_CHECK_SECONDS)
        now = schedule.now()
        if abs(now - wall - timedelta(seconds=monotonic() - steady)) > _JUMP:
            for job in scheduler.get_jobs():
                job.modify(next_run_time=job.trigger.get_next_fire_time(None, now))
        await schedule.check_all()
