"""The price of one request under a provider's prompt cache and price steps. Pure arithmetic without figures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ["BASE_STEP", "CacheRule", "PriceStep", "request_price"]


@dataclass(frozen=True, slots=True)
class PriceStep:
    """A higher price for requests with an input over `above_tokens`. It applies to the whole request.

    `input_ratio` multiplies each input price (fresh, read from cache, written to cache), `output_ratio` the output's.
    """

    above_tokens: int
    input_ratio: float
    output_ratio: float


BASE_STEP: Final = PriceStep(0, 1.0, 1.0)
"""The prices below the first step."""


@dataclass(frozen=True, slots=True)
class CacheRule:
    """The prices of a provider's prompt cache, as shares of the input price, and the sizes that it caches.

    A prefix of fewer than `minimum_tokens` is not cached, a longer one in blocks of `block_tokens`. It expires after
    `lifetime_seconds` without use. `steps` are the higher prices of long requests, ascending.
    """

    read_ratio: float
    write_ratio: float
    minimum_tokens: int
    block_tokens: int
    lifetime_seconds: int
    steps: tuple[PriceStep, ...] = ()

    def step(self, tokens: int) -> PriceStep:
        """Return the price step of an input of `tokens`: the last one that it exceeds, or `BASE_STEP`."""
        # Steps ascend, which the catalogue checks, so the last one exceeded is the one that applies.
        exceeded = BASE_STEP
        for step in self.steps:
            if tokens <= step.above_tokens:
                break
            exceeded = step
        return exceeded

    def expired(self, idle_seconds: float) -> bool:
        """Return whether the cache is lost after a pause of this length, counted from its last use."""
        return 0 < self.lifetime_seconds <= idle_seconds

    def cacheable_tokens(self, tokens: int) -> int:
        """Return how many of the first `tokens` are cached: whole blocks, and none below the minimum."""
        whole = tokens // self.block_tokens * self.block_tokens
        return whole if whole >= self.minimum_tokens else 0


def request_price(rule: CacheRule, tokens: int, cached_tokens: int) -> float:
    """Return the price of a request's input, in tokens at the full input price of a short request. O(steps).

    The first `cached_tokens` of its `tokens` are in the cache. The price of the reply is separate: it is multiplied by
    the `output_ratio` of `rule.step(tokens)`.
    """
    # A request below the minimum is not cached and pays no write price (Anthropic, "Prompt caching").
    if tokens < rule.minimum_tokens:
        return tokens * rule.step(tokens).input_ratio
    cached = rule.cacheable_tokens(min(cached_tokens, tokens))
    return (cached * rule.read_ratio + (tokens - cached) * rule.write_ratio) * rule.step(tokens).input_ratio
