"""The command that makes a page on sessions: what was sent, folded and hidden, and what it cost."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import click

from foldline.cli.files import log, read_history, sessions_in
from foldline.cli.report_reading import Reading, Replayed, Wanted, replayed_account
from foldline.cli.requests import placed
from foldline.cli.token_sizes import size_tokens
from foldline.engine.policy import POLICIES
from foldline.errors import InvalidInput
from foldline.hosting.session_choice import where_option
from foldline.replay import policy_named
from foldline.report.account import Account
from foldline.report.sessions_page import LeftOut, sessions_page
from foldline.store.files import can_hold
from foldline.text.formatting import plural

__all__ = ["report"]

_STDOUT: Final = "-"

_FILE: Final = "foldline-report.html"
_ENDINGS: Final = (".json", ".jsonl", ".ndjson", ".gz")


def _since(context: click.Context, option: click.Parameter, value: str | None) -> datetime | None:
    """A day (from its midnight here) or a time, in ISO 8601; without an offset it is the time of this place."""
    if value is None:
        return None
    try:
        return datetime.fromisoformat(value).astimezone(UTC)
    except (ValueError, OverflowError):
        raise click.BadParameter(f"{value!r} is no day such as 2026-11-28", context, option) from None


def _policy(context: click.Context, option: click.Parameter, value: str) -> str:
    try:
        return policy_named(value)
    except InvalidInput as error:
        raise click.BadParameter(error.reason, context, option) from None


@click.command()
@click.argument("sessions", metavar="[SESSION|FILE|FOLDER]...", nargs=-1, type=click.Path())
@click.option("--since", metavar="DATE", callback=_since, help="Only kept sessions that were written on it or later.")
@click.option("--model", metavar="NAME", help="Price all as this model; each session's own by default.")
@click.option(
    "--policy",
    default="balanced",
    show_default=True,
    metavar="NAME",
    callback=_policy,
    help=f"FILEs are replayed under it: none, {', '.join(POLICIES)}.",
)
@click.option(
    "--window", metavar="N", callback=size_tokens, help="The window of FILEs, such as 16k; the model's by default."
)
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    type=click.Path(),
    default=_FILE,
    show_default=True,
    help="Where the page is written, for you alone to read; - is standard output.",
)
@click.option("--open", "opened", is_flag=True, help="Show the page in the browser.")
@click.option("--store", metavar="PLACE", help="Where sessions are kept, as for `foldline sessions`.")
@click.option("--home", metavar="DIR", type=click.Path(), help="Where Foldline keeps its files.")
def report(
    *,
    sessions: tuple[str, ...],
    since: datetime | None,
    model: str | None,
    policy: str,
    window: int | None,
    output: str,
    opened: bool,
    store: str | None,
    home: str | None,
) -> None:
    """Write a page on sessions: context over time, folds and why, what is hidden, and the bill with and without.

    SESSION is an id, the beginning of one, "latest", or ID/agents/ID; without any, all that are kept. A FILE is a
    recorded session, as `foldline replay` reads it; a FOLDER holds such files. The page is one file that only you can
    read; it needs no network.
    """
    if output == _STDOUT and opened:
        raise click.UsageError("--open needs a file, not standard output")
    can_hold(output)
    folders = [name for name in sessions if _is_folder(name)]
    files = [name for name in sessions if _is_file(name)]
    named = [name for name in sessions if name not in (*files, *folders)]
    if since is not None and (files or folders) and not named:
        raise click.UsageError("--since is about kept sessions, and only files are named")
    left_out: list[LeftOut] = []
    how = Replayed(policy, window, model)
    accounts = [_of_file(file, how) for file in files]
    accounts += [account for folder in folders for account in _of_folder(folder, how, left_out)]
    if named or not (files or folders):
        wanted = Wanted(named=tuple(named), since=since, model=model, store_named=store is not None, home=home)
        read: Callable[..., None] = where_option("--store")(Reading(wanted, accounts, left_out).read)
        read(store=store, home=home)
    page = sessions_page(accounts, left_out=left_out, made=f"{datetime.now():%Y-%m-%d %H:%M}")
    if output == _STDOUT:
        _print(page)
        return
    _write(output, page)
    log(f"wrote {output}, {plural(len(accounts), 'session')}")
    if opened:
        _show(output)


def _print(text: str) -> None:
    """Print a text as UTF-8, whatever the terminal takes."""
    rest = memoryview(text.encode())
    while rest:  # unbuffered (PYTHONUNBUFFERED), a write may take a part only
        rest = rest[sys.stdout.buffer.write(rest) :]


def _is_file(name: str) -> bool:
    return os.path.isfile(name) or name.endswith(_ENDINGS)


def _is_folder(name: str) -> bool:
    """Whether it is a folder of files; that of a kept session is not, so that its id is one wherever one stands."""
    from foldline.store.session import LOG

    return os.path.isdir(name) and not os.path.isfile(os.path.join(name, LOG))


def _of_folder(folder: str, how: Replayed, left_out: list[LeftOut]) -> Iterator[Account]:
    """The sessions in the files of a folder; those that cannot be read are left out. Raises InvalidInput for none."""
    from foldline.store.folders import FileStore

    if FileStore(folder).names():
        raise InvalidInput(f"holds kept sessions: foldline report --store {shlex.quote(folder)}", place=folder)
    before, found = len(left_out), 0
    for file in sessions_in(folder):
        try:
            account = _of_file(file, how)
        except InvalidInput as error:
            left_out.append(LeftOut(file, error.reason))
            log(f"left out: {error}")
            continue
        found += 1
        yield account
    if not found:
        raise InvalidInput(f"none of its {plural(len(left_out) - before, 'file')} can be read", place=folder)


def _of_file(file: str, how: Replayed) -> Account:
    session = read_history(file, None, lenient=True)
    try:
        return replayed_account(session, file, how)
    except InvalidInput as error:
        raise placed(error, file) from error


def _write(path: str, text: str) -> None:
    from foldline.store.files import write_whole

    try:
        write_whole(Path(path), [text.encode()])
    except OSError as error:
        raise InvalidInput(f"cannot be written: {error.strerror or error}", place=path) from None


def _show(path: str) -> None:
    import webbrowser

    if not webbrowser.open(Path(path).resolve().as_uri()):
        log("no browser could be opened")
