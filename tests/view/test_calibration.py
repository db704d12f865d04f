"""The size of a request as its provider counts it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from foldline.view.calibration import Meter


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


@pytest.mark.parametrize(("reported", "ratio"), [(800, Meter.LOW), (1_400, Meter.HIGH), (2_300, Meter.HIGH)])
def test_the_ratio_stays_within_bounds_and_a_report_that_can_be_true_holds(reported: int, ratio: float) -> None:
    meter = Meter()
    assert meter.observe(1_000, reported) == ""
    assert meter.ratio == ratio
    assert meter.used(1_000) == reported


@pytest.mark.parametrize("reported", [-5, 0, 1, 3, 100, 499, 799, 2_401, 10_000, 100_000, 10**30])
def test_a_report_that_cannot_be_true_changes_nothing_and_says_why(reported: int) -> None:
    meter = Meter()
    meter.observe(1_000, 1_100)
    assert meter.observe(1_000, reported) != ""
    assert (meter.ratio, meter.offset, meter.used(2_000)) == (1.1, 0.0, 2_200)


def walk(ratio: float, sizes: Sequence[int], *, of: Callable[[int], int] | None = None) -> Meter:
    """A meter after reports of a tokenizer for requests of these sizes."""
    meter = Meter()
    for size in sizes:
        meter.observe(size, of(size) if of else round(ratio * size))
    return meter


GROWING = (6_000, 7_500, 8_500, 10_000, 11_000)


@pytest.mark.parametrize("ratio", [1.5, 1.6, 1.9])
def test_a_ratio_that_repeats_itself_while_requests_grow_is_another_tokenizer(ratio: float) -> None:
    meter = walk(ratio, GROWING)
    assert meter.ratio == pytest.approx(ratio, rel=0.001)
    meter.drop_offset()
    assert meter.observe(3_000, round(3_000 * ratio)) == "", "of a smaller request too"


@pytest.mark.parametrize("ratio", [0.55, 0.6, 0.75])
def test_a_lower_ratio_that_repeats_itself_is_believed_down_to_the_floor(ratio: float) -> None:
    meter = walk(ratio, GROWING)
    assert (meter.ratio, meter.offset) == (Meter.LOW, 0.0)


@pytest.mark.parametrize("ratio", [0.4, 2.2, 10, 100])
def test_no_tokenizer_counts_less_than_half_or_more_than_twice_of_an_estimate(ratio: float) -> None:
    assert walk(ratio, GROWING).ratio == 1.0


@pytest.mark.parametrize(
    "of",
    [
        pytest.param(lambda size: 11_000, id="constant"),
        pytest.param(lambda size: size + 5_000, id="something beside it"),
        pytest.param(lambda size: size - 2_900, id="all but what is cached"),
        pytest.param(lambda size: size * (2 if size in (7_500, 9_900, 15_500) else 1), id="sums now and then"),
    ],
)
def test_what_does_not_grow_as_the_requests_do_is_no_tokenizer(of: Callable[[int], int]) -> None:
    assert 0.8 <= walk(0, (6_000, 7_500, 8_500, 9_900, 13_500, 15_500), of=of).ratio <= 1.4


def test_the_same_size_again_and_again_shows_no_tokenizer() -> None:
    assert walk(1.6, (8_000,) * 20).ratio == 1.0


def test_a_zero_says_nothing_against_a_tokenizer_and_a_report_within_the_bounds_does() -> None:
    meter = walk(1.6, GROWING)
    assert meter.observe(12_000, 0) != ""
    assert meter.observe(12_000, 19_200) == ""
    assert meter.observe(12_500, 12_500) == ""
    assert meter.observe(13_000, 20_800) != "", "it has to be shown anew"


def test_another_model_begins_without_the_ratio_of_the_one_before() -> None:
    meter = walk(1.9, GROWING)
    meter.restart()
    assert (meter.ratio, meter.offset) == (Meter.HIGH, 0.0)
    assert meter.observe(8_000, 15_200) != ""


@pytest.mark.parametrize("reported", [400, 3_900])
def test_four_characters_to_a_token_are_a_rougher_count(reported: int) -> None:
    assert Meter(scaled=False).observe(1_000, 500 + reported // 2) == ""
    assert Meter(scaled=False).observe(1_000, 10 * reported + 2_000) != ""


def test_the_offset_dies_with_a_fold_and_the_ratio_lives_on() -> None:
    # earendil-works/pi#1860: usage from before the compaction started the next one.
    meter = Meter()
    meter.observe(1_000, 2_000)
    meter.drop_offset()
    assert meter.offset == 0.0
    assert meter.used(100) == 140


def test_the_size_is_never_negative() -> None:
    meter = Meter()
    meter.observe(400, 250)
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
    meter.observe(100, 1_100)
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
