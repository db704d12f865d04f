"""The command `foldline report`: a page about sessions, with what was sent, folded and hidden, and the cost."""

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
from foldline.cli.console import log, print_bytes, terminal
from foldline.cli.histories import read_history, sessions_in, with_file
from foldline.cli.options import size_tokens
from foldline.engine.presets import POLICIES
from foldline.errors import FoldlineError, InvalidInput
from foldline.hosting.session_choice import OpenedStore, SelectedSession, select_session, store_options, with_agents
from foldline.recorded.sessions import Session
from foldline.replay import MeasuredSession, policy_named
from foldline.report.account import Account
from foldline.report.account_from_replay import account_of_replay
from foldline.report.sessions_page import DETAILED, SkippedSession, sessions_page
from foldline.store.files import check_writable
from foldline.text.formatting import plain_line, plural
from foldline.view.transcript import active

if TYPE_CHECKING:
    from foldline.store.calls import RecordedCall

__all__ = ["ReplayOptions", "ReportSelection", "StoreReader", "replayed_account", "report"]

_STDOUT: Final = "-"

_FILE: Final = "foldline-report.html"
# A name with one of these endings is taken for a file even if it does not exist: the error is then about the file, and
# not about a session of that name.
_ENDINGS: Final = (".json", ".jsonl", ".ndjson", ".gz")


def _since(context: click.Context, option: click.Parameter, value: str | None) -> datetime | None:
    """Parse a day (its local midnight) or a time in ISO 8601; without an offset it is local."""
    if value is None:
        return None
    try:
        return datetime.fromisoformat(value).astimezone(UTC)
    except (ValueError, OverflowError):
        raise click.BadParameter(f"{value!r} is not a day such as 2026-11-28", context, option) from None


def _policy(context: click.Context, option: click.Parameter, value: str) -> str:
    try:
        return policy_named(value)
    except InvalidInput as error:
        raise click.BadParameter(error.reason, context, option) from None


@click.command()
@click.argument("sessions", metavar="[SESSION|FILE|FOLDER]...", nargs=-1, type=click.Path())
@click.option(
    "--since", metavar="DATE", callback=_since, help="Only stored sessions that were written on this day or later."
)
@click.option("--model", metavar="NAME", help="Price all sessions as this model; by default each as its own.")
@click.option(
    "--policy",
    default="balanced",
    show_default=True,
    metavar="NAME",
    callback=_policy,
    help=f"The policy for replays of FILEs: none, {', '.join(POLICIES)}.",
)
@click.option(
    "--window", metavar="N", callback=size_tokens, help="The window of FILEs, such as 16k; by default the model's."
)
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    type=click.Path(),
    default=_FILE,
    show_default=True,
    help="The file to write, readable for you alone; - is standard output.",
)
@click.option("--open", "opened", is_flag=True, help="Open the page in the browser.")
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
    """Write a page about sessions: context over time, folds and their reasons, what is hidden, the bill.

    SESSION is an id, a prefix of one, "latest", or ID/agents/ID; without any, all stored sessions are reported. A FILE
    is a recorded session, as `foldline replay` reads it; a FOLDER holds such files. The page is a single file that only
    you can read; it needs no network.
    """
    if output == _STDOUT and opened:
        raise click.UsageError("--open needs a file, not standard output")
    check_writable(output)
    folders = [name for name in sessions if _is_folder(name)]
    files = [name for name in sessions if _is_file(name)]
    named = [name for name in sessions if name not in (*files, *folders)]
    if since is not None and (files or folders) and not named:
        raise click.UsageError("--since selects stored sessions, and only files are named")
    left_out: list[SkippedSession] = []
    options = ReplayOptions(policy, window, model)
    accounts = [_file_account(file, options) for file in files]
    accounts += [account for folder in folders for account in _folder_accounts(folder, options, left_out)]
    if named or not (files or folders):
        selection = ReportSelection(
            named=tuple(named), since=since, model=model, store_named=store is not None, home=home
        )
        # The decorator is applied by hand: the store is opened only if a stored session is reported.
        read: Callable[..., None] = store_options("--store")(StoreReader(selection, accounts, left_out).read)
        read(store=store, home=home)
    page = sessions_page(accounts, skipped=left_out, created=f"{datetime.now():%Y-%m-%d %H:%M}")
    if output == _STDOUT:
        print_bytes(page.encode())
        return
    _write(output, page)
    log(f"wrote {output}, {plural(len(accounts), 'session')}")
    if opened:
        _show(output)


def _is_file(name: str) -> bool:
    return os.path.isfile(name) or name.endswith(_ENDINGS)


def _is_folder(name: str) -> bool:
    """Whether it is a folder of files."""
    # The folder of a stored session is none: in the folder of a store, its id must still mean the session.
    from foldline.store.session import LOG

    return os.path.isdir(name) and not os.path.isfile(os.path.join(name, LOG))


def _folder_accounts(folder: str, options: ReplayOptions, left_out: list[SkippedSession]) -> Iterator[Account]:
    """Read the sessions in a folder; unreadable ones are left out. Raises InvalidInput if none is left."""
    from foldline.store.folders import FileStore

    # Read as plain files, the logs of a store would pass for damaged sessions.
    if FileStore(folder).names():
        raise InvalidInput(f"holds stored sessions: foldline report --store {shlex.quote(folder)}", place=folder)
    before, found = len(left_out), 0
    for file in sessions_in(folder):
        try:
            account = _file_account(file, options)
        except InvalidInput as error:
            left_out.append(SkippedSession(file, error.reason))
            log(f"left out: {error}")
            continue
        found += 1
        yield account
    if not found:
        raise InvalidInput(f"none of its {plural(len(left_out) - before, 'file')} can be read", place=folder)


def _file_account(file: str, options: ReplayOptions) -> Account:
    session = read_history(file, None, lenient=True)
    try:
        return replayed_account(session, file, options)
    except InvalidInput as error:
        raise with_file(error, file) from error


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


# Reading this many sessions takes seconds, and is worth a progress bar.
_MANY: Final = 20

# The same default as that of `foldline replay`, so that both give the same figures for a file.
_WINDOW: Final = 128_000


@dataclass(frozen=True, slots=True)
class ReplayOptions:
    """How to replay a session. The window defaults to that of the model, the model to the recorded one."""

    policy: str
    window: int | None
    model: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportSelection:
    """Which sessions of a store to report: the named ones, else all, with sub-agents, written at `since` or later.

    `model` prices them as another one. `store_named` and `home` are what commands need to find the store.
    """

    named: tuple[str, ...]
    since: datetime | None
    model: str | None
    store_named: bool
    home: str | None


def replayed_account(session: Session, place: str, options: ReplayOptions, *, updated: str = "") -> Account:
    """Replay a session of which only the messages are known, and return its account. Raises InvalidInput."""
    found = lookup(options.model or session.model)
    return account_of_replay(
        MeasuredSession(session),
        file=place,
        policy=options.policy,
        window=options.window or (found.window_tokens if found.known else _WINDOW),
        model=options.model,
        updated=updated,
    )


class StoreReader:
    """Reads the sessions of a store one by one. An unreadable one is left out, unless the user named it."""

    def __init__(self, selection: ReportSelection, accounts: list[Account], left_out: list[SkippedSession]) -> None:
        self._selection, self._accounts, self._left_out = selection, accounts, left_out
        self._options = ""

    def read(self, *, source: OpenedStore) -> None:
        """Add the accounts of the selected sessions, and those left out. Raises InvalidInput. O(their logs)."""
        selection = self._selection
        selected = [select_session(source.store, name) for name in selection.named] or list(self._all(source))
        if not selected and not self._left_out:
            when = "" if selection.since is None else f" written since {selection.since:%Y-%m-%d %H:%M} UTC"
            raise InvalidInput(f"there is no session{when}", place=source.store.place)
        self._options = _options(selection, source)
        calls = _calls(source, [one.id for one in selected])
        for one in _with_progress(selected):
            try:
                account = self._account(one, calls.get(one.id, []))
            except InvalidInput as error:
                if selection.named:
                    raise
                self._leave_out(one.name, str(error))
                continue
            if account is None:
                self._leave_out(one.name, "no model has answered in it")
            else:
                self._accounts.append(account)

    def _leave_out(self, name: str, reason: str) -> None:
        self._left_out.append(SkippedSession(name, reason))
        log(f"{plain_line(name)} is left out: {plain_line(reason, 300)}")

    def _all(self, source: OpenedStore) -> Iterator[SelectedSession]:
        since = self._selection.since
        for listed in source.store.sessions(save=False):
            if listed.snapshot is None:
                self._leave_out(listed.id, listed.damage)
            elif since is None or datetime.fromisoformat(listed.snapshot.updated) >= since:
                yield from with_agents(SelectedSession(source.store, listed.id, listed.id))

    def _account(self, selected: SelectedSession, calls: Sequence[RecordedCall]) -> Account | None:
        from foldline.report.account_from_log import account_of_log
        from foldline.store.recording import decode_log

        log_rows = decode_log(selected.store.records(selected.id), lambda number: f"{selected.name}, record {number}")
        archive = selected.archive
        account = account_of_log(
            log_rows,
            calls,
            name=selected.name,
            options=self._options,
            model=self._selection.model,
            archived=lambda key: key in archive,
            # A page lists the messages of its first sessions only; for the others they need not stay in memory.
            listing=len(self._accounts) < DETAILED,
        )
        return account or self._unreported(selected)

    def _unreported(self, selected: SelectedSession) -> Account | None:
        """Replay a session without reported usage under its own policy; None if no model answered in it."""
        recording = selected.read()
        header = recording.header
        messages = tuple(entry.recorded for entry in active(recording.events) if not entry.hidden)
        session = Session(name=selected.name, dialect=header.dialect, messages=messages, model=header.model)
        # A policy of the user's own has no name here: the default stands in for it.
        options = ReplayOptions(
            header.policy if header.policy in POLICIES else "balanced", header.window, self._selection.model
        )
        account = replayed_account(session, f"session {selected.name}", options, updated=recording.tally.updated)
        return account if account.sent.requests else None


def _options(selection: ReportSelection, source: OpenedStore) -> str:
    """Return the options with which a command finds a session from any directory."""
    # The page quotes them in commands to copy. `place` is the address without its password.
    options = [("--store", source.store.place)] if selection.store_named else []
    options += [("--home", os.path.abspath(selection.home))] if selection.home is not None else []
    return "".join(f" {name} {shlex.quote(value)}" for name, value in options)


def _with_progress(selected: list[SelectedSession]) -> Iterable[SelectedSession]:
    """Iterate over the sessions, with a progress bar on a terminal if there are many."""
    if len(selected) < _MANY or not sys.stderr.isatty():
        return selected
    from rich.progress import track

    return track(selected, "reading sessions", console=terminal(to_stderr=True), transient=True)


def _calls(source: OpenedStore, ids: Sequence[str]) -> dict[str, list[RecordedCall]]:
    """Read the recorded calls of these sessions; none if there is no readable record."""
    from foldline.store.calls import read_calls
    from foldline.store.paths import calls_path

    out: dict[str, list[RecordedCall]] = defaultdict(list)
    try:
        # One read for all of them; a single id narrows the query.
        for call in read_calls(calls_path(source.environ), session_id=ids[0] if len(ids) == 1 else None):
            out[call.session_id].append(call)
    except FileNotFoundError:
        # Calls are recorded on the machine of the agent: a copy of a store has none.
        pass
    except (FoldlineError, OSError) as error:
        # The page is still of use without it: sizes of requests are then replayed.
        log(f"the record of calls cannot be read: {error}")
    return out
