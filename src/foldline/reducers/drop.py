"""Leaves out the oldest groups; a notice says how many messages are gone.

Three rules for what leaves: groups until the target is met, turns of a sliding window, and history over a budget of its
own. `SumUp` has a model summarise first what would leave.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import ClassVar, Protocol

from foldline.messages import Message
from foldline.reducers.base import Ask, span_fold
from foldline.reducers.summarize import Summarize
from foldline.view.budget import Need, Trigger
from foldline.view.tiles import Span, Tile
from foldline.view.transcript import Fold, Seq
from foldline.view.user_words import speaks
from foldline.view.view import View

__all__ = [
    "DropGroups",
    "HistoryBudget",
    "LeavesOut",
    "SlidingWindow",
    "SumUp",
    "drop_fold",
    "history_budget",
    "is_checkpoint",
    "omitted",
    "shortest",
    "truncated",
]

# Room for the notice in place of what leaves: a short line, and the overhead of a message. A guess is enough, since the
# commit counts what is shown.
NOTICE_TOKENS = 24


def omitted(count: int) -> str:
    """The notice in place of dropped messages."""
    return f"[{count} earlier messages omitted]"


def drop_fold(
    view: View, span: Span, *, reducer: str, reason: str, notice: Message | None = None, requested: bool = False
) -> Fold | None:
    """A fold that shows a notice in place of a span; None when that would not be shorter."""
    shown = notice or view.codec.note(omitted(view.covered_count(span.start, span.stop)))
    return span_fold(view, span.start, span.stop, (shown,), reducer=reducer, reason=reason, requested=requested)


def shortest(view: View, first: int, last: int, tokens: int) -> Span:
    """The shortest span from tile `first` that holds `tokens`; all of [first, last) when none does."""
    # Group by group, so that no more leaves than needed: what is dropped has no digest to be found in.
    stop = first + 1
    while stop < last and (view.between(first, stop) < tokens or not view.may_cut(stop)):
        stop += 1
    return view.span(first, stop)


def is_checkpoint(tile: Tile) -> bool:
    """Whether a tile is a model's summary: it replaced what left before, and is worth more than what follows."""
    return tile.fold is not None and tile.fold.shown[0].kind == "summary"


@dataclass(frozen=True, slots=True)
class DropGroups:
    """Drops whole groups, oldest first, until the target is met; the newest `keep_groups` stay.

    With `loop_only` only groups of the running tool loop leave (messages with calls, and their results); the
    conversation before it stays, and so do checkpoints (three-layer system, 3c).
    """

    loop_only: bool = False
    keep_groups: int = 1
    name: str = "drop_groups"

    def propose(self, view: View, need: Need, /) -> Iterable[Fold]:
        """One fold per span, oldest first, each no longer than needed."""
        # One fold per span, not one for all: what may not be folded (pins, say) stands between them.
        reason = f"{need.excess_tokens:,} tokens too many; the oldest groups leave"
        for span in self.leaving(view, need):
            fold = drop_fold(view, span, reducer=self.name, reason=reason, requested=need.requested)
            if fold is not None:
                yield fold

    def leaving(self, view: View, need: Need, *, spare: bool = True) -> Iterable[Span]:
        """The spans that have to leave, oldest first; with `spare` checkpoints in the running loop stay."""
        left = need.excess_tokens
        first = view.index(view.newest_user) + 1 if self.loop_only and view.newest_user is not None else 0
        # Hidden entries and left branches show nothing: they are no groups to keep.
        groups = [index for index in range(first, len(view.tiles)) if view.tiles[index].messages]
        if len(groups) <= self.keep_groups:
            return
        last = groups[-self.keep_groups] if self.keep_groups else len(view.tiles)
        # Each span that leaves frees its size less that of its notice.
        for start, stop in self._runs(view, first, last, spare, need.requested):
            if left <= 0:
                return
            span = shortest(view, start, stop, left + NOTICE_TOKENS)
            # A notice alone: dropping it again would give another notice of the same size.
            if span.last == span.first + 1 and view.tiles[span.first].fold is not None:
                continue
            left -= span.tokens - NOTICE_TOKENS
            yield span

    def _runs(self, view: View, first: int, last: int, spare: bool, requested: bool) -> Iterable[tuple[int, int]]:
        """Runs of tiles that may leave together; in a loop, groups with calls and folds over such."""
        for span in view.spans(last, requested=requested):
            start = max(span.first, first)
            for index in range(start, span.last + 1):
                if index == span.last or (self.loop_only and not _of_loop(view.tiles[index], spare)):
                    if index > start and view.may_cut(index):
                        yield start, index
                    start = index + 1


def _of_loop(tile: Tile, spare: bool) -> bool:
    # Only groups with calls: words between them are the conversation, which this rule leaves whole.
    if tile.fold is not None:
        return not (spare and is_checkpoint(tile))
    return not tile.messages or any(entry.message.calls for entry in tile.entries)


@dataclass(frozen=True, slots=True)
class SlidingWindow:
    """Drops the oldest turns until tokens, messages and turns hold, or nothing more may go.

    A user message follows a drop: the next turn's, or the notice where a turn is longer than the window. System text,
    pinned groups and the newest user message stay; a call and its results leave together. When a number of messages or
    turns in `trigger` is reached, the window lands at `landing` of it: a window that is exactly full would slide, and
    change the cached prefix, with every message.
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
        # Three needs at once: each fold lowers all of them, and the last of them decides how far the window slides.
        for span in view.spans(requested=need.requested):
            if tokens <= 0 and messages <= 0 and turns <= 0:
                return
            out = _shortest(view, span, tokens, messages, turns)
            fold = drop_fold(view, out, reducer=self.name, reason=reason, requested=need.requested)
            if fold is None:
                continue
            tokens -= out.tokens - fold.tokens
            messages -= sum(tile.message_count for tile in view.tiles[out.first : out.last]) - len(fold.shown)
            turns -= _turns(view, out.first, out.last)
            yield fold

    def _excess(self, count: int, threshold: int | None) -> int:
        """How many must leave after a threshold was reached; 0 below it."""
        # At least one message below the threshold, whatever the share: at the threshold it would act again at once.
        if threshold is None or count < threshold:
            return 0
        return count - max(1, min(threshold - 1, int(self.landing * threshold)))


def _shortest(view: View, span: Span, tokens: int, messages: int, turns: int) -> Span:
    """The shortest beginning of a span that frees enough and ends before a turn; else the whole span."""
    # The notice itself costs tokens, and is a message: both are freed on top of the need.
    freed_messages = freed_turns = 0
    for index in range(span.first, span.last):
        freed_messages += view.tiles[index].message_count
        freed_turns += _turns(view, index, index + 1)
        if (
            view.between(span.first, index + 1) >= tokens + (NOTICE_TOKENS if tokens > 0 else 0)
            and (messages <= 0 or freed_messages > messages)
            and freed_turns >= turns
            and view.may_cut(index + 1)
            and _starts_turn(view, index + 1)
        ):
            return view.span(span.first, index + 1)
    return span


def _turns(view: View, first: int, last: int) -> int:
    tiles = (tile for tile in view.tiles[first:last] if tile.fold is None)
    return sum(speaks(entry.message) for tile in tiles for entry in tile.entries)


def _starts_turn(view: View, index: int) -> bool:
    """Whether a window may begin at a tile: with a user's words, or in the newest turn, which never leaves whole."""
    # A window that began with a reply or a result would show answers to nothing.
    while index < len(view.tiles) and not view.tiles[index].messages:
        index += 1
    if index >= len(view.tiles) or any(speaks(entry.message) for entry in view.tiles[index].entries):
        return True
    return view.newest_user is None or view.newest_user < view.tiles[index].start


def truncated(count: int) -> str:
    """The notice in place of messages left out of the history."""
    return f"[conversation truncated — {count} older messages omitted]"


def history_budget(
    limit_tokens: int, system_tokens: int, tools_tokens: int, max_output_tokens: int, max_history_tokens: int
) -> int:
    """Tokens for history: the limit less system text, tools, reply and 10 % of it; capped unless the cap is 0."""
    # The formula of the three-layer system (layer 2), to the letter: its tenth is of the whole limit, not of the rest.
    available = limit_tokens - system_tokens - tools_tokens - max_output_tokens - limit_tokens // 10
    return max(0, min(available, max_history_tokens) if max_history_tokens > 0 else available)


@dataclass(frozen=True, slots=True)
class HistoryBudget:
    """Leaves out the oldest messages of a history that is over its budget (`max_history_tokens` at most; 0: no cap).

    History reaches up to the newest user message, which stays; the tool loop after it has a budget of its own, so that
    the prefix changes once a turn and not at every call. Checkpoints stay: they replaced what left before. A history
    over its budget goes down to `landing` of it (three-layer system, layer 2).
    """

    max_history_tokens: int = 20_000
    landing: float = 1.0
    name: str = "render_budget"

    def propose(self, view: View, need: Need, /) -> Iterable[Fold]:
        """One fold per span over the budget, oldest first."""
        reason = f"history over its budget of {self.budget_tokens(view, need):,} tokens"
        for span in self.leaving(view, need):
            fold = drop_fold(view, span, reducer=self.name, reason=reason, notice=_notice(view, span))
            if fold is not None:
                yield fold

    def budget_tokens(self, view: View, need: Need) -> int:
        """Tokens allowed for the history of this view. O(tiles)."""
        fixed = view.base_tokens + _system_tokens(view)
        return history_budget(need.whole_window_tokens, fixed, 0, need.max_output_tokens, self.max_history_tokens)

    def leaving(self, view: View, need: Need, *, spare: bool = True) -> Iterable[Span]:
        """The spans that have to leave, oldest first; none within the budget. With `spare` checkpoints stay."""
        if view.newest_user is None:
            return
        # System text counts on neither side: it is in the formula of the budget, and no fold may cover it.
        newest = view.index(view.newest_user)
        budget = self.budget_tokens(view, need)
        history = view.between(0, newest + 1) - _system_tokens(view, newest + 1)
        if history <= budget:
            return
        # At a landing below 1 the next few turns fit without a change to the prefix.
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
    """The notice for a span: a system message where no message precedes it and the user speaks next, else the user's.

    Chat templates want one system message, and the user's words behind it.
    """
    # Only messages that the model was to see: it must not learn of hidden ones from a number.
    count = view.covered_count(span.start, span.stop, seen=True)
    following = view.after(span.last)
    leading = None if following is None else following.leading
    alone = view.before(span.first) is None and (leading is None or leading.role == "user")
    return view.codec.note(truncated(count), role="system" if view.codec.system_inside and alone else "user")


def _system_tokens(view: View, last: int | None = None) -> int:
    return sum(tile.tokens for tile in view.tiles[:last] if tile.system and tile.fold is None)


@dataclass(frozen=True, slots=True)
class ChosenSpans:
    """Asks for a checkpoint of what somebody chose: the groups and folds that a range of entries [start, stop) touches.

    Whole groups, so that no call parts from its result. What must stay (pins, system text, the newest user's words, a
    call that waits) stays, and parts a range in two.
    """

    ranges: tuple[tuple[Seq, Seq], ...]
    summarize: Summarize = field(default_factory=lambda: Summarize(keep=0.0, least_tokens=1))
    name: str = "chosen"

    def focused(self, instructions: str | None, /) -> ChosenSpans:
        """The same reducer with the instructions of one compaction."""
        return replace(self, summarize=self.summarize.focused(instructions))

    def spans(self, view: View, need: Need, /) -> Iterable[Span]:
        """The chosen spans that may be folded, oldest first. O(tiles)."""
        for whole in view.spans(requested=need.requested):
            first = whole.first
            while first < whole.last:
                last = first
                while last < whole.last and self._touches(view.tiles[last]):
                    last += 1
                cut = last
                while cut > first and not view.may_cut(cut):
                    cut -= 1
                if cut > first:
                    yield view.span(first, cut)
                first = max(last, first + 1)

    def propose(self, view: View, need: Need, /) -> Iterable[Ask]:
        """One ask per span that is more than a fold already."""
        for span in self.spans(view, need):
            alone = span.last == span.first + 1 and view.tiles[span.first].fold is not None
            if not alone and (ask := self.summarize.ask(view, span, need)) is not None:
                yield ask

    def _touches(self, tile: Tile) -> bool:
        return any(tile.start < stop and start < tile.stop for start, stop in self.ranges)


class LeavesOut(Protocol):
    """A reducer that knows which spans it would leave out."""

    def leaving(self, view: View, need: Need, *, spare: bool = True) -> Iterable[Span]:
        """The spans, oldest first; with `spare` without checkpoints."""


@dataclass(frozen=True, slots=True)
class SumUp:
    """Asks for a checkpoint of each span that `drop` would leave out; an earlier checkpoint is updated.

    In a policy it comes before `drop`, which leaves out what no model has summarised.
    """

    drop: LeavesOut
    summarize: Summarize = field(default_factory=Summarize)
    name: str = "sum_up"
    only_asks: ClassVar[bool] = True

    def with_facts(self, facts: tuple[str, ...], /) -> SumUp:
        """The same reducer, whose summaries hold these facts too."""
        return replace(self, summarize=self.summarize.with_facts(facts))

    def with_window(self, window_tokens: int, /) -> SumUp:
        """The same reducer for a model with this window."""
        return replace(self, summarize=self.summarize.with_window(window_tokens))

    def propose(self, view: View, need: Need, /) -> Iterable[Ask]:
        """One ask per span, oldest first."""
        # Checkpoints are not spared here: the new one takes the old one in, else each run would leave one more behind.
        for span in self.drop.leaving(view, need, spare=False):
            alone = span.last == span.first + 1 and is_checkpoint(view.tiles[span.first])
            wanted = not alone and span.tokens >= self.summarize.least_tokens
            if wanted and (ask := self.summarize.ask(view, span, need)) is not None:
                yield ask
