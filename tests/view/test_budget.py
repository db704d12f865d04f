"""How much may be sent, and when to act."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from foldline.catalog.models import CacheRule, Model, lookup
from foldline.engine.context import Context
from foldline.testing import session
from foldline.view.budget import (
    MARGIN,
    Need,
    Pressure,
    Reserve,
    TokenLimits,
    Trigger,
    cache_rule_of,
    cache_seconds,
    consent_tokens,
    output_tokens,
)
from foldline.view.view import View

RULE = CacheRule(read_ratio=0.1, write_ratio=1.25, minimum_tokens=1_024, block_tokens=1, lifetime_seconds=300)


def view_of(rounds: int = 3, *, counts_bytes: bool = False) -> View:
    context = Context(window=100_000, max_request_bytes=10**9 if counts_bytes else None)
    context.extend(session(rounds))
    return context.view


def model(**changes: Any) -> Model:
    return replace(lookup("gpt-4o"), **changes)


# --- limits -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("window", "output", "most", "room", "limit"),
    [
        (100_000, 0, None, 100_000, 90_000),
        (100_000, 20_000, None, 80_000, 72_000),
        (400_000, 128_000, 272_000, 272_000, 244_800),
        (400_000, 200_000, 272_000, 200_000, 180_000),
        (8_192, 1_024, None, 7_168, 6_451),
        (1, 0, None, 1, 0),
        (10, 20, None, 0, 0),
    ],
)
def test_the_input_limit_is_the_room_beside_the_reply_less_a_tenth(
    window: int, output: int, most: int | None, room: int, limit: int
) -> None:
    limits = TokenLimits(window, output, most)
    assert limits.room_tokens == room
    assert limits.input_tokens == limit


def test_a_one_shot_fit_has_no_margin() -> None:
    assert TokenLimits(1_000, 100, margin=0.0).input_tokens == 900


def test_the_margin_is_the_documented_tenth() -> None:
    assert MARGIN == 0.10
    assert TokenLimits(1_000, 0).input_tokens == 900


def test_a_reply_may_not_take_the_whole_window() -> None:
    # OpenHands/OpenHands#9937: max output = window condensed for ever.
    known = model(window_tokens=131_072, max_output_tokens=131_072)
    assert output_tokens(known, 131_072) == 4_096
    assert TokenLimits(131_072, output_tokens(known, 131_072)).input_tokens > 100_000


@pytest.mark.parametrize(("window", "expected"), [(128_000, 4_096), (8_192, 1_024), (1_000, 125), (1, 0)])
def test_an_unknown_model_gets_room_for_a_reply_by_its_window(window: int, expected: int) -> None:
    assert output_tokens(model(known=False), window) == expected


def test_a_known_cap_is_taken_where_it_leaves_room() -> None:
    assert output_tokens(model(max_output_tokens=16_384), 128_000) == 16_384
    assert output_tokens(model(max_output_tokens=16_384), 20_000) == 2_500
    assert output_tokens(model(max_output_tokens=None), 128_000) == 4_096


# --- need -------------------------------------------------------------------------------------------------------------


def test_excess_is_what_has_to_go_and_never_negative() -> None:
    assert Need(Pressure.HARD, 1_000, 600).excess_tokens == 400
    assert Need(Pressure.SOFT, 500, 600).excess_tokens == 0


def test_pressures_are_ordered() -> None:
    assert Pressure.NONE < Pressure.SOFT < Pressure.HARD < Pressure.OVERFLOW


# --- triggers ---------------------------------------------------------------------------------------------------------


def test_nothing_set_is_never_due() -> None:
    assert not Trigger().due(view_of(), 10**9, TokenLimits(1_000, 0))


@pytest.mark.parametrize(("used", "due"), [(764, False), (765, True), (900, True)])
def test_a_fraction_is_of_the_input_limit(used: int, due: bool) -> None:
    assert Trigger(fraction=0.85).due(view_of(), used, TokenLimits(1_000, 0)) is due


@pytest.mark.parametrize(("fixed", "mark"), [(0, 850), (500, 850), (700, 850), (800, 900), (900, 950), (1_000, 1_000)])
def test_what_is_fixed_leaves_half_of_the_rest_below_the_mark(fixed: int, mark: int) -> None:
    assert Trigger(fraction=0.85).mark_tokens(1_000, fixed) == mark


@pytest.mark.parametrize(("used", "due"), [(499, False), (500, True)])
def test_a_number_of_tokens_is_reached(used: int, due: bool) -> None:
    assert Trigger(tokens=500).due(view_of(), used, TokenLimits(10**6, 0)) is due


def test_a_number_of_messages_is_reached() -> None:
    view = view_of(3)
    assert view.message_count == 7
    assert Trigger(messages=7).due(view, 0, TokenLimits(1_000, 0))
    assert not Trigger(messages=8).due(view, 0, TokenLimits(1_000, 0))


def test_a_number_of_turns_is_reached() -> None:
    context = Context(window=10_000)
    for _ in range(3):
        context.extend([{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}])
    assert Trigger(turns=3).due(context.view, 0, TokenLimits(1_000, 0))
    assert not Trigger(turns=4).due(context.view, 0, TokenLimits(1_000, 0))


def test_a_number_of_bytes_is_passed() -> None:
    view = view_of(3, counts_bytes=True)
    size = view.content_bytes
    assert 0 < size < view.size_bytes
    assert Trigger(bytes=size - 1).due(view, 0, TokenLimits(1_000, 0))
    assert not Trigger(bytes=size).due(view, 0, TokenLimits(1_000, 0))


def test_any_threshold_that_is_set_will_do() -> None:
    trigger = Trigger(tokens=10**9, messages=10**9, turns=1)
    assert trigger.due(view_of(), 0, TokenLimits(1_000, 0))


@pytest.mark.parametrize(
    ("reserve", "window", "effective"),
    [
        (Reserve(), 128_000, 111_616),
        (Reserve(), 16_385, 1),
        (Reserve(), 16_384, 8_000),
        (Reserve(), 8_192, 8_000),
        (Reserve(max_tokens=0), 8_192, None),
    ],
)
def test_the_effective_limit_of_a_reserve(reserve: Reserve, window: int, effective: int | None) -> None:
    assert reserve.effective_tokens(window) == effective


def test_a_reserve_with_a_token_limit_does_not_look_at_messages() -> None:
    trigger = Trigger(reserve=Reserve(max_messages=1))
    assert not trigger.due(view_of(), 100, TokenLimits(128_000, 0))
    assert trigger.due(view_of(), 111_616, TokenLimits(128_000, 0))


def test_a_reserve_without_a_token_limit_looks_at_messages() -> None:
    trigger = Trigger(reserve=Reserve(max_tokens=0, max_messages=7))
    assert trigger.due(view_of(3), 0, TokenLimits(8_192, 0))
    assert not trigger.due(view_of(2), 0, TokenLimits(8_192, 0))


def test_a_landing_is_a_share_of_the_limit_that_triggers() -> None:
    limits = TokenLimits(128_000, 0)
    assert Trigger(fraction=0.9).limit_tokens(limits) == limits.input_tokens
    assert Trigger(reserve=Reserve()).limit_tokens(limits) == 111_616
    assert Trigger(reserve=Reserve(reserve_tokens=0)).limit_tokens(limits) == limits.input_tokens


def test_a_share_of_the_window_is_kept_free_beside_the_reply() -> None:
    """The three-layer system: limit 10,000 less 1,000 for the reply less a tenth of the limit."""
    trigger, limits = Trigger(keep_free=0.1), TokenLimits(10_000, 1_000, margin=0.0)
    assert trigger.limit_tokens(limits) == 8_000
    assert not trigger.due(view_of(), 8_000, limits)
    assert trigger.due(view_of(), 8_001, limits)


def test_what_is_not_met_is_said_in_words() -> None:
    trigger = Trigger(tokens=500, messages=7, turns=1)
    view = view_of(3)
    assert trigger.unmet(view, 600, TokenLimits(1_000, 0)) == "600 tokens of 500, 7 messages of 7, 1 turns of 1"
    assert Trigger(tokens=500).unmet(view, 400, TokenLimits(1_000, 0)) == ""


@pytest.mark.parametrize(
    ("window", "keep", "recent"), [(128_000, 20_000, 20_000), (20_000, 20_000, 1_808), (8_000, 20_000, 4_000)]
)
def test_what_stays_whole_is_at_most_half_of_the_effective_limit(window: int, keep: int, recent: int) -> None:
    assert Reserve().recent_tokens(keep, window) == recent


def test_a_window_that_is_not_set_leaves_the_token_limit() -> None:
    assert Reserve().effective_tokens(None) == 8_000
    assert Reserve(max_tokens=0).recent_tokens(20_000, None) == 20_000


def test_the_whole_window_is_that_of_input_and_reply() -> None:
    assert Need(Pressure.SOFT, 1, 1, window_tokens=900, max_output_tokens=100).whole_window_tokens == 1_000


@pytest.mark.parametrize(("share", "consent"), [(0.9, 855), (0.5, 500)])
def test_consent_is_asked_for_before_folding_is_forced(share: float, consent: int) -> None:
    limits = TokenLimits(1_000, 0)
    assert consent_tokens(share, limits) == consent < limits.input_tokens


@pytest.mark.parametrize(
    ("point", "seconds"),
    [
        ('{"type":"ephemeral"}', 0),
        ('{"type": "ephemeral", "ttl": "5m"}', 300),
        ('{"ttl": "1h", "type": "ephemeral"}', 3_600),
        ("null", 0),
    ],
)
def test_a_cache_lives_as_long_as_its_points_ask_for(point: str, seconds: int) -> None:
    body = '{"system":[{"type":"text","text":"s","cache_control": %s}],"messages":[]}' % point  # noqa: UP031
    assert cache_seconds(body) == seconds
    quoted = json.dumps({"messages": [{"role": "user", "content": body}]})
    assert cache_seconds(quoted) == 0, "what a message quotes is no point"


def test_the_longest_lifetime_that_is_asked_for_counts() -> None:
    points = [{"cache_control": {"type": "ephemeral", "ttl": ttl}} for ttl in ("5m", "1h", "5m")]
    assert cache_seconds(json.dumps(points)) == 3_600


def test_a_longer_lifetime_has_its_own_price_of_writing() -> None:
    usual, long = (cache_rule_of("claude-sonnet-4-5", "anthropic", seconds) for seconds in (0, 3_600))
    assert (usual.lifetime_seconds, usual.write_ratio) == (300, 1.25)
    assert (long.lifetime_seconds, long.write_ratio) == (3_600, 2.0)
    assert cache_rule_of("gpt-unknown", "openai-chat", 3_600) == cache_rule_of("gpt-unknown", "openai-chat")
