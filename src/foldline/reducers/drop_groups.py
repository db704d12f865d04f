"""Oldest groups leave, with a line that says how many messages are gone."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from foldline.budget import Need
from foldline.messages import Message
from foldline.reducers.base import span_fold
from foldline.tiles import Span
from foldline.transcript import Fold
from foldline.view import View

__all__ = ["DropGroups", "drop_fold", "omitted"]


def omitted(count: int) -> str:
    """The notice that stands for dropped messages."""
    return f"[{count} earlier messages omitted]"


def drop_fold(view: View, span: Span, *, reducer: str, reason: str, notice: Message | None = None) -> Fold | None:
    """A fold that shows only a notice in place of a span; None when the notice would not be shorter."""
    shown = notice or view.codec.note(omitted(len(view.covered(span.start, span.stop))))
    return span_fold(view, span.start, span.stop, (shown,), reducer=reducer, reason=reason)


@dataclass(frozen=True, slots=True)
class DropGroups:
    """Drops whole groups, oldest first, until the target is met; the newest `keep_groups` stay.

    `loop_only`: only groups of the running tool loop leave, the conversation before it stays (three-layer system, 3c).
    """

    loop_only: bool = False
    keep_groups: int = 1
    name: str = "drop_groups"

    def propose(self, view: View, need: Need, /) -> Iterable[Fold]:
        """One fold per span, oldest first, each no longer than needed."""
        left = need.excess_tokens
        first = view.index(view.newest_user) + 1 if self.loop_only and view.newest_user is not None else 0
        groups = [index for index in range(first, len(view.units)) if view.units[index].messages]
        if len(groups) <= self.keep_groups:
            return
        last = groups[-self.keep_groups] if self.keep_groups else len(view.units)
        for span in view.spans(last):
            begin = max(span.first, first)
            if begin >= span.last or left <= 0:
                continue
            fold = self._shortest(view, view.span(begin, span.last), left)
            if fold is not None:
                left -= view.between(begin, view.index(fold.stop - 1) + 1) - fold.tokens
                yield fold

    def _shortest(self, view: View, span: Span, excess: int) -> Fold | None:
        """The shortest drop from the start of a span that frees `excess`; the longest when none does."""
        stop = span.first + 1
        while stop < span.last and (view.between(span.first, stop) < excess + 16 or not view.cut(stop)):
            stop += 1
        return drop_fold(
            view,
            view.span(span.first, stop),
            reducer=self.name,
            reason=f"{excess:,} tokens too many; the oldest groups leave",
        )
