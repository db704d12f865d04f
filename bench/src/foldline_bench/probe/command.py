"""The options of `foldline bench --probe`, and its run."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from typing import Any, Final, TypeVar, cast

import click
from click.core import ParameterSource

from foldline.catalog.models import lookup
from foldline.cli.console import log, terminal, write_whole
from foldline.cli.options import size_tokens
from foldline.errors import FoldlineError, InvalidInput
from foldline.providers.embedded import WINDOW_TOKENS, weights
from foldline.providers.endpoint import endpoint_from_environment
from foldline.providers.selection import ModelPreference, select_model
from foldline.store.files import check_writable
from foldline.text.formatting import plural
from foldline_bench.printing import draw, rounded
from foldline_bench.probe.bill import bill_of
from foldline_bench.probe.run import Judge, PreparedProbe, ProbePlan, ProbeStep, prepare_probe, run_probe
from foldline_bench.probe.table import PROBE_LEGEND, answers_table, bill_table, probe_heading, probe_notes
from foldline_bench.probe.values import ProbeResult
from foldline_bench.session_inputs import counts_exactly, session_paths
from foldline_bench.table import widths
from foldline_bench.workers.processes import ended_like_ctrl_c

__all__ = ["PROBED_SYSTEMS", "probed"]

PROBED_SYSTEMS: Final = ("balanced", "economical", "quality")
"""The systems of a probe if none is named: each more costs as many requests again."""

_STOPPED: Final = 130
_QUESTIONS: Final = 60
_DIALECT: Final = "openai-chat"  # of requests that are only counted

# What else a probe takes of the options of the bench: all others are about what it does not measure.
_SHARED: Final = frozenset({"sessions", "budgets", "systems", "estimate", "json_file"})

Command = TypeVar("Command", bound=Callable[..., Any])


def probed(command: Command) -> Command:
    """Add the options of a probe. With `--probe` the probe runs instead of the command, which receives none of them."""

    @click.option("--probe", is_flag=True, help="Instead: ask a model questions about what each system keeps.")
    @click.option("--probe-cost", is_flag=True, help="Only print what that would cost. Sends nothing.")
    @click.option(
        "--probe-questions",
        type=click.IntRange(min=1),
        default=_QUESTIONS,
        show_default=True,
        metavar="N",
        help="Questions; each is asked once for each system and budget, the whole session and nothing.",
    )
    @click.option("--probe-model", metavar="NAME", help="The model that answers; a .gguf file is loaded here.")
    @click.option(
        "--probe-provider", metavar="NAME", help="openai, anthropic, ollama, embedded, …; detected by default."
    )
    @click.option("--probe-base-url", metavar="URL", help="The address of any compatible server.")
    @click.option("--probe-key-env", metavar="NAME", help="The variable with the key, instead of the usual one.")
    @click.option(
        "--probe-window", metavar="N", callback=size_tokens, help="The window of the model; known by default."
    )
    @click.option("--probe-seed", type=int, default=1, show_default=True, metavar="N", help="Draws other questions.")
    # click reads the name and help text of a command from the wrapped function.
    @wraps(command)
    def run(*, probe: bool, probe_cost: bool, **named: Any) -> Any:
        own = {name: named.pop(name) for name in [*named] if name.startswith("probe_")}
        if not (probe or probe_cost):
            _refuse(lambda name: name.startswith("probe_"), "is of use with --probe only")
            return command(**named)
        _refuse(lambda name: not name.startswith("probe") and name not in _SHARED, "is of no use with --probe")
        return _probe(only_cost=probe_cost, **own, **{name: named[name] for name in _SHARED})

    return cast(Command, run)


def _refuse(wrong: Callable[[str], bool], why: str) -> None:
    """Refuse options that were given and would be ignored."""
    context = click.get_current_context()
    for option in context.command.params:
        given = context.get_parameter_source(option.name or "") is ParameterSource.COMMANDLINE
        if given and option.name is not None and wrong(option.name):
            raise click.UsageError(f"{option.opts[0]} {why}")


def _probe(
    *,
    only_cost: bool,
    probe_questions: int,
    probe_model: str | None,
    probe_provider: str | None,
    probe_base_url: str | None,
    probe_key_env: str | None,
    probe_window: int | None,
    probe_seed: int,
    sessions: tuple[str, ...],
    budgets: tuple[int, ...],
    systems: tuple[str, ...],
    estimate: bool,
    json_file: str | None,
) -> None:
    if json_file is not None:
        check_writable(json_file)
    paths, found = session_paths(sessions)
    plan = ProbePlan(
        paths=paths,
        found=found,
        budgets_tokens=tuple(sorted(set(budgets))),
        systems=systems or PROBED_SYSTEMS,
        questions=probe_questions,
        seed=probe_seed,
        exact=not estimate and counts_exactly(),
    )
    preference = ModelPreference(
        provider=probe_provider,
        model=probe_model,
        base_url=probe_base_url,
        api_key_env=probe_key_env,
        window=probe_window,
    )
    if only_cost:
        _print_bill(prepare_probe(plan, _named_judge(preference, os.environ)), json_file)
        return
    with ended_like_ctrl_c():
        _ask(plan, preference, json_file)


# --- the cost ---------------------------------------------------------------------------------------------------------


def _named_judge(preference: ModelPreference, environ: Mapping[str, str]) -> Judge:
    """Return the judge that would be asked, without asking anybody. Raises InvalidInput if that is not certain."""
    if preference.provider == "embedded":
        return Judge("embedded", weights(preference.model).model, _DIALECT, preference.window or WINDOW_TOKENS)
    endpoint = None
    if preference.base_url is None and preference.model is None:
        endpoint = endpoint_from_environment(environ, name=preference.provider)
    name = preference.model or (endpoint.model if endpoint is not None else "")
    if not (name or preference.window):
        raise InvalidInput("name the model whose window and price are meant, or --probe-window", place="--probe-model")
    known = lookup(name)
    if preference.window is None and known.warning is not None:
        log(known.warning)
    provider = preference.provider or (endpoint.name if endpoint is not None else "")
    return Judge(provider, name, _DIALECT, preference.window or known.window_tokens)


def _print_bill(prepared: PreparedProbe, json_file: str | None) -> None:
    bill = bill_of(prepared)
    table, lines = bill_table(bill)
    console = terminal()
    console.print(probe_heading(prepared.result(), asked=False), style="bold", soft_wrap=True)
    console.print()
    draw(console, table)
    for line in lines:
        console.print(line, soft_wrap=True)
    if json_file is not None:
        written = {name: getattr(bill, name) for name in bill.__slots__}
        _write(json_file, {"bill": written, "questions": prepared.result()["questions"]})


# --- the run ----------------------------------------------------------------------------------------------------------


def _ask(plan: ProbePlan, preference: ModelPreference, json_file: str | None) -> None:
    """Ask, print and write, also what was answered before an interrupt or a lasting error."""
    prepared: list[PreparedProbe] = []
    stopped, interrupted = "", False
    try:
        with _progress() as on_step:
            stopped = asyncio.run(_asked(plan, preference, prepared, on_step))
    except KeyboardInterrupt:
        if not (prepared and any(run["answers"] for run in prepared[0].runs)):
            log("stopped; no question had been answered, and nothing is saved")
            raise
        interrupted = True
    result = prepared[0].result(stopped=stopped)
    if any(run["answers"] for run in result["runs"]):
        if json_file is not None:
            _write(json_file, result)
        _print(result)
    if interrupted:
        saved = "" if json_file else " and are not saved (--json saves them)"
        log(f"stopped; the figures are those of the questions answered so far{saved}")
        click.get_current_context().exit(_STOPPED)
    if stopped:
        raise FoldlineError(f"the probe was ended by an error of the provider: {stopped}")


async def _asked(
    plan: ProbePlan,
    preference: ModelPreference,
    prepared: list[PreparedProbe],
    on_step: Callable[[ProbeStep], None],
) -> str:
    selected = await select_model(preference, os.environ)
    provider = selected.provider
    try:
        log(f"{selected.line}; parts of the sessions are sent to it")
        if not selected.summaries:
            log(f"{provider.model} is too small to answer: its figures show that the probe runs, and nothing else")
        known = lookup(provider.model)
        window = preference.window or await provider.window_tokens() or known.window_tokens
        if not (preference.window or known.known) and window == known.window_tokens and known.warning is not None:
            log(known.warning)
        judge = Judge(provider.name, provider.model, provider.dialect, window)
        prepared.append(prepare_probe(plan, judge))
        return await run_probe(prepared[0], provider, on_step)
    finally:
        await provider.aclose()


@contextmanager
def _progress() -> Iterator[Callable[[ProbeStep], None]]:
    """Report progress on stderr: a bar on a terminal, else a line at each tenth; waits for a busy server in both."""
    if not sys.stderr.isatty():
        yield _log_step
        return

    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=terminal(to_stderr=True), transient=True) as bar:
        task = bar.add_task("reading the sessions", total=None)

        def on_step(step: ProbeStep) -> None:
            if step.retry is not None:
                bar.console.print(_waiting(step))
            else:
                bar.update(task, description=step.system, completed=step.done, total=step.total)

        yield on_step


def _log_step(step: ProbeStep) -> None:
    if step.retry is not None:
        log(_waiting(step))
    elif step.done in {step.total * tenth // 10 for tenth in range(1, 10)} and step.total >= 10:
        log(f"{step.done:,} of {plural(step.total, 'answer')}")


def _waiting(step: ProbeStep) -> str:
    retry = step.retry
    return "" if retry is None else f"waiting {retry.wait_seconds:.0f} s: {retry.reason}"


def _print(result: ProbeResult) -> None:
    console, table = terminal(), answers_table(result)
    # rich would cut cells. A narrower terminal wraps the lines, and a file has them whole.
    console.width = max(console.width, sum(widths(table)) + len(table.heads))
    console.print(probe_heading(result), style="bold", soft_wrap=True)
    console.print()
    draw(console, table)
    for note in probe_notes(result):
        console.print(note, style="dim", soft_wrap=True)
    console.print()
    console.print(PROBE_LEGEND, style="dim", soft_wrap=True)


def _write(file: str, value: Any) -> None:
    write_whole(file, json.dumps(rounded(value), ensure_ascii=False, separators=(",", ":")) + "\n")
    log(f"wrote {file}")
