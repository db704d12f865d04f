"""The bill of a session's calls, and the bill without management: in tokens and in money.

`billed` adds up reported calls, whose cached part the provider decided. `expected` prices requests that were never
made: the part equal to the beginning of the last request is read from the cache by the provider's rule, unless the
cache has expired.
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
    """One call as reported; `input_tokens` includes tokens read from the cache and written to it.

    `estimated` means that nothing was reported and the counts are our own.
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
    """A request that was never made: its size, the part shared with the last request, and the size of the reply."""

    tokens: int
    cached_tokens: int
    output_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Spend:
    """A bill. `paid_tokens` is the price of all input, in tokens at the full input price of a short request.

    `usd` is None when a model has no price in the catalogue. `estimated` means that some counts are our own.
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
    """The bill of reported calls at the catalogue's prices. O(calls).

    `dialect` selects the cache rule for models that the catalogue lacks.
    """
    return sum((_billed(call, dialect) for call in calls), Spend())


def _billed(call: BilledCall, dialect: str) -> Spend:
    rule = cache_rule_of(call.model, dialect)
    # Reports of some gateways do not add up, and no bill may be negative.
    cached = min(call.cached_tokens, call.input_tokens)
    written = min(call.written_tokens, call.input_tokens - cached)
    fresh = call.input_tokens - cached - written
    long = min(call.written_long_tokens, written)
    # Writes with a longer lifetime have a price of their own, and are part of `written`.
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
    """The estimated bill of requests that were never made. `rule` prices the cache, `model` the tokens. O(requests).

    Without `caching` every request is paid in full.
    """
    # The price of a token depends on the length of its request: each request is priced by its own step.
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
