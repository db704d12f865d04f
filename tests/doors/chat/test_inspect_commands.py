"""The cost of a session: cached tokens at their price, estimates marked, unknown prices named."""

from __future__ import annotations

import pytest

from foldline.catalog.models import lookup
from foldline.doors.chat.inspect_commands import (
    PricedCall,
    cost_lines,
    costs_by_model,
)

KNOWN = "gpt-4.1-mini"


def test_cached_tokens_cost_what_reading_them_costs() -> None:
    model = lookup(KNOWN)
    assert model.input_usd_per_million is not None
    assert model.output_usd_per_million is not None
    (spent,) = costs_by_model([PricedCall(KNOWN, 1_000_000, 400_000, 10_000), PricedCall(KNOWN, 0, 0, 90_000)])
    expected = model.input_usd_per_million * (0.6 + 0.4 * model.cache.read_ratio) + 0.1 * model.output_usd_per_million
    assert spent.usd == pytest.approx(expected)
    assert spent.calls == 2


def test_each_call_is_billed_at_the_price_step_of_its_own_size() -> None:
    (spent,) = costs_by_model([PricedCall("gpt-5.5", 200_000, 0, 0), PricedCall("gpt-5.5", 300_000, 0, 0)])
    assert spent.usd == pytest.approx(1.0 + 3.0)


def test_tokens_that_were_written_to_a_cache_cost_what_writing_costs() -> None:
    (spent,) = costs_by_model([PricedCall("claude-sonnet-4-5", 100_000, 60_000, 0, written_tokens=30_000)])
    assert spent.usd == pytest.approx((10_000 * 3 + 60_000 * 0.3 + 30_000 * 3.75) / 1e6)


def test_what_is_not_known_is_said() -> None:
    lines = cost_lines(
        costs_by_model([PricedCall("nobody-knows", 10, 0, 5), PricedCall(KNOWN, 1_000_000, 0, 0, estimated=True)])
    )
    assert lines[0] == "nobody-knows: 1 call, 10 prompt tokens (0 cached, 0%), 5 answered; no price in the catalogue"
    assert lines[1].startswith(f"{KNOWN}: 1 call, ~1,000,000 prompt tokens")
    assert lines[2].startswith("together ~$")
    assert lines[2].endswith("models without a price left out")
