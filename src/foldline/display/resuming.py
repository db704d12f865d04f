"""What going on with a session costs, and how much of that a cold cache adds."""

from __future__ import annotations

from dataclasses import dataclass

from foldline.catalog.models import Model
from foldline.catalog.prices import CacheRule, request_price

__all__ = ["ResumePrice", "resume_price", "resume_text"]


@dataclass(frozen=True, slots=True)
class ResumePrice:
    """The input price of the next request of `tokens`: with the provider's cache expired, and while it is warm."""

    tokens: int
    cold_usd: float
    warm_usd: float


def resume_price(model: Model, tokens: int, rule: CacheRule | None = None) -> ResumePrice | None:
    """What the next request costs; None without a known price. `rule` takes the place of the model's own. O(1)."""
    usd = model.input_usd_per_million
    if not model.known or not usd or tokens <= 0:
        return None
    rule = rule or model.cache
    cold, warm = request_price(rule, tokens, 0), request_price(rule, tokens, tokens)
    return ResumePrice(tokens, cold * usd / 1e6, warm * usd / 1e6)


def resume_text(price: ResumePrice | None, *, cold: bool) -> str | None:
    """A sentence for a person who goes on with a session; None where there is nothing to say."""
    if price is None:
        return None
    if not cold or price.cold_usd <= price.warm_usd:
        return f"the next message reads ~{price.tokens:,} tokens: ~${price.warm_usd:.3f}"
    return (
        f"the provider's cache has expired: the next message reads ~{price.tokens:,} tokens anew, "
        f"~${price.cold_usd:.3f} instead of ~${price.warm_usd:.3f}"
    )
