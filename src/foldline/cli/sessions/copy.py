"""`foldline sessions copy`: kept sessions carried to another place."""

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

from foldline.cli.files import json_out, log, terminal
from foldline.errors import FoldlineError, InvalidInput
from foldline.hosting.session_choice import AGENTS, OpenedStore, select_session, store_options, store_place
from foldline.store.base import Store
from foldline.store.folders import FileStore
from foldline.text.formatting import plain_line, plural
from foldline.view.archive import key_of

if TYPE_CHECKING:
    from foldline.store.base import Store

__all__ = ["DEEPEST", "CopyReport", "copy", "copy_all"]

_NOT_ALL: Final = 1
# From so many sessions on it is said how far it is, where no terminal has a bar.
_MANY: Final = 20
_NAMED: Final = 5


@click.command()
@click.argument("sessions", metavar="[ID]…", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="Copy every session.")
@click.option("--to", "to", metavar="PLACE", required=True, help="Where they are copied to; made if need be.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON report.")
@store_options("--from", "--store")
def copy(*, sessions: tuple[str, ...], everything: bool, to: str, as_json: bool, where: OpenedStore) -> int:
    """Copy sessions to another store, losslessly.

    PLACE is a folder, sqlite:///FILE or postgresql://…. Originals, keys and the sessions of sub-agents go with them.
    What is there already, the same, is left as it is; what is there otherwise is named, and not copied. Ctrl-C ends
    after the session at hand; twice, at once.

    Exit codes: 0 done; 1 something could not be copied, the rest was; 2 bad usage or a store that is away; 130 stopped.
    """
    from foldline.store.addresses import open_store

    names = _named(where.store, sessions, everything)
    done, fault = CopyReport(), None
    with closing(open_store(store_place(to, os.environ, option="--to"))) as target:
        _refuse_same(where.store, target)
        try:
            copy_all(where.store, target, _with_progress(names), done)
        except OSError as error:  # of a store: what was copied until then is there, and is said first
            fault = error
        left = len(names) - done.looked_at
        _report(done, where.store, target, left, as_json=as_json)
    if fault is not None:
        raise fault
    if left:
        raise click.Abort
    return _NOT_ALL if done.refused else 0


def _named(store: Store, sessions: Sequence[str], everything: bool) -> list[str]:
    """The ids to copy, each once."""
    if everything == bool(sessions):
        raise click.UsageError("Say which sessions, or --all.")
    if everything:
        return store.names()
    found: dict[str, None] = {}
    for named in sessions:
        chosen = select_session(store, named)
        if chosen.name != chosen.id:
            raise InvalidInput("goes with the session of its agent, and only with it", place=chosen.name)
        found[chosen.id] = None
    return list(found)


def _refuse_same(source: Store, target: Store) -> None:
    if os.path.realpath(source.place) == os.path.realpath(target.place):
        raise InvalidInput("is where they are", place=f"--to: {target.place}")


def _with_progress(names: Sequence[str]) -> Iterator[str]:
    """The names, one after the other. Says on stderr how far it is: a bar on a terminal, else a line for each tenth."""
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


def _report(done: CopyReport, source: Store, target: Store, left: int, *, as_json: bool) -> None:
    """What was done on standard output, and what was not on standard error."""
    if as_json:
        refused = [{"session": name, "reason": why} for name, why in done.refused]
        json_out(
            {
                "from": source.place,
                "to": target.place,
                "copied": done.copied,
                "same": done.same,
                "refused": refused,
                "originals": done.originals,
                "keys": done.keys,
                "left": left,
            }
        )
    else:
        agents = sum("/" in name for name in done.copied)
        inner = f", {agents:,} of sub-agents" if agents else ""
        with_them = f"{plural(done.originals, 'original')}, {plural(done.keys, 'key')}"
        click.echo(f"copied {plural(len(done.copied), 'session')}{inner}; {with_them}")
    if done.same:
        more = " …" if len(done.same) > _NAMED else ""
        log(f"there already, the same: {plural(len(done.same), 'session')}: {', '.join(done.same[:_NAMED])}{more}")
    for name, why in done.refused:
        log(f"{name}: {plain_line(why, 400)}")
    if left:
        log(f"stopped: {plural(left, 'session')} not looked at")


DEEPEST: Final = 16
"""Sub-agents of sub-agents: settings allow far fewer; a folder that links to itself ends here."""

T = TypeVar("T")


@dataclass(slots=True)
class CopyReport:
    """What became of each session, by name (ID, or ID/agents/ID), and how much went with them."""

    copied: list[str] = field(default_factory=list)
    same: list[str] = field(default_factory=list)
    """Those that were there already, record by record."""
    refused: list[tuple[str, str]] = field(default_factory=list)
    """Those that were not copied, or not all that belongs to them, and why."""
    originals: int = 0
    keys: int = 0
    looked_at: int = 0
    """Sessions, those of sub-agents not counted."""


def copy_all(source: Store, target: Store, names: Iterable[str], done: CopyReport) -> None:
    """Copy sessions, named by their ids, and write down in `done` what became of them.

    Each is there whole or not at all. Of one that is being written meanwhile it is a beginning that was whole at some
    moment. Ctrl-C ends it after the session at hand; the second one raises KeyboardInterrupt at once. What concerns one
    session alone is in `done`; what ends all (a full disk, a database that is away) raises OSError.
    """
    copying = _Copier(source, target, done)
    with _stop() as stopped:
        for name in names:
            if stopped():
                return
            copying.copy(name)
            done.looked_at += 1


@contextmanager
def _stop() -> Iterator[Callable[[], bool]]:
    """Whether Ctrl-C was pressed: the session at hand is ended first. The second one stops at once."""
    pressed = False

    def press(number: int, frame: object) -> None:
        nonlocal pressed
        del number, frame
        pressed = True
        signal.signal(signal.SIGINT, before)

    before = signal.getsignal(signal.SIGINT) or signal.default_int_handler
    signal.signal(signal.SIGINT, press)
    try:
        yield lambda: pressed
    finally:
        signal.signal(signal.SIGINT, before)


class _Copier:
    """The sessions of one store, or those of the sub-agents of one session, on their way into another store."""

    def __init__(self, source: Store, target: Store, done: CopyReport, *, prefix: str = "", depth: int = 0) -> None:
        self._source, self._target, self._done = source, target, done
        self._prefix, self._depth = prefix, depth
        self._there = frozenset(target.names())
        self._snapshots = {one.id: one.snapshot for one in source.sessions(keep=False)}
        self._keys: dict[str, list[str]] = {}
        for key, name in source.bindings().items():
            self._keys.setdefault(name, []).append(key)

    def copy(self, session: str) -> None:
        """Copy a session, named by its id, and all that belongs to it. O(its size)."""
        name = self._prefix + session
        with self._refusing(name):
            if not self._put(session, name):
                return
            with self._refusing(name):  # a key that the other store cannot hold keeps no sub-agent back
                self._bind(session, name)
            self._copy_agents(session, name)

    # --- inside ------------------------------------------------------------------------------------------------------

    @contextmanager
    def _refusing(self, name: str) -> Iterator[None]:
        try:
            yield
        except FoldlineError as error:
            self._done.refused.append((name, str(error)))

    def _put(self, session: str, name: str) -> bool:
        """Whether the session is in the other store now."""
        done = self._done
        # The length first: whatever the records before it point to is in the archive already.
        count, updated = 0, ""
        for record in self._reading(self._source.records, session):
            count, updated = count + 1, str(record.get("at", updated))
        if session not in self._there:
            kept = 0

            def counted() -> Iterator[bytes]:
                nonlocal kept
                for original in self._reading(self._source.originals, session):
                    kept += 1
                    yield original

            own = self._snapshots.get(session)
            of_these = own if own is not None and own.updated == updated else None
            records = self._reading(self._source.records, session, stop=count)
            self._target.import_session(records, counted(), snapshot=of_these)
            done.copied.append(name)
            done.originals += kept
            return True
        differs = self._difference(session, count)
        if differs:
            done.refused.append((name, differs))
            return False
        done.same.append(name)
        archive = self._target.archive(session)
        for original in self._reading(self._source.originals, session):
            if key_of(original) not in archive:
                archive.put(original)
                done.originals += 1
        return True

    def _difference(self, session: str, count: int) -> str:
        """In what a session that is there already is another one; "" when it is the same. O(log)."""
        pairs = zip_longest(self._reading(self._source.records, session, stop=count), self._target.records(session))
        for number, (own, other) in enumerate(pairs):
            if own is None or other is None:
                more = plural(1 + sum(1 for _ in pairs), "record")
                return f"is there already, with {more} {'more' if own is None else 'less'}"
            if json.dumps(own) != json.dumps(other):
                return f"another one with this id is there: they differ from record {number} on"
        return ""

    def _bind(self, session: str, name: str) -> None:
        for key in self._keys.get(session, ()):
            bound = self._target.session_of(key)
            if bound is None:
                self._target.bind(key, session)
                self._done.keys += 1
            elif bound != session:
                self._done.refused.append((name, f"the key {key!r} means another session there, {bound}: it stays so"))

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
            self._done,
            prefix=f"{name}/{AGENTS}/",
            depth=self._depth + 1,
        )
        for one in names:
            inner.copy(one)

    def _reading(self, read: Callable[..., Iterator[T]], session: str, **which: int) -> Iterator[T]:
        """What is read of a session. A file that cannot be read is a fault of its session, and of no other."""
        try:
            yield from read(session, **which)
        except OSError as error:
            if not isinstance(self._source, FileStore):
                raise
            raise InvalidInput(error.strerror or str(error), place=str(error.filename or "sessions")) from error
