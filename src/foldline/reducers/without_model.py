"""What a model would have summarised, as a digest made without one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from foldline.reducers.base import span_fold
from foldline.reducers.digest import digest_message
from foldline.reducers.summarize import Summarize
from foldline.view.budget import Need
from foldline.view.transcript import Fold
from foldline.view.view import View

__all__ = ["WithoutModel"]


@dataclass(frozen=True, slots=True)
class WithoutModel:
    """Folds the spans that `summarize` would ask for into digests, oldest first.

    It stands after `summarize` in a policy that must keep to its retention window: where no model was there, or failed.
    A digest gets at most `share` of its span, and no more than the target leaves room for unless that is less than
    `least_tokens`.
    """

    summarize: Summarize = field(default_factory=Summarize)
    share: float = 0.4
    least_tokens: int = 160
    name: str = "digest"

    def propose(self, view: View, need: Need, /) -> Iterable[Fold]:
        """One fold per span that is more than a digest already."""
        target = need.target_tokens or need.limit_tokens * 3 // 4
        for span in self.summarize.spans(view, need):
            if span.last == span.first + 1 and view.tiles[span.first].fold is not None:
                continue
            room = min(int(self.share * span.tokens), max(self.least_tokens, span.tokens - (need.used_tokens - target)))
            shown = digest_message(view, span.start, span.stop, room)
            reason = "outside what stays whole; no model has summarised it"
            fold = span_fold(
                view, span.start, span.stop, (shown,), reducer=self.name, reason=reason, requested=need.requested
            )
            if fold is not None:
                yield fold
