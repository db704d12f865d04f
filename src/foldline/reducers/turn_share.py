"""No result may take more than its share of the window, nor all results of a turn together."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from foldline.reducers.truncate import each_fresh, shorter
from foldline.text.shorten import head_and_tail
from foldline.tokens import Counter
from foldline.view.budget import Need
from foldline.view.transcript import Fold, Seq
from foldline.view.view import View

__all__ = ["TurnShare", "cut_share", "share_tokens"]


def share_tokens(window_tokens: int, used_tokens: int, *, of_window: float = 0.25, of_rest: float = 0.50) -> int:
    """Budget of one result: the smaller of 25 % of the window and 50 % of what is left of it."""
    return int(min(of_window * window_tokens, of_rest * max(0, window_tokens - used_tokens)))


def cut_share(text: str, budget_tokens: int, counter: Counter, *, head: int = 500, tail: int = 500) -> str:
    """A result over its share of the window: first and last characters with an explanation between."""
    total = counter.text(text)
    if total <= budget_tokens:
        return text
    first, last = head_and_tail(text, head, tail)
    note = (
        f"[result too large: ~{total:,} tokens, the budget for it is ~{max(0, budget_tokens):,}. Shown are the first "
        f"{len(first)} and the last {len(last)} of {len(text):,} characters. Ask for a smaller part to see more.]"
    )
    return shorter(f"{first}\n{note}\n{last}", text, counter)


@dataclass(frozen=True, slots=True)
class TurnShare:
    """Guards the window against fresh results: one may take min(`of_window` of the window, `of_rest` of what is left).

    The window is that for input and reply together. The budget is cumulative: each result of one model turn leaves less
    to the next. Results of `exempt` tools (those of sub-agents) pass, and take nothing of it.
    """

    of_window: float = 0.25
    of_rest: float = 0.50
    exempt: frozenset[str] = frozenset({"spawn_agent"})
    name: str = "truncate"

    def budget_tokens(self, window_tokens: int, used_tokens: int) -> int:
        """Budget of one result."""
        return share_tokens(window_tokens, used_tokens, of_window=self.of_window, of_rest=self.of_rest)

    def propose(self, view: View, need: Need, /) -> Iterable[Fold]:
        """One fold per fresh result over what is left of the budget."""
        left = saved = 0
        group: Seq | None = None

        def turn(new: Seq) -> None:
            nonlocal left, group
            if new != group:
                group = new
                before = view.base_tokens + view.between(0, view.index(new)) + view.entries[new].tokens - saved
                left = self.budget_tokens(need.whole_window_tokens, view.meter.used(before))

        def cut(text: str, tool: str) -> str:
            nonlocal left, saved
            if tool in self.exempt:
                return text
            out = cut_share(text, left, view.counter)
            left = max(0, left - view.counter.text(out))
            saved += view.counter.text(text) - view.counter.text(out)
            return out

        return each_fresh(view, need, self.name, cut, turn=turn)
