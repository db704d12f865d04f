"""Rent or buy: folds once keeping has cost as much as folding would (docs/design/007-the-bound.md).

Keeping what could be folded costs its reading price at every request (the rent). Folding it costs writing again what
stands after it (the price). Nobody knows how long a session will last. Folding once the rent paid reaches the price
costs at most twice as much as the best moment in hindsight, and in a steady session the interval is the best one (the
economic order quantity). Rent and price are differences between prices of whole requests, so that they include the
provider's minimum prefix, its blocks and its higher prices for long requests. The bound of twice the best holds for
requests of one price and above the minimum: at a step to a higher price, one request may be paid at that price before
the fold.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from foldline.catalog.prices import CacheRule, request_price
from foldline.view.transcript import RentState, Seq, Usage
from foldline.view.view import View

__all__ = ["Bill", "Rent", "Rhythm", "foldable", "pays_before_cold"]


# The least share of a request that is worth a fold: where folding costs nothing (a cold cache, a provider without one),
# every request would make one.
LEAST_SHARE = 0.05


# Tokens folded for each source that the agent reads again because of it, and the usual size of such a source. In
# recorded sessions one is read again per 1,000 to 9,000 tokens folded, by kind of session.
TOKENS_PER_REREAD, SOURCE_TOKENS = 4_000, 1_000


@dataclass(frozen=True, slots=True)
class Bill:
    """The effect of a fold: tokens removed, tokens of the digest in their place, tokens after it.

    All are in the provider's tokens, as its price steps and minimums are. `used_tokens` is the size of the whole
    request without the fold. `earlier_tokens` are those of earlier digests that the new one absorbs: they are written
    again. `rereads` is how many sources the agent is expected to read again because of the fold.
    """

    removable_tokens: int
    digest_tokens: int
    after_tokens: int
    used_tokens: int
    earlier_tokens: int = 0
    rereads: float = 0.0

    def rent(self, rule: CacheRule) -> float:
        """The cost of keeping, per warm request, in tokens at the full input price."""
        folded = self.used_tokens - self.removable_tokens
        return request_price(rule, self.used_tokens, self.used_tokens) - request_price(rule, folded, folded)

    def price(self, rule: CacheRule) -> float:
        """The one-time cost of folding, in the same tokens: the digest and what follows it are written, not read.

        Whatever is read again costs one more request: the prefix from the cache, and the source written.
        """
        folded = self.used_tokens - self.removable_tokens
        still = folded - self.earlier_tokens - self.digest_tokens - self.after_tokens
        again = self.rereads * request_price(rule, folded + SOURCE_TOKENS, folded) if self.rereads else 0.0
        return request_price(rule, folded, still) - request_price(rule, folded, folded) + again

    def least(self, rule: CacheRule) -> float:
        """The least cost of the request: folded before, and read from the cache. No schedule of folds costs less."""
        folded = self.used_tokens - self.removable_tokens
        return request_price(rule, folded, folded)


@dataclass(slots=True)
class Rhythm:
    """The pattern of a session's requests: how many per user message, and how often the cache was cold by then.

    Its expectations come from the session itself. A session is expected to last as long again as it has lasted: that is
    what holds for lengths that spread widely, as those of agents do.
    """

    requests: int = 0
    turns: int = 0
    cold_turns: int = 0
    in_turn: int = 0
    newest_user: Seq | None = None

    def request(self, newest_user: Seq | None, cold: bool) -> None:
        """Count a request sent while `newest_user` is the newest user message. O(1)."""
        # Only the first request of a turn can be cold: within a loop the pause is that of a tool, and counting it would
        # let one slow build stand for the habits of a user.
        if newest_user != self.newest_user or not self.requests:
            self.cold_turns += cold and self.turns > 0
            self.turns += 1
            self.newest_user, self.in_turn = newest_user, 0
        self.requests += 1
        self.in_turn += 1

    @property
    def warm_requests(self) -> float:
        """Requests expected before the cache goes cold, when folding becomes free: at least one."""
        before = self.turns - 1
        if before <= 0:
            return max(1.0, self.requests)
        # The current turn is left out of the average: it is not over, and would make every turn look short.
        usual = (self.requests - self.in_turn) / before
        rest = usual - self.in_turn if usual > self.in_turn else self.in_turn
        return max(1.0, rest + (1 - self.cold_turns / before) * self.requests)


@dataclass(slots=True)
class Rent:
    """Rent or buy for one session, at the prices of `rule`. `due` is called once per request.

    Past its moment the fold still waits while too few warm requests are expected for it to pay: once the cache is cold
    it is free. It never waits longer than the requests since the last fold had to cost anyway, which keeps the bound of
    twice the best.
    """

    rule: CacheRule
    paid: float = 0.0
    """Rent since the last fold."""
    spent: float = 0.0
    """The least cost of the requests since then, under any schedule of folds."""
    keep: float = 0.3
    """Share of the landing that stays whole at the end of the view."""
    digest: float = 0.5
    """Size of a digest as a share of what it replaces."""
    rhythm: Rhythm = field(default_factory=Rhythm)

    def due(self, bill: Bill, *, cold: bool = False) -> bool:
        """Count one more request; returns whether the fold is due. With a cold cache it costs nothing. O(1)."""
        # A negative rent is real: folding may take a request below the least prefix that a provider caches.
        rent = bill.rent(self.rule)
        self.paid += max(0.0, rent)
        self.spent += bill.least(self.rule)
        if bill.removable_tokens <= LEAST_SHARE * bill.used_tokens or rent <= 0:
            return False
        # Where all is written again anyway, what is folded is not: that is more than what it takes to read some again.
        price = 0.0 if cold else bill.price(self.rule)
        if self.paid < price:
            return False
        # Either the fold will pay for itself before the cache goes cold, or waiting has used up the bound.
        return self.rhythm.warm_requests * rent >= price or self.paid > price + self.spent

    def nearness(self, bill: Bill) -> float:
        """How near the moment is at which `due` says yes, as a share of what has to be paid until then. O(1)."""
        rent, price = bill.rent(self.rule), bill.price(self.rule)
        if bill.removable_tokens <= LEAST_SHARE * bill.used_tokens or rent <= 0:
            return 0.0
        most = price if self.rhythm.warm_requests * rent >= price else price + self.spent
        return (self.paid + rent) / most if most > 0 else 1.0

    def settle(self) -> None:
        """Start again after a fold."""
        self.paid = self.spent = 0.0

    # --- the log -----------------------------------------------------------------------------------------------------

    def with_state(self, usage: Usage) -> Usage:
        """A report with the state at its request. O(1)."""
        # Rounded here too: a session replayed from the log must decide as this one does.
        self.paid, self.spent = float(round(self.paid)), float(round(self.spent))
        of = self.rhythm
        state = RentState(
            requests=of.requests,
            turns=of.turns,
            cold_turns=of.cold_turns,
            in_turn=of.in_turn,
            newest_user=of.newest_user,
            paid=int(self.paid),
            spent=int(self.spent),
        )
        return replace(usage, rent=state)

    def restore(self, usage: Usage) -> bool:
        """Take over the state in a report of the log; False for a report under another policy, which has none. O(1)."""
        if (state := usage.rent) is None:
            return False
        self.paid, self.spent = state.paid, state.spent
        self.rhythm = Rhythm(state.requests, state.turns, state.cold_turns, state.in_turn, state.newest_user)
        return True


def pays_before_cold(bill: Bill, rule: CacheRule, *, question: float, chance: float) -> bool:
    """Whether to fold now, while the prefix is warm, rather than after its cache has expired.

    `question` is the price of the summary, in tokens at the full input price; `chance` that the session goes on at all.
    Once the cache is cold, the next request writes whatever there is by then, the whole or what is folded. O(1).
    """
    if not rule.lifetime_seconds or bill.removable_tokens <= LEAST_SHARE * bill.used_tokens:
        return False
    whole = request_price(rule, bill.used_tokens, 0)
    folded = request_price(rule, bill.used_tokens - bill.removable_tokens, 0)
    return chance * (whole - folded) > question


def foldable(view: View, since: Seq, keep_tokens: int, digest_share: float) -> Bill:
    """The bill of folding everything from `since` to the newest `keep_tokens`. O(log tiles) between folds."""
    # An estimate, not a plan: the reducers decide what goes, and to run them at each request would cost what the rent
    # is to save.
    last = len(view.tiles)
    cut = view.tail(keep_tokens)
    first = min(cut, view.index(since) if since else 0)
    open_tokens = view.between(first, cut)
    digest = int(digest_share * open_tokens)
    earlier = sum(tile.tokens for tile in view.tiles[:first] if tile.fold is not None)
    sizes = (open_tokens - digest, digest, view.between(cut, last), view.estimated_tokens, earlier)
    bill = Bill(*(int(view.meter.ratio * tokens) for tokens in sizes))
    return replace(bill, rereads=open_tokens / TOKENS_PER_REREAD)
