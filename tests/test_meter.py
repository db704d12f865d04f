"""The size of a request as its provider counts it."""

from __future__ import annotations

import pytest

from foldline.meter import Meter


def test_without_a_report_the_estimate_is_the_size() -> None:
    assert Meter().used(1_234) == 1_234


def test_a_reported_request_has_the_reported_size() -> None:
    meter = Meter()
    meter.observe(1_000, 1_210)
    assert meter.used(1_000) == 1_210


def test_what_is_new_is_counted_at_the_observed_ratio() -> None:
    meter = Meter()
    meter.observe(1_000, 1_200)
    assert meter.used(1_500) == 1_800


@pytest.mark.parametrize(("reported", "ratio"), [(100, Meter.LOW), (100_000, Meter.HIGH)])
def test_the_ratio_stays_within_bounds_and_the_report_still_holds(reported: int, ratio: float) -> None:
    meter = Meter()
    meter.observe(1_000, reported)
    assert meter.ratio == ratio
    assert meter.used(1_000) == reported


def test_a_small_request_says_nothing_about_the_ratio() -> None:
    meter = Meter()
    meter.observe(Meter.ENOUGH_TOKENS - 1, 2_000)
    assert meter.ratio == 1.0
    assert meter.used(Meter.ENOUGH_TOKENS - 1) == 2_000


def test_the_offset_dies_with_a_fold_and_the_ratio_lives_on() -> None:
    # earendil-works/pi#1860: usage from before the compaction started the next one.
    meter = Meter()
    meter.observe(1_000, 2_000)
    meter.folded()
    assert meter.offset == 0.0
    assert meter.used(100) == 140


def test_the_size_is_never_negative() -> None:
    meter = Meter()
    meter.observe(10_000, 0)
    assert meter.used(0) == 0
    assert meter.used(10) == 0


@pytest.mark.parametrize("reported", [900, 1_000, 1_100, 1_350])
@pytest.mark.parametrize("target", [0, 300, 900])
def test_a_target_of_the_view_lands_at_the_target_of_the_provider(reported: int, target: int) -> None:
    meter = Meter()
    meter.observe(1_000, reported)
    landed = meter.target(1_000, target)
    assert landed >= 0
    if landed:
        assert meter.used(landed) <= target + 1


def test_a_target_that_cannot_be_met_is_zero_and_not_below() -> None:
    meter = Meter()
    meter.observe(100, 5_000)
    assert meter.target(100, 50) == 0


def test_a_reply_of_several_items_counts_as_it_was_reported_and_each_reply_by_itself() -> None:
    meter = Meter(scaled=False)
    for estimated, items, reported, output in (
        (100, (10, 20), 500, 90),
        (130, (7,), 640, 40),
    ):  # as in a replay: unsent
        for tokens in items:
            meter.reply(tokens, item=True)
        meter.observe(estimated, reported, output)
        assert meter.used(estimated + sum(items)) == reported + output
