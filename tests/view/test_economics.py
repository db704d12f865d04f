"""Rent or buy: when a fold pays."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest
from tests.remembered import REMEMBERED
from tests.view.test_budget import view_of

from foldline.catalog.models import CACHE_RULES
from foldline.catalog.prices import CacheRule, PriceStep
from foldline.engine.context import Context
from foldline.failures.classification import classify
from foldline.view.economics import LEAST_SHARE, SOURCE_TOKENS, Bill, Rent, Rhythm, foldable
from foldline.view.transcript import Fold, Usage

RULE = CacheRule(read_ratio=0.1, write_ratio=1.25, minimum_tokens=1_024, block_tokens=1, lifetime_seconds=300)


def requests_to_fold(rent: Rent, bill: Bill, most: int = 200) -> int | None:
    """At which request a fold is due, in a session of requests of one size with one message of the user."""
    for number in range(1, most):
        rent.rhythm.request(0, False)
        if rent.due(bill):
            return number
    return None


def test_folds_at_the_request_where_keeping_has_cost_as_much_as_folding() -> None:
    """10,000 foldable tokens at 0.1 are 1,000 a request; writing 4,000 again at 1.15 more is 4,600: the fifth pays."""
    assert requests_to_fold(Rent(RULE), Bill(10_000, 0, 4_000, 20_000)) == 5


def test_the_digest_that_has_to_be_written_is_part_of_the_price() -> None:
    """A digest of 1,000 tokens is 1,150 more than reading it: 5,750, which the sixth request pays."""
    assert requests_to_fold(Rent(RULE), Bill(10_000, 1_000, 4_000, 20_000)) == 6


def test_earlier_digests_that_are_written_again_are_part_of_the_price() -> None:
    """3,000 tokens at 1.15 are 3,450 more: 8,050, which the ninth request pays."""
    assert requests_to_fold(Rent(RULE), Bill(10_000, 0, 4_000, 20_000, 3_000)) == 9


def test_begins_anew_after_a_fold() -> None:
    rent = Rent(RULE)
    assert requests_to_fold(rent, Bill(10_000, 0, 4_000, 20_000)) == 5
    rent.settle()
    assert rent.paid == rent.spent == 0.0
    assert requests_to_fold(rent, Bill(10_000, 0, 4_000, 20_000)) == 5


def test_little_is_not_worth_a_fold_even_where_it_is_free() -> None:
    used = 20_000
    assert requests_to_fold(Rent(RULE, paid=10**9), Bill(0, 0, 0, used)) is None
    assert requests_to_fold(Rent(RULE, paid=10**9), Bill(int(LEAST_SHARE * used), 0, 0, used)) is None
    assert requests_to_fold(Rent(RULE), Bill(int(LEAST_SHARE * used) + 1, 0, 0, used)) == 1


@pytest.mark.parametrize("digest", [0, 500, 3_000])
def test_the_bill_is_at_most_twice_the_best_in_hindsight(digest: int) -> None:
    """Ski rental: whenever the session ends, rent so far plus the fold is no more than twice the cheaper of both."""
    bill = Bill(7_000, digest, 3_000, 7_000 + digest + 3_000 + 1_024)
    per_request, fold_once = bill.rent(RULE), bill.price(RULE)
    assert per_request == pytest.approx(700) and fold_once == pytest.approx(1.15 * (digest + 3_000))
    for requests in range(1, 40):
        rent, spent = Rent(RULE), 0.0
        for _ in range(requests):
            spent += per_request
            rent.rhythm.request(0, False)
            if rent.due(bill):
                spent += fold_once
                break
        assert spent <= 2 * min(requests * per_request, fold_once) + per_request


def test_where_reading_is_as_dear_as_writing_what_stands_after_a_fold_costs_nothing() -> None:
    assert requests_to_fold(Rent(CACHE_RULES["none"]), Bill(1_000, 0, 9_000, 10_000)) == 1


def test_in_a_cold_cache_a_fold_is_free() -> None:
    bill = Bill(20_000, 2_000, 100_000, 200_000)
    assert not Rent(RULE).due(bill)
    assert Rent(RULE).due(bill, cold=True)


def test_a_prefix_below_the_minimum_is_paid_in_full_so_keeping_it_is_dear() -> None:
    dear = CacheRule(read_ratio=0.1, write_ratio=1.25, minimum_tokens=50_000, block_tokens=1, lifetime_seconds=300)
    bill = Bill(10_000, 0, 4_000, 20_000)
    assert bill.rent(dear) == 10_000 and bill.price(dear) == 0
    assert requests_to_fold(Rent(dear), bill) == 1


def test_a_fold_that_takes_a_request_below_the_minimum_prefix_is_not_made() -> None:
    """19,000 tokens read at a tenth are cheaper than 9,000 that no cache takes."""
    high = CacheRule(read_ratio=0.1, write_ratio=1.25, minimum_tokens=10_000, block_tokens=1, lifetime_seconds=300)
    assert requests_to_fold(Rent(high), Bill(10_000, 0, 4_000, 19_000)) is None


def test_a_dearer_price_of_long_requests_is_part_of_the_rent() -> None:
    """Over 200,000 tokens all of them cost twice as much: leaving the step is worth the price of half the request."""
    steps = (PriceStep(200_000, 2.0, 1.5),)
    stepped = CacheRule(0.1, 1.25, 1_024, 1, 300, steps)
    bill = Bill(20_000, 0, 10_000, 210_000)
    assert bill.rent(stepped) == pytest.approx(0.2 * 210_000 - 0.1 * 190_000)
    plain = requests_to_fold(Rent(RULE), bill)
    assert plain is not None and requests_to_fold(Rent(stepped), bill) == 1 < plain


def test_a_session_is_expected_to_last_as_long_again() -> None:
    rhythm = Rhythm()
    for _ in range(30):
        rhythm.request(0, False)
    assert rhythm.warm_requests == 30


def turns(rhythm: Rhythm, lengths: list[int], cold: bool) -> None:
    """So many requests to each message of the user; between them the cache has gone cold, or not."""
    for user, length in enumerate(lengths):
        for number in range(length):
            rhythm.request(10 * user, cold and user > 0 and number == 0)


def test_where_caches_go_cold_between_the_users_messages_only_the_rest_of_the_turn_is_expected() -> None:
    cold, warm = Rhythm(), Rhythm()
    turns(cold, [10, 10, 10, 8], True)
    turns(warm, [10, 10, 10, 8], False)
    assert cold.warm_requests == 2
    assert warm.warm_requests == 2 + 38


def test_a_turn_that_lasts_longer_than_usual_is_expected_to_last_as_long_again() -> None:
    rhythm = Rhythm()
    turns(rhythm, [4, 4, 20], True)
    assert rhythm.warm_requests == 20


def test_a_fold_waits_for_a_cold_cache_that_is_near_but_not_for_ever() -> None:
    bill = Bill(10_000, 0, 14_000, 40_000)
    near = Rent(RULE)
    turns(near.rhythm, [10, 10, 10, 9], True)
    near.paid = bill.price(RULE)
    assert not near.due(bill), "one request is left of the turn, and then folding is free"
    at = requests_to_fold(near, bill)
    assert at is not None and near.paid <= bill.price(RULE) + near.spent + bill.rent(RULE)


# --- what a view holds that may be folded ----------------------------------------------------------------------------


def test_what_is_kept_and_what_is_foldable_make_up_the_view() -> None:
    view = view_of(20)
    for keep in (0, 50, 400, 10**6):
        bill = foldable(view, 0, keep, 0.25)
        foldable_tokens = bill.removable_tokens + bill.digest_tokens
        assert foldable_tokens + bill.after_tokens == view.between(0, len(view.tiles))
        assert bill.digest_tokens == foldable_tokens // 4
        assert bill.after_tokens <= keep
        assert bill.used_tokens == view.estimated_tokens


def test_what_is_condensed_already_is_not_foldable_again() -> None:
    view = view_of(20)
    assert foldable(view, 21, 0, 0.5).removable_tokens < foldable(view, 0, 0, 0.5).removable_tokens


# --- as a session goes on --------------------------------------------------------------------------------------------

SETTINGS: dict[str, Any] = {
    "policy": "economical",
    "window": 30_000,
    "model": "claude-sonnet-4-5",
    "dialect": "anthropic",
    "max_output_tokens": 4_000,
    "counter": REMEMBERED,
}


def called(number: int) -> dict[str, Any]:
    call = {"type": "tool_use", "id": f"t{number}", "name": "read", "input": {"path": f"src/f{number}.py"}}
    return {"role": "assistant", "content": [call]}


def brought(number: int) -> dict[str, Any]:
    text = f"def fun_{number}(): return value_{number}\n" * 60
    return {"role": "user", "content": [{"type": "tool_result", "tool_use_id": f"t{number}", "content": text}]}


def rent_of(context: Context) -> Rent:
    rent = context._engine.rent
    assert rent is not None
    return rent


def spans(context: Context) -> int:
    """How many folds over whole groups were ever made."""
    return sum(isinstance(event, Fold) and not event.form for event in context.events)


def went_on(every: int, *, reported: float | None, requests: int = 120, idle_every: int = 0) -> list[int]:
    """The requests at which a session folds that is opened anew every so many requests (0: never)."""
    context, folds = Context(**SETTINGS), []
    context.append({"role": "user", "content": "Do the long task please. " * 60})
    for number in range(requests):
        idle = 1_000.0 if idle_every and number % idle_every == idle_every - 1 else 0.0
        before = spans(context)
        request = context.prepare(idle_seconds=idle)
        if spans(context) > before:
            folds.append(number)
        if reported is not None:
            context.observe(Usage(input_tokens=round(reported * request.tokens), reported=reported > 0))
        context.extend([called(number), brought(number)])
        if idle_every and number % 20 == 19:
            context.append({"role": "user", "content": f"go on with part {number}"})
        if every and number % every == every - 1:
            context = Context.replay(context.events, **SETTINGS)
    return folds


@pytest.mark.parametrize(
    ("reported", "every"),
    [(1.0, 17), (1.02, 5), (None, 11)],
    ids=["reported", "reported otherwise", "never reported"],
)
def test_a_session_that_is_opened_anew_folds_when_it_would_have(reported: float | None, every: int) -> None:
    never = went_on(0, reported=reported)
    assert never
    assert went_on(every, reported=reported) == never


def test_a_session_that_is_opened_anew_remembers_how_its_requests_come() -> None:
    """Pauses and messages of the user are told by the reports of the log."""
    never = went_on(0, reported=1.0, idle_every=20)
    assert len(never) >= 2
    assert went_on(7, reported=1.0, idle_every=20) == never


def test_after_undo_the_rent_is_that_of_the_log() -> None:
    context = Context(**SETTINGS)
    context.append({"role": "user", "content": "Do the long task please. " * 60})
    number = 0
    while not (request := context.prepare()).folds:
        context.observe(Usage(input_tokens=request.tokens))
        context.extend([called(number), brought(number)])
        number += 1
    context.observe(Usage(input_tokens=request.tokens))
    context.undo()
    context.pin(1)
    again = Context.replay(context.events, **SETTINGS)
    assert rent_of(again).paid == rent_of(context).paid
    assert rent_of(again).rhythm == rent_of(context).rhythm


def at_work(rounds: int) -> Context:
    """A session that has paid rent, and folded nothing yet by that."""
    context = Context(**SETTINGS)
    context.append({"role": "user", "content": "Do the long task please. " * 60})
    for number in range(rounds):
        context.prepare()
        context.extend([called(number), brought(number)])
    assert rent_of(context).paid > 0
    return context


def test_a_compaction_that_was_asked_for_ends_the_rent() -> None:
    context = at_work(15)
    assert context.compact(summarize=None)
    assert rent_of(context).paid == rent_of(context).spent == 0


def test_a_recovery_ends_the_rent() -> None:
    context = at_work(25)
    while not spans(context):
        assert context.recover(classify(400, "prompt is too long: 210000 tokens > 200000 maximum")).retry
    assert rent_of(context).paid == rent_of(context).spent == 0


def test_rent_is_reckoned_in_the_tokens_that_the_provider_counts() -> None:
    """A request that we count at 169,000 tokens and the provider at 228,000 is over its step of 200,000."""
    view = view_of(20)
    plain = foldable(view, 0, 50, 0.25)
    view.meter.ratio = 1.35
    metered = foldable(view, 0, 50, 0.25)
    tokens = [field.name for field in fields(plain) if field.name != "rereads"]
    expected = Bill(*(int(1.35 * getattr(plain, name)) for name in tokens))
    assert metered == replace(expected, rereads=plain.rereads)
    assert metered.used_tokens > 1.3 * plain.used_tokens


def test_what_is_read_again_is_part_of_the_price() -> None:
    bill = Bill(10_000, 0, 4_000, 20_000)
    dearer = replace(bill, rereads=2.0)
    # 2 requests more, each with the 10,000 tokens of the folded prefix from the cache and a source of 1,000 written.
    more = 2 * (RULE.read_ratio * 10_000 + RULE.write_ratio * SOURCE_TOKENS)
    assert dearer.price(RULE) == pytest.approx(bill.price(RULE) + more)
    assert dearer.rent(RULE) == bill.rent(RULE)
    once, twice = requests_to_fold(Rent(RULE), bill), requests_to_fold(Rent(RULE), dearer)
    assert once is not None and twice is not None and once < twice


def test_the_more_is_folded_the_more_is_read_again() -> None:
    few, many = foldable(view_of(10), 0, 50, 0.25), foldable(view_of(40), 0, 50, 0.25)
    assert 0 < few.rereads < many.rereads
