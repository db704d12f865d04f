"""The command that finds the settings that suit a user's own sessions."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import click

from foldline.catalog.models import lookup
from foldline.cli.console import json_out, log, terminal, write_whole
from foldline.cli.histories import counter_for
from foldline.cli.models import nearest
from foldline.cli.options import size_or_none_tokens, size_tokens
from foldline.engine.settings import effective_limit
from foldline.errors import InvalidInput
from foldline.hosting.session_choice import in_one_line, store_place
from foldline.store.files import check_writable
from foldline.text.formatting import plural
from foldline_bench.tuning import (
    Backend,
    Conditions,
    InProcess,
    LocalProcesses,
    NothingToTune,
    TuneProgress,
    agents_yaml,
    located,
    trial_count,
)
from foldline_bench.tuning import tune as find_settings
from foldline_bench.tuning.backends import core_count
from foldline_bench.tuning.report import block_comments, left_out_lines, plain_report, print_found

__all__ = ["tune"]

# An error names up to so many sessions; more are listed before it, one a line.
_IN_A_LINE: Final = 3

# Without a progress bar, parts of so many replays report each quarter.
_QUARTERED: Final = 40


@click.command()
@click.argument("sessions", metavar="[SESSIONS]...", nargs=-1, type=click.Path())
@click.option("--window", metavar="N", callback=size_tokens, help="Tokens, such as 16k; the model's by default.")
@click.option("--max-output-tokens", metavar="N", callback=size_or_none_tokens, help="Kept free for the answer.")
@click.option("--model", metavar="NAME", help="Price all as this model; each session's own by default.")
@click.option("--exact", is_flag=True, help="Count with a real vocabulary (needs the extra `exact`).")
@click.option(
    "--engine",
    type=click.Choice(("local", "ray")),
    default="local",
    show_default=True,
    help="Where the work is done; ray needs the extra `ray`.",
)
@click.option("--ray-address", metavar="ADDRESS", help="A cluster; else RAY_ADDRESS, else one is started here.")
@click.option("--workers", type=click.IntRange(min=1), metavar="N", help="Processes; one for each core by default.")
@click.option("--min-far", type=click.FloatRange(0, 1), metavar="R", help="The far recall that the choice must have.")
@click.option(
    "--check/--no-check",
    default=True,
    help="Also settle on four fifths of the sessions and measure on the fifth, all five in turn.",
)
@click.option("--resume/--fresh", default=True, help="Take the results of earlier runs, or replay all again.")
@click.option("--state", metavar="FOLDER", type=click.Path(), help="Where results are kept; a cache folder by default.")
@click.option("--out", metavar="FILE", type=click.Path(), help="Write the settings as a new agents.yaml.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON report instead of the table.")
@in_one_line
def tune(
    *,
    sessions: tuple[str, ...],
    window: int | None,
    max_output_tokens: int | None,
    model: str | None,
    exact: bool,
    engine: str,
    ray_address: str | None,
    workers: int | None,
    min_far: float | None,
    check: bool,
    resume: bool,
    state: str | None,
    out: str | None,
    as_json: bool,
) -> None:
    """Find the settings that suit your own sessions, by replaying them under many.

    SESSIONS are files as for `foldline replay`, Parquet files, folders of them, stores (a folder, sqlite:///FILE,
    postgresql://…), or s3:// and gs:// addresses; without any, the sessions that Foldline keeps for you. Nothing is
    sent to a model. What has been replayed is kept: run the same again after Ctrl-C, and it goes on.
    """
    counter_for(exact, None)
    if out is not None:
        _can_be_new(out)
    conditions = Conditions(
        window=window or effective_limit(None, model), max_output_tokens=max_output_tokens, model=model, exact=exact
    )
    if model is not None:
        _warn_of_unknown(model, conditions, window)
    sources = located(sessions or _own_sessions())
    folder = Path(state).expanduser() if state else _state_folder()
    where = _engine(engine, ray_address, workers)
    with _report_when_stopped(folder, fresh=not resume), _progress(where.about) as on_step:
        tuned = find_settings(
            sources,
            conditions,
            engine=where,
            state=folder,
            fresh=not resume,
            min_far=min_far,
            check=check,
            on_step=on_step,
        )
    block = agents_yaml(tuned.chosen.setting, model=model, window=window, comments=block_comments(tuned, conditions))
    if out is not None:
        write_whole(out, block)
        log(f"wrote {out}")
    if as_json:
        json_out(plain_report(tuned, conditions, block, min_far=min_far))
    else:
        print_found(tuned, conditions)
        click.echo(block, nl=False)


def _warn_of_unknown(model: str, conditions: Conditions, window: int | None) -> None:
    """A name with a slip of the pen would pass for a model without a price, and with some window."""
    if lookup(model).known:
        return
    near = nearest(model)
    words = f"model {model!r} is not in the catalogue" + (f", the nearest name is {near!r}" if near else "")
    guessed = "" if window else f"its window is taken to be {conditions.window:,} tokens, and "
    log(f"{words}: {guessed}without its price the bill is in tokens")


@contextmanager
def _report_when_stopped(state: Path, *, fresh: bool) -> Iterator[None]:
    """After Ctrl-C, say how much of the work is stored; if no session was usable, list all with the reasons."""
    try:
        yield
    except KeyboardInterrupt:
        again = "the same command without --fresh" if fresh else "the same command"
        count = trial_count(state)
        log(f"stopped; {plural(count, 'result')} {'is' if count == 1 else 'are'} stored; {again} continues")
        raise click.Abort from None
    except NothingToTune as error:
        if len(error.left_out) > _IN_A_LINE:
            for line in left_out_lines(error.left_out):
                log(line)
        raise


def _can_be_new(path: str) -> None:
    """Settings that are there already are the user's: this command knows but a part of them."""
    check_writable(path)
    if os.path.lexists(path):
        raise InvalidInput("is there already; write to another file, and put the block into yours by hand", place=path)


def _own_sessions() -> tuple[str, ...]:
    """Where Foldline keeps the sessions of this user. Raises InvalidInput where there are none yet."""
    place = store_place(None, os.environ)
    if isinstance(place, Path) and not place.exists():
        raise InvalidInput("no session is named, and none is kept here yet")
    return (str(place),)


def _state_folder() -> Path:
    """The platform's folder for data that can be made again; without platformdirs, that of XDG."""
    try:
        from foldline.store.paths import cache_folder
    except ImportError:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "foldline", "tune")
    return cache_folder() / "tune"


def _engine(name: str, address: str | None, workers: int | None) -> Backend:
    if name == "ray":
        from foldline_bench.tuning.ray_backend import Ray

        return Ray(address or os.environ.get("RAY_ADDRESS") or None, workers)
    if address is not None:
        raise click.UsageError("--ray-address is of use with --engine ray only")
    count = workers or core_count()
    return InProcess() if count == 1 else LocalProcesses(count)


@contextmanager
def _progress(about: str) -> Iterator[Callable[[TuneProgress], None]]:
    """Report progress on stderr: a bar on a terminal, else a line for each part of the work and its quarters."""
    if not sys.stderr.isatty():
        yield _log_step
        return

    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[count]}"), TimeRemainingColumn())
    with Progress(*columns, console=terminal(to_stderr=True), transient=True) as bar:
        task = bar.add_task(f"starting {about}", total=None, count="")
        doing = ""

        def on_step(step: TuneProgress) -> None:
            nonlocal doing
            if step.doing != doing:
                doing = step.doing
                bar.reset(task, total=step.total, description=doing)
            bar.update(task, completed=step.done, count=f"{step.done:,}/{step.total:,}")

        yield on_step


def _log_step(step: TuneProgress) -> None:
    if step.total and not step.done:
        log(f"{step.doing}: {plural(step.total, step.unit)}")
    elif step.total >= _QUARTERED and step.done in {step.total * quarter // 4 for quarter in (1, 2, 3)}:
        log(f"{step.doing}: {step.done:,} of {step.total:,}")
