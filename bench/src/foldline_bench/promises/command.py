"""The command `foldline conformance`: holds any tool to the promises."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence

import click

from foldline.cli.console import Column, log, print_table, terminal, write_whole
from foldline.cli.options import size_list_tokens
from foldline.codecs.dialect import DIALECTS
from foldline.errors import InvalidInput
from foldline.store.files import check_writable
from foldline.text.formatting import plural
from foldline_bench.promises.badge import badge_files, badge_json, badge_svg
from foldline_bench.promises.suite import ConformancePlan, ConformanceReport, PromiseRow, conformance
from foldline_bench.promises.targets.base import Target
from foldline_bench.promises.targets.commands import CommandTarget, PythonTarget
from foldline_bench.promises.targets.local import local_target
from foldline_bench.promises.targets.proxies import OWN_PROXY, ProxyTarget, free_port
from foldline_bench.workers.processes import ended_like_ctrl_c

__all__ = ["conformance_command"]

_STOPPED = 130
_SMALLEST_TOKENS = 2_000
_UPSTREAM_PORT = 8791


def _names(_context: click.Context, _option: click.Parameter, value: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in value.split(",") if name.strip())


@click.command("conformance")
@click.argument("target")
@click.option(
    "--dialect",
    "dialects",
    default="",
    metavar="A,B,...",
    callback=_names,
    help="The dialects that the target speaks. [default: what it says; a proxy is asked]",
)
@click.option(
    "--window",
    "windows",
    default="4k",
    show_default=True,
    metavar="A,B,...",
    callback=size_list_tokens,
    help="Windows in tokens, such as 4k; a proxy has one.",
)
@click.option("--only", default="", metavar="A,B,...", callback=_names, help="Promises, by their names.")
@click.option("--case", "cases", default="", metavar="A,B,...", callback=_names, help="Cases, as the table names them.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Draws other histories.")
@click.option(
    "--sessions", multiple=True, metavar="FILE", type=click.Path(), help="Recorded sessions of your own, too."
)
@click.option(
    "--slack",
    type=click.FloatRange(0.0, 1.0),
    default=0.1,
    show_default=True,
    metavar="SHARE",
    help="How far over the window a target may go that counts by a counter of its own.",
)
@click.option(
    "--seconds",
    type=click.FloatRange(0.1),
    default=60.0,
    show_default=True,
    metavar="S",
    help="Time for one history; a trial has three times as long.",
)
@click.option("--python", metavar="FILE", type=click.Path(), help="Load the target with this interpreter instead.")
@click.option(
    "--upstream-port",
    type=click.IntRange(1, 65_535),
    default=_UPSTREAM_PORT,
    show_default=True,
    help="Of a proxy: where the suite plays its upstream.",
)
@click.option("--start", default="", metavar="COMMAND", help="Of a proxy: starts it; {upstream}, {port}, {window}.")
@click.option("--json", "as_json", is_flag=True, help="Print all rows as JSON instead of the table.")
@click.option("--badge", "badges", multiple=True, metavar="FILE", help="Write a badge: .json (shields.io) or .svg.")
def conformance_command(
    *,
    target: str,
    dialects: tuple[str, ...],
    windows: tuple[int, ...],
    only: tuple[str, ...],
    cases: tuple[str, ...],
    seed: int,
    sessions: tuple[str, ...],
    slack: float,
    seconds: float,
    python: str | None,
    upstream_port: int,
    start: str,
    as_json: bool,
    badges: tuple[str, ...],
) -> int:
    """Hold a tool to the promises of a good context manager, and print which it keeps.

    TARGET is module:name (a function of messages and window, or a class with append and prepare), the URL of a proxy,
    run:COMMAND (JSON lines), adapter:NAME (one of Foldline's), peer:NAME/SETTING (of the bench), foldline, foldline:fit
    or foldline:proxy. Exit code 1: a promise is broken. docs/conformance.md explains each promise.
    """
    plan = ConformancePlan(
        windows=windows, seed=seed, only=only, cases=cases, sessions=sessions, slack=slack, seconds=seconds
    )
    plan.chosen()
    if small := [tokens for tokens in windows if tokens < _SMALLEST_TOKENS]:
        raise InvalidInput(f"{small[0]:,} tokens hold no history: at least {_SMALLEST_TOKENS:,}", place="--window")
    if unknown := [dialect for dialect in dialects if dialect not in DIALECTS]:
        raise InvalidInput(f"no such dialect: {unknown[0]}; there are {', '.join(DIALECTS)}", place="--dialect")
    files = [file for badge in badges for file in badge_files(badge)]
    for file in files:
        check_writable(file)
    with ended_like_ctrl_c():
        try:
            tested = _target(target, dialects, windows, python=python, port=upstream_port, start=start)
            try:
                report = conformance(tested, plan, command=_command(target, dialects, windows, python, start), told=log)
            finally:
                tested.close()
        except KeyboardInterrupt:  # before there was anything to report
            return _STOPPED
    _print(report, as_json=as_json)
    for file in files:
        write_whole(file, badge_svg(report) if file.endswith(".svg") else badge_json(report))
    if report.partial:
        return _STOPPED
    return 1 if any(row.status == "failed" for row in report.rows) else 0


def _target(
    spec: str, dialects: tuple[str, ...], windows: tuple[int, ...], *, python: str | None, port: int, start: str
) -> Target:
    """The target of a name. Raises InvalidInput in one line."""
    is_url = spec.startswith(("http://", "https://"))
    if start and not is_url:
        raise InvalidInput("starts a proxy: TARGET is then its URL", place="--start")
    if is_url or spec == "foldline:proxy":
        if len(windows) != 1:
            raise InvalidInput("a proxy has one window", place="--window")
        if is_url and python:
            raise InvalidInput("loads a target: a proxy runs by itself", place="--python")
        if not is_url:
            own = free_port()
            url = f"http://127.0.0.1:{own}"
            return ProxyTarget(url, window_tokens=windows[0], start=OWN_PROXY, name=spec, dialects=dialects)
        if not start:
            log(f"the proxy's upstream must be http://127.0.0.1:{port}, its window {windows[0]:,} tokens")
        return ProxyTarget(spec, window_tokens=windows[0], upstream_port=port, start=start, dialects=dialects)
    if spec.startswith("run:"):
        return CommandTarget(spec.removeprefix("run:"), dialects)
    return PythonTarget(python, spec, dialects) if python else local_target(spec, dialects)


def _command(target: str, dialects: Sequence[str], windows: Sequence[int], python: str | None, start: str) -> str:
    """What to type for the same target."""
    words = ["foldline", "conformance", target]
    words += ["--python", python] if python else []
    words += ["--start", start] if start else []
    words += ["--dialect", ",".join(dialects)] if dialects else []
    words += ["--window", ",".join(map(str, windows))]
    return shlex.join(words)


def _print(report: ConformanceReport, *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(report.as_json(), indent=2, ensure_ascii=True))
        return
    click.echo(
        f"{report.target} ({report.kind}): {report.passed} of {report.applicable} promises kept over "
        f"{plural(report.histories, 'session')} and {plural(report.requests, 'request')}; "
        f"{', '.join(report.dialects)}; "
        f"window {', '.join(f'{tokens:,}' for tokens in report.windows)}; seed {report.seed}"
        + (f"; slack {report.slack:.0%}" if report.slack else "")
        + ("; stopped" if report.partial else "")
    )
    print_table(
        terminal(),
        [
            Column("promise", [row.promise for row in report.rows], left=True),
            Column("result", [_result(row) for row in report.rows], left=True),
            Column("says", [row.about for row in report.rows], left=True, group="says"),
        ],
        ["says"],
    )
    for row in report.rows:
        if row.status == "failed":
            click.echo(f"\n{row.promise}: {row.first_case}, {row.first_fault}\n  {row.reproduce}")


def _result(row: PromiseRow) -> str:
    if row.status == "failed":
        return f"failed {row.failed} of {row.cases}"
    return f"passed {row.cases}" if row.status == "passed" else row.status
