"""Sliding window: the oldest turns leave until every threshold holds."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from foldline.reducers.drop_groups import NOTICE_TOKENS, drop_fold
from foldline.view.budget import Need, Trigger
from foldline.view.tiles import Span, speaks
from foldline.view.transcript import Fold
from foldline.view.view import View

__all__ = ["Window"]


@dataclass(frozen=True, slots=True)
class Window:
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
            messages -= sum(tile.said for tile in view.tiles[out.first : out.last]) - len(fold.shown)
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
        freed_messages += view.tiles[index].said
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
