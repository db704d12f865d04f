from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.property.depth import costly

from foldline.catalog.models import CACHE_RULES
from foldline.catalog.prices import CacheRule, PriceStep
from foldline.codecs import codec
from foldline.replay import Asked, Turn
from foldline.replay.cache import bill_tokens, common_prefix, common_prefix_tokens, cost_tokens
from foldline.replay.facts import Lens, Seen
from foldline.tokens import ESTIMATE

LENS = Lens(codec("openai-chat"), ESTIMATE)
KEPT: list[dict[str, str]] = []  # a lens tells messages apart by identity, so they must live


def said(*texts: str) -> list[Seen]:
    wires = [{"role": "user", "content": text} for text in texts]
    KEPT.extend(wires)
    return [LENS.look(wire) for wire in wires]


@given(st.text(), st.text(), st.text())
def test_the_common_prefix_is_the_longest(shared: str, one: str, other: str) -> None:
    found = common_prefix(shared + one, shared + other)
    assert (shared + one).startswith(found)
    assert (shared + other).startswith(found)
    assert len(found) >= len(shared)
    longer = len(found) + 1
    assert (shared + one)[:longer] != (shared + other)[:longer] or longer > min(len(one), len(other)) + len(shared)


def test_what_is_appended_keeps_the_whole_prefix() -> None:
    before = said("a", "b")
    now = [*before, *said("c")]
    assert common_prefix_tokens(before, now, ESTIMATE) == (sum(s.tokens for s in before), True)


def test_equal_messages_need_not_be_the_same_object() -> None:
    before, now = said("a", "b"), said("a", "b")
    assert common_prefix_tokens(before, now, ESTIMATE) == (sum(s.tokens for s in before), True)


def test_the_prefix_ends_inside_the_first_message_that_differs() -> None:
    start = "the same beginning of some length, " * 4
    before, now = said("a", start + "one", "z"), said("a", start + "other", "z")
    tokens, whole = common_prefix_tokens(before, now, ESTIMATE)
    assert tokens == now[0].tokens + ESTIMATE.text(start + "o")
    assert not whole


def test_a_short_common_beginning_of_a_message_counts_for_nothing() -> None:
    before, now = said("a", "short x"), said("a", "short y")
    assert common_prefix_tokens(before, now, ESTIMATE) == (now[0].tokens, False)


def test_a_request_that_lost_its_end_breaks_the_prefix() -> None:
    before, now = said("a", "b"), said("a")
    assert common_prefix_tokens(before, now, ESTIMATE) == (now[0].tokens, False)


@pytest.mark.parametrize(
    ("tokens", "cached", "cost"),
    [
        (2_000, 0, 2_500.0),
        (2_000, 1_023, 2_500.0),
        (2_000, 1_024, 1_024 * 0.1 + 976 * 1.25),
        (2_000, 1_100, 1_024 * 0.1 + 976 * 1.25),
        (2_000, 1_152, 1_152 * 0.1 + 848 * 1.25),
    ],
)
def test_the_cached_part_is_rounded_as_the_provider_does(tokens: int, cached: int, cost: float) -> None:
    rule = CacheRule(0.1, 1.25, minimum_tokens=1_024, block_tokens=128, lifetime_seconds=300)
    assert cost_tokens(tokens, cached, rule) == pytest.approx(cost)


# (cached read, cache write, minimum prefix, block), and the arithmetic, as an outside judge of such replays has them.
JUDGE = {"anthropic": (0.10, 1.25, 1024, 1), "openai": (0.10, 1.00, 1024, 128), "deepseek": (0.10, 1.00, 64, 64)}


def judged(total: int, hit: int, price: tuple[float, float, int, int]) -> float:
    read, write, floor, block = price
    hit = (hit // block) * block
    if hit < floor:
        hit = 0
    return hit * read + (total - hit) * write


SIZES = st.integers(1_024, 300_000).flatmap(lambda total: st.tuples(st.just(total), st.integers(0, total)))


@pytest.mark.parametrize("provider", JUDGE)
@costly
@given(sizes=st.lists(SIZES, max_size=50))
def test_a_bill_is_what_an_outside_judge_makes_of_it(provider: str, sizes: list[tuple[int, int]]) -> None:
    turns = [Turn(index=n, messages=n, recorded_tokens=0, tokens=t, cached_tokens=c) for n, (t, c) in enumerate(sizes)]
    expected = sum(judged(tokens, cached, JUDGE[provider]) for tokens, cached in sizes)
    assert bill_tokens(turns, CACHE_RULES[provider]) == pytest.approx(expected)
    cold = [judged(t, 0 if (n + 1) % 20 == 0 else c, JUDGE[provider]) for n, (t, c) in enumerate(sizes)]
    assert bill_tokens(turns, CACHE_RULES[provider], cold_every=20) == pytest.approx(sum(cold))


def test_summaries_are_on_the_bill_with_what_they_wrote() -> None:
    asked = (Asked(10_000, 8_000, 500), Asked(4_000, 0, 100))
    turn = Turn(index=0, messages=2, recorded_tokens=0, tokens=2_000, asked=asked)
    summaries = 8_000 * 0.1 + 2_000 * 1.25 + 5 * 500 + 4_000 + 5 * 100  # the second marks nothing for the cache
    assert bill_tokens([turn], CACHE_RULES["anthropic"]) == pytest.approx(2_000 * 1.25 + summaries)
    cold = 10_000 * 1.25 + 5 * 500 + 4_000 + 5 * 100
    assert bill_tokens([turn], CACHE_RULES["anthropic"], cold_every=1) == pytest.approx(2_000 * 1.25 + cold)


def test_long_requests_are_billed_by_the_step_that_they_pass() -> None:
    rule = CacheRule(0.1, 1.25, 1_024, 1, 300, steps=(PriceStep(200_000, 2.0, 1.5),))
    turn = Turn(index=0, messages=1, recorded_tokens=0, tokens=250_000, asked=(Asked(300_000, 0, 100),))
    assert bill_tokens([turn], rule) == pytest.approx(2 * 1.25 * 250_000 + 2 * 300_000 + 1.5 * 5 * 100)
