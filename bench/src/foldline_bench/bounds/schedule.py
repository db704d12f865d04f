"""The cheapest sequence of folds in hindsight: a lower bound for every schedule of such folds.

A session is a stream of messages, of which some arrive before each request. A fold at a request has a cut, and shortens
everything before it. Between folds the provider's cache holds what was sent; at a fold it holds only what is before the
first change. A dynamic programme over (request, cut) finds the cheapest sequence in O(requests · messages).
docs/design/007-the-bound.md derives it and says what is relaxed.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from math import inf

from foldline.catalog.prices import CacheRule, request_price
from foldline.errors import InvalidInput

__all__ = ["CostTerms", "FoldSchedule", "Lack", "ShownShares", "best_schedule", "least_price", "schedule_cost_tokens"]


@dataclass(frozen=True, slots=True)
class FoldSchedule:
    """Folds as (request, messages before the cut), oldest first, and the bill in tokens at the full input price."""

    cost_tokens: float
    folds: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class ShownShares:
    """How many tokens are shown for the oldest so many: linear between points, and extrapolated after the last.

    Points are (tokens before the cut, tokens shown for them), ascending in both; (0, 0) is implied.
    """

    points: tuple[tuple[float, float], ...]

    def __call__(self, tokens: float) -> float:
        """Return the tokens shown for the oldest `tokens`. O(log points)."""
        index = min(bisect_right(self.points, (tokens, inf)), len(self.points) - 1)
        (x1, y1), (x0, y0) = self.points[index], self.points[index - 1] if index else (0.0, 0.0)
        return min(tokens, y0 + (tokens - x0) * (y1 - y0) / (x1 - x0))

    @classmethod
    def through(cls, points: Sequence[tuple[float, float]], share: float) -> ShownShares:
        """Return the ascending line nearest to all points; without points, `share` of everything."""
        # Isotonic regression by pooling adjacent violators (Ayer et al., 1955). It has to ascend: a schedule that
        # showed less by folding more would be cheaper for no reason that a real digest has.
        pools: list[tuple[list[float], float]] = []
        for tokens, shown in sorted((max(1.0, x), max(0.0, min(x, y))) for x, y in points):
            places, total = [tokens], shown
            # A pool below its neighbour to the left is merged with it, until the means ascend.
            while pools and pools[-1][1] / len(pools[-1][0]) >= total / len(places):
                before, more = pools.pop()
                places, total = before + places, more + total
            pools.append((places, total))
        level = {x: total / len(places) for places, total in pools for x in places}
        return cls(tuple(sorted(level.items())) or ((1.0, share),))


def least_price(rule: CacheRule, tokens: float, written_tokens: float) -> float:
    """Return a lower bound on the price of a request of so many tokens, of which so many are written. O(steps)."""
    # `request_price` is not monotonic: below the cache's minimum each token has the full price, so that a request can
    # cost more than a slightly larger one; and blocks round down what is cached. A bound must not gain from either.
    read = rule.read_ratio * max(tokens, rule.minimum_tokens)
    price = read + (rule.write_ratio - rule.read_ratio) * written_tokens
    return (min(price, tokens) if tokens < rule.minimum_tokens else price) * rule.step(int(tokens)).input_ratio


@dataclass(frozen=True, slots=True)
class Lack:
    """What a request pays once `message` stands before its cut: whole requests read again, and tokens at full price.

    Message -1 stands before every cut.
    """

    message: int
    requests: float
    price_tokens: float


@dataclass(frozen=True, slots=True)
class _Lacks:
    """The lacks of one request by message, ascending, and the sums of the first so many of them."""

    messages: tuple[int, ...]
    reads: tuple[float, ...]
    prices: tuple[float, ...]

    @classmethod
    def of(cls, lacks: Iterable[Lack]) -> _Lacks:
        ordered = sorted(lacks, key=lambda lack: lack.message)
        return cls(
            tuple(lack.message for lack in ordered),
            tuple(accumulate((lack.requests for lack in ordered), initial=0.0)),
            tuple(accumulate((lack.price_tokens for lack in ordered), initial=0.0)),
        )


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
    # Cuts before which less is shown than before an earlier one.
    dips: frozenset[int]
    lacks: tuple[_Lacks, ...]

    def tokens(self, request: int, cut: int) -> float:
        """Return the size of a request whose last fold was at this cut."""
        return self.fixed_tokens + self.shown[cut] + self.at[self.come[request]] - self.at[cut]

    def new_tokens(self, request: int) -> float:
        """Return the tokens that arrived since the previous request."""
        return self.at[self.come[request]] - (self.at[self.come[request - 1]] if request else 0.0)

    def cuts(self, request: int) -> range:
        """Return where a fold may cut, so that the newest `keep_tokens` stay."""
        come = self.come[request]
        return range(1, bisect_right(self.at, self.at[come] - self.keep_tokens[request], 0, come + 1))

    def going_on(self, request: int, cut: int) -> float:
        """Return the price of a request without a fold; infinite if it is over its budget."""
        tokens = self.tokens(request, cut)
        if tokens > self.budgets[request]:
            return inf
        fresh = tokens if request == 0 or request in self.cold else self.new_tokens(request)
        again = self._again(request, cut, tokens)
        # Nothing is relaxed before the first fold: every schedule sends exactly this, so the exact price is a bound.
        if cut == 0:
            return request_price(self.rule, round(tokens), round(tokens - fresh)) + again
        return least_price(self.rule, tokens, fresh) + again

    def folding(self, request: int, before: int, cut: int) -> float:
        """Return the price of a request with a fold that moves the cut; infinite if it is over its budget."""
        tokens = self.tokens(request, cut)
        if tokens > self.budgets[request]:
            return inf
        again = self._again(request, cut, tokens)
        if request == 0 or request in self.cold:
            return least_price(self.rule, tokens, tokens) + again
        anew = self.shown[cut] - (self.shown[before] if self.in_place else 0.0)
        written = self.written_share * max(0.0, anew) + self.at[self.come[request]] - self.at[cut]
        return least_price(self.rule, tokens, written) + again

    def _again(self, request: int, cut: int, tokens: float) -> float:
        """Return what is paid for what this request lacks before the cut. O(log lacks)."""
        if not self.lacks:
            return 0.0
        lacks = self.lacks[request]
        place = bisect_left(lacks.messages, cut)
        return lacks.reads[place] * self.rule.read_ratio * tokens + lacks.prices[place]


@dataclass(frozen=True, slots=True, kw_only=True)
class CostTerms:
    """The constraints on every schedule of a session. Sizes are in tokens.

    `fixed_tokens` stand before all messages and stay. `shown` says how many tokens stand for the oldest so many,
    ascending; `shown_at` how many do before some cuts, where that is less. At least `keep_tokens` of the newest stay as
    they are. Budget and keep may be one for each request. Requests in `cold` find no cache. Of what a fold shows anew
    it writes `written_share`; the rest is taken to be cached. With `in_place` what was shown before the cut of the fold
    before stays where it is, in the cache; else each fold writes all of it anew. `lacks` are for each request what it
    pays besides for messages that stand before its cut.
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
    lacks: Sequence[Iterable[Lack]] = ()

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
            tuple(map(_Lacks.of, self.lacks)),
        )


def _each(value: float | Sequence[float], count: int) -> tuple[float, ...]:
    return (float(value),) * count if isinstance(value, int | float) else tuple(value)


def best_schedule(arrivals: Sequence[Sequence[int]], terms: CostTerms) -> FoldSchedule:
    """Find the cheapest folds for a session that is known in advance. Raises InvalidInput if no folds meet the budget.

    `arrivals` are, for each request, the sizes of the messages that arrived before it. O(requests · messages), and as
    much again for each cut that `shown_at` lowers.
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
    # Backwards from the cheapest end: `moves` says from which cut each fold came.
    folds = []
    for request in range(len(arrivals) - 1, -1, -1):
        if cut in moves[request]:
            folds.append((request, cut))
            cut = moves[request][cut]
    return FoldSchedule(cost, tuple(reversed(folds)))


def _one_more(session: _Session, request: int, bills: Sequence[float]) -> tuple[list[float], Mapping[int, int]]:
    """Extend the least bills by one request; return them, and the cut that each fold came from. O(messages)."""
    after = [inf] * len(bills)
    for cut in range(session.come[request] + 1):
        if bills[cut] < inf:
            after[cut] = bills[cut] + session.going_on(request, cut)
    moved: dict[int, int] = {}
    # The price of a fold is linear in what was shown before, or does not depend on it (cold caches, below the minimum).
    # So the best earlier cut is a running minimum for each price of a token, plus one for the case without weight. That
    # makes the step O(messages) and not O(messages²). A cut that is a dip shows less than an earlier one, so nothing is
    # shown anew and the price is not linear there: all earlier cuts are tried.
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
    """Return the bill of these folds; infinite if a request is over budget or a cut is not allowed."""
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
