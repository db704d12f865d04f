"""How far a policy's bill is from the best in hindsight, with folds that show as much as its own did.

A `WatchedSender` records every message in the form in which it was first sent, and how far the policy's folds reached.
`bound_of` turns that into the input of the bound: docs/design/007-the-bound.md.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from math import inf

from foldline.catalog.prices import CacheRule
from foldline.engine.context import Context
from foldline.messages import Wire
from foldline.reducers.base import HasKeptShare
from foldline.reducers.digest import Digest
from foldline.replay import Managed, Pauses, Replay, Sent, Turn, bill_tokens
from foldline.view.transcript import Entry, Fold, Seq
from foldline.view.user_words import speaks
from foldline_bench.bounds.schedule import CostTerms, FoldSchedule, ShownShares, best_schedule

__all__ = ["Bound", "Course", "WatchedSender", "bound_of", "course_of"]

# Share that a digest takes of what it stands for, where a policy folded nothing: what `Rent` expects.
USUAL_SHARE = 0.5


class WatchedSender(Managed):
    """A `Managed` sender that records sizes, cuts and requests."""

    def __init__(self, context: Context, *, pauses: Pauses | None = None) -> None:
        super().__init__(context, pauses=pauses)
        self.first_tokens: list[int] = []
        """Size of each entry as it was first sent."""
        self.come: list[int] = []
        """Entries that had come, by request."""
        self.cuts: list[Seq] = []
        """The place after the last entry that is not as it was first sent, by request."""
        self.spans: list[Seq] = []
        """The place after the newest digest, by request."""
        self.sent: list[bool] = []
        """Whether the request was made, by request."""
        self.messages: list[Sequence[Wire]] = []
        """What was sent, by request; nothing where it was refused."""
        self.head: set[Seq] = set()
        """Entries of the beginning that no policy may fold: system text, and the user's message if there is but one."""
        self._speaking: list[Seq] = []

    def send(self, new: Sequence[Wire]) -> Sent:
        """Append and prepare. Raises DoesNotFit. O(messages)."""
        before = self.context.event_count
        messages: Sequence[Wire] = ()
        try:
            sent = super().send(new)
            messages = sent.messages
            return sent
        finally:
            # A refused request may have folded before it failed: its events count too.
            self._note(before)
            self.messages.append(messages)
            self.sent.append(bool(messages))

    def _note(self, before: int) -> None:
        came = self.come[-1] if self.come else 0
        for event in self.context.events_after(before):
            if isinstance(event, Entry):
                self._take(event)
            elif isinstance(event, Fold) and event.form and event.start >= came:
                # Shortened on arrival: the longer form was never sent, so no bill has it.
                self.first_tokens[event.start] = event.tokens
        self.come.append(len(self.first_tokens))
        cut, span = self._cut()
        self.cuts.append(cut)
        self.spans.append(span)

    def _take(self, entry: Entry) -> None:
        self.first_tokens.append(entry.tokens)
        if entry.message.role == "system":
            self.head.add(entry.seq)
        if speaks(entry.message):
            self._speaking.append(entry.seq)

    def _cut(self) -> tuple[Seq, Seq]:
        """Return where the newest change ends, and where the newest digest does."""
        # From the newest on, and only as far as the newest digest: O(what is shown in full).
        changed = 0
        for tile in reversed(self.context.view.tiles):
            if tile.fold is not None:
                return changed or tile.stop, tile.stop
            for entry in reversed(tile.entries):
                if not changed and tile.form_tokens(entry) != self.first_tokens[entry.seq]:
                    changed = entry.seq + 1
        return changed, 0

    def keep_tokens(self, fixed_tokens: float) -> float:
        """Return how many of the newest tokens a fold of the policy keeps whole: its digest share of the landing."""
        policy, limit = self.context.policy, self.context.limits.input_tokens
        share = max((r.kept_share for r in policy.reducers if isinstance(r, HasKeptShare)), default=Digest().keep)
        return share * policy.landing_tokens(limit, int(fixed_tokens), default=0.60)

    def fixed_entries(self) -> set[Seq]:
        """Return the entries that stay unchanged in every request."""
        # The user's message belongs to them only if it is the only one: older ones may be folded once there is a newer.
        head = self.head | (set(self._speaking) if len(self._speaking) == 1 else set())
        shown = {entry.seq for tile in self.context.view.tiles if tile.fold is None for entry in tile.entries}
        changed = {seq for tile in self.context.view.tiles for seq in tile.forms}
        return (head & shown) - changed


@dataclass(frozen=True, slots=True)
class Course:
    """A replayed session as the bound's model sees it; requests that were refused are left out.

    `folds` are the policy's own, as (request, messages before the cut), and `points` how many tokens stood before each
    of these cuts, and how many were shown for them.
    With `terms` the earlier digest stays in place at a fold, with those of `anew` each fold writes it anew.
    """

    arrivals: tuple[tuple[int, ...], ...]
    folds: tuple[tuple[int, int], ...]
    points: tuple[tuple[float, float], ...]
    terms: CostTerms
    anew: CostTerms


def course_of(done: Replay, watching: WatchedSender, rule: CacheRule, *, cold_every: int | None = None) -> Course:
    """Describe a session and the folds of a policy's run as the bound's model sees them. O(requests · messages).

    A cut is where the policy's `keep` begins, or where its fold reached if that is newer. What its folds changed behind
    the cut counts as if less had been shown before the cut, so that the size of each request is the real one.
    """
    fixed = watching.fixed_entries()
    sizes = [0 if seq in fixed else tokens for seq, tokens in enumerate(watching.first_tokens)]
    at = list(accumulate(map(float, sizes), initial=0.0))
    made = [index for index, sent in enumerate(watching.sent) if sent]
    turns, come = [done.turns[i] for i in made], [watching.come[i] for i in made]
    plain = [turn.tokens - at[count] for i, turn, count in zip(made, turns, come, strict=True) if not watching.cuts[i]]
    fixed_tokens = min(plain, default=float(sum(watching.first_tokens[seq] for seq in fixed)))
    keep = [watching.keep_tokens(fixed_tokens)] * len(made)
    cut, last, folds = 0, 0, []
    for place, turn in enumerate(turns):
        changed, count = watching.cuts[made[place]], come[place]
        if not changed or not (turn.prefix_broken or changed > last):
            continue
        last = changed
        usual = bisect_right(at, at[count] - keep[place]) - 1
        cut = max(cut, watching.spans[made[place]], usual)
        after = at[count] - at[cut]
        if after > min(turn.tokens - fixed_tokens, turn.tokens - turn.cached_tokens):
            # Most of what it changed is behind what is usually kept: with the usual cut, less than nothing would be
            # shown or written for this fold.
            cut = changed
        keep[place] = min(keep[place], at[count] - at[cut])
        folds.append((place, cut))
    points = [(at[cut], turns[i].tokens - fixed_tokens - (at[come[i]] - at[cut])) for i, cut in folds]
    shown_at: dict[int, float] = {}
    for (_, cut), (_, shown) in zip(folds, points, strict=True):
        shown_at[cut] = max(0.0, min(shown, shown_at.get(cut, inf)))
    terms = CostTerms(
        fixed_tokens=int(fixed_tokens),
        budget_tokens=done.limit_tokens,
        shown=ShownShares.through(points, USUAL_SHARE),
        keep_tokens=keep,
        rule=rule,
        cold={i for i, turn in enumerate(turns) if _is_cold(turn, rule, cold_every)},
        shown_at=shown_at,
    )
    arrivals = tuple(tuple(sizes[start:stop]) for start, stop in pairwise([0, *come]))
    written = [turns[i].tokens - turns[i].cached_tokens - (at[come[i]] - at[cut]) for i, cut in folds]
    stood = [0.0, *(terms.of(arrivals).shown[cut] for _, cut in folds)]
    grown = [more - less for less, more in pairwise(stood)]
    in_place = replace(terms, written_share=_least_share(written, grown))
    return Course(
        arrivals,
        tuple(folds),
        tuple(points),
        in_place,
        replace(terms, in_place=False, written_share=_least_share(written, stood[1:])),
    )


def _least_share(written: Sequence[float], shown: Sequence[float]) -> float:
    """Return the least share of what a fold of the policy showed anew that it had to write; at most all of it."""
    # The least over all folds, as the bound must not pay more than any real fold did.
    return min((max(0.0, min(1.0, a / b)) for a, b in zip(written, shown, strict=True) if b > 0), default=1.0)


@dataclass(frozen=True, slots=True)
class Bound:
    """What a policy paid for a session, and the least that such folds could have cost, in tokens at the full price.

    `cost_tokens` is the policy's real bill, summaries included; `schedule` the cheapest in hindsight, whose digests
    stay in place; `anew` the cheapest that writes its whole digest anew at each fold, as the policies here do.
    """

    cost_tokens: float
    schedule: FoldSchedule
    anew: FoldSchedule

    @property
    def schedule_cost_tokens(self) -> float:
        """The bill of the cheapest schedule."""
        return self.schedule.cost_tokens

    @property
    def schedule_ratio(self) -> float:
        """The policy's bill by that of the cheapest schedule; 1 when nothing was sent."""
        return self.cost_tokens / self.schedule_cost_tokens if self.schedule_cost_tokens else 1.0


def _is_cold(turn: Turn, rule: CacheRule, cold_every: int | None) -> bool:
    """Whether a request finds no cache, as in `bill_tokens`."""
    return rule.expired(turn.idle_seconds) or (cold_every is not None and (turn.index + 1) % cold_every == 0)


def bound_of(done: Replay, watching: WatchedSender, rule: CacheRule, *, cold_every: int | None = None) -> Bound:
    """Compare a replayed session's bill with the best in hindsight; `watching` was its sender. O(requests · messages).

    With `cold_every`, neither finds a cache at every request of such a number, as in `bill_tokens`.
    """
    course = course_of(done, watching, rule, cold_every=cold_every)
    made = [turn for turn, sent in zip(done.turns, watching.sent, strict=True) if sent]
    return Bound(
        bill_tokens(made, rule, cold_every=cold_every),
        best_schedule(course.arrivals, course.terms),
        best_schedule(course.arrivals, course.anew),
    )
