"""What a provider's prompt cache would make of consecutive requests.

The provider charges less for the beginning of a request that it has seen as the beginning of an earlier one. Taken
here: the request before was seen, and it is still in the cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from foldline.catalog.models import CacheRule
from foldline.replay.facts import Seen
from foldline.tokens import Counter

__all__ = ["common_prefix", "common_prefix_tokens", "cost_tokens"]

_WORTH_COUNTING: Final = 40
"""Characters in common below which the first differing message counts as all different: its role and ids."""


def common_prefix(one: str, other: str) -> str:
    """The longest beginning that two texts share. O(length), by halves so that the comparing is done by the machine."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return one[:low]


def common_prefix_tokens(before: Sequence[Seen], now: Sequence[Seen], counter: Counter) -> tuple[int, bool]:
    """Tokens of `now` that begin as `before` did, message by message and inside the first that differs.

    Also whether all of `before` is the beginning of `now`. O(messages), and O(size) of one message.
    """
    tokens = 0
    for one, other in zip(before, now, strict=False):
        if one is other or one.wire == other.wire:
            tokens += other.tokens
            continue
        if one.role == other.role:
            shared = common_prefix(one.text, other.text)
            tokens += counter.text(shared) if len(shared) > _WORTH_COUNTING else 0
        return tokens, False
    return tokens, len(before) <= len(now)


def cost_tokens(tokens: int, cached_tokens: int, rule: CacheRule) -> float:
    """The price of one request, in tokens at the full input price.

    The cached part is rounded down to the provider's block, and is nothing below its least size.
    """
    cached = cached_tokens // rule.block_tokens * rule.block_tokens
    if cached < rule.minimum_tokens:
        cached = 0
    return cached * rule.read_ratio + (tokens - cached) * rule.write_ratio
