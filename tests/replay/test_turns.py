from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foldline.errors import Part
from foldline.replay import Mark, Recall, Replay, Tally, Turn
from foldline.replay.turns import percentile


def test_the_share_of_nothing_is_not_a_number() -> None:
    assert Tally().share is None
    assert Tally(1, 4).share == 0.25


def test_recalls_add_up() -> None:
    one = Recall(all=Tally(3, 4), far=Tally(1, 2), line=Tally(0, 2), far_tool=Tally(0, 1))
    total = one + one
    assert (total.all, total.far, total.line, total.far_tool) == (Tally(6, 8), Tally(2, 4), Tally(0, 4), Tally(0, 2))


def test_a_replay_counts_its_turns() -> None:
    mark = Mark(1, 3, "mask", "trigger", 100, 10)
    recall = Recall(all=Tally(1, 2))
    turns = (
        Turn(index=0, messages=2, recorded_tokens=50, tokens=50, cost_tokens=62.5, cpu_seconds=0.001, recall=recall),
        Turn(
            index=1,
            messages=4,
            recorded_tokens=150,
            tokens=120,
            cached_tokens=40,
            cost_tokens=104.0,
            violations=("bad", "worse"),
            over_budget=True,
            prefix_broken=True,
            folds=(mark, mark),
            cpu_seconds=0.003,
            recall=recall,
        ),
        Turn(index=2, messages=6, recorded_tokens=900, refused=(Part("system text", 500),), cpu_seconds=0.002),
    )
    replay = Replay(
        session="s",
        policy="p",
        dialect="openai-chat",
        window=100,
        limit_tokens=100,
        counter="estimate",
        recorded_tokens=900,
        turns=turns,
    )
    assert (replay.requests, replay.invalid, replay.over_budget, replay.refused) == (3, 1, 1, 1)
    assert (replay.tokens, replay.cached_tokens, replay.cost_tokens, replay.peak_tokens) == (170, 40, 166.5, 120)
    assert (replay.prefix_breaks, replay.folds, replay.recall.all) == (1, 2, Tally(2, 4))
    assert replay.cpu_seconds(0.5) == pytest.approx(0.002)


def test_no_values_have_the_percentile_zero() -> None:
    assert percentile([], 0.5) == 0.0


@pytest.mark.parametrize(
    ("count", "share", "rank"),
    [(1, 0.5, 1), (2, 0.5, 1), (3, 0.5, 2), (20, 0.95, 19), (100, 0.95, 95), (7, 1.0, 7), (7, 0.0, 1)],
)
def test_a_percentile_is_the_smallest_value_that_holds(count: int, share: float, rank: int) -> None:
    assert percentile(range(count, 0, -1), share) == rank


@given(st.lists(st.floats(0, 1e6), min_size=1), st.floats(0, 1))
def test_a_percentile_is_one_of_the_values(values: list[float], share: float) -> None:
    found = percentile(values, share)
    assert found in values
    assert sum(value <= found for value in values) >= share * len(values)
