"""The command `foldline replay`: recorded sessions under each policy, as a table, JSON or a page."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final

import click

from foldline.catalog.models import CACHE_RULES
from foldline.cli.console import json_out, log, terminal, write_whole
from foldline.cli.histories import STDIN, counter_for, read_history, with_file
from foldline.cli.options import size_or_none_tokens, size_tokens
from foldline.codecs import DIALECTS
from foldline.engine.presets import POLICIES
from foldline.errors import InvalidInput
from foldline.replay import NONE, MeasuredSession, Replay, Turn, policy_named
from foldline.replay import replay as replay_session
from foldline.replay.recall import FAR_MESSAGES, FAR_TOKENS
from foldline.replay.results import ENOUGH
from foldline.replay.rows import PolicyRow, rows
from foldline.report.replay_page import limits, replay_page
from foldline.store.files import check_writable
from foldline.text.formatting import compact, milliseconds, plural, share
from foldline.tokens import Counter

__all__ = ["replay"]

_ALL: Final = "all"

# To add a column, add a field to `PolicyRow` and a row here. With figures of usual size the table has 79 characters,
# which fit the usual terminal of 80.
_COLUMNS: Final[tuple[tuple[str, Callable[[PolicyRow], str]], ...]] = (
    ("policy", lambda row: row.policy),
    ("cost", lambda row: share(row.cost_ratio)),
    ("near\nline", lambda row: share(row.near_line)),
    ("far", lambda row: share(row.far)),
    ("far\nline", lambda row: share(row.line)),
    ("re-\nread", lambda row: share(row.rereads_high)),
    ("in-\nvalid", lambda row: f"{row.invalid:,}"),
    ("over\nlimit", lambda row: f"{row.over_budget:,}"),
    ("re-\nfused", lambda row: f"{row.refused:,}"),
    ("prefix\nbreaks", lambda row: f"{row.prefix_breaks:,}"),
    ("folds", lambda row: f"{row.folds:,}"),
    ("tokens\nsent", lambda row: compact(row.tokens)),
    ("ms\np95", lambda row: milliseconds(row.cpu_p95_seconds)),
)

_LEGEND: Final = f"""\
cost  input price with prompt caching, against none: the median session
far   of what replies name and last stood {FAR_TOKENS:,} tokens and {FAR_MESSAGES} messages back or
      more, the share still sent; far line: its whole line; near line: the same
      of what stood nearer, by the most that any request of this size can show
      (means over sessions with {ENOUGH} or more such references)
re-   messages that a request lacks a line of and its reply uses, for each
read  request: so often would the agent have to read again
ms    CPU time of append and prepare; 95 % of the requests stay within it"""


def _policies(_context: click.Context, _option: click.Parameter, value: str) -> tuple[str, ...]:
    """Parse the policies to replay: each once, after no management."""
    names = [name.strip() for name in value.split(",") if name.strip()]
    if not names:
        raise InvalidInput(f"none given; known are {', '.join((NONE, *POLICIES))}", place="policy")
    named = [each for name in names for each in (POLICIES if name == _ALL else (policy_named(name),))]
    # No management goes first: costs are relative to it.
    return tuple(dict.fromkeys((NONE, *named)))


@click.command()
@click.argument("files", metavar="FILES...", nargs=-1, required=True, type=click.Path())
@click.option(
    "--policy",
    "policies",
    default="balanced",
    show_default=True,
    metavar="A,B,...",
    callback=_policies,
    help=f"One or more of {', '.join(POLICIES)}; or {_ALL}. No management is always added.",
)
@click.option(
    "--window", default="128k", show_default=True, metavar="N", callback=size_tokens, help="Tokens, such as 16k or 1m."
)
@click.option(
    "--max-output-tokens",
    default="0",
    show_default=True,
    metavar="N",
    callback=size_or_none_tokens,
    help="Reserved for the reply.",
)
@click.option(
    "--prices",
    type=click.Choice(tuple(CACHE_RULES)),
    default="anthropic",
    show_default=True,
    help="Whose prompt cache prices the requests.",
)
@click.option("--dialect", type=click.Choice(DIALECTS), help="The form of the messages; detected by default.")
@click.option("--exact", is_flag=True, help="Count with a real vocabulary (needs the extra `exact`).")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON report instead of the table.")
@click.option("--html", metavar="FILE", type=click.Path(), help="Write a page with charts, folds marked.")
def replay(
    *,
    files: tuple[str, ...],
    policies: tuple[str, ...],
    window: int,
    max_output_tokens: int,
    prices: str,
    dialect: str | None,
    exact: bool,
    as_json: bool,
    html: str | None,
) -> None:
    """Replay recorded sessions, one request for every recorded reply.

    Each of FILES (.gz too) is a session object, a list of messages, or a session of Claude Code or Codex. Nothing is
    sent anywhere: the replies are the recorded ones, whatever a policy folds.
    """
    if max_output_tokens >= window:
        raise click.UsageError(f"--max-output-tokens {max_output_tokens:,} leaves no room in --window {window:,}")
    if html is not None:
        check_writable(html)
    # All files are read first: a bad one is an error now, not after minutes of replay.
    recordings = _recordings(files, dialect, counter_for(exact, None))
    replays: list[Replay] = []
    with _progress(recordings, policies) as (on_session, on_turn):
        for number, recording in enumerate(recordings):
            on_session(number)
            replays += [
                replay_session(
                    recording,
                    policy,
                    window=window,
                    max_output_tokens=max_output_tokens,
                    rule=CACHE_RULES[prices],
                    on_turn=on_turn,
                )
                for policy in policies
            ]
    if html is not None:
        write_whole(html, replay_page(replays, prices=prices))
        log(f"wrote {html}")
    if as_json:
        json_out(_report(replays, prices, recordings))
    else:
        _print_table(replays, prices, recordings)


def _recordings(files: Sequence[str], dialect: str | None, counter: Counter) -> list[MeasuredSession]:
    """Read all sessions. A second one of the same name gets a number.

    Damaged parts of a file are left out and named; so is a file without any sound part, if there are others. Raises
    InvalidInput if nothing is left.
    """
    used: dict[str, int] = {}
    out: list[MeasuredSession] = []
    refused: InvalidInput | None = None
    for file in files:
        try:
            session = read_history(file, dialect, lenient=True)
            used[session.name] = times = used.get(session.name, 0) + 1
            named = session if times == 1 else replace(session, name=f"{session.name} ({times})")
            out.append(MeasuredSession(named, counter))
        except InvalidInput as error:
            # A missing file is a typo, and worth an error. A damaged one says something about the recording, and must
            # not keep the others from being replayed.
            if file != STDIN and not os.path.isfile(file):
                raise
            located = with_file(error, file)
            refused = refused or located
            if len(files) > 1:
                log(f"left out: {located}")
    if not out and refused is not None:
        raise refused
    return out


@contextmanager
def _progress(
    recordings: Sequence[MeasuredSession], policies: Sequence[str]
) -> Iterator[tuple[Callable[[int], None], Callable[[Turn], None]]]:
    """Report progress on standard error: a bar on a terminal, else a line for each session."""
    if not sys.stderr.isatty():
        log(f"replaying {plural(len(recordings), 'session')} under {', '.join(policies)}")

        def log_session(number: int) -> None:
            one = recordings[number]
            log(f"{number + 1}/{len(recordings)} {one.session.name}: {plural(len(one.replies), 'request')}")

        yield log_session, lambda _turn: None
        return

    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=terminal(to_stderr=True), transient=True) as bar:
        # Counted in requests, as sessions differ in length by a factor of a hundred.
        total = sum(len(recording.replies) for recording in recordings) * len(policies)
        task = bar.add_task("replaying", total=total)
        yield (
            lambda number: bar.update(task, description=f"session {number + 1}/{len(recordings)}"),
            lambda _turn: bar.advance(task),
        )


def _print_table(replays: Sequence[Replay], prices: str, recordings: Sequence[MeasuredSession]) -> None:
    from rich.table import Table

    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="bold")
    for number, (name, _) in enumerate(_COLUMNS):
        table.add_column(name, justify="right" if number else "left", vertical="bottom", no_wrap=True)
    for row in rows(replays):
        table.add_row(*(cell(row) for _, cell in _COLUMNS))
    console = terminal()
    # On standard output too: a table in a file must say what it was measured under.
    console.print(_conditions(replays, prices))
    unread = sum(len(recording.session.unread) for recording in recordings)
    if unread:
        console.print(f"damaged: {plural(unread, 'place')} left out (named on standard error)")
    console.print()
    console.print(table)
    console.print()
    console.print(_LEGEND, style="dim")


def _conditions(replays: Sequence[Replay], prices: str) -> str:
    sessions = {replay.session: replay.requests for replay in replays}
    one = replays[0]
    size = f"{plural(len(sessions), 'session')}, {plural(sum(sessions.values()), 'request')}"
    return f"{size}; {limits(replays)}\nsizes by {one.counter}, cache prices of {prices}"


def _report(replays: Sequence[Replay], prices: str, recordings: Sequence[MeasuredSession]) -> dict[str, Any]:
    unread = {recording.session.name: recording.session.unread for recording in recordings}
    by_session: dict[str, list[Replay]] = {}
    for each in replays:
        by_session.setdefault(each.session, []).append(each)
    one = replays[0]
    return {
        "window": one.window,
        "limit": one.limit_tokens,
        "kept_to": next((each.kept_tokens for each in replays if each.kept_tokens is not None), None),
        "prices": prices,
        "counter": one.counter,
        "policies": [row.as_json() for row in rows(replays)],
        "sessions": [
            {
                "name": name,
                "dialect": own[0].dialect,
                "requests": own[0].requests,
                "recorded_tokens": own[0].recorded_tokens,
                "left_out": [str(one) for one in unread[name]],
                "policies": [row.as_json() for row in rows(own)],
            }
            for name, own in by_session.items()
        ],
    }
