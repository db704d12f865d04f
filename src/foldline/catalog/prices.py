"""What one request costs under a provider's prompt cache and price steps. Pure arithmetic, no figures of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ["BASE_STEP", "CacheRule", "PriceStep", "request_price"]


@dataclass(frozen=True, slots=True)
class PriceStep:
    """A dearer price for long requests: those whose whole input is over `above_tokens`, from their first token on.

    `input_ratio` multiplies each input price (fresh, read from the cache, written to it), `output_ratio` the output's.
    """

    above_tokens: int
    input_ratio: float
    output_ratio: float


BASE_STEP: Final = PriceStep(0, 1.0, 1.0)
"""What holds below the first step."""


@dataclass(frozen=True, slots=True)
class CacheRule:
    """What a provider's prompt cache charges, as shares of the input price, and from which size on it works.

    A prefix of fewer than `minimum_tokens` is not cached; a longer one in steps of `block_tokens`. It stays for
    `lifetime_seconds` when unused. `steps` are the dearer prices of long requests, ascending.
    """

    read_ratio: float
    write_ratio: float
    minimum_tokens: int
    block_tokens: int
    lifetime_seconds: int
    steps: tuple[PriceStep, ...] = ()

    def step(self, tokens: int) -> PriceStep:
        """The prices of a request with an input of `tokens`: the last step that it passes, `BASE_STEP` if none."""
        held = BASE_STEP
        for step in self.steps:
            if tokens <= step.above_tokens:
                break
            held = step
        return held

    def cacheable_tokens(self, tokens: int) -> int:
        """How many of the first `tokens` a cache holds: whole blocks, and nothing below the minimum."""
        whole = tokens // self.block_tokens * self.block_tokens
        return whole if whole >= self.minimum_tokens else 0


def request_price(rule: CacheRule, tokens: int, cached_tokens: int) -> float:
    """The price of a request's input, in tokens at the full input price of a short request.

    `cached_tokens` of its `tokens` begin as a request that is still in the cache. The rest is written to the cache,
    save in a request below the minimum, which no cache takes and which pays no price of writing (Anthropic, "Prompt
    caching"). Over a step the whole request is billed by it. The reply is apart: its price times `rule.step(tokens)`'s
    `output_ratio`. O(steps).
    """
    if tokens < rule.minimum_tokens:
        return tokens * rule.step(tokens).input_ratio
    cached = rule.cacheable_tokens(min(cached_tokens, tokens))
    return (cached * rule.read_ratio + (tokens - cached) * rule.write_ratio) * rule.step(tokens).input_ratio
