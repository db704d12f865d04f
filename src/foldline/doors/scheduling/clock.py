"""The schedule of a process beside its door: one line in `foldline serve`, `foldline telegram`, `foldline schedule`."""

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
    from foldline.doors.scheduling.runner import ScheduleRunner

__all__ = ["running", "scheduled"]

# How often all entries are looked at beside their own times: timers stand still while a machine sleeps.
_LOOK_SECONDS: Final = 20.0

# A clock that is set is set by more than this; what it drifts within a look is far less.
_JUMP: Final = timedelta(seconds=5)


@asynccontextmanager
async def scheduled(
    pool: SessionPool,
    *,
    tell: Callable[[str], None],
    grace_seconds: float = 30.0,
    environ: Mapping[str, str] | None = None,
    telegram_url: str | None = None,
) -> AsyncIterator[ScheduleRunner | None]:
    """Run what the agent's settings have as `schedule` until the end of the block; None where nothing is set.

    What was missed begins at once. At the end runs that are under way may end or pause within `grace_seconds`; a
    cancellation of the block cuts them off, one of the first look does not. `tell` hears a line on each run; `environ`
    (None: that of the agent) has the secrets of deliveries, `telegram_url` the address of a Bot API server of one's
    own. Raises MissingExtra without APScheduler, and InvalidInput for a zone that is not known.
    """
    if not any(entry.enabled for entry in pool.runtime.settings.schedule.values()):
        yield None
        return
    from foldline.doors.scheduling.runner import runner_for

    schedule = runner_for(pool, tell=tell, environ=environ, telegram_url=telegram_url)
    async with running(schedule, grace_seconds=grace_seconds):
        yield schedule


@asynccontextmanager
async def running(schedule: ScheduleRunner, *, grace_seconds: float) -> AsyncIterator[None]:
    """Look at each entry when it is due, and at all of them now and then, until the end of the block."""
    from apscheduler.schedulers.asyncio import AsyncIOScheduler

    # APScheduler only wakes us up. That nothing is run twice and what was missed is run once is the work of `take`,
    # which knows what other processes did; so a job may be as late as it likes, and many late ones are one.
    job_defaults = {"misfire_grace_time": None, "coalesce": True, "max_instances": 1}
    scheduler: Any = AsyncIOScheduler(timezone=UTC, job_defaults=job_defaults)
    for entry in schedule.entries.values():
        if entry.settings.enabled:
            scheduler.add_job(schedule.check, entry.times, args=(entry.name,), id=entry.name)
    spared = 0
    try:
        try:
            await schedule.check_all()
        except asyncio.CancelledError:  # the door is not open yet; what is claimed already nobody else would run
            spared = 1
            raise
        scheduler.start()
        watching = asyncio.create_task(_watch(schedule, scheduler))
        try:
            yield
        finally:
            watching.cancel()
            scheduler.shutdown(wait=False)
            await asyncio.gather(watching, return_exceptions=True)
    finally:
        await stop_with_grace(schedule.stop, grace_seconds, spared=spared)


async def _watch(schedule: ScheduleRunner, scheduler: Any) -> None:
    """Look again, and set the timers anew when the clock was: one that went back would ring years too late."""
    while True:
        wall, steady = schedule.now(), monotonic()
        await asyncio.sleep(_LOOK_SECONDS)
        now = schedule.now()
        if abs(now - wall - timedelta(seconds=monotonic() - steady)) > _JUMP:
            for job in scheduler.get_jobs():
                job.modify(next_run_time=job.trigger.get_next_fire_time(None, now))
        await schedule.check_all()
