from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foldline.catalog.models import CacheRule
from foldline.codecs import codec
from foldline.replay.cache import common_prefix, common_prefix_tokens, cost_tokens
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
