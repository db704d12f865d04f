"""The prices of a bench: what each run is priced by, and what policies that weigh prices are told."""

from __future__ import annotations

from typing import Final

from foldline.catalog.models import CACHE_RULES, CacheRule, lookup
from foldline.errors import InvalidInput

__all__ = ["COLD_EVERY", "FRONT_RULE", "LONG_RULE", "RULES", "cache_rule", "rule_figures"]

LONG_RULE: Final = "gemini-3.1-pro-preview"
"""A model of the catalogue whose prices double for requests of more than 200,000 tokens."""

RULES: Final = ("anthropic", "openai", "deepseek", "nocache", LONG_RULE)
"""The cache rules that price each run."""

FRONT_RULE: Final = "anthropic"
"""The rule whose cost makes the Pareto front, and that a policy which weighs prices is told: the dearest to rewrite."""

COLD_EVERY: Final = 20
"""In the second price of each rule, each request of such a number finds no cache, as after a pause."""


def cache_rule(name: str) -> CacheRule:
    """Return the cache rule of that name, or that of the model of the catalogue. Raises InvalidInput."""
    rule = CACHE_RULES.get(name)
    if rule is None and (model := lookup(name)).known:
        rule = model.cache
    if rule is None:
        raise InvalidInput(f"unknown prices {name!r}; known are {', '.join(CACHE_RULES)}, and models of the catalogue")
    return rule


def rule_figures(name: str) -> dict[str, float]:
    """Return the figures of a rule by name; for each step of long requests "over N": what their price is multiplied by.

    Raises InvalidInput.
    """
    rule = cache_rule(name)
    wanted = ("read_ratio", "write_ratio", "minimum_tokens", "block_tokens")
    return {key: getattr(rule, key) for key in wanted} | {
        f"over {step.above_tokens}": step.input_ratio for step in rule.steps
    }
