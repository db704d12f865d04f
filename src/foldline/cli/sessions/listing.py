"""The group `foldline sessions`: list sessions, search in all of them, and export one."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

import click

from foldline.cli.console import TextPrinter, json_out, log, print_bytes
from foldline.cli.sessions.copy import copy
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
from foldline.hosting.session_text import entries_of, export_session, json_text, local_time, redacted
from foldline.store.files import check_writable
from foldline.store.snapshot import Snapshot
from foldline.text.formatting import DASH, compact, plain, plain_line, plural

if TYPE_CHECKING:
    from foldline.store.base import Store
    from foldline.store.snapshot import ListedSession

__all__ = ["FORMATS", "export", "sessions"]


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
    """Stored sessions of the agent: list, show, search, export and copy them.

    ID is the id of a session, a prefix of one, or "latest". The sessions of sub-agents belong to the session that
    started them: `sessions list ID` lists them, and each is addressed as ID/agents/ID.
    """


for _command in (show, view, why, undo, copy, repair):
    sessions.add_command(_command)


# --- list ---------------------------------------------------------------------------------------------------------


@sessions.command("list")
@click.argument("session", metavar="[ID]", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of the table.")
@store_options("--store")
def list_(*, session: str | None, as_json: bool, source: OpenedStore) -> None:
    """List sessions, the last written first; with ID, those of its sub-agents.

    A session that cannot be read is listed too, with the reason.
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
        log("no session yet; `foldline chat` begins one" if selected is None else "it started no sub-agent")
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
    except InvalidInput:
        # Another process deleted it after it was listed.
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
    """Return the shortest prefix of an id that no other session shares."""
    # Ids begin with date and time, so a prefix is readable. Sub-agents may start in the same second.
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
    """Draw the fill of the window: "██░░░ 3.2k/8k"."""
    # Without a known window the bar is full: that the fill is unknown must not look like room.
    share = snapshot.tokens / snapshot.window_tokens if snapshot.window_tokens else 1.0
    # A session may be over its window until the next fold.
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
    """Search all messages ever recorded, folded or not, for PATTERN, a regular expression.

    Newest sessions come first, with at most 200 lines of each. Each hit names session, message and line, for `sessions
    show` and `sessions why`.
    """
    from foldline.text.safe_regex import Pattern

    # Checked first: a bad pattern is an error even if there is nothing to search.
    Pattern(pattern)
    found: list[tuple[str, int, int, str]] = []
    more = False
    for hit in _hits(pattern, source.store, session):
        # One hit beyond the limit is sought, so that the note below is true.
        if len(found) == limit:
            more = True
            break
        found.append(hit)
    if as_json:
        json_out([dict(zip(("session", "seq", "line", "text"), hit, strict=True)) for hit in found])
    else:
        # Hits of one session are adjacent: its name is printed once, as a heading.
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
    from foldline.engine.excerpts import grep

    if session is not None:
        roots = [select_session(store, session)]
    else:
        roots = [SelectedSession(store, one.id, one.id) for one in store.sessions(save=False)]
    # Recordings are read one at a time: all of them need not fit into memory together.
    for selected in (each for root in roots for each in with_agents(root)):
        try:
            recording = selected.read()
        except InvalidInput as error:
            # One damaged session must not hide what the others hold.
            log(f"{selected.name} cannot be searched: {plain_line(str(error))}")
            continue
        for seq, number, text in grep(codec(recording.header.dialect), entries_of(recording.events), pattern):
            yield selected.name, seq, number, text


# --- export -------------------------------------------------------------------------------------------------------

FORMATS: Final = ("messages", "markdown", "events")

# Characters that act on a terminal though JSON needs no escape for them: C1 controls, and those that reorder text
# (bidirectional overrides), with which a recorded text could forge what a reader sees.
_CONTROLS: Final = re.compile("[\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u206f\ufeff]")


@sessions.command()
@click.argument("session", metavar="ID")
@click.option("--format", "form", type=click.Choice(FORMATS), default="messages", show_default=True)
@click.option("-o", "--output", metavar="FILE", type=click.Path(), help="Write a file that only you can read.")
@click.option("--redact", is_flag=True, help="Leave out secrets of known shapes: keys, tokens, passwords.")
@store_options("--store")
def export(*, session: str, form: str, output: str | None, redact: bool, source: OpenedStore) -> None:
    """Print a session as messages, as text for people, or as its log.

    "messages" is what `foldline fit`, `check` and `replay` read: the messages of the current branch, in full and
    unchanged. "markdown" is the same for people. "events" is everything that happened, one stored JSON object a line.
    """
    if output is not None:
        check_writable(output)
    selected = select_session(source.store, session)
    recording = selected.read()
    if form == "events":
        records = selected.records(recording)
        text = "".join(f"{json_text(redacted(record) if redact else record)}\n" for record in records)
    else:
        text = export_session(recording, form, redact=redact)
    # JSON has escapes already where UTF-8 has no form; only the Markdown form can still need the replacement.
    data = text.encode("utf-8", "replace")
    if output is not None:
        _write(output, data)
        log(f"wrote {output}")
        return
    # A file keeps the text as recorded; a terminal would obey its control characters.
    if sys.stdout.isatty():
        data = (plain(text) if form == "markdown" else _CONTROLS.sub(_escape, text)).encode("utf-8", "replace")
    sys.stdout.flush()
    print_bytes(data)


def _escape(found: re.Match[str]) -> str:
    """Write a control character as a JSON escape; it can occur in strings only."""
    return f"\\u{ord(found[0]):04x}"


def _write(path: str, data: bytes) -> None:
    from pathlib import Path

    from foldline.store.files import write_atomic

    write_atomic(Path(path), [data])
