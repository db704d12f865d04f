"""Conversation history gets a budget of its own, filled from the newest message back (three-layer system, layer 2)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from foldline.messages import Message
from foldline.reducers.drop_groups import drop_fold, is_checkpoint, shortest
from foldline.view.budget import Need
from foldline.view.tiles import Span
from foldline.view.transcript import Fold
from foldline.view.view import View

__all__ = ["HistoryBudget", "history_budget", "truncated"]


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
