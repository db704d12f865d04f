"""The commands on folds and damage: why a message is folded, the undo of folds, and the repair of a log."""

from __future__ import annotations

from contextlib import closing
from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Any, Final

import click

from foldline.cli.console import TextPrinter, json_out, log
from foldline.errors import InvalidInput
from foldline.hosting.session_choice import OpenedStore, SelectedSession, select_session, store_options
from foldline.hosting.session_text import author_of, entries_of, folds_of, message_text, seq_range
from foldline.text.formatting import plain_line, plural
from foldline.view.transcript import Fold, active

if TYPE_CHECKING:
    from foldline.store.repair import RepairReport

__all__ = ["repair", "undo", "why"]

# Enough to recognise the original, without moving the reasons above off the screen.
_FIRST_LINES: Final = 8


@click.command()
@click.argument("session", metavar="ID")
@click.argument("number", metavar="N", type=int)
@click.option(
    "--lines",
    type=click.IntRange(min=0),
    default=_FIRST_LINES,
    show_default=True,
    metavar="N",
    help="How many lines of the original to show.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, with the original in full.")
@store_options("--store")
def why(*, session: str, number: int, lines: int, as_json: bool, source: OpenedStore) -> None:
    """Explain why message N is not shown in full: every fold that covers it, and its original."""
    selected = select_session(source.store, session)
    recording = selected.read()
    entries = entries_of(recording.events)
    entry = entries.get(number)
    if entry is None:
        there = f"it has messages 0 to {len(entries) - 1}" if entries else "nothing has been said in it yet"
        raise InvalidInput(f"there is no message {number}; {there}", place=selected.name)
    # On a branch that was left no fold is in effect, whatever the events say: the model sees the current branch.
    left = number not in {each.seq for each in active(recording.events)}
    in_effect = set() if left else {fold.id for fold in recording.replay().explain(number)}
    folds = [fold for fold in folds_of(recording.events).values() if fold.start <= number < fold.stop]
    original = message_text(entry.message)
    if as_json:
        plain = [_plain(fold, selected, fold.id in in_effect) for fold in folds]
        json_out(
            {
                "session": selected.name,
                "seq": number,
                "tokens": entry.tokens,
                "who": author_of(entry.message),
                "left": left,
                "folds": plain,
                "original": entry.recorded,
            }
        )
        return
    printer = TextPrinter()
    printer.line(f"message {number}, {author_of(entry.message)}, {entry.tokens:,} tokens", style="bold")
    if left:
        printer.words("It belongs to a branch that was left: the session continued from an earlier message.")
    elif entry.hidden:
        printer.words("It was never meant for the model.")
    elif not in_effect:
        printer.words("The model sees it in full.")
    for fold in folds:
        _print_fold(printer, fold, selected, fold.id in in_effect)
    printer.line()
    shown = original.split("\n")[:lines]
    printer.block("\n".join(shown))
    more = original.count("\n") + 1 - len(shown)
    if more > 0:
        printer.line(f"  … {plural(more, 'more line')}", style="dim")


def _print_fold(printer: TextPrinter, fold: Fold, selected: SelectedSession, in_effect: bool) -> None:
    state = "" if in_effect else ", undone since"
    place = f"messages {seq_range(fold.start, fold.stop)}"
    printer.line()
    printer.line(
        f"fold {fold.id} of batch {fold.batch}{state}: {place}, {plain_line(fold.reducer)}",
        None if in_effect else "dim",
    )
    printer.words(f"  {plain_line(fold.reason, 400)}")
    printer.line(f"  {fold.before_tokens:,} → {fold.tokens:,} tokens")
    kept_at = _archived(fold, selected)
    if fold.archive is not None:
        printer.path(f"  archive key {plain_line(fold.archive)}")
        if kept_at is None:
            printer.words("  no longer in the archive; the log has it")
        else:
            printer.path(kept_at)


def _archived(fold: Fold, selected: SelectedSession) -> str | None:
    """Return where the original is stored; None if it is gone."""
    archive = selected.archive
    return archive.where(fold.archive) if fold.archive is not None and fold.archive in archive else None


def _plain(fold: Fold, selected: SelectedSession, in_effect: bool) -> dict[str, Any]:
    # `shown` repeats whole messages; `form` is renamed, as "shortens" says more to people.
    plain = {field.name: getattr(fold, field.name) for field in fields(fold) if field.name not in {"shown", "form"}}
    path = None if selected.folder is None else _archived(fold, selected)
    return {**plain, "shortens": fold.form, "in_effect": in_effect, "path": path}


@click.command()
@click.argument("session", metavar="ID")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON report.")
@store_options("--store")
def undo(*, session: str, as_json: bool, source: OpenedStore) -> None:
    """Undo the last batch of folds: the model sees their messages again.

    The session must not be open in another process. The next request folds again if it would not fit.
    """
    from foldline.store.session import FileSession

    selected = select_session(source.store, session)
    # Opened, not only read: the undo is a record in the log, and one process at a time writes it.
    with closing(selected.store.open(selected.id)) as stored:
        if isinstance(stored, FileSession) and stored.torn is not None:
            log(f"{stored.torn} was set aside")
        recording = selected.read()
        context = recording.replay(archive=stored.archive)
        before, written = context.figures.current_context_tokens, context.event_count
        undone = context.undo()
        if not undone:
            raise InvalidInput("no fold is in effect: there is nothing to undo", place=selected.name)
        # The events before the snapshot: after a crash in between, the log is the truth and the snapshot is rebuilt.
        stored.append(context.events_after(written))
        stored.save(context)
    folds = folds_of(recording.events)
    back = [folds[unfold.fold] for unfold in undone if unfold.fold in folds]
    after, window = context.figures.current_context_tokens, context.limits.window_tokens
    if as_json:
        json_out(
            {
                "session": selected.name,
                "unfolded": [fold.id for fold in back],
                "tokens_before": before,
                "tokens_after": after,
                "window_tokens": window,
            }
        )
        return
    printer = TextPrinter()
    printer.words(f"undid {plural(len(back), 'fold')}; the messages: {before:,} → {after:,} of {window:,} tokens")
    for fold in back:
        printer.line(f"  fold {fold.id}: messages {seq_range(fold.start, fold.stop)}, {plain_line(fold.reducer)}")
    log("the next request folds again what is still too large")


# The first damaged places show the kind; the rest are counted.
_SHOWN: Final = 20


@click.command()
@click.argument("session", metavar="ID")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON report.")
@store_options("--store")
def repair(*, session: str, as_json: bool, source: OpenedStore) -> None:
    """Repair a session with a damaged log, so that it can be opened.

    Intact records stay, and a line takes the place of each lost message. The old log is kept: beside the new one, or,
    in a database, in the archive of the session. The session must not be open in another process.
    """
    selected = select_session(source.store, session)
    repaired = selected.store.repair(selected.id)
    if as_json:
        json_out(
            {
                "session": selected.name,
                "damaged": repaired is not None,
                **({} if repaired is None else _repair_plain(repaired)),
            }
        )
        return
    if repaired is None:
        click.echo("nothing is damaged")
        return
    click.echo(str(repaired))
    for damage in repaired.damage[:_SHOWN]:
        click.echo(f"  {damage}")
    if len(repaired.damage) > _SHOWN:
        click.echo(f"  … and {len(repaired.damage) - _SHOWN:,} more")


def _repair_plain(repaired: RepairReport) -> dict[str, Any]:
    return {
        "lines": repaired.lines,
        "damage": [asdict(one) for one in repaired.damage],
        "lost_messages": repaired.lost_messages,
        "left_out": repaired.left_out,
        "kept": str(repaired.old_log),
    }
