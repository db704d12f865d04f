"""The command that shows what the model would be sent next of a kept session."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

import click

from foldline.cli.console import Sheet
from foldline.cli.files import json_out, log
from foldline.errors import DoesNotFit, FoldlineError, InvalidInput
from foldline.hosting.session_choice import Chosen, Where, choose, where_option
from foldline.hosting.session_words import said, seqs
from foldline.messages import Json, Wire
from foldline.text.formatting import DASH, plural
from foldline.text.printable import plain_line
from foldline.view.transcript import Fold

if TYPE_CHECKING:
    from foldline.hosting.request_rows import Row
    from foldline.store.calls import SentBeside
    from foldline.store.recording import Recording

__all__ = ["view"]


@click.command()
@click.argument("session", metavar="ID")
@click.option("--full", is_flag=True, help="Show the messages in full, not one line of each.")
@click.option("--json", "as_json", is_flag=True, help='Print the request as JSON: "messages", "system", "tools".')
@where_option("--store")
def view(*, session: str, full: bool, as_json: bool, where: Where) -> None:
    """Show what the model would be sent next, message by message, and how many tokens each part takes.

    Nothing is written. System text, tools and output cap are those of the newest recorded call: the session itself does
    not hold them. A fold that the next request would make without asking a model is made here too, and said.
    """
    chosen = choose(where.store, session)
    recording = chosen.read()
    if not recording.tally.messages:
        raise InvalidInput("nothing has been said in it yet", place=chosen.name)
    beside = _beside(chosen, where)
    sent = _sent(recording, beside)
    if as_json:
        json_out({"session": chosen.name, "dialect": recording.header.dialect, **_sent_plain(sent)})
        return
    sheet = Sheet()
    for row in sent.rows:
        place = DASH if row.start < 0 else seqs(row.start, row.stop)
        words = plain_line(said(row.message), sheet.width)
        style = "dim" if row.mark == "-" else None
        sheet.line(f"{place:>9} {row.tokens:>7,} {row.mark} {row.message.role:<9} {words}", style)
        if full:
            sheet.block(said(row.message))
    sheet.line()
    for name, tokens in sent.parts.items():
        sheet.line(f"{name:>9} {tokens:>7,}")
    share = sent.tokens / sent.window_tokens
    total = (
        f"{'all':>9} {sent.tokens:>7,} of {sent.window_tokens:,} ({share:.0%}), {sent.max_output_tokens:,} kept free"
    )
    sheet.line(total, style="bold")
    ours = sum(sent.parts.values())
    if ours != sent.tokens:
        sheet.line(f"{'':>9} {ours:>7,} by our own count, before what the server reported", style="dim")
    if sent.folds:
        log(f"the next request folds first: {plural(sent.folds, 'fold')}, shown as made")
    if beside is None:
        log("no call of this session is on record: system text and tools are not in these figures")
    if sent.fault:
        log(f"it does not fit: {sent.fault}")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sent:
    """The next request."""

    messages: list[Wire]
    system: Json
    tools: Json
    rows: tuple[Row, ...]
    parts: dict[str, int]
    tokens: int
    window_tokens: int
    max_output_tokens: int
    folds: int
    fault: str


def _beside(chosen: Chosen, where: Where) -> SentBeside | None:
    from foldline.store.calls import sent_beside
    from foldline.store.paths import calls_path

    try:
        return sent_beside(calls_path(where.environ), chosen.id)
    except (FoldlineError, OSError) as error:
        log(f"the record of calls cannot be read: {error}")
        return None


def _sent(recording: Recording, beside: SentBeside | None) -> _Sent:
    """The next request, made of a copy in memory."""
    from foldline.hosting.request_rows import parts_of, rows_of

    given = {} if beside is None else {field.name: getattr(beside, field.name) for field in fields(beside)}
    context = recording.replay(**given)
    before, fault = context.event_count, ""
    try:
        request = context.prepare()
        messages, system, tools, tokens = request.messages, request.system, request.tools, request.tokens
    except DoesNotFit as error:
        fault = str(error)
        messages, system, tools = context.view.wires()[0], given.get("system"), given.get("tools")
        tokens = context.view.tokens
    folds = sum(isinstance(event, Fold) for event in context.events_after(before))
    rows = tuple(rows_of(context))
    return _Sent(
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


def _sent_plain(sent: _Sent) -> dict[str, Json]:
    beside = {name: value for name, value in (("system", sent.system), ("tools", sent.tools)) if value}
    return {
        **beside,
        "messages": sent.messages,
        "tokens": sent.tokens,
        "message_tokens": [row.tokens for row in sent.rows],
        "parts": sent.parts,
        "window_tokens": sent.window_tokens,
        "max_output_tokens": sent.max_output_tokens,
        "new_folds": sent.folds,
        "fault": sent.fault or None,
    }
