"""The commands that print a stored session: its history, and the next request to the model."""

from __future__ import annotations

import json
from collections import deque
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Final

import click

from foldline.cli.console import TextPrinter, json_out, log
from foldline.errors import DoesNotFit, FoldlineError, InvalidInput
from foldline.hosting.session_choice import OpenedStore, SelectedSession, agent_count, select_session, store_options
from foldline.hosting.session_text import author_of, local_time, message_text, seq_range
from foldline.messages import Json, Wire
from foldline.text.formatting import DASH, plain_line, plural
from foldline.view.transcript import Branch, Entry, Event, Fold, Limited, Pin, Unfold, Usage, active

if TYPE_CHECKING:
    from foldline.engine.context import Context
    from foldline.hosting.session_text import RequestRow
    from foldline.store.calls import RequestHead
    from foldline.store.recording import Recording
    from foldline.store.records import Record

__all__ = ["show", "view"]

_PAGE: Final = 100
# The legend below a page lists only the marks that occur in it.
_MARKS: Final = {"-": "folded", "~": "shortened", "x": "of a branch that was left", "h": "never shown to the model"}


@click.command()
@click.argument("session", metavar="ID")
@click.option(
    "--from",
    "first",
    type=int,
    default=0,
    show_default=True,
    metavar="N",
    help="Begin with message N; -20 begins 20 messages before the end.",
)
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=_PAGE,
    show_default=True,
    metavar="N",
    help="How many messages to show.",
)
@click.option("--whole", is_flag=True, help="Print each message in full below its line.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, with the texts in full.")
@store_options("--store")
def show(*, session: str, first: int, limit: int, whole: bool, as_json: bool, source: OpenedStore) -> None:
    """Show everything that happened in a session, in order.

    Each message has its number, tokens and author, and a mark if it is folded. Between messages stand turns, folds,
    changes of model and policy, and reports of usage.
    """
    from foldline.store.recording import decode_log

    selected = select_session(source.store, session)
    recording = selected.read()
    # Replayed, as the log alone does not say which of its folds are still in effect.
    context = recording.replay()
    # A negative number counts from the end, as slices do.
    begin = max(0, recording.tally.messages + first) if first < 0 else first
    stop = begin + limit
    log_rows = decode_log(selected.records(recording), lambda number: f"{selected.name}, record {number}")
    rows = _page([(record, event) for _, record, event in log_rows], begin, stop)
    marks = _Marks(recording, context)
    if as_json:
        found = [_row_plain(record, event, marks) for record, event in rows]
        json_out(
            {"session": selected.name, **asdict(recording.header), "left": _crash_notes(selected), "events": found}
        )
        return
    printer = TextPrinter()
    _print_head(printer, selected, recording, context)
    used = set[str]()
    for record, event in rows:
        if isinstance(event, Entry):
            mark = marks.of(event)
            used.add(mark)
            words = plain_line(message_text(event.message), printer.width)
            printer.line(
                f"{event.seq:>5} {event.tokens:>7,} {mark:1} {author_of(event.message):<9} {words}", _style(mark)
            )
            if whole:
                printer.whole(message_text(event.message))
                printer.line()
        elif (happened := _event_line(record, event)) is not None:
            printer.line(f"              ·  {happened}", style="dim")
    for note in _crash_notes(selected):
        log(note)
    legend = ", ".join(f"{mark} {words}" for mark, words in _MARKS.items() if mark in used)
    if legend:
        printer.line(legend, style="dim")
    if stop < recording.tally.messages:
        log(f"{plural(recording.tally.messages - stop, 'more message')}: --from {stop}")


class _Marks:
    """The state of each message: one set and one lookup, so that a page of a long session stays fast."""

    def __init__(self, recording: Recording, context: Context) -> None:
        self._context = context
        self._active = {entry.seq for entry in active(recording.events)}

    def of(self, entry: Entry) -> str:
        """One character for a message; a blank if it is shown in full."""
        if entry.seq not in self._active:
            return "x"
        if entry.hidden:
            return "h"
        folds = self.folds(entry)
        if not folds:
            return " "
        # A fold with a form shortens a message in place; any other one puts a text in the place of several.
        return "~" if all(fold.form for fold in folds) else "-"

    def folds(self, entry: Entry) -> tuple[Fold, ...]:
        """The folds in effect that cover a message."""
        return self._context.explain(entry.seq) if entry.seq in self._active else ()


def _page(rows: list[tuple[Record, Event | None]], begin: int, stop: int) -> list[tuple[Record, Event | None]]:
    """Return the records from message `begin` up to message `stop`; those before the first message belong to it."""
    out, at = [], 0
    for record, event in rows:
        if isinstance(event, Entry):
            at = event.seq
            if at >= stop:
                break
        if at >= begin:
            out.append((record, event))
    return out


def _style(mark: str) -> str | None:
    return None if mark in " ~" else "dim"


def _print_head(printer: TextPrinter, selected: SelectedSession, recording: Recording, context: Context) -> None:
    header, tally = recording.header, recording.tally
    printer.line(selected.name, style="bold")
    title = plain_line(header.title or tally.title, 200)
    if title:
        printer.line(title)
    printer.words(
        f"{header.dialect}, model {plain_line(header.model or DASH)}, policy {plain_line(header.policy)}, "
        f"window {context.limits.window_tokens:,}",
        style="dim",
    )
    counts = [
        plural(tally.turns, "turn"),
        plural(tally.messages, "message"),
        f"{plural(len(tally.folds), 'fold')} in effect",
    ]
    agents = agent_count(selected)
    counts += [plural(agents, "sub-agent")] if agents else []
    times = f"{local_time(header.created)} to {local_time(tally.updated)}"
    printer.words(f"{', '.join(counts)}; {times}", style="dim")
    printer.line()


def _crash_notes(selected: SelectedSession) -> list[str]:
    """Describe what crashes left at the end of a log and beside it."""
    from foldline.store.session import LOG

    # A database writes a record as a whole or not at all.
    if selected.folder is None:
        return []
    notes = [
        f"a crash had left half a record; it was set aside in {path.name}"
        for path in sorted(selected.folder.glob("events.torn-*"))
    ]
    notes += [f"the log was damaged once; as it was it is {p.name}" for p in selected.folder.glob("events.damaged-*")]
    with open(selected.folder / LOG, "rb") as file:
        # In one pass without keeping the lines: a log may have gigabytes, and a record megabytes.
        last = deque(file, maxlen=1)[0]
    # With its closing brace a record is complete, and only the line break is missing.
    if not last.endswith((b"\n", b"}")):
        notes.append(f"the last record is only half there ({len(last):,} bytes): being written, or left by a crash")
    return notes


def _event_line(record: Record, event: Event | None) -> str | None:
    """Describe a record other than a message in one line; None for the header of the session."""
    match event:
        case Fold():
            sizes = f"{event.before_tokens:,} → {event.tokens:,} tokens"
            place = seq_range(event.start, event.stop)
            return f"fold {event.id}: {place}, {sizes}, {plain_line(event.reducer)}: {plain_line(event.reason, 400)}"
        case Unfold():
            return f"fold {event.fold} undone"
        case Usage():
            whose = "" if event.reported else " (our count)"
            return (
                f"{event.input_tokens:,} tokens in, {event.cached_tokens:,} cached, {event.output_tokens:,} out{whose}"
            )
        case Limited():
            return f"limits: window {event.window_tokens:,}, output {event.max_output_tokens:,}"
        case Pin():
            return f"message {event.seq} {'pinned' if event.pinned else 'no longer pinned'}"
        case Branch(tip=int(tip)):
            return f"went back to the branch that ends with message {tip}"
        case Branch():
            return f"went on from message {event.start}; {seq_range(event.start, event.stop)} left behind"
    if record.get("type") == "session":
        return None
    if record.get("type") == "turn":
        reason = f": {plain_line(str(record['reason']))}" if "reason" in record else ""
        at = local_time(str(record.get("at", "")), "%H:%M:%S")
        return f"turn {plain_line(str(record.get('state')))} at {at}{reason}"
    rest = {name: value for name, value in record.items() if name not in ("type", "at")}
    return f"{plain_line(str(record.get('type')))}: {plain_line(json.dumps(rest, ensure_ascii=False), 400)}"


def _row_plain(record: Record, event: Event | None, marks: _Marks) -> Json:
    if not isinstance(event, Entry):
        return record
    mark = marks.of(event)
    covered = [fold.id for fold in marks.folds(event)]
    text = message_text(event.message)
    return {
        **record,
        "who": author_of(event.message),
        "text": text,
        "state": _MARKS.get(mark, "shown"),
        "folds": covered,
    }


@click.command()
@click.argument("session", metavar="ID")
@click.option("--full", is_flag=True, help="Show the messages in full, not one line of each.")
@click.option("--json", "as_json", is_flag=True, help='Print the request as JSON: "messages", "system", "tools".')
@store_options("--store")
def view(*, session: str, full: bool, as_json: bool, source: OpenedStore) -> None:
    """Show the next request to the model, message by message, and the tokens of each part.

    Nothing is written. System text, tools and output cap are those of the newest recorded call, as the session itself
    does not hold them. Folds that the next request would make without a model are made here too, and reported.
    """
    selected = select_session(source.store, session)
    recording = selected.read()
    if not recording.tally.messages:
        raise InvalidInput("nothing has been said in it yet", place=selected.name)
    surroundings = _recorded_surroundings(selected, source)
    sent = _next_request(recording, surroundings)
    if as_json:
        json_out({"session": selected.name, "dialect": recording.header.dialect, **_next_request_json(sent)})
        return
    printer = TextPrinter()
    for row in sent.rows:
        place = DASH if row.start < 0 else seq_range(row.start, row.stop)
        words = plain_line(message_text(row.message), printer.width)
        style = "dim" if row.mark == "-" else None
        printer.line(f"{place:>9} {row.tokens:>7,} {row.mark} {row.message.role:<9} {words}", style)
        if full:
            printer.block(message_text(row.message))
    printer.line()
    for name, tokens in sent.parts.items():
        printer.line(f"{name:>9} {tokens:>7,}")
    share = sent.tokens / sent.window_tokens
    total = (
        f"{'all':>9} {sent.tokens:>7,} of {sent.window_tokens:,} ({share:.0%}), {sent.max_output_tokens:,} kept free"
    )
    printer.line(total, style="bold")
    ours = sum(sent.parts.values())
    if ours != sent.tokens:
        # Counts of servers include what no client sees, such as templates: the total above is calibrated by them.
        printer.line(f"{'':>9} {ours:>7,} by our own count, before what the server reported", style="dim")
    if sent.folds:
        log(f"the next request folds first: {plural(sent.folds, 'fold')}, shown as made")
    if surroundings is None:
        log("no call of this session is on record: system text and tools are not in these figures")
    if sent.fault:
        log(f"it does not fit: {sent.fault}")


@dataclass(frozen=True, slots=True, kw_only=True)
class _NextRequest:
    """The next request of a session."""

    messages: list[Wire]
    system: Json
    tools: Json
    rows: tuple[RequestRow, ...]
    parts: dict[str, int]
    tokens: int
    window_tokens: int
    max_output_tokens: int
    folds: int
    fault: str


def _recorded_surroundings(selected: SelectedSession, source: OpenedStore) -> RequestHead | None:
    from foldline.store.calls import newest_request_head
    from foldline.store.paths import calls_path

    try:
        return newest_request_head(calls_path(source.environ), selected.id)
    except (FoldlineError, OSError) as error:
        # The messages can still be shown; a note below the figures says what they lack.
        log(f"the record of calls cannot be read: {error}")
        return None


def _next_request(recording: Recording, surroundings: RequestHead | None) -> _NextRequest:
    """Prepare the next request on a copy in memory."""
    from foldline.hosting.session_text import parts_of, rows_of

    arguments = (
        {}
        if surroundings is None
        else {field.name: getattr(surroundings, field.name) for field in fields(surroundings)}
    )
    context = recording.replay(**arguments)
    # The copy may fold to fit, as the next call would; the session on disk stays untouched.
    before, fault = context.event_count, ""
    try:
        request = context.prepare()
        messages, system, tools, tokens = request.messages, request.system, request.tools, request.tokens
    except DoesNotFit as error:
        # Shown all the same: what fills the window is what the user wants to see now.
        fault = str(error)
        messages, system, tools = context.view.wires()[0], arguments.get("system"), arguments.get("tools")
        tokens = context.view.tokens
    folds = sum(isinstance(event, Fold) for event in context.events_after(before))
    rows = tuple(rows_of(context))
    return _NextRequest(
        messages=messages,
        system=system,
        tools=tools,
        rows=rows,
        parts=parts_of(rows, system, tools),
        tokens=tokens,
        window_tokens=context.limits.window_tokens,
        max_output_tokens=context.limits.max_output_tokens,
        folds=folds,
        fault=fault,
    )


def _next_request_json(sent: _NextRequest) -> dict[str, Json]:
    surroundings = {name: value for name, value in (("system", sent.system), ("tools", sent.tools)) if value}
    return {
        **surroundings,
        "messages": sent.messages,
        "tokens": sent.tokens,
        "message_tokens": [row.tokens for row in sent.rows],
        "parts": sent.parts,
        "window_tokens": sent.window_tokens,
        "max_output_tokens": sent.max_output_tokens,
        "new_folds": sent.folds,
        "fault": sent.fault or None,
    }
