"""The cost of a session: cached tokens at their price, estimates marked, unknown prices named."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foldline.catalog.models import lookup
from foldline.doors.chat.inspect_commands import (
    PricedCall,
    WindowShare,
    bar_lines,
    cells,
    cost_lines,
    costs_by_model,
    shares_of,
)
from foldline.engine.context import Context
from foldline.testing import session

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


LABELS = ("system", "tools", "pinned", "folded", "live", "free")
TOOLS = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}]


def held(rounds: int = 12) -> Context:
    context = Context(window=4_000, system="You are terse.", tools=TOOLS, max_output_tokens=300)
    context.extend(session(rounds, result="found it. " * 60))
    return context


def test_the_parts_are_the_window() -> None:
    context = held(3)
    context.pin(0)
    context.prepare()
    shares = shares_of(context, "You are terse.")
    assert tuple(share.label for share in shares) == LABELS
    assert sum(share.tokens for share in shares) == 4_000
    sizes = {share.label: share.tokens for share in shares}
    assert all(sizes[label] > 0 for label in ("system", "tools", "pinned", "live", "free"))
    assert sizes["folded"] == 0


def test_folds_move_tokens_from_live_to_folded() -> None:
    context = held()
    context.compact(summarize=None)
    sizes = {share.label: share.tokens for share in shares_of(context, "You are terse.")}
    assert sizes["folded"] > 0
    assert sum(sizes.values()) == 4_000


@given(st.lists(st.integers(0, 10_000), min_size=6, max_size=6).filter(sum), st.integers(6, 200))
def test_the_bar_is_as_wide_as_it_may_be_and_shows_what_is_small(sizes: list[int], width: int) -> None:
    shares = [WindowShare(label, size) for label, size in zip(LABELS, sizes, strict=True)]
    counts = cells(shares, width)
    assert sum(counts) == width
    assert all(count > 0 for count, size in zip(counts, sizes, strict=True) if size)
    bar, *lines = bar_lines(shares, sum(sizes), width=width)
    assert len(bar.plain) == min(width, 80)
    assert [line.plain.split()[1] for line in lines] == list(LABELS)
    assert bar_lines(shares, sum(sizes), width=width, ascii_only=True)[0].plain.isascii()
