"""Limits other than tokens: what a request holds is compared with what its provider takes."""

from __future__ import annotations

import pytest

from foldline.codecs.dialect import caps_of
from foldline.codecs.limits.caps import BESIDE_LARGER, Amounts, Caps
from foldline.view.budget import caps_for


def test_images_and_pages_count_together_where_the_provider_adds_them_up() -> None:
    caps = caps_of("anthropic")
    assert list(caps.over(Amounts(images=60, pages=40))) == []
    assert list(caps.over(Amounts(images=60, pages=41))) == [("images and PDF pages", 101, 100)]
    assert list(caps_of("openai-chat").over(Amounts(images=501, pages=900))) == [("images", 501, 500)]


def test_many_images_may_not_be_large() -> None:
    caps = caps_of("anthropic")
    assert list(caps.over(Amounts(images=20, large_images=20))) == []
    assert list(caps.over(Amounts(images=21, large_images=1))) == [(BESIDE_LARGER, 21, 20)]
    assert list(caps.over(Amounts(images=21))) == []


def test_a_larger_window_takes_more_media() -> None:
    assert caps_of("anthropic", 1_000_000).max_media == 600
    assert caps_of("anthropic", 200_000).max_media == 100
    assert caps_for(None, "anthropic").max_media == 100
    assert caps_for("claude-3-5-sonnet-20241022", "anthropic").max_media == 100


def test_what_a_provider_says_takes_the_place_of_what_was_known() -> None:
    caps = caps_of("anthropic").learned(max_images=50, max_pages=None)
    assert (caps.max_images, caps.max_media, caps.max_pages) == (50, 50, None)
    assert caps_of("openai-chat").learned(max_images=50) == Caps(max_images=50)
    with pytest.raises(TypeError, match="max_dogs"):
        caps.learned(max_dogs=1)


def test_where_to_land_is_a_part_of_each_limit_and_at_least_one() -> None:
    assert Caps(max_images=100, max_messages=1).share(0.75) == Caps(max_images=75, max_messages=1)
