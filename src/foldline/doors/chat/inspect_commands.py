"""The commands that only read: /context, /rules, /why, /history, /cost."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from foldline.catalog.models import lookup
from foldline.doors.chat.commands import whole_number
from foldline.doors.chat.event_lines import fold_source
from foldline.doors.chat.window_parts import bar_lines, rule_sources, shares_of, tool_sources
from foldline.engine.context import Context
from foldline.errors import InvalidInput
from foldline.hosting.session_text import author_of, message_text, seq_range
from foldline.text.formatting import plain_line, plural
from foldline.view.transcript import Entry, Fold, Usage

if TYPE_CHECKING:
    from foldline.agent.session import AgentSession
    from foldline.doors.chat.chat_loop import ChatLoop
    from foldline.engine.context import Context

__all__ = [
    "ModelCost",
    "PricedCall",
    "context",
    "cost",
    "cost_lines",
    "costs_by_model",
    "entry_of",
    "history",
    "rules",
    "why",
]

_FIRST_LINES: Final = 6
_NEWEST: Final = 30  # a screenful
_WHY: Final = re.compile(r"(fold +|f)?#?(\d+)")


async def context(chat: ChatLoop, argument: str) -> None:
    """Show the window as a bar, part by part."""
    if argument:
        raise InvalidInput("takes nothing", place="/context")
    conversation = await chat.conversation()
    agent = await conversation.agent()
    session, screen = agent.session, chat.screen
    now = session.context
    limits = now.limits
    shares = shares_of(now, session.settings.system, session.instructions)
    wide = screen.console.width
    for line in bar_lines(shares, limits.window_tokens, width=wide, ascii_only=screen.console.options.ascii_only):
        screen.show(line)
    used = limits.window_tokens - shares[-1].tokens
    window = conversation.runtime.window
    source = "" if window is None or window.tokens != limits.window_tokens else f" ({window.source})"
    screen.line(f"~{used:,} of {limits.window_tokens:,} tokens{source}; answers get up to {limits.max_output_tokens:,}")
    screen.line(f"policy {now.policy.name}; a request may have {limits.input_tokens:,} tokens", "dim")
    short = agent.toolbox.forms.short if agent.toolbox.forms is not None else frozenset[str]()
    if listed := tool_sources(now.tool_sizes, agent.toolbox.servers, short):
        screen.line(f"tools: {listed}", "dim")
    if listed := rule_sources(now.rules, session.instructions):
        screen.line(f"rules that stay: {listed} · /rules", "dim")


async def rules(chat: ChatLoop, argument: str) -> None:
    """List the rules that stay, whatever is folded: source, tokens and words."""
    if argument:
        raise InvalidInput("takes nothing", place="/rules")
    session = (await (await chat.conversation()).agent()).session
    found = [*([session.instructions] if session.instructions else []), *session.context.rules]
    if not found:
        chat.screen.line("no rules yet: what you say with always, never or from now on stays word for word")
    for rule in found:
        place = "in the system text" if rule.seq < 0 else f"message {rule.seq}"
        part = "" if rule.whole else ", its rules only"
        chat.screen.line(f"{plain_line(rule.source)} · {place} · ~{rule.tokens:,} tokens{part}", "bold")
        lines = rule.text.split("\n")
        for line in lines[:_FIRST_LINES]:
            chat.screen.line(f"  {plain_line(line)}")
        if len(lines) > _FIRST_LINES:
            chat.screen.line(f"  … {plural(len(lines) - _FIRST_LINES, 'more line')}", "dim")


async def why(chat: ChatLoop, argument: str) -> None:
    """Explain why a message is not shown in full, or what a fold stands for, with the first lines of the original."""
    found = _WHY.fullmatch(argument.strip())
    number = None if found is None else whole_number(found[2])
    if found is None or number is None:
        raise InvalidInput("takes the number of a message, or of a fold: /why 12, /why fold 3", place="/why")
    session = (await (await chat.conversation()).agent()).session
    # The whole log is read again: the context may have released the messages behind a fold.
    whole, screen = session.whole(), chat.screen
    if found[1]:
        all_folds = {event.id: event for event in whole.events if isinstance(event, Fold)}
        if number not in all_folds:
            raise InvalidInput(f"there is no fold {number}", place="/why")
        folds: tuple[Fold, ...] = (all_folds[number],)
        seq = all_folds[number].start
    else:
        entry = entry_of(whole, number, "/why")
        folds, seq = session.explain(number), number
        shown = "" if folds else "; it is sent as it came"
        screen.line(f"message {number}, {author_of(entry.message)}, {entry.tokens:,} tokens{shown}", "bold")
    for fold in folds:
        _show_fold(chat, session, fold)
    lines = message_text(whole.view.entries[seq].message).split("\n")
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


def _show_fold(chat: ChatLoop, session: AgentSession, fold: Fold) -> None:
    screen = chat.screen
    what = "shortens" if fold.form else "stands for"
    screen.line(
        f"fold {fold.id} by {fold_source(fold)} {what} {plural(fold.stop - fold.start, 'message')} "
        f"({seq_range(fold.start, fold.stop)}): {fold.before_tokens:,} → {fold.tokens:,} tokens",
        "magenta",
    )
    screen.line(f"  why: {plain_line(fold.reason, 400)}")
    if fold.archive is not None and session.stored is not None:
        screen.line(f"  original: {session.stored.archive.where(fold.archive)}")


async def history(chat: ChatLoop, argument: str) -> None:
    """List all messages, one line each, those that are folded or shortened marked."""
    count: int | None = _NEWEST
    if argument == "all":
        count = None
    elif argument:
        count = whole_number(argument)
        if not count:
            raise InvalidInput("takes how many of the newest messages to show, or all", place="/history")
    session = (await (await chat.conversation()).agent()).session
    whole, screen = session.whole(), chat.screen
    entries = list(whole.view.entries.values())
    if not entries:
        screen.line("nothing has been said yet", "dim")
        return
    newest = entries if count is None else entries[-count:]
    folds = [tile for tile in whole.view.entries_and_folds if isinstance(tile, Fold)]
    if len(newest) < len(entries):
        screen.line(f"… {plural(len(entries) - len(newest), 'older message')} (/history all)", "dim")
    for entry in newest:
        by = next((fold for fold in folds if fold.start <= entry.seq < fold.stop), None)
        mark = " " if by is None else "~" if by.form else "-"
        words = plain_line(message_text(entry.message), screen.console.width)
        screen.line(
            f"{entry.seq:>4} {mark} {author_of(entry.message):<9} {words}", "" if by is None else "dim", one=True
        )
    if folds:
        screen.line("- folded, ~ shortened: /why N tells by what, and shows the original", "dim")


async def cost(chat: ChatLoop, argument: str) -> None:
    """Show the cost of the session: tokens, and money if the catalogue has prices."""
    if argument:
        raise InvalidInput("takes nothing", place="/cost")
    from foldline.store.calls import read_calls

    conversation = await chat.conversation()
    session = (await conversation.agent()).session
    # The call log knows the model of each call, also after a change of model; the session has usage alone.
    if conversation.runtime.calls is not None and conversation.id is not None:
        logged = read_calls(conversation.runtime.calls.path, session_id=conversation.id)
        calls = [
            PricedCall(each.model, each.prompt_tokens, each.cached_tokens, each.completion_tokens, each.estimated)
            for each in logged
            if not each.error
        ]
    else:
        model = session.settings.model
        calls = [
            PricedCall(
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
    if not calls:
        chat.screen.line("no model was called yet", "dim")
    for line in cost_lines(costs_by_model(calls)):
        chat.screen.line(line)


@dataclass(frozen=True, slots=True)
class PricedCall:
    """Tokens of one model call. `prompt_tokens` includes those read from a cache and written to one."""

    model: str
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    estimated: bool = False
    written_tokens: int = 0
    written_long_tokens: int = 0


@dataclass(frozen=True, slots=True)
class ModelCost:
    """Sums over the calls of one model; `usd` is None if the catalogue has no price.

    Money is at list price: each call at the price step of its own size, cached tokens at the price of reading them, and
    those reported as written at the price of writing.
    """

    model: str
    calls: int
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    estimated: bool
    usd: float | None


def costs_by_model(calls: Iterable[PricedCall]) -> list[ModelCost]:
    """Sum up calls by model, in the order of their first call."""
    by_model: dict[str, list[PricedCall]] = {}
    for call in calls:
        by_model.setdefault(call.model, []).append(call)
    return [_sum(model, own) for model, own in by_model.items()]


def _sum(model: str, calls: list[PricedCall]) -> ModelCost:
    prompt = sum(call.prompt_tokens for call in calls)
    cached = sum(call.cached_tokens for call in calls)
    answered = sum(call.completion_tokens for call in calls)
    # Call by call: the price steps of long requests depend on the size of each.
    catalogued = lookup(model)
    paid = [
        catalogued.usd(
            call.prompt_tokens,
            call.cached_tokens,
            call.completion_tokens,
            call.written_tokens,
            call.written_long_tokens,
        )
        for call in calls
    ]
    # One unknown price makes the sum unknown: a part of it would read as the whole.
    usd = None if None in paid else sum(each or 0.0 for each in paid)
    return ModelCost(model, len(calls), prompt, cached, answered, any(call.estimated for call in calls), usd)


def cost_lines(spent: Iterable[ModelCost]) -> list[str]:
    """One line for each model, and one for the sum of several; `~` marks figures that are not all reported."""
    rows = list(spent)
    lines = [_line(row) for row in rows]
    priced = [row.usd for row in rows if row.usd is not None]
    if len(rows) > 1 and priced:
        about = "~" if any(row.estimated for row in rows) else ""
        without = "" if len(priced) == len(rows) else ", models without a price left out"
        lines.append(f"together {about}${sum(priced):,.4f}{without}")
    return lines


def _line(row: ModelCost) -> str:
    about = "~" if row.estimated else ""
    share = f"{row.cached_tokens / row.prompt_tokens:.0%}" if row.prompt_tokens else "0%"
    money = "no price in the catalogue" if row.usd is None else f"{about}${row.usd:,.4f}"
    calls = "1 call" if row.calls == 1 else f"{row.calls:,} calls"
    return (
        f"{row.model or 'unnamed model'}: {calls}, {about}{row.prompt_tokens:,} prompt tokens "
        f"({row.cached_tokens:,} cached, {share}), {about}{row.completion_tokens:,} answered; {money}"
    )
