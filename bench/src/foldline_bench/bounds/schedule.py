"""The cheapest sequence of folds in hindsight: a lower bound for every schedule of such folds.

A session is a stream of messages; before each request some more have come. A fold at a request, with a cut, shows
everything before the cut shortened. Between folds the provider's cache holds what was sent; at a fold only what stands
before the first change is still cached. The cheapest sequence is found by a dynamic programme over (request, cut), in
O(requests · messages). docs/design/007-the-bound.md derives it, and says what is relaxed.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from math import inf

from foldline.catalog.prices import CacheRule, request_price
from foldline.errors import InvalidInput

__all__ = ["CostTerms", "FoldSchedule", "ShownShares", "best_schedule", "least_price", "schedule_cost_tokens"]


@dataclass(frozen=True, slots=True)
class FoldSchedule:
    """Folds as (request, messages before the cut), oldest first, and the bill in tokens at the full input price."""

    cost_tokens: float
    folds: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class ShownShares:
    """How many tokens are shown in place of the oldest so many: linear between points, and on from the last.

    Points are (tokens before the cut, tokens shown for them), ascending in both; (0, 0) is taken for granted.
    """

    points: tuple[tuple[float, float], ...]

    def __call__(self, tokens: float) -> float:
        """Tokens shown for the oldest `tokens`. O(log points)."""
        index = min(bisect_right(self.points, (tokens, inf)), len(self.points) - 1)
        (x1, y1), (x0, y0) = self.points[index], self.points[index - 1] if index else (0.0, 0.0)
        return min(tokens, y0 + (tokens - x0) * (y1 - y0) / (x1 - x0))

    @classmethod
    def through(cls, points: Sequence[tuple[float, float]], share: float) -> ShownShares:
        """The ascending line nearest to all points (isotonic regression); `share` of everything when there are none.

        Beyond the last point it goes on as it came there.
        """
        pools: list[tuple[list[float], float]] = []
        for tokens, shown in sorted((max(1.0, x), max(0.0, min(x, y))) for x, y in points):
            places, total = [tokens], shown
            while pools and pools[-1][1] / len(pools[-1][0]) >= total / len(places):
                before, more = pools.pop()
                places, total = before + places, more + total
            pools.append((places, total))
        level = {x: total / len(places) for places, total in pools for x in places}
        return cls(tuple(sorted(level.items())) or ((1.0, share),))


def least_price(rule: CacheRule, tokens: float, written_tokens: float) -> float:
    """The least that any request of at least so many tokens pays of which at least so many are written.

    `request_price` without blocks, and without the fall of the price at the cache's minimum: one that is smaller pays
    the full price for each token, and may pay more than one that is a little larger. O(steps).
    """
    read = rule.read_ratio * max(tokens, rule.minimum_tokens)
    price = read + (rule.write_ratio - rule.read_ratio) * written_tokens
    return (min(price, tokens) if tokens < rule.minimum_tokens else price) * rule.step(int(tokens)).input_ratio


@dataclass(frozen=True, slots=True)
class _Session:
    """The input of the dynamic programme: positions of cuts, tokens shown before each, arrivals by request."""

    at: tuple[float, ...]
    shown: tuple[float, ...]
    come: tuple[int, ...]
    fixed_tokens: float
    rule: CacheRule
    budgets: tuple[float, ...]
    cold: frozenset[int]
    written_share: float
    in_place: bool
    keep_tokens: tuple[float, ...]
    dips: frozenset[int]
    """Cuts before which less is shown than before an earlier one."""

    def tokens(self, request: int, cut: int) -> float:
        """Size of a request whose last fold was at a cut."""
        return self.fixed_tokens + self.shown[cut] + self.at[self.come[request]] - self.at[cut]

    def new_tokens(self, request: int) -> float:
        """Tokens that arrived before a request."""
        return self.at[self.come[request]] - (self.at[self.come[request - 1]] if request else 0.0)

    def cuts(self, request: int) -> range:
        """Where a fold may cut: the newest `keep_tokens` stay."""
        come = self.come[request]
        return range(1, bisect_right(self.at, self.at[come] - self.keep_tokens[request], 0, come + 1))

    def going_on(self, request: int, cut: int) -> float:
        """The price of a request without a fold."""
        tokens = self.tokens(request, cut)
        if tokens > self.budgets[request]:
            return inf
        fresh = tokens if request == 0 or request in self.cold else self.new_tokens(request)
        if cut == 0:  # nothing is relaxed before the first fold: any schedule sends exactly this
            return request_price(self.rule, round(tokens), round(tokens - fresh))
        return least_price(self.rule, tokens, fresh)

    def folding(self, request: int, before: int, cut: int) -> float:
        """The price of a request with a fold that moves the cut."""
        tokens = self.tokens(request, cut)
        if tokens > self.budgets[request]:
            return inf
        if request == 0 or request in self.cold:
            return least_price(self.rule, tokens, tokens)
        anew = self.shown[cut] - (self.shown[before] if self.in_place else 0.0)
        written = self.written_share * max(0.0, anew) + self.at[self.come[request]] - self.at[cut]
        return least_price(self.rule, tokens, written)


@dataclass(frozen=True, slots=True, kw_only=True)
class CostTerms:
    """The constraints on every schedule of a session. Sizes are in tokens.

    `fixed_tokens` stand before all messages and stay. `shown` says how many tokens stand for the oldest so many,
    ascending; `shown_at` how many do before some cuts, where that is less. At least `keep_tokens` of the newest stay as
    they are. Budget and keep may be one for each request. Requests in `cold` find no cache. Of what a fold shows anew
    it writes `written_share`; the rest is taken to be cached. With `in_place` what was shown before the cut of the fold
    before stays where it is, in the cache; else each fold writes all of it anew.
    """

    fixed_tokens: int
    budget_tokens: int | Sequence[float]
    shown: Callable[[float], float]
    keep_tokens: float | Sequence[float]
    rule: CacheRule
    cold: Collection[int] = frozenset()
    written_share: float = 1.0
    in_place: bool = True
    shown_at: Mapping[int, float] = field(default_factory=dict)

    def of(self, arrivals: Sequence[Sequence[int]]) -> _Session:
        """These terms on a session: for each request, the sizes of the messages that came before it. O(messages)."""
        at = tuple(accumulate((float(tokens) for new in arrivals for tokens in new), initial=0.0))
        line = list(accumulate((min(tokens, self.shown(tokens)) for tokens in at), max))
        shown = [min(tokens, self.shown_at.get(cut, tokens)) for cut, tokens in enumerate(line)]
        return _Session(
            at,
            tuple(shown),
            tuple(accumulate(map(len, arrivals))),
            float(self.fixed_tokens),
            self.rule,
            _each(self.budget_tokens, len(arrivals)),
            frozenset(self.cold),
            self.written_share,
            self.in_place,
            _each(self.keep_tokens, len(arrivals)),
            frozenset(cut for cut in self.shown_at if cut < len(at) and shown[cut] < line[cut]),
        )


def _each(value: float | Sequence[float], count: int) -> tuple[float, ...]:
    return (float(value),) * count if isinstance(value, int | float) else tuple(value)


def best_schedule(arrivals: Sequence[Sequence[int]], terms: CostTerms) -> FoldSchedule:
    """The cheapest folds for a session that is known in advance. Raises InvalidInput if none keeps to the budget.

    `arrivals` are, for each request, the sizes of the messages that came before it. O(requests · messages), and as much
    again for each cut that `shown_at` lowers.
    """
    session = terms.of(arrivals)
    bills = [0.0] + [inf] * (len(session.at) - 1)
    moves: list[Mapping[int, int]] = []
    for request in range(len(arrivals)):
        bills, moved = _one_more(session, request, bills)
        moves.append(moved)
    cost, cut = min((bill, cut) for cut, bill in enumerate(bills))
    if cost == inf:
        raise InvalidInput("no sequence of folds keeps each request within its budget", place="budget_tokens")
    folds = []
    for request in range(len(arrivals) - 1, -1, -1):
        if cut in moves[request]:
            folds.append((request, cut))
            cut = moves[request][cut]
    return FoldSchedule(cost, tuple(reversed(folds)))


def _one_more(session: _Session, request: int, bills: Sequence[float]) -> tuple[list[float], Mapping[int, int]]:
    """The least bills by cut with one more request, and which cut each fold that pays was from. O(messages)."""
    after = [inf] * len(bills)
    for cut in range(session.come[request] + 1):
        if bills[cut] < inf:
            after[cut] = bills[cut] + session.going_on(request, cut)
    moved: dict[int, int] = {}
    # The price of a fold is linear in what was shown before, save where it is of no weight (cold, below the minimum):
    # so the best earlier cut is a running minimum for each price of a token, and one for where it has none. Before a
    # dip less is shown than before an earlier cut; then nothing is shown anew, and all earlier ones are tried.
    rule, share = session.rule, session.written_share * session.in_place
    slopes = {step.input_ratio for step in rule.steps} | {1.0}
    weights = [0.0, *(ratio * share * (rule.write_ratio - rule.read_ratio) for ratio in slopes)]
    best = [(inf, 0)] * len(weights)
    for cut in session.cuts(request):
        earlier = cut - 1
        if bills[earlier] < inf:
            shown = session.shown[earlier]
            best = [min(b, (bills[earlier] - weight * shown, earlier)) for b, weight in zip(best, weights, strict=True)]
        tried = range(cut) if cut in session.dips else {before for _, before in best}
        for before in tried:
            bill = bills[before] + session.folding(request, before, cut)
            if bill < after[cut]:
                after[cut], moved[cut] = bill, before
    return after, moved


def schedule_cost_tokens(
    arrivals: Sequence[Sequence[int]], folds: Sequence[tuple[int, int]], terms: CostTerms
) -> float:
    """The bill of these folds by the same model; infinite when a request is over budget or a cut is not allowed."""
    session = terms.of(arrivals)
    chosen = dict(folds)
    total, cut = 0.0, 0
    for request in range(len(arrivals)):
        moved = chosen.get(request)
        if moved is None:
            total += session.going_on(request, cut)
        elif moved <= cut or moved not in session.cuts(request):
            return inf
        else:
            total += session.folding(request, cut, moved)
            cut = moved
    return total
