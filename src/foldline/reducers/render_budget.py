"""Conversation history gets a budget of its own, filled from the newest message back (three-layer system, layer 2)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from foldline.budget import Need
from foldline.reducers.drop_groups import drop_fold
from foldline.tiles import speaks
from foldline.transcript import Fold
from foldline.view import View

__all__ = ["HistoryBudget", "history_budget", "truncated"]


def truncated(count: int) -> str:
    """The notice for messages left out of the history."""
    return f"[conversation truncated — {count} older messages omitted]"


def history_budget(
    limit_tokens: int, system_tokens: int, tools_tokens: int, max_output_tokens: int, max_history_tokens: int
) -> int:
    """Tokens for conversation history: the limit less system text, tools, reply and 10 %, capped unless the cap is 0."""
    available = limit_tokens - system_tokens - tools_tokens - max_output_tokens - limit_tokens // 10
    return max(0, min(available, max_history_tokens) if max_history_tokens > 0 else available)


@dataclass(frozen=True, slots=True)
class HistoryBudget:
    """At the start of a turn, leaves out the oldest messages of a history over `max_history_tokens` (0: no cap).

    Runs when the newest message is the user's, so that the prefix moves once a turn, not at every call.
    """

    max_history_tokens: int = 20_000
    name: str = "render_budget"

    def propose(self, view: View, need: Need, /) -> Iterable[Fold]:
        """Folds that leave out what does not fit, oldest first."""
        if not view.units or not any(speaks(entry.message) for entry in view.units[-1].entries):
            return
        fixed = view.base_tokens + sum(unit.tokens for unit in view.units if unit.system)
        budget = history_budget(need.window_tokens, fixed, 0, 0, self.max_history_tokens)
        left = view.estimated_tokens - fixed - budget
        earlier = 0
        for span in view.spans():
            if left <= 0:
                return
            stop = span.first
            freed = 0
            while stop < span.last and (freed < left + 16 or not view.cut(stop)):
                freed += view.units[stop].tokens
                stop += 1
            covered = view.span(span.first, stop)
            count = earlier + len(view.covered(covered.start, covered.stop))
            role = "system" if view.codec.system_inside else "user"
            notice = view.codec.note(truncated(count), role=role)
            fold = drop_fold(
                view, covered, reducer=self.name, reason=f"history over its budget of {budget:,} tokens", notice=notice
            )
            if fold is not None:
                left -= freed - fold.tokens
                earlier = count
                yield fold
