"""The command that finds the settings that suit a user's own sessions."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import click

from foldline.bench.tuning import Conditions, Engine, Figures, InProcess, Local, Span, Step, Tuned, agents_yaml, located
from foldline.bench.tuning import tune as find_settings
from foldline.bench.tuning.candidates import OURS, own_figures
from foldline.bench.tuning.engines import core_count
from foldline.errors import InvalidInput
from foldline.interfaces.chat.plain import plain_line
from foldline.interfaces.cli_files import can_hold, json_out, log, terminal, write_whole
from foldline.interfaces.cli_requests import counter_for
from foldline.interfaces.session_choice import in_one_line, place_of
from foldline.report.words import DASH, compact, money, plural, share
from foldline.settings import effective_limit

__all__ = ["tune"]

_TOLD: Final = 3
"""Sessions left out that are named; of more only the number is told."""


@click.command()
@click.argument("sessions", metavar="[SESSIONS]...", nargs=-1, type=click.Path())
@click.option("--window", type=click.IntRange(min=1), metavar="N", help="Tokens; the model's by default.")
@click.option("--max-output-tokens", type=click.IntRange(min=0), metavar="N", help="Kept free for the answer.")
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
    sources = located(sessions or _kept())
    with _progress() as on_step:
        tuned = find_settings(
            sources,
            conditions,
            engine=_engine(engine, ray_address, workers),
            state=Path(state).expanduser() if state else _state_folder(),
            fresh=not resume,
            min_far=min_far,
            on_step=on_step,
        )
    block = agents_yaml(tuned.chosen.setting, model=model, window=window, comments=_comments(tuned, conditions))
    if out is not None:
        write_whole(out, block)
        log(f"wrote {out}")
    if as_json:
        json_out(_report(tuned, conditions, block))
    else:
        _print(tuned, conditions, block)


def _can_be_new(path: str) -> None:
    """Settings that are there already are the user's: this command knows but a part of them."""
    can_hold(path)
    if os.path.lexists(path):
        raise InvalidInput("is there already; write to another file, and put the block into yours by hand", place=path)


def _kept() -> tuple[str, ...]:
    """Where Foldline keeps the sessions of this user. Raises InvalidInput where there are none yet."""
    place = place_of(None, os.environ)
    if isinstance(place, Path) and not place.exists():
        raise InvalidInput("no session is named, and none is kept here yet")
    return (str(place),)


def _state_folder() -> Path:
    """The folder of the platform for what can be had again; without platformdirs the one of XDG."""
    try:
        from foldline.store.places import cache_folder
    except ImportError:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "foldline", "tune")
    return cache_folder() / "tune"


def _engine(name: str, address: str | None, workers: int | None) -> Engine:
    if name == "ray":
        from foldline.bench.tuning.on_ray import Ray

        return Ray(address or os.environ.get("RAY_ADDRESS") or None, workers)
    if address is not None:
        raise click.UsageError("--ray-address is of use with --engine ray only")
    count = workers or core_count()
    return InProcess() if count == 1 else Local(count)


@contextmanager
def _progress() -> Iterator[Callable[[Step], None]]:
    """Say how far it is on stderr: a bar on a terminal, else a line for each part of the work."""
    if not sys.stderr.isatty():
        yield (
            lambda step: log(f"{step.doing}: {plural(step.total, step.unit)}") if step.done == step.total > 0 else None
        )
        return

    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=terminal(to_stderr=True), transient=True) as bar:
        task = bar.add_task("starting", total=None)
        doing = ""

        def on_step(step: Step) -> None:
            nonlocal doing
            if step.doing != doing:
                doing = step.doing
                bar.reset(task, total=step.total, description=doing)
            bar.update(task, completed=step.done)

        yield on_step


# --- what is told -----------------------------------------------------------------------------------------------------


def _print(tuned: Tuned, conditions: Conditions, block: str) -> None:
    console = terminal()
    for line in _about(tuned, conditions):
        console.print(line, soft_wrap=True)
    console.print()
    console.print(_table(tuned))
    console.print()
    for line in _legend(tuned):
        console.print(line, style="dim")
    console.print()
    console.print(f"chosen: {tuned.chosen.setting.name}\n({tuned.why})\n", soft_wrap=True)
    click.echo(block, nl=False)


def _about(tuned: Tuned, conditions: Conditions) -> Iterator[str]:
    requests = sum(tuned.requests.values())
    yield (
        f"{plural(len(tuned.looks), 'session')}, {plural(requests, 'request')}; window {conditions.window:,} tokens; "
        f"prices of {_models(tuned, conditions)}"
    )
    yield f"{tuned.settings} settings tried; {tuned.unfit} of them broke the window or a rule"
    yield (
        f"{plural(tuned.replayed, 'replay')} run, {tuned.known:,} known from before; "
        f"all settings on all sessions would be {tuned.whole:,}"
    )
    for one in tuned.left_out[:_TOLD]:
        yield plain_line(f"left out: {one.place}: {one.reason}", 300)
    if len(tuned.left_out) > _TOLD:
        yield f"left out: {len(tuned.left_out) - _TOLD} more"


def _models(tuned: Tuned, conditions: Conditions) -> str:
    names = {conditions.model or look.model or "an unknown model" for look in tuned.looks}
    return ", ".join(plain_line(name, 60) for name in sorted(names))


def _table(tuned: Tuned) -> Any:
    from rich.table import Table

    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="bold")
    heads = ("", "policy", "trig-\nger", "land-\ning", "keep", "on\narrival", "cost", "", "far", "", "bill")
    for number, head in enumerate(heads):
        table.add_column(head, justify="left" if number in {0, 1} else "right", vertical="bottom", no_wrap=True)
    for figures in tuned.front:
        table.add_row(*_row(figures, chosen=figures is tuned.chosen))
    table.add_row(*_row(tuned.none, chosen=False))
    return table


def _row(figures: Figures, *, chosen: bool) -> tuple[str, ...]:
    setting = figures.setting
    own: tuple[str, ...] = ("", "", "", "")
    if setting.policy in OURS:
        values = own_figures(setting.value())
        arrival = f"{values['arrival_share']:.2f}+{values['arrival_of_result']:.2f}"
        own = (*(share(values[name]) for name in ("trigger", "landing", "keep")), arrival)
    return (
        ">" if chosen else "",
        setting.policy,
        *own,
        share(figures.cost.value),
        _interval(figures.cost),
        share(figures.far.value if figures.far else None),
        _interval(figures.far),
        _bill(figures),
    )


def _interval(span: Span | None) -> str:
    return DASH if span is None or span.low == span.high else f"{span.low:.2f}-{span.high:.2f}"


def _bill(figures: Figures) -> str:
    """The whole bill in money, else the price of the input in tokens."""
    if figures.input_usd is None or figures.reply_usd is None:
        return compact(figures.cost_tokens)
    return money(figures.input_usd.value + figures.reply_usd)


def _legend(tuned: Tuned) -> Iterator[str]:
    none = tuned.none
    yield "cost  input price with prompt caching, all sessions together, against none"
    yield "far   of names in replies that last stood far back, the share still sent:"
    yield f"      mean over the {plural(tuned.telling, 'session')} with 3 or more; ranges are 95 % intervals"
    if none.reply_usd is not None:
        yield "bill  expected for these sessions together, at the catalogue's prices;"
        yield f"      {_replies(tuned)}"
    else:
        yield "bill  input in tokens at the full price: no price is known; name a --model"
    yield "on arrival: what a result may take of the room that is left, + of its own size"
    if none.over_budget:
        yield f"none: {none.over_budget:,} of its requests would not fit into the window"
    if not tuned.telling:
        yield "no session has far references enough: only the cost was compared"


def _replies(tuned: Tuned) -> str:
    """What of a bill is for replies: the recorded ones, so that only a price step of long requests can change it."""
    found = [each.reply_usd for each in (*tuned.front, tuned.none) if each.reply_usd is not None]
    least, most = money(min(found)), money(max(found))
    if least == most:
        return f"{least} of it is for the replies, the same for all"
    return f"{least} to {most} of it is for the same replies, dearer to long requests"


def _comments(tuned: Tuned, conditions: Conditions) -> tuple[str, ...]:
    best = tuned.chosen
    far = "not measurable" if best.far is None else f"{best.far.value:.2f}"
    return (
        f"foldline tune: {plural(len(tuned.looks), 'session')} at a window of {conditions.window:,} tokens.",
        f"Input costs {best.cost.value:.2f} of no management; far recall {far}.",
        "Measured without a model that sums up: hence no summariser.",
    )


def _report(tuned: Tuned, conditions: Conditions, block: str) -> dict[str, Any]:
    return {
        "window": conditions.window,
        "models": sorted({conditions.model or look.model or "" for look in tuned.looks}),
        "sessions": [
            {
                "place": look.source.shown,
                "sha256": look.sha256,
                "name": look.name,
                "requests": tuned.requests[look.sha256],
            }
            for look in tuned.looks
        ],
        "left_out": [{"place": one.place, "reason": one.reason} for one in tuned.left_out],
        "replays": {"run": tuned.replayed, "known": tuned.known, "all_on_all": tuned.whole},
        "settings": tuned.settings,
        "unfit": tuned.unfit,
        "none": tuned.none.as_json(),
        "front": [figures.as_json() for figures in tuned.front],
        "chosen": {**tuned.chosen.as_json(), "why": tuned.why},
        "agents_yaml": block,
    }
