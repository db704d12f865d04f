from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.report.stored_sessions import example

from foldline.catalog.models import lookup, models
from foldline.replay import NONE, MeasuredSession, bill_tokens, replay
from foldline.report.account import BilledCall, ExpectedRequest, Spend, billed, expected
from foldline.report.account_from_replay import account_of_replay
from foldline.view.budget import cache_rule_of

SONNET = "claude-sonnet-4-5"


def test_a_reported_call_is_billed_at_the_prices_of_reads_and_writes() -> None:
    call = BilledCall(model=SONNET, input_tokens=10_000, cached_tokens=6_000, written_tokens=3_000, output_tokens=200)
    model = lookup(SONNET)
    assert (model.input_usd_per_million, model.output_usd_per_million) == (3, 15)
    assert (model.cache.read_ratio, model.cache.write_ratio) == (0.1, 1.25)
    spend = billed([call], dialect="anthropic")
    assert spend.paid_tokens == pytest.approx(1_000 + 600 + 3_750)
    assert spend.usd == pytest.approx((5_350 * 3 + 200 * 15) / 1e6)
    assert (spend.calls, spend.input_tokens, spend.cached_tokens, spend.output_tokens) == (1, 10_000, 6_000, 200)


def test_a_model_without_a_price_is_billed_in_tokens() -> None:
    spend = billed([BilledCall(model="my-own-7b", input_tokens=1_000, cached_tokens=500)], dialect="openai-chat")
    rule = cache_rule_of("my-own-7b", "openai-chat")
    assert spend.usd is None
    assert spend.paid_tokens == pytest.approx(500 + 500 * rule.read_ratio)


def test_one_call_without_a_price_leaves_the_sum_without() -> None:
    calls = [BilledCall(model=SONNET, input_tokens=10), BilledCall(model="my-own-7b", input_tokens=10)]
    assert billed(calls, dialect="anthropic").usd is None
    assert (billed(calls[:1], dialect="anthropic") + Spend()).usd == pytest.approx(30 / 1e6)


@given(st.integers(0, 10**6), st.integers(0, 10**6), st.integers(0, 10**6))
def test_a_report_that_does_not_add_up_costs_no_less_than_nothing(tokens: int, cached: int, written: int) -> None:
    call = BilledCall(model=SONNET, input_tokens=tokens, cached_tokens=cached, written_tokens=written)
    spend = billed([call], dialect="anthropic")
    assert spend.usd is not None
    assert 0 <= spend.paid_tokens <= 1.25 * 2 * tokens
    assert spend.usd >= 0
    assert spend.cached_tokens <= tokens


def test_long_requests_are_priced_by_their_steps() -> None:
    stepped = next(model for model in models() if model.cache.steps and model.input_usd_per_million)
    step = stepped.cache.steps[0]
    below, above = (
        expected([ExpectedRequest(size, 0, 1_000)], model=stepped.name, rule=stepped.cache, caching=False).usd
        for size in (step.above_tokens, step.above_tokens + 1)
    )
    assert below is not None
    assert above is not None
    assert above / below > 1.2


def test_without_caching_all_input_is_at_the_full_price() -> None:
    dues, rule = [ExpectedRequest(5_000, 0, 10), ExpectedRequest(6_000, 5_000, 10)], cache_rule_of(SONNET, "anthropic")
    assert expected(dues, model=SONNET, rule=rule, caching=False).paid_tokens == 11_000
    cached = expected(dues, model=SONNET, rule=rule)
    assert cached.paid_tokens == pytest.approx(5_000 * 1.25 + 5_000 * 0.1 + 1_000 * 1.25)
    assert cached.cached_tokens == 5_000
    assert cached.estimated


@pytest.mark.parametrize("name", ["devai", "tau", "share-images"])
def test_no_management_costs_the_same_as_its_replay(name: str) -> None:
    recording = MeasuredSession(example(name))
    account = account_of_replay(recording, file="f", policy="balanced", window=16_000, model=SONNET)
    rule = cache_rule_of(SONNET, recording.session.dialect)
    unmanaged = replay(recording, NONE, window=16_000, rule=rule)
    managed = replay(recording, "balanced", window=16_000, max_output_tokens=2_000, rule=rule)
    assert account.unmanaged.paid_tokens == pytest.approx(bill_tokens(unmanaged.turns, rule))
    assert account.managed.paid_tokens == pytest.approx(bill_tokens(managed.turns, rule))
    assert [turn.recorded_tokens for turn in account.sent.turns] == [turn.tokens for turn in unmanaged.turns]


def test_writes_that_live_an_hour_are_billed_at_their_price() -> None:
    plain = BilledCall(model=SONNET, input_tokens=100_000, written_tokens=100_000)
    for long, ratio in ((0, 1.25), (100_000, 2.0), (10**9, 2.0)):
        spend = billed([replace(plain, written_long_tokens=long)], dialect="anthropic")
        assert spend.paid_tokens == pytest.approx(ratio * 100_000)
        assert spend.usd == pytest.approx(ratio * 0.30)
