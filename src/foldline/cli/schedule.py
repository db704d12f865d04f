"""The commands on the schedule: run it, list its entries, run one entry at once."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from foldline.cli.console import json_out, log, terminal
from foldline.cli.options import agent_options, needs_extra, store_option, yes_option
from foldline.errors import InvalidInput
from foldline.hosting.session_choice import in_one_line
from foldline.messages import Json
from foldline.text.formatting import DASH

if TYPE_CHECKING:
    from foldline.doors.schedule.entries import ScheduleEntry
    from foldline.hosting.process import ShutdownRequest
    from foldline.hosting.runtime import Options
    from foldline.hosting.session_pool import SessionPool
    from foldline.store.base import Store

__all__ = ["schedule"]

_NEEDED: Final = ("apscheduler", "httpx", "platformdirs", "pydantic", "yaml")
_needs_schedule: Final = needs_extra("schedule", "runs at set times", _NEEDED)


@click.group()
def schedule() -> None:
    """Runs of the agent at set times, from the block `schedule` of agents.yaml."""


@schedule.command("run")
@_needs_schedule
@store_option
@agent_options
@yes_option
@click.option(
    "--grace-seconds", type=click.FloatRange(0), default=30.0, show_default=True, help="Time for runs to finish."
)
@in_one_line
def run_all(*, store: str | None, options: Options, workspace: str, yes: bool, grace_seconds: float) -> None:
    """Run the schedule until SIGTERM or Ctrl-C; a second signal stops at once.

    Due times that were missed while nothing ran are made up for at once, by one run of each entry. Several of these
    commands, foldline serve and foldline telegram may share a store: one of them runs each due time.
    """
    from foldline.hosting.process import run_until_signal

    async def door(shutdown: ShutdownRequest) -> None:
        await _run_all(shutdown, options, workspace, store, yes=yes, grace_seconds=grace_seconds)

    asyncio.run(run_until_signal(door, log))


@schedule.command("now")
@_needs_schedule
@click.argument("name")
@store_option
@agent_options
@yes_option
@in_one_line
def run_one(*, name: str, store: str | None, options: Options, workspace: str, yes: bool) -> int:
    """Run the entry NAME at once, and deliver its answer. Its due times stay as they are.

    Exit codes: 0 done; 1 the run or a delivery failed; 2 bad usage; 130 stopped.
    """
    return asyncio.run(_run_one(name, options, workspace, store, yes=yes))


@schedule.command("list")
@_needs_schedule
@store_option
@agent_options
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of the table.")
@in_one_line
def list_all(*, store: str | None, options: Options, workspace: str, as_json: bool) -> None:
    """List the entries: when each is due next, and how its last run ended."""
    from foldline.doors.schedule.entries import entries_of
    from foldline.hosting.runtime import settings_for
    from foldline.hosting.session_choice import store_place
    from foldline.store.addresses import open_store

    # Every agent command has the option; a list runs nothing.
    del workspace
    loaded = settings_for(options, os.environ)
    entries = entries_of(loaded.settings)
    with closing(open_store(store_place(store, os.environ))) as opened:
        now = datetime.now(UTC)
        rows = [_row(opened, entry, now) for entry in entries]
    if as_json:
        json_out({"schedule": rows})
    elif rows:
        _print_table(entries, rows)
    for withheld in loaded.withheld:
        log(f"not before it is trusted (foldline config trust): {withheld}")
    if not rows:
        log("there is no schedule in agents.yaml")


# --- inside -----------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def _open(options: Options, workspace: str, store: str | None, *, yes: bool) -> AsyncIterator[SessionPool]:
    from foldline.hosting.session_actor import ActorLimits
    from foldline.hosting.session_pool import open_pool

    limits = ActorLimits()
    # A copy: what libraries set later must not reach the commands that a model runs.
    environ = dict(os.environ)
    async with open_pool(
        options, environ, workspace=Path(workspace), store=store, yes=yes, limits=limits, notice=log
    ) as pool:
        yield pool


async def _run_all(
    shutdown: ShutdownRequest, options: Options, workspace: str, store: str | None, *, yes: bool, grace_seconds: float
) -> None:
    from foldline.doors.schedule.clock import run_schedule

    async with (
        _open(options, workspace, store, yes=yes) as pool,
        run_schedule(pool, notice=log, grace_seconds=grace_seconds) as running,
    ):
        if running is None:
            raise InvalidInput("there is no entry that is enabled; see foldline schedule list", place="schedule")
        log(f"model  {pool.runtime.picked.line}")
        log(f"store  {pool.store.place}")
        for entry in running.entries.values():
            due = entry.times.after(datetime.now(UTC)) if entry.settings.enabled else None
            log(f"{entry.name}: {'off' if due is None else f'next {entry.local(due)}'}")
        # From here on a signal means an orderly stop. Before it, one ends the process: there is nothing to finish.
        shutdown.is_open = True
        await shutdown.requested.wait()


async def _run_one(name: str, options: Options, workspace: str, store: str | None, *, yes: bool) -> int:
    from foldline.doors.schedule.runner import runner_for

    async with _open(options, workspace, store, yes=yes) as pool:
        plan = runner_for(pool, notice=log)
        try:
            run = await plan.run_now(name)
        finally:
            await plan.stop(5.0)
    # An answer that reached nobody is a failure for whoever scheduled it.
    return 0 if run.reason == "done" and not run.failed else 1


def _row(store: Store, entry: ScheduleEntry, now: datetime) -> dict[str, Json]:
    """Return the status of an entry as JSON, with times in UTC."""
    from foldline.doors.schedule.claims import last_outcome, load_run, load_status
    from foldline.doors.schedule.entries import timestamp

    # Two records: a server that died in the middle of a run left a run without an outcome.
    status, run = load_status(store, entry), load_run(store, entry)
    last = last_outcome(status, run, now)
    due = entry.times.after(now) if entry.settings.enabled else None
    last_json: dict[str, Any] | None = None
    if last is not None:
        last_json = {
            "due": last.due,
            "began": last.began,
            "ended": last.ended or None,
            "reason": last.reason,
            "message": last.message,
            "session": last.session or None,
            "asked": last.asked,
            "delivered": list(last.delivered),
            "failed": list(last.failed),
        }
    return {
        "name": entry.name,
        "cron": entry.settings.cron.text,
        "timezone": entry.settings.timezone,
        "enabled": entry.settings.enabled,
        "next": None if due is None else timestamp(due),
        "last": last_json,
        "left_out": {"due": status.left_out, "why": status.why} if status.left_out else None,
    }


def _print_table(entries: tuple[ScheduleEntry, ...], rows: list[dict[str, Any]]) -> None:
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    for column in ("name", "cron", "next", "last run", "how it ended"):
        table.add_column(column, overflow="fold")
    for entry, row in zip(entries, rows, strict=True):
        table.add_row(
            entry.name,
            entry.settings.cron.text,
            "off" if row["next"] is None else _local(entry, row["next"]),
            DASH if row["last"] is None else _local(entry, row["last"]["due"]),
            _outcome_text(entry, row),
        )
    terminal().print(table)


def _local(entry: ScheduleEntry, stamp: str) -> str:
    from foldline.doors.schedule.claims import parse_timestamp

    return entry.local(parse_timestamp(stamp))


def _outcome_text(entry: ScheduleEntry, row: dict[str, Any]) -> str:
    from foldline.agent.settings.checks import visible

    last, out = row["last"], row["left_out"]
    words = [] if last is None else [f"{last['reason']}{': ' if last['message'] else ''}{last['message']}"]
    if last is not None:
        words += [f"not delivered to {place}" for place in last["failed"]]
    # Times in UTC have one format, so they compare as texts. An older omission says nothing beside a newer run.
    if out is not None and (last is None or out["due"] > last["due"]):
        words.append(f"{_local(entry, out['due'])} left out: {out['why']}")
    return visible("; ".join(words)) if words else "never run"
