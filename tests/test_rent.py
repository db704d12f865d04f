"""Rent or buy: when a fold pays."""

from __future__ import annotations

import pytest

from foldline.catalog.models import CACHE_RULES
from foldline.catalog.prices import CacheRule, PriceStep
from foldline.rent import LEAST_SHARE, Bill, Rent, Rhythm, foldable
from tests.test_budget import view_of

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
        assert foldable_tokens + bill.after_tokens == view.between(0, len(view.units))
        assert bill.digest_tokens == foldable_tokens // 4
        assert bill.after_tokens <= keep
        assert bill.used_tokens == view.estimated_tokens


def test_what_is_condensed_already_is_not_foldable_again() -> None:
    view = view_of(20)
    assert foldable(view, 21, 0, 0.5).removable_tokens < foldable(view, 0, 0, 0.5).removable_tokens
