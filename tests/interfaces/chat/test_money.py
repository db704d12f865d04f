"""What a session cost: cached tokens at their price, estimates marked, unknown prices said."""

from __future__ import annotations

import pytest

from foldline.catalog.models import lookup
from foldline.interfaces.chat.money import Call, cost_lines, spent_on

KNOWN = "gpt-4.1-mini"


def test_cached_tokens_cost_what_reading_them_costs() -> None:
    model = lookup(KNOWN)
    assert model.input_usd_per_million is not None
    assert model.output_usd_per_million is not None
    (spent,) = spent_on([Call(KNOWN, 1_000_000, 400_000, 10_000), Call(KNOWN, 0, 0, 90_000)])
    expected = model.input_usd_per_million * (0.6 + 0.4 * model.cache.read_ratio) + 0.1 * model.output_usd_per_million
    assert spent.usd == pytest.approx(expected)
    assert spent.calls == 2


def test_what_is_not_known_is_said() -> None:
    lines = cost_lines(spent_on([Call("nobody-knows", 10, 0, 5), Call(KNOWN, 1_000_000, 0, 0, estimated=True)]))
    assert lines[0] == "nobody-knows: 1 call, 10 prompt tokens (0 cached, 0%), 5 answered; no price in the catalogue"
    assert lines[1].startswith(f"{KNOWN}: 1 call, ~1,000,000 prompt tokens")
    assert lines[2].startswith("together ~$")
    assert lines[2].endswith("models without a price left out")
