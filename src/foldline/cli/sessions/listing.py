"""The group `foldline sessions`, the list of sessions, and a search in all of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

import click

from foldline.cli.console import TextPrinter
from foldline.cli.files import json_out, log
from foldline.cli.sessions.copy import copy
from foldline.cli.sessions.export import export
from foldline.cli.sessions.folds import repair, undo, why
from foldline.cli.sessions.show import show, view
from foldline.errors import InvalidInput
from foldline.hosting.session_choice import (
    OpenedStore,
    SelectedSession,
    agent_count,
    select_session,
    store_options,
    sub_agents,
    with_agents,
)
from foldline.hosting.session_text import entries_of, local_time
from foldline.store.snapshot import Snapshot
from foldline.text.formatting import DASH, compact, plain_line, plural

if TYPE_CHECKING:
    from foldline.store.base import Store
    from foldline.store.snapshot import ListedSession

__all__ = ["sessions"]

_BAR_CELLS: Final = 5
# Terminal columns from which on a title fits beside its figures.
_ONE_ROW_COLUMNS: Final = 110
# Terminal columns from which on the turns have a column; below, they stand before the title.
_ALL_COLUMNS: Final = 72
# The date and time in an id: enough to name a session, unless another began in the same second.
_SHORT_ID_CHARS: Final = 15
_MOST_FOUND: Final = 200


@click.group()
def sessions() -> None:
    """Sessions of the agent: what is kept of them, seen, searched and copied.

    ID is the id of a session, the beginning of one, or "latest". The sessions of sub-agents lie inside that of the
    agent that started them: `sessions list ID` lists them, and each is reached as ID/agents/ID.
    """


for _command in (show, view, why, undo, export, copy, repair):
    sessions.add_command(_command)


# --- list ---------------------------------------------------------------------------------------------------------


@sessions.command("list")
@click.argument("session", metavar="[ID]", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of the table.")
@store_options("--store")
def list_(*, session: str | None, as_json: bool, source: OpenedStore) -> None:
    """List sessions, the one written last first; with ID those of its sub-agents.

    A session that cannot be read is in the list, with the reason.
    """
    selected = None if session is None else select_session(source.store, session)
    store = source.store if selected is None else sub_agents(selected)
    prefix = "" if selected is None else f"{selected.name}/agents/"
    found = store.sessions()
    agents = {one.id: _agent_count(SelectedSession(store, one.id, one.id)) for one in found}
    if as_json:
        json_out([_plain(one, prefix, agents[one.id], SelectedSession(store, one.id, one.id)) for one in found])
        return
    if not found:
        nothing = "no session yet; `foldline chat` begins one" if selected is None else "it started no sub-agent"
        log(nothing)
        return
    _print_list(found, prefix)
    for one in found:
        if one.snapshot is None:
            log(f"{one.id} cannot be read: {plain_line(one.damage)}")
    parents = [one.id for one in found if agents[one.id]]
    if parents:
        log(f"with sub-agents (foldline sessions list ID): {', '.join(prefix + name for name in parents[:3])}")
    log(plural(len(found), "session"))


def _agent_count(selected: SelectedSession) -> int:
    try:
        return agent_count(selected)
    except InvalidInput:  # another process has deleted it since it was listed
        return 0


def _plain(one: ListedSession, prefix: str, agents: int, selected: SelectedSession) -> dict[str, Any]:
    fields = {} if one.snapshot is None else asdict(one.snapshot)
    path = None if selected.folder is None else str(selected.folder)
    return {**fields, "id": prefix + one.id, "agents": agents, "path": path, "damage": one.damage or None}


def _print_list(found: Sequence[ListedSession], prefix: str) -> None:
    printer = TextPrinter()
    wide, roomy = printer.width >= _ONE_ROW_COLUMNS, printer.width >= _ALL_COLUMNS
    names = [one.id if wide else _short(one.id, found) for one in found]
    rows = [("id", "updated", "turns", "msgs", "folds", "context")]
    rows += [(name, *_cells(one.snapshot, wide)) for name, one in zip(names, found, strict=True)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    if prefix:
        printer.line(f"in {prefix}", style="dim")
    for row, one in zip(rows, (None, *found), strict=True):
        cells = [f"{row[0]:<{widths[0]}}", f"{row[1]:<{widths[1]}}"]
        cells += [f"{row[at]:>{widths[at]}}" for at in range(2 if roomy else 3, 5)]
        line = " ".join([*cells, f"{row[5]:<{widths[5]}}"])
        if one is None:
            printer.line(line, style="bold")
            continue
        title = "(damaged)" if one.snapshot is None else plain_line(one.snapshot.title, 200) or "(nothing said yet)"
        printer.line(f"{line}  {title}" if wide else line)
        if not wide:
            turns = "" if roomy or one.snapshot is None else f"{plural(one.snapshot.turns, 'turn')} · "
            printer.line(f"  {turns}{title}", style="dim")


def _short(name: str, found: Sequence[ListedSession]) -> str:
    """The shortest prefix of an id that tells it from the others."""
    chars = _SHORT_ID_CHARS
    while chars < len(name) and sum(other.id.startswith(name[:chars]) for other in found) > 1:
        chars += 1
    return name[:chars]


def _cells(snapshot: Snapshot | None, wide: bool) -> tuple[str, str, str, str, str]:
    if snapshot is None:
        return DASH, DASH, DASH, DASH, DASH
    updated = local_time(snapshot.updated, "%Y-%m-%d %H:%M" if wide else "%m-%d %H:%M")
    return updated, f"{snapshot.turns:,}", f"{snapshot.messages:,}", f"{snapshot.folds:,}", _bar(snapshot)


def _bar(snapshot: Snapshot) -> str:
    """The fill of the window: "██░░░ 3.2k/8k"."""
    share = snapshot.tokens / snapshot.window_tokens if snapshot.window_tokens else 1.0
    full = min(_BAR_CELLS, round(share * _BAR_CELLS))
    bar = "█" * full + "░" * (_BAR_CELLS - full)
    return f"{bar} {compact(snapshot.tokens)}/{compact(snapshot.window_tokens)}"


# --- search -------------------------------------------------------------------------------------------------------


@sessions.command()
@click.argument("pattern")
@click.option("--session", metavar="ID", help="Search this session and its sub-agents only.")
@click.option(
    "--limit",
    type=click.IntRange(min=1, max=10_000),
    default=_MOST_FOUND,
    show_default=True,
    metavar="N",
    help="Lines to show at most.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of lines.")
@store_options("--store")
def search(*, pattern: str, session: str | None, limit: int, as_json: bool, source: OpenedStore) -> None:
    """Search everything that was ever said, folded or not, for PATTERN, a regular expression.

    Newest sessions come first, at most 200 lines of each. Session, message and line are named; `sessions show` and
    `sessions why` go on from there.
    """
    from foldline.text.safe_regex import Pattern

    Pattern(pattern)  # a bad pattern is an error even if there is nothing to search
    found: list[tuple[str, int, int, str]] = []
    more = False
    for hit in _hits(pattern, source.store, session):
        if len(found) == limit:
            more = True
            break
        found.append(hit)
    if as_json:
        json_out([dict(zip(("session", "seq", "line", "text"), hit, strict=True)) for hit in found])
    else:
        printer, last = TextPrinter(), ""
        for name, seq, number, text in found:
            if name != last:
                printer.line(name, style="bold")
            printer.line(f"  {seq}:{number}  {plain_line(text)}")
            last = name
    if not found:
        log("nothing found")
    elif more:
        log(f"there is more than {plural(limit, 'line')}; see --limit")


def _hits(pattern: str, store: Store, session: str | None) -> Iterator[tuple[str, int, int, str]]:
    from foldline.codecs import codec
    from foldline.engine.lookup import grep

    if session is not None:
        roots = [select_session(store, session)]
    else:
        roots = [SelectedSession(store, one.id, one.id) for one in store.sessions(keep=False)]
    for selected in (each for root in roots for each in with_agents(root)):
        try:
            recording = selected.read()
        except InvalidInput as error:
            log(f"{selected.name} cannot be searched: {plain_line(str(error))}")
            continue
        for seq, number, text in grep(codec(recording.header.dialect), entries_of(recording.events), pattern):
            yield selected.name, seq, number, text
