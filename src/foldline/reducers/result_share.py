"""Keeps each result within its share of the window: fresh ones as they come, the largest of all as a last resort."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from foldline.messages import Message, Part, ToolCall, ToolResult
from foldline.reducers.base import form_fold, with_texts
from foldline.reducers.truncate import each_fresh, shorten_arguments, shorter
from foldline.text.shorten import clip_tokens, head_and_tail
from foldline.tokens import Counter
from foldline.view.budget import Need
from foldline.view.transcript import Fold, Seq
from foldline.view.view import View

__all__ = ["ResultShare", "TurnShare", "cut_share", "share_tokens"]


# A quarter of the window lets one result be large, half of the rest leaves room for the next one (the confirm system's
# figures).


def share_tokens(window_tokens: int, used_tokens: int, *, of_window: float = 0.25, of_rest: float = 0.50) -> int:
    """The budget of one result: 25 % of the window or 50 % of what is left of it, whichever is less."""
    return int(min(of_window * window_tokens, of_rest * max(0, window_tokens - used_tokens)))


def cut_share(text: str, budget_tokens: int, counter: Counter, *, head: int = 500, tail: int = 500) -> str:
    """A result over its share of the window, as its first and last characters with an explanation between."""
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
    """Cuts fresh results: each may take `of_window` of the window or `of_rest` of what is left, whichever is less.

    The window is that for input and reply together. The budget is cumulative: each result of a model turn leaves less
    to the next. Results of `exempt` tools (sub-agents) stay whole, and take nothing of the budget.
    """

    of_window: float = 0.25
    of_rest: float = 0.50
    exempt: frozenset[str] = frozenset({"spawn_agent"})
    name: str = "truncate"

    def budget_tokens(self, window_tokens: int, used_tokens: int) -> int:
        """The budget of one result."""
        return share_tokens(window_tokens, used_tokens, of_window=self.of_window, of_rest=self.of_rest)

    def propose(self, view: View, need: Need, /) -> Iterable[Fold]:
        """One fold per fresh result over the rest of the budget."""
        left = saved = 0
        group: Seq | None = None

        def turn(new: Seq) -> None:
            nonlocal left, group
            # A new turn begins: its budget follows from the room at its call, whatever its results take in turn.
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
            # The view still counts these results in full: what was cut from earlier turns is subtracted in `turn`.
            saved += view.counter.text(text) - view.counter.text(out)
            return out

        return each_fresh(view, need, self.name, cut, turn=turn)


@dataclass(frozen=True, slots=True)
class ResultShare:
    """Shortens the largest results and call arguments, largest first, until the need is met (a rung without a model).

    Only pins protect from it. It cuts the newest results too, since one alone may exceed the window (strands#4341).
    """

    floor_tokens: int = 64
    name: str = "truncate"

    def propose(self, view: View, need: Need, /) -> Iterable[Fold]:
        """Folds of single entries, largest first; together they free what is needed, or all that can be freed."""
        found = [
            (tile.form_tokens(entry), tile, entry)
            for tile in view.tiles
            if tile.fold is None and not tile.pinned and not tile.system
            for entry in tile.entries
            if (entry.message.results or entry.message.calls) and entry.message.agent_visible
        ]
        # The largest are cut to one level, so that no result loses more than a larger one does.
        sizes = sorted((size for size, _, _ in found), reverse=True)
        level = _water_level(sizes, need.excess_tokens, self.floor_tokens)
        for size, tile, entry in sorted(found, key=lambda item: (-item[0], item[2].seq)):
            if size <= level:
                break
            form = tile.form(entry)
            texts = sum(_text_tokens(part, view) for part in form.parts)
            # Images, names and overhead cannot be cut: the texts have to lose for them.
            # May be negative: then the text goes down to the few tokens that `_with_share` always leaves.
            share = (level - (size - texts)) / max(1, texts)
            parts = [_with_share(part, share, view) for part in form.parts]
            reason = f"{size:,} tokens in one message; {need.excess_tokens:,} tokens too many in all"
            fold = form_fold(view, tile, entry, parts, reducer=self.name, reason=reason)
            if fold is not None:
                yield fold


def _water_level(sizes: list[int], excess: int, floor: int) -> int:
    """The size to cut all larger ones to, so that together they lose `excess`; not under `floor`. O(sizes).

    As water is let out of a basin: the level falls past one size after another, and each widens the surface.
    """
    freed = 0
    for width, size in enumerate(sizes, 1):
        lower = max(floor, sizes[width] if width < len(sizes) else floor)
        step = width * (max(size, floor) - lower)
        if freed + step >= excess:
            # Rounded up (the two signs): a token too few would leave the request over its limit.
            return max(floor, max(size, floor) - -(-(excess - freed) // width))
        freed += step
    return floor


def _text_tokens(part: Part, view: View) -> int:
    """Tokens of a part that may be cut."""
    if isinstance(part, ToolCall):
        return view.counter.text(part.arguments)
    return view.counter.text(part.text) if isinstance(part, ToolResult) else 0


def _with_share(part: Part, share: float, view: View) -> Part:
    """A part with `share` of its text, the notice included where there is room for it."""
    if isinstance(part, ToolResult):
        text = part.text
        total = view.counter.text(text)
        notice = "[… ~{} of ~{} tokens cut …]"
        limit = max(12, int(total * share) - view.counter.text(notice.format(total, total)) - 2)
        head, tail = clip_tokens(text, limit, view.counter, "both")
        if not tail:
            return part  # nothing was cut: the text is within the limit already
        cut = f"{head}\n{notice.format(total - limit, total)}\n{tail}"
        return with_texts(Message("tool", (part,)), lambda _: cut)[0]
    if isinstance(part, ToolCall):
        limit = int(view.counter.text(part.arguments) * share)
        return replace(part, arguments=shorten_arguments(part, max(12, limit), view.counter))
    return part
