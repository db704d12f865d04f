"""A digest where a model would have summarised: the same spans, and no larger than there is room."""

from __future__ import annotations

import pytest
from tests.joints import unjoined
from tests.reducers.views import applied, asks_of, folds_of, need_of, says, user, view_of

from foldline.reducers.summarize import Summarize
from foldline.reducers.without_model import WithoutModel

TALK = [turn for n in range(20) for turn in (user(f"Question {n}? " * 20), says(f"Answer {n}. " * 20))]


@pytest.mark.parametrize("keep", [2, 5, 12])
def test_it_takes_what_summarize_would_take(keep: int) -> None:
    view, summarize = view_of(TALK), Summarize(keep_messages=keep)
    asked = [(ask.start, ask.stop) for ask in asks_of(summarize, view)]
    assert [(fold.start, fold.stop) for fold in folds_of(WithoutModel(summarize), view)] == asked
    assert unjoined(applied(WithoutModel(summarize), view))[1:] == TALK[-keep:]


def test_a_digest_is_not_digested_again() -> None:
    view, reducer = view_of(TALK), WithoutModel(Summarize(keep_messages=2))
    applied(reducer, view)
    assert folds_of(reducer, view) == []


def test_a_digest_has_the_room_that_the_target_leaves() -> None:
    view = view_of(TALK)
    reducer = WithoutModel(Summarize(keep_messages=2))
    wide = need_of(view, view.estimated_tokens)
    narrow = need_of(view, view.estimated_tokens // 4)
    (large,), (small,) = folds_of(reducer, view, wide), folds_of(reducer, view, narrow)
    assert small.tokens < large.tokens <= 0.45 * view.estimated_tokens
    assert view.estimated_tokens - view.between(0, view.index(small.stop)) + small.tokens <= narrow.target_tokens
