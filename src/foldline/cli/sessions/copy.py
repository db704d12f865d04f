"""The command `foldline sessions copy`: a lossless copy of sessions to another store.

A copy includes the originals, the keys and the sessions of sub-agents.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import TYPE_CHECKING, Final, TypeVar

import click

from foldline.cli.console import json_out, log, terminal
from foldline.errors import FoldlineError, InvalidInput
from foldline.hosting.session_choice import AGENTS, OpenedStore, select_session, store_options, store_place
from foldline.store.folders import FileStore
from foldline.text.formatting import plain_line, plural
from foldline.view.archive import key_of

if TYPE_CHECKING:
    from foldline.store.base import Store

__all__ = ["DEEPEST", "CopyReport", "copy", "copy_all"]

# 1 and not 2: nothing is wrong with the command, and what could be copied is copied.
_NOT_ALL: Final = 1
# From this many sessions on a copy takes seconds, and progress is shown.
_MANY: Final = 20
# A second copy finds most sessions unchanged: some names show that, all of them would hide the rest.
_NAMED: Final = 5


@click.command()
@click.argument("sessions", metavar="[ID]…", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="Copy every session.")
@click.option("--to", "to", metavar="PLACE", required=True, help="Where to copy them; created if it does not exist.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON report.")
@store_options("--from", "--store")
def copy(*, sessions: tuple[str, ...], everything: bool, to: str, as_json: bool, source: OpenedStore) -> int:
    """Copy sessions to another store, losslessly.

    PLACE is a folder, sqlite:///FILE or postgresql://…. A copy includes originals, keys and the sessions of sub-agents.
    A session that is there already is left as it is if it is the same, else named and not copied. Ctrl-C stops after
    the current session; a second one stops at once.

    Exit codes: 0 done; 1 something could not be copied, the rest was; 2 bad usage or an unreachable store; 130 stopped.
    """
    from foldline.store.addresses import open_store

    names = _named(source.store, sessions, everything)
    report, fault = CopyReport(), None
    with closing(open_store(store_place(to, os.environ, option="--to"))) as target:
        _refuse_same(source.store, target)
        try:
            copy_all(source.store, target, _with_progress(names), report)
        except OSError as error:
            # An error of the store itself. It is raised below, after the report of what was copied until then.
            fault = error
        left = len(names) - report.looked_at
        _print_report(report, source.store, target, left, as_json=as_json)
    if fault is not None:
        raise fault
    if left:
        raise click.Abort
    return _NOT_ALL if report.refused else 0


def _named(store: Store, sessions: Sequence[str], everything: bool) -> list[str]:
    """Return the ids to copy, each once."""
    # Exactly one of the two: copying nothing, or everything by accident, would be a surprise.
    if everything == bool(sessions):
        raise click.UsageError("Say which sessions, or --all.")
    if everything:
        return store.names()
    found: dict[str, None] = {}
    for named in sessions:
        selected = select_session(store, named)
        if selected.name != selected.id:
            raise InvalidInput("is copied only together with the session that started it", place=selected.name)
        found[selected.id] = None
    return list(found)


def _refuse_same(source: Store, target: Store) -> None:
    # By real path, as a link may lead back: a store copied onto itself would be read while it is written.
    if os.path.realpath(source.place) == os.path.realpath(target.place):
        raise InvalidInput("is where they are", place=f"--to: {target.place}")


def _with_progress(names: Sequence[str]) -> Iterator[str]:
    """Yield the names, and report progress on standard error: a bar on a terminal, else a line per tenth."""
    many = len(names) >= _MANY
    if not many or not sys.stderr.isatty():
        for number, name in enumerate(names):
            if many and number % (len(names) // 10) == 0:
                log(f"{number:,} of {plural(len(names), 'session')}")
            yield name
        return

    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("copying"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=terminal(to_stderr=True), transient=True) as bar:
        yield from bar.track(names)


def _print_report(report: CopyReport, source: Store, target: Store, left: int, *, as_json: bool) -> None:
    """Print what was copied on standard output, and what was not on standard error."""
    if as_json:
        refused = [{"session": name, "reason": why} for name, why in report.refused]
        json_out(
            {
                "from": source.place,
                "to": target.place,
                "copied": report.copied,
                "same": report.same,
                "refused": refused,
                "originals": report.originals,
                "keys": report.keys,
                "left": left,
            }
        )
    else:
        agents = sum("/" in name for name in report.copied)
        inner = f", {agents:,} of sub-agents" if agents else ""
        with_them = f"{plural(report.originals, 'original')}, {plural(report.keys, 'key')}"
        click.echo(f"copied {plural(len(report.copied), 'session')}{inner}; {with_them}")
    if report.same:
        more = " …" if len(report.same) > _NAMED else ""
        log(f"there already, the same: {plural(len(report.same), 'session')}: {', '.join(report.same[:_NAMED])}{more}")
    for name, why in report.refused:
        log(f"{name}: {plain_line(why, 400)}")
    if left:
        log(f"stopped: {plural(left, 'session')} not copied")


DEEPEST: Final = 16
"""The deepest nesting of sub-agents that is copied: settings allow far less, but a folder may link to itself."""

T = TypeVar("T")


@dataclass(slots=True)
class CopyReport:
    """The outcome for each session, by name (ID, or ID/agents/ID), and how much was copied with them."""

    copied: list[str] = field(default_factory=list)
    same: list[str] = field(default_factory=list)
    """Those that the target had already, record by record."""
    refused: list[tuple[str, str]] = field(default_factory=list)
    """Those that were not copied, or not completely, and why."""
    originals: int = 0
    keys: int = 0
    looked_at: int = 0
    """Sessions that were copied, found or refused; those of sub-agents are not counted."""


def copy_all(source: Store, target: Store, names: Iterable[str], report: CopyReport) -> None:
    """Copy sessions by id, and note each outcome in `report`.

    Each copy is whole or absent. If a session is being written, the copy is a prefix that was whole at some moment.
    Ctrl-C ends the run after the current session; a second one raises KeyboardInterrupt at once. An error of one
    session is in `report`; an error of the store (a full disk, a lost database) raises OSError.
    """
    copying = _Copier(source, target, report)
    with _stop_after_current() as is_stopped:
        for name in names:
            if is_stopped():
                return
            copying.copy(name)
            report.looked_at += 1


@contextmanager
def _stop_after_current() -> Iterator[Callable[[], bool]]:
    """Yield a function that says whether Ctrl-C was pressed. A second press stops at once."""
    # KeyboardInterrupt could come anywhere, as between a session and its keys. So the first signal only sets a flag,
    # which is read between sessions. It also restores the previous handler, for those who do not want to wait.
    pressed = False

    def handle(number: int, frame: object) -> None:
        nonlocal pressed
        del number, frame
        pressed = True
        signal.signal(signal.SIGINT, before)

    # None if the handler was not set from Python.
    before = signal.getsignal(signal.SIGINT) or signal.default_int_handler
    signal.signal(signal.SIGINT, handle)
    try:
        yield lambda: pressed
    finally:
        signal.signal(signal.SIGINT, before)


class _Copier:
    """Copies the sessions of one store, or those of one session's sub-agents, to another store."""

    def __init__(self, source: Store, target: Store, report: CopyReport, *, prefix: str = "", depth: int = 0) -> None:
        self._source, self._target, self._report = source, target, report
        self._prefix, self._depth = prefix, depth
        self._there = frozenset(target.names())
        self._snapshots = {one.id: one.snapshot for one in source.sessions(save=False)}
        self._keys: dict[str, list[str]] = {}
        for key, name in source.bindings().items():
            self._keys.setdefault(name, []).append(key)

    def copy(self, session: str) -> None:
        """Copy a session by id, with all that belongs to it. O(its size)."""
        name = self._prefix + session
        with self._refusals(name):
            if not self._copy_session(session, name):
                return
            # Apart: a key that the other store cannot hold must not prevent the copy of sub-agents.
            with self._refusals(name):
                self._copy_keys(session, name)
            self._copy_agents(session, name)

    # --- inside ------------------------------------------------------------------------------------------------------

    @contextmanager
    def _refusals(self, name: str) -> Iterator[None]:
        try:
            yield
        except FoldlineError as error:
            self._report.refused.append((name, str(error)))

    def _copy_session(self, session: str, name: str) -> bool:
        """Copy the session itself; return whether the target has it now."""
        report = self._report
        # The length first: an agent archives an original before it writes the record that refers to it. So originals
        # of these records exist, whatever is written meanwhile.
        count, updated = 0, ""
        for record in self._read_errors(self._source.records, session):
            count, updated = count + 1, str(record.get("at", updated))
        if session not in self._there:
            copied = 0

            # Counted as they pass: an archive may be larger than memory.
            def counted() -> Iterator[bytes]:
                nonlocal copied
                for original in self._read_errors(self._source.originals, session):
                    copied += 1
                    yield original

            own = self._snapshots.get(session)
            # A snapshot that was taken after the last of these records would not match the copied log. Without one, the
            # target makes its own.
            snapshot = own if own is not None and own.updated == updated else None
            records = self._read_errors(self._source.records, session, stop=count)
            self._target.import_session(records, counted(), snapshot=snapshot)
            report.copied.append(name)
            report.originals += copied
            return True
        differs = self._difference(session, count)
        if differs:
            report.refused.append((name, differs))
            return False
        report.same.append(name)
        # The log is the same, but an earlier copy may have lost originals to a repair or a full disk.
        archive = self._target.archive(session)
        for original in self._read_errors(self._source.originals, session):
            if key_of(original) not in archive:
                archive.put(original)
                report.originals += 1
        return True

    def _difference(self, session: str, count: int) -> str:
        """Say how an existing session of the same id differs; "" if it is the same. O(log)."""
        pairs = zip_longest(self._read_errors(self._source.records, session, stop=count), self._target.records(session))
        for number, (own, other) in enumerate(pairs):
            if own is None or other is None:
                more = plural(1 + sum(1 for _ in pairs), "record")
                return f"is there already, with {more} {'more' if own is None else 'less'}"
            # As texts: for Python 1 equals 1.0 and True, which in a log are three different values.
            if json.dumps(own) != json.dumps(other):
                return f"another one with this id is there: they differ from record {number} on"
        return ""

    def _copy_keys(self, session: str, name: str) -> None:
        for key in self._keys.get(session, ()):
            bound = self._target.session_of(key)
            if bound is None:
                self._target.bind(key, session)
                self._report.keys += 1
            # Never rebound: the next message under the key would go to another session than before.
            elif bound != session:
                self._report.refused.append(
                    (name, f"the key {key!r} means another session there, {bound}: it stays so")
                )

    def _copy_agents(self, session: str, name: str) -> None:
        agents = self._source.agents(session)
        names = agents.names()
        if not names:
            return
        if self._depth == DEEPEST:
            raise InvalidInput(f"sub-agents of sub-agents, more than {DEEPEST} deep, are not copied", place=name)
        inner = _Copier(
            agents,
            self._target.agents(session),
            self._report,
            prefix=f"{name}/{AGENTS}/",
            depth=self._depth + 1,
        )
        for one in names:
            inner.copy(one)

    def _read_errors(self, read: Callable[..., Iterator[T]], session: str, **which: int) -> Iterator[T]:
        """Read from a session; an unreadable file becomes an error of that session alone."""
        try:
            yield from read(session, **which)
        except OSError as error:
            # In a database an OSError means that the connection is lost, for all sessions.
            if not isinstance(self._source, FileStore):
                raise
            raise InvalidInput(error.strerror or str(error), place=str(error.filename or "sessions")) from error
