from __future__ import annotations

import pytest

from foldline.errors import InvalidInput
from foldline_bench.prices import LONG_RULE, RULES, cache_rule, rule_figures


def test_prices_have_the_name_of_a_provider_or_of_a_model() -> None:
    assert cache_rule("anthropic").steps == ()
    assert cache_rule(LONG_RULE).steps[0].above_tokens == 200_000
    with pytest.raises(InvalidInput, match=r"unknown prices 'nobody'; known are anthropic, .*models of the catalogue"):
        cache_rule("nobody")


def test_the_figures_of_a_rule_have_its_steps() -> None:
    assert rule_figures(LONG_RULE)["over 200000"] == 2.0
    assert rule_figures("anthropic") == {
        "read_ratio": 0.1,
        "write_ratio": 1.25,
        "minimum_tokens": 1_024,
        "block_tokens": 1,
    }
    assert all(rule_figures(name)["read_ratio"] > 0 for name in RULES)
