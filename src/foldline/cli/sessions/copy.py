"""`foldline sessions copy`: kept sessions carried to another place."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Final

import click

from foldline.cli.files import json_out, log, terminal
from foldline.errors import InvalidInput
from foldline.hosting.session_choice import Where, choose, place_of, where_option
from foldline.text.formatting import plural
from foldline.text.printable import plain_line

if TYPE_CHECKING:
    from foldline.cli.sessions.copying import Copied
    from foldline.store.base import Store

__all__ = ["copy"]

_NOT_ALL: Final = 1
_MANY: Final = 20
"""From so many sessions on it is said how far it is, where no terminal has a bar."""
_NAMED: Final = 5


@click.command()
@click.argument("sessions", metavar="[ID]…", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="Copy every session.")
@click.option("--to", "to", metavar="PLACE", required=True, help="Where they are copied to; made if need be.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON report.")
@where_option("--from", "--store")
def copy(*, sessions: tuple[str, ...], everything: bool, to: str, as_json: bool, where: Where) -> int:
    """Copy sessions to another store, losslessly.

    PLACE is a folder, sqlite:///FILE or postgresql://…. Originals, keys and the sessions of sub-agents go with them.
    What is there already, the same, is left as it is; what is there otherwise is named, and not copied. Ctrl-C ends
    after the session at hand; twice, at once.

    Exit codes: 0 done; 1 something could not be copied, the rest was; 2 bad usage or a store that is away; 130 stopped.
    """
    from foldline.cli.sessions.copying import Copied, copy_all
    from foldline.store.addresses import open_store

    names = _named(where.store, sessions, everything)
    done, fault = Copied(), None
    with closing(open_store(place_of(to, os.environ, option="--to"))) as target:
        _refuse_same(where.store, target)
        try:
            copy_all(where.store, target, _told(names), done)
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
        chosen = choose(store, named)
        if chosen.name != chosen.id:
            raise InvalidInput("goes with the session of its agent, and only with it", place=chosen.name)
        found[chosen.id] = None
    return list(found)


def _refuse_same(source: Store, target: Store) -> None:
    if os.path.realpath(source.place) == os.path.realpath(target.place):
        raise InvalidInput("is where they are", place=f"--to: {target.place}")


def _told(names: Sequence[str]) -> Iterator[str]:
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


def _report(done: Copied, source: Store, target: Store, left: int, *, as_json: bool) -> None:
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
