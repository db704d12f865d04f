"""Rent or buy: folds once keeping has cost as much as folding would (docs/design/007-the-bound.md).

Keeping what could be folded costs its reading price at every request; folding it costs writing again what stands after
it. Who cannot know how long a session lasts does well to fold when the first has reached the second: in hindsight the
bill is at most twice that of the best moment, and in a steady session the interval is the best one (the economic order
quantity). Both sides are differences between prices of whole requests, so that the provider's minimum prefix, its
blocks and its dearer prices of long requests are in them. The bound of twice the best is for requests of one price and
above the minimum: where a dearer step is passed, one request may be paid at its price before the fold.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from foldline.catalog.prices import CacheRule, request_price
from foldline.view.transcript import RentState, Seq, Usage
from foldline.view.view import View

__all__ = ["Bill", "Rent", "Rhythm", "foldable"]


# Share of a request below which no fold is worth its trouble: where it is free, each request would make one.
LEAST_SHARE = 0.05


@dataclass(frozen=True, slots=True)
class Bill:
    """What a fold would bring: tokens that leave, tokens of the digest in their place, tokens after it.

    All as the provider counts them, as far as is known: its steps and minimums are in its own tokens.
    `used_tokens` is the size of the whole request without the fold. `earlier_tokens` are those of earlier digests, that
    the new one takes in: they are written again.
    """

    removable_tokens: int
    digest_tokens: int
    after_tokens: int
    used_tokens: int
    earlier_tokens: int = 0

    def rent(self, rule: CacheRule) -> float:
        """What keeping costs at each warm request, in tokens at the full input price."""
        folded = self.used_tokens - self.removable_tokens
        return request_price(rule, self.used_tokens, self.used_tokens) - request_price(rule, folded, folded)

    def price(self, rule: CacheRule) -> float:
        """What folding costs once, in the same tokens: digest and what is after it are written, not read."""
        folded = self.used_tokens - self.removable_tokens
        still = folded - self.earlier_tokens - self.digest_tokens - self.after_tokens
        return request_price(rule, folded, still) - request_price(rule, folded, folded)

    def least(self, rule: CacheRule) -> float:
        """What the request costs at least, folded before and all of it read: no schedule of folds sends it for less."""
        folded = self.used_tokens - self.removable_tokens
        return request_price(rule, folded, folded)


@dataclass(slots=True)
class Rhythm:
    """How the requests of a session come: how many to a message of the user, and whether caches had gone cold by then.

    What it expects is learned from the session itself. Nothing else is known of how long it will last than that it has
    lasted so far: as long again is what is expected of sessions whose lengths spread widely, as agents' do.
    """

    requests: int = 0
    turns: int = 0
    cold_turns: int = 0
    in_turn: int = 0
    newest_user: Seq | None = None

    def request(self, newest_user: Seq | None, cold: bool) -> None:
        """One more request, with the user's newest message at that place. O(1)."""
        if newest_user != self.newest_user or not self.requests:
            self.cold_turns += cold and self.turns > 0
            self.turns += 1
            self.newest_user, self.in_turn = newest_user, 0
        self.requests += 1
        self.in_turn += 1

    @property
    def warm_requests(self) -> float:
        """Requests expected before the cache goes cold by itself, when folding costs nothing: at least one."""
        before = self.turns - 1
        if before <= 0:
            return max(1.0, self.requests)
        usual = (self.requests - self.in_turn) / before
        rest = usual - self.in_turn if usual > self.in_turn else self.in_turn
        return max(1.0, rest + (1 - self.cold_turns / before) * self.requests)


@dataclass(slots=True)
class Rent:
    """Rent or buy for one session, at the prices of `rule`. One call of `due` for each request.

    The fold waits beyond its moment while fewer warm requests are expected than it takes to pay (a cold cache is near,
    where it is free), but never longer than what the stretch has cost anyway: so much the bound of twice the best
    allows.
    """

    rule: CacheRule
    paid: float = 0.0
    """Rent since the last fold."""
    spent: float = 0.0
    """What the requests since then have cost at least, whatever was folded when."""
    keep: float = 0.3
    """Share of the landing that stays whole at the end."""
    digest: float = 0.5
    """Size of a digest as a share of what it replaces."""
    rhythm: Rhythm = field(default_factory=Rhythm)

    def due(self, bill: Bill, *, cold: bool = False) -> bool:
        """Count one more request; whether the fold pays by now. In a cold cache it costs nothing. O(1)."""
        rent = bill.rent(self.rule)
        self.paid += max(0.0, rent)
        self.spent += bill.least(self.rule)
        if bill.removable_tokens <= LEAST_SHARE * bill.used_tokens or rent <= 0:
            return False
        price = 0.0 if cold else bill.price(self.rule)
        if self.paid < price:
            return False
        return self.rhythm.warm_requests * rent >= price or self.paid > price + self.spent

    def settle(self) -> None:
        """Begin anew after a fold."""
        self.paid = self.spent = 0.0

    # --- what the log keeps of it --------------------------------------------------------------------------------

    def with_state(self, usage: Usage) -> Usage:
        """A report with the state as its request went out; this goes on with the same whole numbers. O(1)."""
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
        """Go on from what a report of the log notes; False for one of another policy, which notes nothing. O(1)."""
        if (state := usage.rent) is None:
            return False
        self.paid, self.spent = state.paid, state.spent
        self.rhythm = Rhythm(state.requests, state.turns, state.cold_turns, state.in_turn, state.newest_user)
        return True


def foldable(view: View, since: Seq, keep_tokens: int, digest_share: float) -> Bill:
    """What folding everything from `since` to the newest `keep_tokens` would bring. O(log tiles) between folds."""
    last = len(view.tiles)
    cut = view.tail(keep_tokens)
    first = min(cut, view.index(since) if since else 0)
    open_tokens = view.between(first, cut)
    digest = int(digest_share * open_tokens)
    earlier = sum(tile.tokens for tile in view.tiles[:first] if tile.fold is not None)
    sizes = (open_tokens - digest, digest, view.between(cut, last), view.estimated_tokens, earlier)
    return Bill(*(int(view.meter.ratio * tokens) for tokens in sizes))
