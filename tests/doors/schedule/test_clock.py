"""The schedule with the real APScheduler and the real time; test_runner has the rules of its runs."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC
from pathlib import Path

from apscheduler.triggers.cron import CronTrigger
from tests.hosting.pools import session_pool
from tests.serving import serve

from foldline.doors.schedule.clock import run_schedule, run_timers
from foldline.doors.schedule.delivery import Courier
from foldline.doors.schedule.entries import DueTimes, entries_of
from foldline.doors.schedule.runner import ScheduleRunner
from foldline.testing import FakeProvider

YAML = """
schedule:
  often: {cron: "* * * * *", prompt: What is new?, deliver: [{file: often.md, mode: append}]}
"""
WAIT_SECONDS = 120


def test_what_is_due_each_second_runs_by_itself_until_the_end_of_the_block(tmp_path: Path) -> None:
    async def run(url: str) -> None:
        lines: asyncio.Queue[str] = asyncio.Queue()
        async with session_pool(url, tmp_path, yaml=YAML) as pool:
            [entry] = entries_of(pool.runtime.settings)
            each_second = DueTimes(CronTrigger(second="*", timezone=UTC), every_hour=True)
            courier = Courier(pool.runtime.workspace, {})
            plan = ScheduleRunner(pool, [replace(entry, times=each_second)], courier, notice=lines.put_nowait)
            async with run_timers(plan, grace_seconds=5), asyncio.timeout(WAIT_SECONDS):
                done = [line async for line in _lines(lines) if "done in" in line]
            assert len(done) == 3
            assert not plan._running
        assert len({task.get_name() for task in asyncio.all_tasks()}) == 1, "nothing is left of it"

    async def _lines(lines: asyncio.Queue[str]):  # type: ignore[no-untyped-def]
        found = 0
        while found < 3:
            line = await lines.get()
            found += "done in" in line
            yield line

    with serve(FakeProvider("All is well.")) as served:
        asyncio.run(run(served.url))
    assert (tmp_path / "often.md").read_text("utf-8").count("All is well.") >= 3


def test_without_a_schedule_nothing_is_started(tmp_path: Path) -> None:
    async def run(url: str) -> None:
        off = YAML.replace("prompt:", "enabled: false, prompt:")
        for yaml in ("model: fake-model", off):
            async with session_pool(url, tmp_path, yaml=yaml) as pool, run_schedule(pool, notice=print) as plan:
                assert plan is None

    with serve(FakeProvider("")) as served:
        asyncio.run(run(served.url))


def test_a_missed_run_begins_with_the_block_and_missing_variables_are_told(tmp_path: Path) -> None:
    yaml = YAML.replace("[{file: often.md, mode: append}]", "[{telegram: 1}]")

    async def run(url: str) -> list[str]:
        lines: list[str] = []
        async with session_pool(url, tmp_path, yaml=yaml) as pool:
            [entry] = entries_of(pool.runtime.settings)
            pool.store.save_state(entry.key, {"mark": entry.mark, "since": "2026-01-01T00:00:00+00:00"})
            async with run_schedule(pool, notice=lines.append) as plan:
                assert plan is not None
                await plan.wait_idle()
        return lines

    with serve(FakeProvider("All is well.")) as served:
        lines = asyncio.run(run(served.url))
    assert lines[:2] == [
        "Schedule often: nothing can be delivered as set: the environment has no FOLDLINE_TELEGRAM_TOKEN",
        "Schedule often: not delivered to Telegram 1: the environment has no FOLDLINE_TELEGRAM_TOKEN",
    ]
    assert lines[2].startswith("Schedule often: done in ")
