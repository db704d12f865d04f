"""What a provider's prompt cache would make of consecutive requests.

The provider charges less for the beginning of a request that it has seen as the beginning of an earlier one. Taken
here: the request before was seen, and it is still in the cache.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from foldline.catalog.prices import CacheRule, request_price
from foldline.replay.facts import Seen
from foldline.replay.turns import Asked, Turn
from foldline.tokens import Counter

__all__ = ["OUTPUT_RATIO", "bill_tokens", "common_prefix", "common_prefix_tokens", "cost_tokens"]

OUTPUT_RATIO: Final = 5
"""The price of a token that a model writes, in tokens of input: that of all models of Anthropic since 2024."""

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
    """The price of one request, in tokens at the full input price: `request_price` of the catalogue."""
    return request_price(rule, tokens, cached_tokens)


def bill_tokens(turns: Iterable[Turn], rule: CacheRule, *, cold_every: int | None = None) -> float:
    """The price of these requests under any rule, and of the summaries asked for, in tokens at the full input price.

    The cache is taken to be warm at each request; with `cold_every` each request of such a number (20: the 20th, the
    40th …) comes so late that it finds none, nor do the summaries before it. O(turns).
    """
    total = 0.0
    for turn in turns:
        warm = not cold_every or (turn.index + 1) % cold_every != 0
        total += cost_tokens(turn.tokens, turn.cached_tokens * warm, rule)
        total += sum(_asked_tokens(call, rule, warm) for call in turn.asked)
    return total


def _asked_tokens(call: Asked, rule: CacheRule, warm: bool) -> float:
    """A call for a summary. A prompt of its own is sent once and marks nothing for the cache, which it would not read.

    One that goes on from the session has the session's marks: what it does not read there, it writes.
    """
    step = rule.step(call.prompt_tokens)
    written = call.output_tokens * OUTPUT_RATIO * step.output_ratio
    if not call.cached_tokens:
        return call.prompt_tokens * step.input_ratio + written
    return cost_tokens(call.prompt_tokens, call.cached_tokens * warm, rule) + written
