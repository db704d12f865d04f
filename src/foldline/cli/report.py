"""The command that makes a page on sessions: what was sent, folded and hidden, and what it cost."""

from __future__ import annotations

import os
import shlex
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from foldline.catalog.models import lookup
from foldline.cli.files import log, read_history, sessions_in, terminal
from foldline.cli.options import size_tokens
from foldline.cli.requests import placed
from foldline.engine.presets import POLICIES
from foldline.errors import FoldlineError, InvalidInput
from foldline.hosting.session_choice import OpenedStore, SelectedSession, select_session, store_options, with_agents
from foldline.recorded.sessions import Session
from foldline.replay import MeasuredSession, policy_named
from foldline.report.account import Account, account_of_replay
from foldline.report.sessions_page import DETAILED, SkippedSession, sessions_page
from foldline.store.files import check_writable
from foldline.text.formatting import plain_line, plural
from foldline.view.transcript import active

if TYPE_CHECKING:
    from foldline.store.calls import RecordedCall

__all__ = ["ReplayOptions", "ReportSelection", "StoreReader", "replayed_account", "report"]

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
    check_writable(output)
    folders = [name for name in sessions if _is_folder(name)]
    files = [name for name in sessions if _is_file(name)]
    named = [name for name in sessions if name not in (*files, *folders)]
    if since is not None and (files or folders) and not named:
        raise click.UsageError("--since is about kept sessions, and only files are named")
    left_out: list[SkippedSession] = []
    how = ReplayOptions(policy, window, model)
    accounts = [_of_file(file, how) for file in files]
    accounts += [account for folder in folders for account in _of_folder(folder, how, left_out)]
    if named or not (files or folders):
        wanted = ReportSelection(named=tuple(named), since=since, model=model, store_named=store is not None, home=home)
        read: Callable[..., None] = store_options("--store")(StoreReader(wanted, accounts, left_out).read)
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


def _of_folder(folder: str, how: ReplayOptions, left_out: list[SkippedSession]) -> Iterator[Account]:
    """The sessions in the files of a folder; those that cannot be read are left out. Raises InvalidInput for none."""
    from foldline.store.folders import FileStore

    if FileStore(folder).names():
        raise InvalidInput(f"holds kept sessions: foldline report --store {shlex.quote(folder)}", place=folder)
    before, found = len(left_out), 0
    for file in sessions_in(folder):
        try:
            account = _of_file(file, how)
        except InvalidInput as error:
            left_out.append(SkippedSession(file, error.reason))
            log(f"left out: {error}")
            continue
        found += 1
        yield account
    if not found:
        raise InvalidInput(f"none of its {plural(len(left_out) - before, 'file')} can be read", place=folder)


def _of_file(file: str, how: ReplayOptions) -> Account:
    session = read_history(file, None, lenient=True)
    try:
        return replayed_account(session, file, how)
    except InvalidInput as error:
        raise placed(error, file) from error


def _write(path: str, text: str) -> None:
    from foldline.store.files import write_atomic

    try:
        write_atomic(Path(path), [text.encode()])
    except OSError as error:
        raise InvalidInput(f"cannot be written: {error.strerror or error}", place=path) from None


def _show(path: str) -> None:
    import webbrowser

    if not webbrowser.open(Path(path).resolve().as_uri()):
        log("no browser could be opened")


# Sessions from which on reading them takes seconds.
_MANY: Final = 20

# What `foldline replay` takes where nothing is said.
_WINDOW: Final = 128_000


@dataclass(frozen=True, slots=True)
class ReplayOptions:
    """How a session is replayed; without a window it is that of the model, without a model the recorded one."""

    policy: str
    window: int | None
    model: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportSelection:
    """Which sessions of a store: the named ones, else all, those of sub-agents too, written at `since` or later.

    `model` prices them as another one. `store_named` and `home` say what commands need to be told to find the store.
    """

    named: tuple[str, ...]
    since: datetime | None
    model: str | None
    store_named: bool
    home: str | None


def replayed_account(session: Session, place: str, how: ReplayOptions, *, updated: str = "") -> Account:
    """The account of a session of which only the messages are known. Raises InvalidInput."""
    known = lookup(how.model or session.model)
    return account_of_replay(
        MeasuredSession(session),
        file=place,
        policy=how.policy,
        window=how.window or (known.window_tokens if known.known else _WINDOW),
        model=how.model,
        updated=updated,
    )


class StoreReader:
    """Reads the sessions of a store one by one; what cannot be read is left out, unless it was named."""

    def __init__(self, wanted: ReportSelection, accounts: list[Account], left_out: list[SkippedSession]) -> None:
        self._wanted, self._accounts, self._left_out = wanted, accounts, left_out
        self._options = ""

    def read(self, *, where: OpenedStore) -> None:
        """Add the accounts of the wanted sessions, and what is left out. Raises InvalidInput. O(their logs)."""
        wanted = self._wanted
        chosen = [select_session(where.store, name) for name in wanted.named] or list(self._all(where))
        if not chosen and not self._left_out:
            when = "" if wanted.since is None else f" written since {wanted.since:%Y-%m-%d %H:%M} UTC"
            raise InvalidInput(f"there is no session{when}", place=where.store.place)
        self._options = _options(wanted, where)
        calls = _calls(where, [one.id for one in chosen])
        for one in _with_progress(chosen):
            try:
                account = self._account(one, calls.get(one.id, []))
            except InvalidInput as error:
                if wanted.named:
                    raise
                self._leave(one.name, str(error))
                continue
            if account is None:
                self._leave(one.name, "no model has answered in it")
            else:
                self._accounts.append(account)

    def _leave(self, name: str, reason: str) -> None:
        self._left_out.append(SkippedSession(name, reason))
        log(f"{plain_line(name)} is left out: {plain_line(reason, 300)}")

    def _all(self, where: OpenedStore) -> Iterator[SelectedSession]:
        since = self._wanted.since
        for listed in where.store.sessions(keep=False):
            if listed.snapshot is None:
                self._leave(listed.id, listed.damage)
            elif since is None or datetime.fromisoformat(listed.snapshot.updated) >= since:
                yield from with_agents(SelectedSession(where.store, listed.id, listed.id))

    def _account(self, chosen: SelectedSession, calls: Sequence[RecordedCall]) -> Account | None:
        from foldline.report.log_account import account_of_log
        from foldline.store.recording import decode_log

        log_rows = decode_log(chosen.store.records(chosen.id), lambda number: f"{chosen.name}, record {number}")
        archive = chosen.archive
        account = account_of_log(
            log_rows,
            calls,
            name=chosen.name,
            options=self._options,
            model=self._wanted.model,
            archived=lambda key: key in archive,
            listing=len(self._accounts) < DETAILED,
        )
        return account or self._unreported(chosen)

    def _unreported(self, chosen: SelectedSession) -> Account | None:
        """A session of which no usage is known is replayed under its own policy; None when no model answered in it."""
        recording = chosen.read()
        header = recording.header
        messages = tuple(entry.recorded for entry in active(recording.events) if not entry.hidden)
        session = Session(name=chosen.name, dialect=header.dialect, messages=messages, model=header.model)
        how = ReplayOptions(
            header.policy if header.policy in POLICIES else "balanced", header.window, self._wanted.model
        )
        account = replayed_account(session, f"session {chosen.name}", how, updated=recording.tally.updated)
        return account if account.sent.requests else None


def _options(wanted: ReportSelection, where: OpenedStore) -> str:
    """What a command needs beside the name of a session, from wherever it is called. A password is not in it."""
    given = [("--store", where.store.place)] if wanted.store_named else []
    given += [("--home", os.path.abspath(wanted.home))] if wanted.home is not None else []
    return "".join(f" {name} {shlex.quote(value)}" for name, value in given)


def _with_progress(chosen: list[SelectedSession]) -> Iterable[SelectedSession]:
    """The sessions, with a bar on a terminal where there are many."""
    if len(chosen) < _MANY or not sys.stderr.isatty():
        return chosen
    from rich.progress import track

    return track(chosen, "reading sessions", console=terminal(to_stderr=True), transient=True)


def _calls(where: OpenedStore, ids: Sequence[str]) -> dict[str, list[RecordedCall]]:
    """The recorded calls of these sessions; none where there is no record, or it cannot be read."""
    from foldline.store.calls import read_calls
    from foldline.store.paths import calls_path

    out: dict[str, list[RecordedCall]] = defaultdict(list)
    try:
        for call in read_calls(calls_path(where.environ), session_id=ids[0] if len(ids) == 1 else None):
            out[call.session_id].append(call)
    except FileNotFoundError:
        pass  # calls are recorded where an agent runs: a copy of a store has none
    except (FoldlineError, OSError) as error:
        log(f"the record of calls cannot be read: {error}")
    return out
