from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foldline.catalog.models import Model, lookup, models
from foldline.catalog.prices import BASE_STEP, CacheRule, PriceStep, request_price

SHORT, LONG = PriceStep(1_000, 2.0, 1.5), PriceStep(5_000, 3.0, 2.0)
STEPPED = CacheRule(0.1, 1.25, 100, 10, 300, (SHORT, LONG))


@pytest.mark.parametrize(
    ("tokens", "cached", "price"),
    [
        (500, 0, 500 * 1.25),
        (500, 400, 400 * 0.1 + 100 * 1.25),
        (500, 409, 400 * 0.1 + 100 * 1.25),  # whole blocks only
        (500, 99, 500 * 1.25),  # below the minimum nothing is read
        (99, 90, 99.0),  # nor is such a request written
        (100, 100, 10.0),
        (1_000, 0, 1_250.0),
        (1_001, 0, 1_001 * 1.25 * 2),
        (1_001, 1_000, (100 + 1.25) * 2),  # reads and writes are dearer alike
        (5_001, 0, 5_001 * 1.25 * 3),
        (0, 0, 0.0),
    ],
)
def test_a_request_is_priced_by_minimum_blocks_and_the_step_of_its_whole_input(
    tokens: int, cached: int, price: float
) -> None:
    assert request_price(STEPPED, tokens, cached) == pytest.approx(price)


def test_the_last_step_passed_holds() -> None:
    assert [STEPPED.step(tokens) for tokens in (1_000, 1_001, 5_000, 5_001)] == [BASE_STEP, SHORT, SHORT, LONG]
    assert lookup("gpt-4o").cache.step(10_000_000) == BASE_STEP


@given(st.sampled_from(models()), st.integers(0, 1_000_000), st.integers(0, 1_000_000), st.integers(0, 1_000_000))
def test_more_in_the_cache_is_never_dearer_and_more_input_never_cheaper(model: Model, a: int, b: int, c: int) -> None:
    rule = model.cache
    tokens, more = max(a, b), max(a, b) + c
    assert request_price(rule, tokens, min(a, b)) <= request_price(rule, tokens, 0)
    assert request_price(rule, more, min(a, b)) >= request_price(rule, tokens, min(a, b)) - 1e-6


def test_a_cache_expires_after_its_lifetime_and_one_without_never() -> None:
    assert [STEPPED.expired(seconds) for seconds in (0.0, 299.9, 300.0)] == [False, False, True]
    assert not CacheRule(1.0, 1.0, 1, 1, 0).expired(1e9)


def test_more_in_the_cache_than_was_sent_counts_as_all_of_it() -> None:
    assert request_price(STEPPED, 500, 10_000) == pytest.approx(50.0)


def test_the_catalogue_has_the_price_steps_of_long_requests() -> None:
    assert lookup("gemini-2.5-pro").cache.steps == (PriceStep(200_000, 2.0, 1.5),)
    assert lookup("gpt-5.5").cache.steps == (PriceStep(272_000, 2.0, 1.5),)
    assert lookup("claude-haiku-5-5").cache.steps == (PriceStep(100_000, 5.0, 5.0),)
    assert [step.above_tokens for step in lookup("qwen3-coder-plus").cache.steps] == [32_000, 128_000, 256_000]
    assert lookup("claude-sonnet-4-5").cache.steps == ()


def test_a_longer_lifetime_can_be_chosen_at_its_price() -> None:
    claude = lookup("claude-sonnet-4-5")
    assert claude.cache_living(300) == claude.cache
    hour = claude.cache_living(301)
    assert (hour.lifetime_seconds, hour.write_ratio, hour.read_ratio) == (3_600, 2.0, 0.1)
    assert hour.minimum_tokens == claude.cache.minimum_tokens
    assert claude.cache_living(7_200) == hour  # the longest there is
    gpt = lookup("gpt-5.6")
    assert (gpt.cache.lifetime_seconds, gpt.cache.write_ratio) == (1_800, 1.25)
    assert gpt.cache_living(3_600).write_ratio == 2.5
    assert gpt.cache_living(3_600).steps == gpt.cache.steps
    assert lookup("gpt-5").cache_living(86_400).write_ratio == 1.0


def test_a_call_is_billed_by_what_its_provider_reported() -> None:
    claude = lookup("claude-haiku-5-5")
    assert claude.usd(10_000, 6_000, 1_000, 3_000) == pytest.approx(
        (1_000 * 0.1 + 6_000 * 0.01 + 3_000 * 0.125 + 1_000 * 0.5) / 1e6
    )
    assert claude.usd(200_000, 0, 1_000) == pytest.approx((200_000 * 0.5 + 1_000 * 2.5) / 1e6)
    assert lookup("my-own-model").usd(1_000) is None
    assert lookup("llama-3.1-8b").usd(1_000) is None


def test_what_is_written_for_an_hour_has_its_own_price() -> None:
    """100,000 tokens at 3 dollars a million: 1.25 times that for five minutes, twice that for an hour."""
    sonnet = lookup("claude-sonnet-4-5")
    assert sonnet.usd(100_000, 0, 0, 100_000) == pytest.approx(0.375)
    assert sonnet.usd(100_000, 0, 0, 100_000, 100_000) == pytest.approx(0.60)
    assert sonnet.usd(100_000, 0, 0, 100_000, 40_000) == pytest.approx(0.6 * 0.375 + 0.4 * 0.60)
