"""What the calls of a session cost, and what they would have cost without management: tokens and money.

Two kinds of bill. `billed` adds up what was reported: how much came from the cache was decided by the provider.
`expected` prices requests that were never made: what begins as the request before did is read from the cache, as the
provider's rule says, and is still there unless it lay unused for longer than its lifetime.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from foldline.catalog.models import HOUR_SECONDS, lookup
from foldline.catalog.prices import CacheRule, request_price
from foldline.view.budget import cache_rule_of

__all__ = ["BilledCall", "ExpectedRequest", "Spend", "billed", "expected"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BilledCall:
    """One call as it was reported; `input_tokens` with those read from the cache and those written to it.

    `estimated`: nothing was reported, the counts are ours.
    """

    model: str
    input_tokens: int
    cached_tokens: int = 0
    written_tokens: int = 0
    written_long_tokens: int = 0
    output_tokens: int = 0
    estimated: bool = False


@dataclass(frozen=True, slots=True)
class ExpectedRequest:
    """A request that was never made: its size, how much of it began the one before, and the reply to it."""

    tokens: int
    cached_tokens: int
    output_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Spend:
    """A bill. `paid_tokens` is the price of all input, in tokens at the full input price of a short request.

    `usd` is None when one of the models has no price in the catalogue. `estimated`: some of it is our own count.
    """

    calls: int = 0
    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    paid_tokens: float = 0.0
    usd: float | None = 0.0
    estimated: bool = False

    def __add__(self, other: Spend) -> Spend:
        return Spend(
            calls=self.calls + other.calls,
            input_tokens=self.input_tokens + other.input_tokens,
            cached_tokens=self.cached_tokens + other.cached_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            paid_tokens=self.paid_tokens + other.paid_tokens,
            usd=None if self.usd is None or other.usd is None else self.usd + other.usd,
            estimated=self.estimated or other.estimated,
        )


def billed(calls: Iterable[BilledCall], *, dialect: str) -> Spend:
    """The bill of calls as they were reported, at the catalogue's prices. `dialect` says whose cache rule holds for a
    model that the catalogue does not know. O(calls).
    """
    return sum((_billed(call, dialect) for call in calls), Spend())


def _billed(call: BilledCall, dialect: str) -> Spend:
    rule = cache_rule_of(call.model, dialect)
    cached = min(call.cached_tokens, call.input_tokens)  # reports of some gateways do not add up
    written = min(call.written_tokens, call.input_tokens - cached)
    fresh = call.input_tokens - cached - written
    long = min(call.written_long_tokens, written)
    paid = fresh + cached * rule.read_ratio + (written - long) * rule.write_ratio
    paid += long * cache_rule_of(call.model, dialect, HOUR_SECONDS).write_ratio
    return Spend(
        calls=1,
        input_tokens=call.input_tokens,
        cached_tokens=cached,
        output_tokens=call.output_tokens,
        paid_tokens=paid * rule.step(call.input_tokens).input_ratio,
        usd=lookup(call.model).usd(call.input_tokens, cached, call.output_tokens, written, long),
        estimated=call.estimated,
    )


def expected(requests: Iterable[ExpectedRequest], *, model: str | None, rule: CacheRule, caching: bool = True) -> Spend:
    """The bill that requests would have had; all of it is an estimate. `rule` prices their cache, `model` the tokens.

    Without `caching` each is read in full. O(requests).
    """
    known = lookup(model)
    calls = tokens = cached = output = 0
    paid = answers = 0.0
    for due in requests:
        step = rule.step(due.tokens)
        held = rule.cacheable_tokens(min(due.cached_tokens, due.tokens)) if caching else 0
        calls, tokens, cached, output = calls + 1, tokens + due.tokens, cached + held, output + due.output_tokens
        paid += request_price(rule, due.tokens, held) if caching else due.tokens * step.input_ratio
        answers += due.output_tokens * step.output_ratio
    price, answer_price = known.input_usd_per_million, known.output_usd_per_million
    priced = known.known and price is not None and answer_price is not None
    return Spend(
        calls=calls,
        input_tokens=tokens,
        cached_tokens=cached,
        output_tokens=output,
        paid_tokens=paid,
        usd=(paid * (price or 0) + answers * (answer_price or 0)) / 1e6 if priced else None,
        estimated=True,
    )
