"""Oldest groups leave, with a line that says how many messages are gone."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from foldline.messages import Message
from foldline.reducers.base import span_fold
from foldline.view.budget import Need
from foldline.view.tiles import Span, Tile
from foldline.view.transcript import Fold
from foldline.view.view import View

__all__ = ["DropGroups", "drop_fold", "is_checkpoint", "omitted", "shortest"]

NOTICE_TOKENS = 24
"""Room for the notice that takes the place of what leaves: a short line, and what a message costs by itself."""


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
