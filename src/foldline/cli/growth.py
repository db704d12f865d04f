"""The command `foldline growth`: a plot and a table of how the requests of a session grew."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

import click

from foldline.cli.console import json_out, log, plot, terminal, write_whole
from foldline.errors import InvalidInput
from foldline.hosting.session_choice import in_one_line, select_session, store_place
from foldline.report.growth_page import growth_page, in_words, notes, replies_of
from foldline.store.calls import RecordedCall, read_calls, read_sessions
from foldline.store.files import check_writable
from foldline.text.formatting import plural

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["growth"]

# Even, so that the scale can label its middle row.
_PLOT_ROWS: Final = 8
# From this width on there is room for the seconds too.
_FULL_COLUMNS: Final = 72

_NAMED_SESSIONS: Final = 5
_LATEST: Final = "latest"


def _marked(call: RecordedCall, tokens: int) -> str:
    return f"{'~' if call.estimated else ''}{tokens:,}"


_COLUMNS: Final[tuple[tuple[str, Callable[[RecordedCall], str]], ...]] = (
    ("mes-\nsages", lambda call: f"{call.message_count:,}"),
    ("\nbytes", lambda call: f"{call.request_bytes:,}"),
    ("prompt\ntokens", lambda call: _marked(call, call.prompt_tokens)),
    ("\ncached", lambda call: f"{call.cached_tokens:,}"),
    ("\nanswer", lambda call: _marked(call, call.completion_tokens)),
)


@click.command()
@click.argument("session", required=False)
@click.option(
    "--calls",
    "newest",
    type=click.IntRange(min=1),
    default=20,
    show_default=True,
    metavar="N",
    help="How many of the newest calls the table has.",
)
@click.option("--db", metavar="PATH", type=click.Path(), help="The record of model calls; your own by default.")
@click.option("--store", metavar="PLACE", help="Only sessions of this store: a folder, or the address of a database.")
@click.option("--html", metavar="FILE", type=click.Path(), help="Write a page with a chart, folds marked.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON report instead of the plot and the table.")
def growth(
    *, session: str | None, newest: int, db: str | None, store: str | None, html: str | None, as_json: bool
) -> None:
    """Show how the requests of a session grew, call by call.

    SESSION is the id of a session or a prefix of one, "latest", or ID/agents/ID; by default the session that called a
    model last. The record is a SQLite database whose view `llm_calls` holds every request in full.
    """
    if html is not None:
        check_writable(html)
    path = _default_path() if db is None else db
    with _readable(path):
        sessions = read_sessions(path)
    if not sessions:
        raise InvalidInput("no model call is recorded yet", place=path)
    # The call log knows ids only; "latest" and paths of sub-agents need a store.
    if store is not None or (session is not None and (session == _LATEST or "/" in session)):
        session, sessions = _select_from_store(store, session, sessions, path)
    # The database is opened twice, as other processes write it: no read transaction stays open while a store is read.
    with _readable(path):
        selected = _select(session, sessions, path)
        calls = read_calls(path, session_id=selected)
    if html is not None:
        write_whole(html, growth_page(calls, newest=newest))
        log(f"wrote {html}")
    if as_json:
        json_out({"session": selected, "sessions": sessions, "calls": [_plain(call) for call in calls[-newest:][::-1]]})
        return
    console = terminal()
    console.print(f"session {_printable(selected)}", style="bold")
    console.print(in_words(calls))
    console.print()
    _print_plot(console, replies_of(calls))
    console.print()
    _print_table(console, calls[-newest:][::-1])
    if session is None and len(sessions) > 1:
        log(f"{plural(len(sessions) - 1, 'other session')}: {', '.join(map(_printable, sessions[1:_NAMED_SESSIONS]))}")


def _default_path() -> str:
    from foldline.store.paths import calls_path

    return str(calls_path())


@contextmanager
def _readable(path: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        # The usual case of a new user, so it is worded as such and not as an error of the system.
        raise InvalidInput("no model call is recorded yet: there is no such file", place=path) from None
    except OSError as error:
        raise InvalidInput(f"cannot be read: {error.strerror or error}", place=path) from None


def _select(requested: str | None, sessions: Sequence[str], path: str) -> str:
    """Find the session by its id or a prefix of it; by default the one that called last."""
    # An exact id wins over longer ids that begin with it.
    if requested is None or requested in sessions:
        return requested or sessions[0]
    found = [session for session in sessions if session.startswith(requested)]
    if len(found) == 1:
        return found[0]
    named = ", ".join(map(_printable, (found or sessions)[:_NAMED_SESSIONS]))
    reason = f"{len(found):,} sessions begin with {requested!r}" if found else f"no session {requested!r}"
    raise InvalidInput(f"{reason}; {'they are' if found else 'the newest are'} {named}", place=path)


@in_one_line
def _select_from_store(
    store: str | None, requested: str | None, sessions: list[str], path: str
) -> tuple[str | None, list[str]]:
    """Find the session in a store, and the store's sessions that have recorded calls."""
    from foldline.store.addresses import open_store

    with closing(open_store(store_place(store, os.environ))) as opened:
        if requested is None:
            stored = set(opened.names())
            found = [session for session in sessions if session in stored]
            if not found:
                raise InvalidInput(f"none of its sessions has a call recorded in {path}", place=opened.place)
            return None, found
        selected = select_session(opened, requested).id
    if selected not in sessions:
        raise InvalidInput(f"no call of the session {selected} is recorded", place=path)
    return selected, sessions


def _printable(text: str) -> str:
    """Replace control characters, which a terminal would obey, in foreign text."""
    return "".join(each if each.isprintable() else "\ufffd" for each in text)


def _plain(call: RecordedCall) -> dict[str, Any]:
    return {**asdict(call), "created_at": call.created_at.isoformat()}


def _print_plot(console: Console, calls: Sequence[RecordedCall]) -> None:
    ascii_only = console.options.ascii_only
    folded = [bool(call.folds) for call in calls]
    lines = plot(
        [call.prompt_tokens for call in calls],
        folded,
        width=console.width,
        height=_PLOT_ROWS,
        ascii_only=ascii_only,
    )
    console.print("\n".join(lines), style="cyan", no_wrap=True, crop=False)
    mark = f"; {'v' if ascii_only else '▼'} folds" if any(folded) else ""
    console.print(f"prompt tokens, call {calls[0].id:,} to {calls[-1].id:,}{mark}", style="dim")


def _print_table(console: Console, calls: Sequence[RecordedCall]) -> None:
    from rich.table import Table

    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="bold")
    columns: list[tuple[str, Callable[[RecordedCall], str]]] = [
        ("\ncall", lambda call: f"{call.id}"),
        ("\ntime", _times(calls)),
        *_COLUMNS,
    ]
    if console.width >= _FULL_COLUMNS:
        columns.append(("\nseconds", lambda call: f"{call.seconds:,.1f}"))
    if any(map(notes, calls)):
        columns.append(("\nnotes", lambda call: _printable(notes(call))))
    for name, cell in columns:
        # rich shrinks the widest column first, which may hold figures. A minimum width keeps those intact: on a narrow
        # terminal only the notes are cut.
        written = max(len(cell(call)) for call in calls)
        noted = name.endswith("notes")
        table.add_column(
            name,
            justify="left" if noted else "right",
            vertical="bottom",
            no_wrap=True,
            min_width=None if noted else max(written, *map(len, name.split("\n"))),
        )
    for call in calls:
        table.add_row(*(cell(call) for _, cell in columns))
    console.print(table)
    for call in calls:
        if call.error:
            console.print(f"call {call.id} failed: {_printable(call.error)}", style="yellow")
    if any(call.estimated for call in calls):
        console.print("~ our own count: the server reported none", style="dim")


def _times(calls: Sequence[RecordedCall]) -> Callable[[RecordedCall], str]:
    """Return the format of times: local time, with the day only if calls are of several days."""
    days = {call.created_at.astimezone().date() for call in calls}
    form = "%H:%M:%S" if len(days) == 1 else "%m-%d %H:%M"
    return lambda call: call.created_at.astimezone().strftime(form)
