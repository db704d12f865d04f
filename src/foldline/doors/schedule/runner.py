"""Runs the entries of a schedule in the sessions of this process: a turn, its delivery, and a record of both."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta
from time import monotonic
from typing import Final

from foldline.agent.events import TurnEnded
from foldline.agent.workers import run_to_end
from foldline.doors.schedule.claims import (
    HEARTBEAT_SECONDS,
    EntryRun,
    PendingClaim,
    SkippedRun,
    claim_due,
    is_running,
    load_run,
    new_run,
    parse_timestamp,
)
from foldline.doors.schedule.delivery import TELEGRAM_URL, Courier, Report, delivery_label
from foldline.doors.schedule.entries import ScheduleEntry, entries_of, timestamp
from foldline.errors import FoldlineError, InvalidInput, Stopping
from foldline.hosting.session_actor import SessionActor, SessionState
from foldline.hosting.session_pool import SessionPool
from foldline.messages import Json

__all__ = ["Clock", "ScheduleRunner", "runner_for", "utc_now"]

Clock = Callable[[], datetime]

# How long a run that is cut off may take to record its end.
_CUT_OFF_SECONDS: Final = 10.0


def utc_now() -> datetime:
    """The current time."""
    return datetime.now(UTC)


class ScheduleRunner:
    """The entries of an agent. `notice` receives a line on each run; `clock` is the time in UTC."""

    def __init__(
        self,
        pool: SessionPool,
        entries: Sequence[ScheduleEntry],
        courier: Courier,
        *,
        notice: Callable[[str], None],
        clock: Clock = utc_now,
    ) -> None:
        self._pool, self._courier, self._notice, self._clock = pool, courier, notice, clock
        self.entries: Final = {entry.name: entry for entry in entries}
        # One lock an entry: a check claims and starts in two steps, and `run_now` must not come between them.
        self._locks = {name: asyncio.Lock() for name in self.entries}
        self._pending_claims = {name: PendingClaim() for name in self.entries}
        self._checks: set[asyncio.Task[None]] = set()
        self._running: dict[str, asyncio.Task[EntryRun]] = {}
        self._active_turns: dict[str, SessionActor] = {}
        self._stopping = False

    def now(self) -> datetime:
        """The current time of its clock."""
        return self._clock()

    async def check_all(self) -> None:
        """Start a run of each entry that is due, or was missed."""
        for name in self.entries:
            await self.check(name)

    async def check(self, name: str) -> None:
        """Start a run of one entry if it is due, or was missed.

        A cancelled check goes on by itself, and `stop` waits for it: nobody else would run what it has claimed.
        """
        if not self.entries[name].settings.enabled:
            return
        check = asyncio.create_task(self._check(self.entries[name]))
        self._checks.add(check)
        check.add_done_callback(self._checks.discard)
        await asyncio.shield(check)

    async def run_now(self, name: str) -> EntryRun:
        """Run an entry at once, due or not, and return how it ended.

        Raises InvalidInput for an unknown entry or one that is running, and OSError.
        """
        if name not in self.entries:
            names = f"known are {', '.join(self.entries)}" if self.entries else "there is none in agents.yaml"
            raise InvalidInput(f"there is no entry {name[:80]!r}; {names}", place="schedule")
        entry, store = self.entries[name], self._pool.store
        async with self._locks[name]:
            now = self._clock()
            last = await run_to_end(load_run, store, entry)
            if name in self._running or is_running(last, now):
                raise InvalidInput("is running already", place=f"schedule.{name}")
            # Timestamps have whole seconds: two runs in one would share a name, and the second pass for the first.
            due = now if last is None else max(now, parse_timestamp(last.due) + timedelta(seconds=1))
            run = new_run(due, now, asked=True)
            await run_to_end(run.save, store, entry)
            task = self._start_run(entry, run)
        # Shielded, and outside of the lock: the run goes on without its caller, and other checks meanwhile.
        return await asyncio.shield(task)

    async def wait_idle(self) -> None:
        """Wait until nothing is running."""
        # A loop: a check may start another run while these end.
        while self._running:
            await asyncio.wait(set(self._running.values()))

    async def stop(self, grace_seconds: float) -> None:
        """Start nothing new, let runs end or pause within `grace_seconds`, then cut them off. All ends are recorded."""
        # Set before the first await, so that no check claims anything from here on.
        self._stopping = True
        for actor in self._active_turns.values():
            actor.pause()
        if self._checks:  # a run that one of them has claimed starts, and gets the grace too
            await asyncio.wait(set(self._checks))
        late = set(self._running.values())
        if late:
            # Not 0: `wait` would return before a task that can end at once has had a turn of the loop.
            _, late = await asyncio.wait(late, timeout=max(0.001, grace_seconds))
        for task in late:
            task.cancel()
        if late:
            await asyncio.wait(late, timeout=_CUT_OFF_SECONDS)

    # --- inside ------------------------------------------------------------------------------------------------------

    def _log(self, entry: ScheduleEntry, line: str) -> None:
        self._notice(f"Schedule {entry.name}: {line}")

    async def _check(self, entry: ScheduleEntry) -> None:
        store, pending = self._pool.store, self._pending_claims[entry.name]
        async with self._locks[entry.name]:
            if self._stopping or self._pool.stopping:  # what is claimed now would be lost
                return
            running = entry.name in self._running
            try:
                claimed = await run_to_end(claim_due, store, entry, self._clock(), pending, running=running)
            except (OSError, FoldlineError) as error:  # a claim stays pending until the next check
                self._log(entry, f"the store cannot be used: {error}")
                return
            if isinstance(claimed, SkippedRun):
                self._log(entry, claimed)
            elif claimed is not None:
                self._start_run(entry, claimed)

    def _start_run(self, entry: ScheduleEntry, run: EntryRun) -> asyncio.Task[EntryRun]:
        task = asyncio.create_task(self._run(entry, run))
        self._running[entry.name] = task

        def on_done(done: asyncio.Task[EntryRun]) -> None:
            self._running.pop(entry.name, None)
            if not done.cancelled() and (error := done.exception()) is not None:
                self._log(entry, f"the end of a run could not be recorded: {error}")

        task.add_done_callback(on_done)
        return task

    async def _run(self, entry: ScheduleEntry, run: EntryRun) -> EntryRun:
        store, began = self._pool.store, monotonic()
        try:
            # The delivery counts as part of the run: a process killed during it leaves "interrupted", not "done".
            async with self._heartbeat(entry, run):
                report = await self._report(entry, run)
                run = replace(run, session=report.session, reason=report.reason, message=report.message)
                # One after another: each outcome is part of the record, and a slow place delays only its own schedule.
                for to in entry.settings.deliver:
                    run = await self._deliver(entry, run, report, delivery_label(to), self._courier.deliver(report, to))
        except asyncio.CancelledError:
            # With a reason the turn had ended, and only its delivery is cut off: the turn keeps its own outcome.
            if not run.reason:
                run = replace(run, reason="cancelled", message="Cut off: the process stops.")
            await run_to_end(replace(run, ended=timestamp(self._clock())).save, store, entry)
            raise
        run = replace(run, ended=timestamp(self._clock()))
        await run_to_end(run.save, store, entry)
        places = f", delivered to {', '.join(run.delivered)}" if run.delivered else ""
        why = f": {run.message}" if run.message else ""
        self._log(entry, f"{run.reason} in {monotonic() - began:,.0f} s (session {run.session or 'none'}){places}{why}")
        return run

    async def _report(self, entry: ScheduleEntry, run: EntryRun) -> Report:
        """Run one turn in the entry's session, and report its outcome."""
        session = ""
        figures: dict[str, Json] = {}
        # The idempotency key of the turn and of its deliveries: who has seen it before can drop a repeat.
        name = f"{entry.key}:now:{run.due}" if run.asked else entry.claim_key(parse_timestamp(run.due))
        try:
            actor = await self._actor(entry, run)
            session = actor.id
            self._active_turns[entry.name] = actor
            ended = await actor.run_turn(entry.settings.prompt, key=name)
            with suppress(FoldlineError, OSError):  # the answer is more than its figures; at a stop there are none
                figures = await actor.inspect(_figures)
        except Stopping:
            ended = TurnEnded(reason="cancelled", message="It was not begun: the process stops.")
        except (FoldlineError, OSError) as error:
            ended = TurnEnded(reason="failed", message=str(error))
        finally:
            self._active_turns.pop(entry.name, None)
        return Report(
            id=name,
            entry=entry,
            due=parse_timestamp(run.due),
            session=session,
            reason=ended.reason,
            text=ended.text,
            message=ended.message,
            figures=figures,
        )

    async def _actor(self, entry: ScheduleEntry, run: EntryRun) -> SessionActor:
        """The session that an entry continues, or a new one."""
        if entry.session_id is not None:
            return await self._pool.actor(entry.session_id)
        policy = entry.settings.policy
        if entry.session_key is not None:
            return await self._pool.session_for_key(entry.session_key, policy=policy, title=f"Schedule: {entry.name}")
        day = entry.local(parse_timestamp(run.due))
        return await self._pool.create(policy=policy, title=f"Schedule: {entry.name}, {day}")

    async def _deliver(
        self, entry: ScheduleEntry, run: EntryRun, report: Report, place: str, delivery: Awaitable[bool]
    ) -> EntryRun:
        try:
            delivered = await delivery
        except (FoldlineError, OSError) as error:
            self._log(entry, f"not delivered to {place}: {error}")
            return replace(run, failed=(*run.failed, f"{place}: {error}"))
        return replace(run, delivered=(*run.delivered, place)) if delivered else run

    @asynccontextmanager
    async def _heartbeat(self, entry: ScheduleEntry, run: EntryRun) -> AsyncIterator[None]:
        """Record every few seconds that the run is alive, which tells it from one that was killed."""

        async def beat() -> None:
            while True:
                await asyncio.sleep(HEARTBEAT_SECONDS)
                # The run as it began: the fields that change meanwhile are written once, at its end.
                alive = replace(run, alive=timestamp(self._clock()))
                with suppress(OSError, FoldlineError):  # the next one may do
                    await run_to_end(alive.save, self._pool.store, entry)

        beats = asyncio.create_task(beat())
        try:
            yield
        finally:
            # Awaited: a heartbeat that is being written must not overwrite the end of the run.
            beats.cancel()
            await asyncio.gather(beats, return_exceptions=True)


def _figures(state: SessionState) -> dict[str, Json]:
    now = state.context.figures
    return {**asdict(now), "used_tokens": now.used_tokens, "utilization": now.utilization}


def runner_for(
    pool: SessionPool,
    *,
    notice: Callable[[str], None],
    environ: Mapping[str, str] | None = None,
    telegram_url: str | None = None,
) -> ScheduleRunner:
    """Build the schedule of the agent behind these sessions, at rest, and report variables its deliveries lack.

    Raises InvalidInput for a time zone that this machine does not know.
    """
    runtime = pool.runtime
    secrets = runtime.environ if environ is None else environ
    courier = Courier(runtime.workspace, secrets, telegram_url=(telegram_url or TELEGRAM_URL).rstrip("/"))
    schedule = ScheduleRunner(pool, entries_of(runtime.settings), courier, notice=notice)
    for entry in schedule.entries.values():
        for name in {name for to in entry.settings.deliver for name in courier.missing(to)}:
            notice(f"Schedule {entry.name}: nothing can be delivered as set: the environment has no {name}")
    return schedule
