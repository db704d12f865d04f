"""Runs of a schedule: one for each due time, despite failures of processes, clocks and other entries."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from contextlib import closing
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.doors.schedule.schedules import MONDAY, ManualClock, ManualSchedule, manual_schedule
from tests.serving import serve
from tests.store.places import Places, store_at

from foldline.doors.schedule.claims import last_outcome, load_run, load_status
from foldline.doors.schedule.clock import run_timers
from foldline.errors import InvalidInput
from foldline.store.base import Store
from foldline.store.folders import FileStore
from foldline.testing import FakeProvider

YAML = """
schedule:
  morning:
    cron: "0 7 * * *"
    prompt: What is new?
    deliver: [{file: report.md, mode: append}]
"""
SEVEN = MONDAY.replace(hour=7)
A_DAY = timedelta(days=1)


class Held(FakeProvider):
    """Answers no question to the model until `hold` is set. `held`: how many have come."""

    def __init__(self, reply: str) -> None:
        super().__init__(reply)
        self.hold = asyncio.Event()
        self.held = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http" and scope["method"] == "POST":
            self.held += 1
            await self.hold.wait()
        await super().__call__(scope, receive, send)


def asked(fake: FakeProvider) -> list[str]:
    """The last words of each request."""
    return [str(request.body["messages"][-1]["content"]) for request in fake.requests]


def report_of(folder: Path) -> str:
    path = folder / "report.md"
    return path.read_text("utf-8") if path.exists() else ""


def state(plan: ManualSchedule, name: str = "morning") -> tuple[str, str]:
    """(due time of the last run, how it ended)."""
    entry = plan.schedule.entries[name]
    store = plan.schedule._pool.store
    found = last_outcome(load_status(store, entry), load_run(store, entry), plan.clock())
    return ("", "never") if found is None else (found.due, found.reason)


def test_what_is_due_is_run_in_its_session_and_delivered(tmp_path: Path) -> None:
    async def run(url: str) -> None:
        async with manual_schedule(url, tmp_path, YAML) as plan:
            await plan.at(MONDAY)
            assert state(plan) == ("", "never")
            await plan.at(SEVEN - timedelta(seconds=1))
            assert asked(fake) == []
            for day in range(3):
                await plan.at(SEVEN + day * A_DAY)
                await plan.at(SEVEN + day * A_DAY + timedelta(minutes=1))
            assert state(plan) == ("2026-12-02T07:00:00Z", "done")
            store = plan.schedule._pool.store
            [listed] = store.sessions()
            assert store.session_of("schedule:morning") == listed.id
            assert listed.snapshot is not None
            assert listed.snapshot.turns == 3
            assert len(plan.lines) == 3
            assert plan.lines[0].startswith("Schedule morning: done in ")

    fake = FakeProvider("All is well.")
    with serve(fake) as served:
        asyncio.run(run(served.url))
    assert asked(fake) == ["What is new?"] * 3
    assert report_of(tmp_path).count("All is well.") == 3
    assert "## 2026-11-30 07:00 UTC · morning\n\nAll is well.\n" in report_of(tmp_path)


def test_the_first_start_does_not_run_the_past_and_later_ones_make_up_for_it_once(tmp_path: Path) -> None:
    async def start(url: str, moment: datetime) -> tuple[str, str]:
        async with manual_schedule(url, tmp_path, YAML, clock=ManualClock(moment)) as plan:
            await plan.at(moment)
            return state(plan)

    fake = FakeProvider("All is well.")
    with serve(fake) as served:
        assert asyncio.run(start(served.url, SEVEN + timedelta(hours=1))) == ("", "never")
        # Three days off: one run, of the newest due time, and none at the start after that one.
        for _ in range(2):
            ended = asyncio.run(start(served.url, SEVEN + 3 * A_DAY + timedelta(hours=9)))
            assert ended == ("2026-12-03T07:00:00Z", "done")
    assert len(asked(fake)) == 1


def test_other_times_make_an_entry_a_new_one(tmp_path: Path) -> None:
    async def start(url: str, yaml: str, moment: datetime) -> None:
        async with manual_schedule(url, tmp_path, yaml, clock=ManualClock(moment)) as plan:
            await plan.at(moment)

    fake = FakeProvider("All is well.")
    with serve(fake) as served:
        asyncio.run(start(served.url, YAML, MONDAY))
        asyncio.run(start(served.url, YAML.replace("0 7", "0 5"), SEVEN + A_DAY))
        assert asked(fake) == [], "05:00 of this day was before anybody had set it"
        asyncio.run(start(served.url, YAML.replace("0 7", "0 5"), SEVEN + 2 * A_DAY))
        assert len(asked(fake)) == 1


def test_a_clock_that_goes_back_runs_nothing_again(tmp_path: Path) -> None:
    async def run(url: str) -> None:
        async with manual_schedule(url, tmp_path, YAML) as plan:
            await plan.at(MONDAY)
            await plan.at(SEVEN)
            for back in (SEVEN - timedelta(minutes=2), SEVEN, SEVEN - timedelta(hours=3), SEVEN, SEVEN + A_DAY):
                await plan.at(back)
        async with manual_schedule(url, tmp_path, YAML) as plan:
            for moment in (SEVEN - timedelta(hours=2), SEVEN, SEVEN + A_DAY):
                await plan.at(moment)

    fake = FakeProvider("All is well.")
    with serve(fake) as served:
        asyncio.run(run(served.url))
    assert len(asked(fake)) == 2


def test_a_clock_that_was_years_ahead_does_not_stop_the_schedule(tmp_path: Path) -> None:
    async def run(url: str) -> None:
        async with manual_schedule(url, tmp_path, YAML) as plan:
            await plan.at(MONDAY)
            await plan.at(SEVEN + timedelta(days=2_000))
            await plan.at(MONDAY)
            await plan.at(SEVEN)
            assert state(plan)[1] == "done"

    fake = FakeProvider("All is well.")
    with serve(fake) as served:
        asyncio.run(run(served.url))
    assert len(asked(fake)) == 2


@pytest.mark.parametrize("kind", ["files", "sqlite", "postgresql"])
def test_servers_on_one_store_run_a_due_time_once(kind: str, places: Places, tmp_path: Path) -> None:
    """Three processes look at the same moment, over and over; they share nothing but the store."""

    async def server(url: str, number: int, store: Store, moments: list[datetime]) -> None:
        folder = tmp_path / f"server {number}"
        folder.mkdir()
        async with manual_schedule(url, folder, YAML, store=store) as plan:
            for moment in moments:
                await plan.at(moment)

    async def run(url: str) -> None:
        moments = [MONDAY, *(SEVEN + day * A_DAY for day in range(4))]
        place = places(kind)
        with closing(store_at(place)) as one, closing(store_at(place)) as two, closing(store_at(place)) as three:
            await asyncio.gather(*(server(url, n, store, moments) for n, store in enumerate((one, two, three))))

    fake = FakeProvider("All is well.")
    with serve(fake) as served:
        asyncio.run(run(served.url))
    assert sum(report_of(folder).count("All is well.") for folder in tmp_path.glob("server *")) == 4
    assert len(asked(fake)) == 4


def test_a_run_that_is_too_late_is_left_out_and_said(tmp_path: Path) -> None:
    async def run(url: str) -> None:
        yaml = YAML + "    max_late: 2h\n"
        async with manual_schedule(url, tmp_path, yaml) as plan:
            await plan.at(MONDAY)
            await plan.at(SEVEN + timedelta(hours=3))
            assert plan.lines == ["Schedule morning: 2026-11-30 07:00 UTC is left out: 3 hours late"]
            known = load_status(plan.schedule._pool.store, plan.schedule.entries["morning"])
            assert (known.left_out, known.why) == ("2026-11-30T07:00:00Z", "3 hours late")
            assert state(plan) == ("", "never")
            await plan.at(SEVEN + A_DAY + timedelta(hours=1))
            assert state(plan) == ("2026-12-01T07:00:00Z", "done")

    fake = FakeProvider("All is well.")
    with serve(fake) as served:
        asyncio.run(run(served.url))


def test_an_entry_that_is_off_runs_only_by_hand(tmp_path: Path) -> None:
    async def run(url: str) -> None:
        async with manual_schedule(url, tmp_path, YAML + "    enabled: false\n") as plan:
            await plan.at(MONDAY)
            await plan.at(SEVEN + A_DAY)
            assert asked(fake) == []
            done = [await plan.schedule.run_now("morning") for _ in range(2)]
            assert [run.reason for run in done] == ["done", "done"]
            assert done[0].due != done[1].due, "two within a second have names of their own"
            assert state(plan) == (done[1].due, "done")

    fake = FakeProvider("All is well.")
    with serve(fake) as served:
        asyncio.run(run(served.url))
    assert len(asked(fake)) == 2


def test_a_run_by_hand_takes_no_due_time_away(tmp_path: Path) -> None:
    async def run(url: str) -> None:
        async with manual_schedule(url, tmp_path, YAML) as plan:
            await plan.at(MONDAY)
            await plan.schedule.run_now("morning")
            await plan.at(SEVEN)
            assert state(plan) == ("2026-11-30T07:00:00Z", "done")
            with pytest.raises(InvalidInput, match="there is no entry 'evening'; known are morning"):
                await plan.schedule.run_now("evening")

    fake = FakeProvider("All is well.")
    with serve(fake) as served:
        asyncio.run(run(served.url))
    assert len(asked(fake)) == 2


def test_a_run_that_fails_is_recorded_and_told_and_later_ones_run(tmp_path: Path) -> None:
    def script(body: Mapping[str, Any]) -> str:
        del body
        return "All is well."

    async def run(url: str) -> None:
        yaml = YAML.replace("deliver: [", "deliver: [{file: ../no/such}, ").replace("{file: ../no/such}, ", "")
        async with manual_schedule("http://127.0.0.1:9", tmp_path, yaml) as plan:
            await plan.at(MONDAY)
            await plan.at(SEVEN)
            assert state(plan) == ("2026-11-30T07:00:00Z", "failed")
            assert any(line.startswith("Schedule morning: failed in ") for line in plan.lines)
        async with manual_schedule(url, tmp_path, yaml) as plan:
            await plan.at(SEVEN + A_DAY)
            assert state(plan) == ("2026-12-01T07:00:00Z", "done")

    with serve(FakeProvider(script)) as served:
        asyncio.run(run(served.url))
    assert "morning: failed: " in report_of(tmp_path)
    assert report_of(tmp_path).endswith("All is well.\n")


def test_a_session_that_is_gone_fails_one_entry_and_no_other(tmp_path: Path) -> None:
    async def run(url: str) -> None:
        more = "  gone: {cron: '0 7 * * *', prompt: Go on, session: 20200101-000000-01234567}\n"
        async with manual_schedule(url, tmp_path, YAML + more) as plan:
            await plan.at(MONDAY)
            await plan.at(SEVEN)
            assert state(plan, "gone")[1] == "failed"
            assert state(plan, "morning")[1] == "done"

    with serve(FakeProvider("All is well.")) as served:
        asyncio.run(run(served.url))


def test_each_run_has_the_session_that_is_set(tmp_path: Path) -> None:
    async def run(url: str) -> None:
        more = """
  one: {cron: "0 7 * * *", prompt: One, session: shared, policy: layered}
  two: {cron: "5 7 * * *", prompt: Two, session: shared}
  new: {cron: "0 7 * * *", prompt: New, session: new, policy: sliding}
"""
        async with manual_schedule(url, tmp_path, YAML + more) as plan:
            await plan.at(MONDAY)
            for day in range(2):
                await plan.at(SEVEN + day * A_DAY)
                await plan.at(SEVEN + day * A_DAY + timedelta(minutes=5))
            store = plan.schedule._pool.store
            found = {listed.id: listed.snapshot for listed in store.sessions()}
            shared = found[store.session_of("schedule:shared") or ""]
            assert shared is not None
            assert (shared.turns, shared.policy) == (4, "layered")
            policies = sorted(snapshot.policy for snapshot in found.values() if snapshot is not None)
            assert policies == ["balanced", "layered", "sliding", "sliding"]
            assert len(found) == 4

    with serve(FakeProvider("All is well.")) as served:
        asyncio.run(run(served.url))


def test_while_a_run_is_under_way_the_next_one_is_left_out_and_said(tmp_path: Path) -> None:
    async def run(url: str, free: Any) -> None:
        yaml = YAML.replace("0 7 * * *", "* * * * *")
        async with manual_schedule(url, tmp_path, yaml) as plan:
            await plan.schedule.check_all()
            plan.clock.on(minutes=1)
            await plan.schedule.check_all()
            first = dict(plan.schedule._running)
            assert set(first) == {"morning"}
            assert state(plan) == ("2026-11-30T06:01:00Z", "running")
            plan.clock.on(minutes=1)
            await plan.schedule.check_all()
            assert plan.lines == [
                "Schedule morning: 2026-11-30 06:02 UTC is left out: the run before it was still under way"
            ]
            with pytest.raises(InvalidInput, match="is running already"):
                await plan.schedule.run_now("morning")
            free()
            await plan.schedule.wait_idle()
            plan.clock.on(minutes=1)
            await plan.at(plan.clock.now)
            assert state(plan) == ("2026-11-30T06:03:00Z", "done")

    fake = Held("All is well.")
    with serve(fake) as served:
        asyncio.run(run(served.url, lambda: served.set(fake.hold)))
    assert report_of(tmp_path).count("All is well.") == 2


def test_a_stop_pauses_what_runs_and_records_it(tmp_path: Path) -> None:
    async def run(url: str) -> None:
        async with manual_schedule(url, tmp_path, YAML) as plan:
            await plan.schedule.check_all()
            plan.clock.now = SEVEN
            await plan.schedule.check_all()
            await asyncio.sleep(0)
            await plan.schedule.stop(0.05)
            due, reason = state(plan)
            assert due == "2026-11-30T07:00:00Z"
            assert reason in ("cancelled", "paused")
            await plan.at(SEVEN + A_DAY)
            assert state(plan)[0] == due, "nothing new begins"

    with serve(Held("")) as served:
        asyncio.run(run(served.url))


def test_a_run_that_ends_while_the_sessions_stop_is_delivered_as_what_it_was(tmp_path: Path) -> None:
    async def run(url: str, free: Any) -> None:
        async with manual_schedule(url, tmp_path, YAML) as plan:
            await plan.schedule.check_all()
            plan.clock.now = SEVEN
            await plan.schedule.check_all()
            while not fake.held:  # a pause before the model is asked would end the turn without asking it
                await asyncio.sleep(0.01)
            stopping = asyncio.create_task(plan.schedule._pool.stop(20))
            await asyncio.sleep(0)
            free()
            await asyncio.gather(stopping, plan.schedule.wait_idle())
            assert state(plan) == ("2026-11-30T07:00:00Z", "done")

    fake = Held("All is well.")
    with serve(fake) as served:
        asyncio.run(run(served.url, lambda: served.set(fake.hold)))
    assert "All is well." in report_of(tmp_path)


def test_a_store_that_is_away_is_said_and_tried_again(tmp_path: Path) -> None:
    class Away(FileStore):
        away = False

        def claim(self, key: str) -> bool:
            if self.away:
                raise OSError("the database is away")
            return super().claim(key)

    async def run(url: str) -> None:
        store = Away(tmp_path / "sessions", fsync=False)
        async with manual_schedule(url, tmp_path, YAML, store=store) as plan:
            await plan.at(MONDAY)
            store.away = True
            await plan.at(SEVEN)
            assert plan.lines == ["Schedule morning: the store cannot be used: the database is away"]
            store.away = False
            await plan.at(SEVEN + timedelta(seconds=20))
            assert state(plan) == ("2026-11-30T07:00:00Z", "done")

    with serve(FakeProvider("All is well.")) as served:
        asyncio.run(run(served.url))


class FailsAfterTheClaim(FileStore):
    """Writes nothing down whose key ends with `broken`, once a due time was claimed."""

    broken: str | None = None
    claimed = False

    def claim(self, key: str) -> bool:
        self.claimed = super().claim(key)
        return self.claimed

    def save_state(self, key: str, value: Mapping[str, Any]) -> None:
        if self.claimed and self.broken is not None and key.endswith(self.broken):
            raise OSError("gone for a moment")
        super().save_state(key, value)


@pytest.mark.parametrize("broken", ["schedule:morning:run", "schedule:morning"])
def test_a_store_that_fails_after_the_claim_delays_the_run_and_loses_none(broken: str, tmp_path: Path) -> None:
    """Neither write after the claim may lose it; a neighbour that looks meanwhile does not run it as well."""

    async def run(url: str) -> None:
        store = FailsAfterTheClaim(tmp_path / "sessions", fsync=False)
        other = FileStore(tmp_path / "sessions", fsync=False)
        (tmp_path / "other").mkdir()
        async with (
            manual_schedule(url, tmp_path, YAML, store=store) as plan,
            manual_schedule(url, tmp_path / "other", YAML, store=other) as neighbour,
        ):
            await plan.at(MONDAY)
            store.broken = broken
            await plan.at(SEVEN)
            assert plan.lines == ["Schedule morning: the store cannot be used: gone for a moment"]
            await neighbour.at(SEVEN + timedelta(seconds=10))
            assert asked(fake) == []
            store.broken = None
            for seconds in (20, 40, 7200):
                await plan.at(SEVEN + timedelta(seconds=seconds))
                await neighbour.at(SEVEN + timedelta(seconds=seconds))
            assert state(plan) == ("2026-11-30T07:00:00Z", "done")

    fake = FakeProvider("All is well.")
    with serve(fake) as served:
        asyncio.run(run(served.url))
    assert len(asked(fake)) == 1


@pytest.mark.parametrize("by_neighbour", [False, True])
def test_a_newer_due_time_makes_up_for_one_that_is_held(by_neighbour: bool, tmp_path: Path) -> None:
    async def run(url: str) -> None:
        store = FailsAfterTheClaim(tmp_path / "sessions", fsync=False)
        other = FileStore(tmp_path / "sessions", fsync=False)
        (tmp_path / "other").mkdir()
        async with (
            manual_schedule(url, tmp_path, YAML, store=store) as plan,
            manual_schedule(url, tmp_path / "other", YAML, store=other) as neighbour,
        ):
            await plan.at(MONDAY)
            store.broken = "schedule:morning:run"
            await plan.at(SEVEN)
            store.broken = None
            if by_neighbour:
                await neighbour.at(SEVEN + A_DAY)
            await plan.at(SEVEN + A_DAY)
            await plan.at(SEVEN + A_DAY + timedelta(seconds=20))
            assert state(plan) == ("2026-12-01T07:00:00Z", "done")

    fake = FakeProvider("All is well.")
    with serve(fake) as served:
        asyncio.run(run(served.url))
    assert len(asked(fake)) == 1


class HoldsItsClaim(FileStore):
    """Says that a due time is claimed only when `free` is set; `claimed` tells that it is."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, fsync=False)
        self.claimed, self.free = threading.Event(), threading.Event()

    def claim(self, key: str) -> bool:
        won = super().claim(key)
        self.claimed.set()
        assert self.free.wait(120)
        return won


@pytest.mark.parametrize("at_the_start", [False, True])
def test_what_is_claimed_when_a_stop_comes_is_begun_and_recorded(at_the_start: bool, tmp_path: Path) -> None:
    """A look that is cancelled while it claims, by the timer's end or in the first look of a process."""

    async def start(plan: ManualSchedule) -> None:
        async with run_timers(plan.schedule, grace_seconds=20):
            raise AssertionError("the first look was cancelled")

    async def run(url: str) -> None:
        store = HoldsItsClaim(tmp_path / "sessions")
        async with manual_schedule(url, tmp_path, YAML, store=store) as plan:
            await plan.at(MONDAY)
            plan.clock.now = SEVEN
            look = asyncio.create_task(start(plan) if at_the_start else plan.schedule.check_all())
            await asyncio.to_thread(store.claimed.wait, 30)
            look.cancel()
            stopping = asyncio.create_task(plan.schedule.stop(20))
            await asyncio.sleep(0)
            store.free.set()
            await asyncio.gather(look, stopping, return_exceptions=True)
            assert look.cancelled()
            assert state(plan) == ("2026-11-30T07:00:00Z", "done")
        async with manual_schedule(url, tmp_path, YAML) as plan:
            await plan.at(SEVEN)
            assert state(plan) == ("2026-11-30T07:00:00Z", "done")

    fake = FakeProvider("All is well.")
    with serve(fake) as served:
        asyncio.run(run(served.url))
    assert len(asked(fake)) == 1


def test_a_claim_whose_process_died_before_its_run_is_told_as_interrupted(tmp_path: Path) -> None:
    async def run(url: str) -> None:
        async with manual_schedule(url, tmp_path, YAML) as plan:
            await plan.at(MONDAY)
            assert plan.schedule._pool.store.claim("schedule:morning:2026-11-30T07:00:00Z")
            await plan.at(SEVEN)
            assert asked(fake) == []
            assert state(plan) == ("2026-11-30T07:00:00Z", "interrupted")
            await plan.at(SEVEN + A_DAY)
            assert state(plan) == ("2026-12-01T07:00:00Z", "done")

    fake = FakeProvider("All is well.")
    with serve(fake) as served:
        asyncio.run(run(served.url))


# Of these runs the first twenty or so fit; then each folds what the ones before it left.
@pytest.mark.parametrize("runs", [100, pytest.param(300, marks=pytest.mark.soak)])
def test_many_runs_in_a_small_window_leave_a_session_that_works(tmp_path: Path, runs: int) -> None:
    """S3.09: a lasting session of a schedule never becomes unusable, and no request is over its window."""

    async def run(url: str) -> None:
        yaml = """
model: {max_input_tokens: 4000}
session: {context: {max_history_tokens: 1500}}
schedule:
  often: {cron: "* * * * *", prompt: "Tell me what changed since the last time, in some detail, please."}
"""
        async with manual_schedule(url, tmp_path, yaml) as plan:
            await plan.at(MONDAY)
            for minute in range(1, runs + 1):
                await plan.at(MONDAY + timedelta(minutes=minute))
            assert all(line.startswith("Schedule often: done in ") for line in plan.lines)
            last = MONDAY + timedelta(minutes=runs)
            assert state(plan, "often") == (f"{last:%Y-%m-%dT%H:%M:%SZ}", "done")
            store = plan.schedule._pool.store
            [listed] = store.sessions()
            assert listed.snapshot is not None
            assert listed.snapshot.turns == runs

    fake = FakeProvider("Much has changed. " * 20, window_tokens=4_000, keep=400)
    with serve(fake) as served:
        asyncio.run(run(served.url))
    assert len(fake.requests) == runs
    assert set(fake.refusals) <= {"route"}, "it has no page that tells its window; nothing else was refused"
    last = str(fake.requests[-1].body["messages"])
    assert "older messages omitted]" in last
