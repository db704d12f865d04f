"""Oldest groups leave, with a line that says how many messages are gone."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from foldline.messages import Message
from foldline.reducers.base import span_fold
from foldline.view.budget import Need, Trigger
from foldline.view.tiles import Span, Tile
from foldline.view.transcript import Fold
from foldline.view.user_words import speaks
from foldline.view.view import View

__all__ = [
    "DropGroups",
    "HistoryBudget",
    "SlidingWindow",
    "drop_fold",
    "history_budget",
    "is_checkpoint",
    "omitted",
    "shortest",
    "truncated",
]

# Room for the notice that takes the place of what leaves: a short line, and what a message costs by itself.
NOTICE_TOKENS = 24


def omitted(count: int) -> str:
    """The notice that stands for dropped messages."""
    return f"[{count} earlier messages omitted]"


def drop_fold(
    view: View, span: Span, *, reducer: str, reason: str, notice: Message | None = None, requested: bool = False
) -> Fold | None:
    """A fold that shows only a notice in place of a span; None when the notice would not be shorter."""
    shown = notice or view.codec.note(omitted(view.covered_count(span.start, span.stop)))
    return span_fold(view, span.start, span.stop, (shown,), reducer=reducer, reason=reason, requested=requested)


def shortest(view: View, first: int, last: int, tokens: int) -> Span:
    """The shortest span from tile `first` that holds `tokens`; the whole of [first, last) when none does."""
    stop = first + 1
    while stop < last and (view.between(first, stop) < tokens or not view.cut(stop)):
        stop += 1
    return view.span(first, stop)


def is_checkpoint(tile: Tile) -> bool:
    """Whether a tile is a model's summary: it stands for what left before, and is worth more than what follows it."""
    return tile.fold is not None and tile.fold.shown[0].kind == "summary"


@dataclass(frozen=True, slots=True)
class DropGroups:
    """Drops whole groups, oldest first, until the target is met; the newest `keep_groups` stay.

    `loop_only`: only groups of the running tool loop leave (a message with calls and the results of these); the
    conversation before it stays, and so do checkpoints (three-layer system, 3c).
    """

    loop_only: bool = False
    keep_groups: int = 1
    name: str = "drop_groups"

    def propose(self, view: View, need: Need, /) -> Iterable[Fold]:
        """One fold per span, oldest first, each no longer than needed."""
        reason = f"{need.excess_tokens:,} tokens too many; the oldest groups leave"
        for span in self.leaving(view, need):
            fold = drop_fold(view, span, reducer=self.name, reason=reason, requested=need.requested)
            if fold is not None:
                yield fold

    def leaving(self, view: View, need: Need, *, spare: bool = True) -> Iterable[Span]:
        """What has to leave, oldest first. `spare`: checkpoints in the running loop stay."""
        left = need.excess_tokens
        first = view.index(view.newest_user) + 1 if self.loop_only and view.newest_user is not None else 0
        groups = [index for index in range(first, len(view.tiles)) if view.tiles[index].messages]
        if len(groups) <= self.keep_groups:
            return
        last = groups[-self.keep_groups] if self.keep_groups else len(view.tiles)
        for start, stop in self._runs(view, first, last, spare, need.requested):
            if left <= 0:
                return
            span = shortest(view, start, stop, left + NOTICE_TOKENS)
            if span.last == span.first + 1 and view.tiles[span.first].fold is not None:
                continue
            left -= span.tokens - NOTICE_TOKENS
            yield span

    def _runs(self, view: View, first: int, last: int, spare: bool, requested: bool) -> Iterable[tuple[int, int]]:
        """Tiles that may leave together: of a loop, groups with calls and what stands for such."""
        for span in view.spans(last, requested=requested):
            start = max(span.first, first)
            for index in range(start, span.last + 1):
                if index == span.last or (self.loop_only and not _of_loop(view.tiles[index], spare)):
                    if index > start and view.cut(index):
                        yield start, index
                    start = index + 1


def _of_loop(tile: Tile, spare: bool) -> bool:
    if tile.fold is not None:
        return not (spare and is_checkpoint(tile))
    return not tile.messages or any(entry.message.calls for entry in tile.entries)


@dataclass(frozen=True, slots=True)
class SlidingWindow:
    """Drops the oldest turns until tokens, messages and turns hold, or nothing more may go.

    What follows a drop is a user message: the next turn's, or the notice where a turn is longer than the window. System
    text, pinned groups and the newest user message stay; a call and its results leave together. Where a number of
    messages or turns of `trigger` is reached, it lands at `landing` of it: a window that only just holds slides, and
    breaks the cached prefix, with every message.
    """

    trigger: Trigger = field(default_factory=Trigger)
    landing: float = 0.75
    name: str = "window"

    def propose(self, view: View, need: Need, /) -> Iterable[Fold]:
        """One fold per span that has to leave, oldest first."""
        tokens = need.excess_tokens
        messages = self._excess(view.message_count, self.trigger.messages)
        turns = 0 if self.trigger.turns is None else self._excess(view.turn_count, self.trigger.turns)
        reason = "over the window: " + ", ".join(
            f"{n:,} {word} too many"
            for n, word in ((tokens, "tokens"), (messages, "messages"), (turns, "turns"))
            if n > 0
        )
        for span in view.spans(requested=need.requested):
            if tokens <= 0 and messages <= 0 and turns <= 0:
                return
            out = _shortest(view, span, tokens, messages, turns)
            fold = drop_fold(view, out, reducer=self.name, reason=reason, requested=need.requested)
            if fold is None:
                continue
            tokens -= out.tokens - fold.tokens
            messages -= sum(tile.message_count for tile in view.tiles[out.first : out.last]) - len(fold.shown)
            turns -= _turns(view, out.first, out.last)
            yield fold

    def _excess(self, count: int, threshold: int | None) -> int:
        """How many have to go so that a threshold that is reached holds again."""
        if threshold is None or count < threshold:
            return 0
        return count - max(1, min(threshold - 1, int(self.landing * threshold)))


def _shortest(view: View, span: Span, tokens: int, messages: int, turns: int) -> Span:
    """The shortest part from the start of a span that frees as much and ends before a turn; else the whole span."""
    freed_messages = freed_turns = 0
    for index in range(span.first, span.last):
        freed_messages += view.tiles[index].message_count
        freed_turns += _turns(view, index, index + 1)
        if (
            view.between(span.first, index + 1) >= tokens + (NOTICE_TOKENS if tokens > 0 else 0)
            and (messages <= 0 or freed_messages > messages)
            and freed_turns >= turns
            and view.cut(index + 1)
            and _starts_turn(view, index + 1)
        ):
            return view.span(span.first, index + 1)
    return span


def _turns(view: View, first: int, last: int) -> int:
    tiles = (tile for tile in view.tiles[first:last] if tile.fold is None)
    return sum(speaks(entry.message) for tile in tiles for entry in tile.entries)


def _starts_turn(view: View, index: int) -> bool:
    """Whether a window may begin at a tile: with a user's words, or inside the newest turn (it cannot leave whole)."""
    while index < len(view.tiles) and not view.tiles[index].messages:
        index += 1
    if index >= len(view.tiles) or any(speaks(entry.message) for entry in view.tiles[index].entries):
        return True
    return view.newest_user is None or view.newest_user < view.tiles[index].start


def truncated(count: int) -> str:
    """The notice for messages left out of the history."""
    return f"[conversation truncated — {count} older messages omitted]"


def history_budget(
    limit_tokens: int, system_tokens: int, tools_tokens: int, max_output_tokens: int, max_history_tokens: int
) -> int:
    """Tokens for history: the limit less system text, tools, reply and 10 % of it; capped unless the cap is 0."""
    available = limit_tokens - system_tokens - tools_tokens - max_output_tokens - limit_tokens // 10
    return max(0, min(available, max_history_tokens) if max_history_tokens > 0 else available)


@dataclass(frozen=True, slots=True)
class HistoryBudget:
    """Leaves out the oldest messages of a history that is over its budget (`max_history_tokens` at most; 0: no cap).

    History is what stands up to the newest user message; that message stays, and the tool loop after it has a budget of
    its own. So the prefix moves once a turn, not at every call. Checkpoints stay: they stand for what left before.
    Once over, the history goes down to `landing` of the budget.
    """

    max_history_tokens: int = 20_000
    landing: float = 1.0
    name: str = "render_budget"

    def propose(self, view: View, need: Need, /) -> Iterable[Fold]:
        """Folds that leave out what does not fit, oldest first."""
        reason = f"history over its budget of {self.budget_tokens(view, need):,} tokens"
        for span in self.leaving(view, need):
            fold = drop_fold(view, span, reducer=self.name, reason=reason, notice=_notice(view, span))
            if fold is not None:
                yield fold

    def budget_tokens(self, view: View, need: Need) -> int:
        """Tokens that the history of this view may take. O(tiles)."""
        fixed = view.base_tokens + _system_tokens(view)
        return history_budget(need.whole_window_tokens, fixed, 0, need.max_output_tokens, self.max_history_tokens)

    def leaving(self, view: View, need: Need, *, spare: bool = True) -> Iterable[Span]:
        """What has to leave, oldest first; nothing while history is within its budget. `spare`: checkpoints stay."""
        if view.newest_user is None:
            return
        newest = view.index(view.newest_user)
        budget = self.budget_tokens(view, need)
        history = view.between(0, newest + 1) - _system_tokens(view, newest + 1)
        if history <= budget:
            return
        left = history - int(self.landing * budget)
        for span in view.spans(newest):
            start = span.first
            for index in range(start, span.last + 1):
                if index < span.last and not (spare and is_checkpoint(view.tiles[index])):
                    continue
                if index > start and left > 0:
                    notice_tokens = view.count(_notice(view, view.span(start, index)))
                    out = shortest(view, start, index, left + notice_tokens)
                    if out.tokens > notice_tokens:
                        left -= out.tokens - notice_tokens
                        yield out
                start = index + 1


def _notice(view: View, span: Span) -> Message:
    """The notice for a span: a system message where it is the only one and the user speaks next, else the user's.

    Chat templates want one system message, and the user's words behind it.
    """
    count = view.covered_count(span.start, span.stop, seen=True)
    following = view.after(span.last)
    leading = None if following is None else following.leading
    alone = view.before(span.first) is None and (leading is None or leading.role == "user")
    return view.codec.note(truncated(count), role="system" if view.codec.system_inside and alone else "user")


def _system_tokens(view: View, last: int | None = None) -> int:
    return sum(tile.tokens for tile in view.tiles[:last] if tile.system and tile.fold is None)
