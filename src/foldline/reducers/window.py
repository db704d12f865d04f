"""Sliding window: the oldest turns leave until every threshold holds."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from foldline.budget import Need, Trigger
from foldline.reducers.drop_groups import drop_fold
from foldline.tiles import speaks
from foldline.transcript import Fold
from foldline.view import View

__all__ = ["Window"]


@dataclass(frozen=True, slots=True)
class Window:
    """Drops the oldest groups until tokens, messages and turns hold, or nothing more may go.

    What follows a drop is a user message: the next turn's, or the notice where a turn is longer than the window. System
    text, pinned groups and the newest user message stay; a call and its results leave together.
    """

    trigger: Trigger = field(default_factory=Trigger)
    name: str = "window"

    def propose(self, view: View, need: Need, /) -> Iterable[Fold]:
        """One fold per span that has to leave, oldest first."""
        tokens, messages, turns = need.excess_tokens, 0, 0
        if self.trigger.messages is not None:
            messages = max(0, view.message_count - self.trigger.messages)
        if self.trigger.turns is not None:
            turns = max(0, view.turn_count - self.trigger.turns)
        for span in view.spans():
            if tokens <= 0 and messages <= 0 and turns <= 0:
                return
            stop = span.first
            freed_tokens, freed_messages, freed_turns = 0, 0, 0
            best = 0
            while stop < span.last:
                unit = view.units[stop]
                freed_tokens += unit.tokens
                freed_messages += len(unit.messages)
                freed_turns += sum(1 for e in unit.entries if speaks(e.message))
                stop += 1
                if not view.cut(stop):
                    continue
                best = stop
                if (
                    freed_tokens >= tokens + 16
                    and freed_messages > messages
                    and freed_turns >= turns
                    and self._starts_turn(view, stop)
                ):
                    break
            if not best:
                continue
            reason = "over the window: " + ", ".join(
                f"{n:,} {word} too many"
                for n, word in ((tokens, "tokens"), (messages, "messages"), (turns, "turns"))
                if n > 0
            )
            fold = drop_fold(view, view.span(span.first, best), reducer=self.name, reason=reason)
            if fold is None:
                continue
            tokens -= freed_tokens - fold.tokens
            messages -= freed_messages - 1
            turns -= freed_turns
            yield fold

    def _starts_turn(self, view: View, index: int) -> bool:
        """Whether a window may begin at a unit: with a user's words, or inside a turn that cannot be left whole."""
        after = [unit for unit in view.units[index:] if unit.messages]
        if not after or any(speaks(entry.message) for entry in after[0].entries):
            return True
        return not any(speaks(entry.message) for unit in after for entry in unit.entries)
