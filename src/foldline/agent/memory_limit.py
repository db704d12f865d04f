"""A bound on the messages of a session in memory, by the size of its window (three-layer system, layer 1)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from foldline.engine.settings import memory_limit
from foldline.reducers.base import span_fold
from foldline.reducers.digest import digest_message
from foldline.reducers.drop import drop_fold
from foldline.view.budget import Need
from foldline.view.tiles import Span
from foldline.view.transcript import Fold
from foldline.view.view import View

__all__ = ["MessageLimit"]


@dataclass(frozen=True, slots=True)
class MessageLimit:
    """Folds the oldest messages when those that are shown come near `memory_limit` of the window.

    What was folded can be let go of (`Context.release`); what is shown cannot, since each request holds it. It acts at
    `trigger` of the limit, so that what comes in before the next request has room below it, and goes down to `landing`,
    so that the prefix moves once in many turns. A digest stands for what leaves, a notice where that would be no
    shorter. Many short messages get here before their tokens fill a window: 100 tokens each is where both meet.
    """

    trigger: float = 0.9
    landing: float = 0.7
    share: float = 0.5
    name: str = "held_messages"

    def propose(self, view: View, need: Need, /) -> Iterable[Fold]:
        """One fold per span before the newest messages that stay."""
        limit = memory_limit(need.whole_window_tokens)
        held = sum(len(tile.entries) for tile in view.tiles)
        if held <= self.trigger * limit:
            return
        reason = f"{held:,} messages shown, {limit:,} may be held in memory"
        for span in view.spans(self._first_kept(view, int(self.landing * limit))):
            if span.last == span.first + 1 and view.tiles[span.first].fold is not None:
                continue
            fold = self._digest(view, span, reason) or drop_fold(view, span, reducer=self.name, reason=reason)
            if fold is not None:
                yield fold

    def _digest(self, view: View, span: Span, reason: str) -> Fold | None:
        shown = digest_message(view, span.start, span.stop, int(self.share * span.tokens))
        return span_fold(view, span.start, span.stop, (shown,), reducer=self.name, reason=reason)

    def _first_kept(self, view: View, most: int) -> int:
        """First tile of the longest tail that holds at most so many entries; of the newest tile at least."""
        first = len(view.tiles)
        for tile in reversed(view.tiles):
            most -= len(tile.entries)
            if most < 0 and first < len(view.tiles):
                break
            first -= 1
        return first
