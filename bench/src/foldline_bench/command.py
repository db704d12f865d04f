"""The command `foldline bench`: compares ways of keeping a session inside its window."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import click

from foldline.cli.console import log, terminal, write_whole
from foldline.cli.options import size_list_tokens
from foldline.store.files import check_writable
from foldline.text.formatting import plural
from foldline_bench.printing import draw, rounded
from foldline_bench.probe.command import probed
from foldline_bench.run import BenchPlan, BenchProgress
from foldline_bench.run import bench as run_bench
from foldline_bench.session_inputs import counts_exactly, session_paths
from foldline_bench.table import (
    LEGEND,
    by_group,
    main_table,
    notes,
    parts_table,
    stress_table,
    week_lines,
    weeks_table,
    widths,
)
from foldline_bench.values import BenchResult
from foldline_bench.workers.processes import ended_like_ctrl_c

__all__ = ["bench"]

_STOPPED: Final = 130

# An item of the list. Names of systems, as tables show them, have commas inside brackets: these do not end an item.
_LISTED: Final = re.compile(r'(?:"[^"]*"|\([^()]*\)|[^,])+')


def _names(_context: click.Context, _option: click.Parameter, value: str) -> tuple[str, ...]:
    """Parse names between commas, each as a table shows it or inside double quotes."""
    names = (name.strip() for name in _LISTED.findall(value))
    return tuple(_unquoted(name) for name in names if name)


def _unquoted(name: str) -> str:
    """Remove quotes around the whole name; those inside are its own."""
    return name[1:-1] if len(name) > 1 and name[0] == name[-1] == '"' else name


@click.command()
@click.argument("sessions", metavar="[SESSIONS...]", nargs=-1, type=click.Path())
@click.option(
    "--budget",
    "budgets",
    default="16k",
    show_default=True,
    metavar="A,B,...",
    callback=size_list_tokens,
    help="The size of a request in tokens, such as 16k or 1m. Each budget is measured separately.",
)
@click.option(
    "--systems",
    default="",
    metavar="A,B,...",
    callback=_names,
    help="Names or patterns of systems, or a peer's name; no management always runs. A comma in "
    "brackets or double quotes belongs to its name. [default: all]",
)
@click.option(
    "--peers",
    default=".bench",
    show_default=True,
    metavar="FOLDER",
    help="The folder in which `make bench` installs them.",
)
@click.option("--own-counter", is_flag=True, help="Each system counts by its own counter instead of the same one.")
@click.option("--estimate", is_flag=True, help="Size all by the estimate, even if the extra `exact` is installed.")
@click.option("--repeat", type=click.IntRange(min=1), default=3, show_default=True, metavar="N", help="Runs for times.")
@click.option(
    "--time-cap",
    type=click.FloatRange(min=0.0, min_open=True),
    default=240.0,
    show_default=True,
    metavar="SECONDS",
    help="For each system at each budget.",
)
@click.option("--no-stress", is_flag=True, help="Leave out the long session of up to 8,000 messages.")
@click.option("--parts", is_flag=True, help="Also by five parts of the sessions, split by source, with their means.")
@click.option("--weeks", is_flag=True, help="Join the sessions of each source into working weeks, with pauses.")
@click.option("--json", "json_file", metavar="FILE", type=click.Path(), help="Write all figures as JSON.")
@click.option("--html", "html_file", metavar="FILE", type=click.Path(), help="Write a page with charts.")
@probed
def bench(
    *,
    sessions: tuple[str, ...],
    budgets: tuple[int, ...],
    systems: tuple[str, ...],
    peers: str,
    own_counter: bool,
    estimate: bool,
    repeat: int,
    time_cap: float,
    no_stress: bool,
    parts: bool,
    weeks: bool,
    json_file: str | None,
    html_file: str | None,
) -> None:
    """Compare systems on recorded sessions: cost, recall, validity, budget, time.

    SESSIONS are files as for `foldline replay`, or folders of them. Each system runs in a process of its own; peers run
    in the environments that `make bench` installs. Nothing is sent anywhere. After Ctrl-C, the figures of the systems
    that had finished are printed and written.
    """
    for file in filter(None, (json_file, html_file)):
        check_writable(file)
    paths, found = session_paths(sessions)
    plan = BenchPlan(
        paths=paths,
        found=found,
        budgets_tokens=budgets,
        systems=systems,
        peers_folder=peers,
        exact=not estimate and counts_exactly(),
        own_counter=own_counter,
        repeat=repeat,
        cap_seconds=time_cap,
        stress=not no_stress,
        parts=parts,
        weeks=weeks,
    )
    try:
        with ended_like_ctrl_c(), _progress() as on_step:
            result = run_bench(plan, on_step)
    except KeyboardInterrupt:
        log("stopped; no system had finished, and nothing is saved")
        raise
    written = rounded(result)
    if json_file is not None:
        write_whole(json_file, json.dumps(written, ensure_ascii=False, separators=(",", ":")) + "\n")
        log(f"wrote {json_file}")
    if html_file is not None:
        from foldline_bench.page.document import bench_page

        write_whole(html_file, bench_page(written))
        log(f"wrote {html_file}")
    _print(result)
    if result["partial"]:
        # A bench is not resumed: runs of different hours, on a machine with other work, would not compare.
        saved = "" if json_file or html_file else " and are not saved (--json saves them)"
        log(f"stopped; the figures are those of the systems that had finished{saved}; the same command starts over")
        click.get_current_context().exit(_STOPPED)


@contextmanager
def _progress() -> Iterator[Callable[[BenchProgress], None]]:
    """Report progress on stderr: a bar for the running system on a terminal, else a line when one ends."""
    if not sys.stderr.isatty():
        yield lambda step: log(_ended(step)) if step.ended else None
        return

    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=terminal(to_stderr=True), transient=True) as bar:
        task = bar.add_task("starting", total=None)

        def on_step(step: BenchProgress) -> None:
            if step.ended:
                bar.console.print(_ended(step))
                bar.reset(task, description="starting", total=None)
            else:
                description = f"{step.budget_tokens:,} {step.system}"
                bar.update(task, description=description, completed=step.done, total=step.total)

        yield on_step


def _ended(step: BenchProgress) -> str:
    line = f"{step.budget_tokens:,} tokens, {step.system}: {step.done} of {plural(step.total, 'session')}"
    return f"{line}; ended early: {step.died}" if step.died else line


def _print(result: BenchResult) -> None:
    console = terminal()
    weeks = [row["name"] for row in result["sessions"] if row["week"] is not None]
    tables = [
        (each, main_table(each), by_group(each), stress_table(each), parts_table(each), weeks_table(each, weeks))
        for each in result["budgets"]
    ]
    widest = max(sum(widths(table)) + len(table.heads) for _, *some in tables for table in some if table is not None)
    # rich would cut cells. A narrower terminal wraps the lines, and a file has them whole.
    console.width = max(console.width, widest)
    for budget, main, groups, stress, parts, by_week in tables:
        compared = f"{plural(len(budget['common']), 'session')} of {len(budget['sessions'])} that all finished"
        console.print(f"budget {budget['budget_tokens']:,} tokens by {result['counter']}; {compared}\n", style="bold")
        draw(console, main)
        draw(console, groups)
        if stress is not None:
            draw(console, stress)
        if parts is not None and budget["parts"] is not None:
            console.print(budget["parts"]["about"], style="bold")
            draw(console, parts)
        if by_week is not None:
            draw(console, by_week)
        if budget["too_small"]:
            console.print(f"left out as too small: {', '.join(budget['too_small'])}", style="dim")
        for note in notes(budget):
            console.print(note, style="dim")
        console.print()
    for line in week_lines(result["sessions"]):
        console.print(line, style="dim")
    for left in result["left_out"]:
        console.print(f"{left['file']} left out: {left['reason']}")
    for absent in result["absent"]:
        console.print(f"{absent['peer']} left out: {absent['reason']}")
    console.print(LEGEND, style="dim")
