"""The commands that look: /context, /why, /history, /cost."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from foldline.doors.chat.bar import bar_lines, shares_of
from foldline.doors.chat.lines import made_by
from foldline.doors.chat.money import Call, cost_lines, spent_on
from foldline.doors.chat.numbers import whole_number
from foldline.errors import InvalidInput
from foldline.hosting.session_words import said, seqs, who
from foldline.text.formatting import plural
from foldline.text.printable import plain_line
from foldline.view.transcript import Entry, Fold, Usage

if TYPE_CHECKING:
    from foldline.agent.session import AgentSession
    from foldline.doors.chat.conversation import Conversation
    from foldline.engine.context import Context

__all__ = ["context", "cost", "entry_of", "history", "why"]

_FIRST_LINES: Final = 6
_NEWEST: Final = 30
_WHY: Final = re.compile(r"(fold +|f)?#?(\d+)")


async def context(chat: Conversation, given: str) -> None:
    """The window as a bar, part by part."""
    if given:
        raise InvalidInput("takes nothing", place="/context")
    talk = await chat.talk()
    session = (await talk.agent()).session
    screen, now = chat.screen, session.context
    limits = now.limits
    shares = shares_of(now, session.under.system)
    wide = screen.console.width
    for line in bar_lines(shares, limits.window_tokens, width=wide, ascii_only=screen.console.options.ascii_only):
        screen.show(line)
    used = limits.window_tokens - shares[-1].tokens
    window = talk.crew.window
    source = "" if window is None or window.tokens != limits.window_tokens else f" ({window.source})"
    screen.line(f"~{used:,} of {limits.window_tokens:,} tokens{source}; answers get up to {limits.max_output_tokens:,}")
    screen.line(f"policy {now.policy.name}; a request may have {limits.input_tokens:,} tokens", "dim")


async def why(chat: Conversation, given: str) -> None:
    """Why a message is not shown as it was, or what a fold stands for, with the first lines of the original."""
    found = _WHY.fullmatch(given.strip())
    number = None if found is None else whole_number(found[2])
    if found is None or number is None:
        raise InvalidInput("takes the number of a message, or of a fold: /why 12, /why fold 3", place="/why")
    session = (await (await chat.talk()).agent()).session
    whole, screen = session.whole(), chat.screen
    if found[1]:
        made = {event.id: event for event in whole.events if isinstance(event, Fold)}
        if number not in made:
            raise InvalidInput(f"there is no fold {number}", place="/why")
        folds: tuple[Fold, ...] = (made[number],)
        seq = made[number].start
    else:
        entry = entry_of(whole, number, "/why")
        folds, seq = session.explain(number), number
        shown = "" if folds else "; it is sent as it came"
        screen.line(f"message {number}, {who(entry.message)}, {entry.tokens:,} tokens{shown}", "bold")
    for fold in folds:
        _show_fold(chat, session, fold)
    lines = said(whole.view.entries[seq].message).split("\n")
    for line in lines[:_FIRST_LINES]:
        screen.line(f"  {line}", "dim", one=True)
    if len(lines) > _FIRST_LINES:
        screen.line(f"  … {plural(len(lines) - _FIRST_LINES, 'more line')}", "dim")


def entry_of(whole: Context, number: int, place: str) -> Entry:
    """The message with this number, folded or not. Raises InvalidInput."""
    entries = whole.view.entries
    if number not in entries:
        last = max(entries, default=-1)
        there = f"they are 0 to {last}" if last >= 0 else "nothing has been said yet"
        raise InvalidInput(f"there is no message {number}; {there}", place=place)
    return entries[number]


def _show_fold(chat: Conversation, session: AgentSession, fold: Fold) -> None:
    screen = chat.screen
    what = "shortens" if fold.form else "stands for"
    screen.line(
        f"fold {fold.id} by {made_by(fold)} {what} {plural(fold.stop - fold.start, 'message')} "
        f"({seqs(fold.start, fold.stop)}): {fold.before_tokens:,} → {fold.tokens:,} tokens",
        "magenta",
    )
    screen.line(f"  why: {plain_line(fold.reason, 400)}")
    if fold.archive is not None and session.stored is not None:
        screen.line(f"  original: {session.stored.archive.where(fold.archive)}")


async def history(chat: Conversation, given: str) -> None:
    """Everything that was said, one line each; what the model no longer sees as it was is marked."""
    count: int | None = _NEWEST
    if given == "all":
        count = None
    elif given:
        count = whole_number(given)
        if not count:
            raise InvalidInput("takes how many of the newest messages to show, or all", place="/history")
    session = (await (await chat.talk()).agent()).session
    whole, screen = session.whole(), chat.screen
    entries = list(whole.view.entries.values())
    if not entries:
        screen.line("nothing has been said yet", "dim")
        return
    newest = entries if count is None else entries[-count:]
    folds = [tile for tile in whole.view.tiles if isinstance(tile, Fold)]
    if len(newest) < len(entries):
        screen.line(f"… {plural(len(entries) - len(newest), 'older message')} (/history all)", "dim")
    for entry in newest:
        by = next((fold for fold in folds if fold.start <= entry.seq < fold.stop), None)
        mark = " " if by is None else "~" if by.form else "-"
        words = plain_line(said(entry.message), screen.console.width)
        screen.line(f"{entry.seq:>4} {mark} {who(entry.message):<9} {words}", "" if by is None else "dim", one=True)
    if folds:
        screen.line("- folded, ~ shortened: /why N tells by what, and shows the original", "dim")


async def cost(chat: Conversation, given: str) -> None:
    """What the session has cost so far: tokens, and money where the catalogue has prices."""
    if given:
        raise InvalidInput("takes nothing", place="/cost")
    from foldline.store.calls import read_calls

    talk = await chat.talk()
    session = (await talk.agent()).session
    if talk.crew.calls is not None and talk.id is not None:
        recorded = read_calls(talk.crew.calls.path, session_id=talk.id)
        made = [
            Call(each.model, each.prompt_tokens, each.cached_tokens, each.completion_tokens, each.estimated)
            for each in recorded
            if not each.error
        ]
    else:
        model = session.under.model
        made = [
            Call(
                model,
                usage.input_tokens,
                usage.cached_tokens,
                usage.output_tokens,
                not usage.reported,
                usage.written_tokens,
                usage.written_long_tokens,
            )
            for usage in session.whole().events
            if isinstance(usage, Usage)
        ]
    if not made:
        chat.screen.line("no model was called yet", "dim")
    for line in cost_lines(spent_on(made)):
        chat.screen.line(line)
