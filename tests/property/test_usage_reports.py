"""Reports of usage that cannot be true: forty turns under each policy, in each dialect, with each kind of them."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

from foldline.engine.context import Context
from foldline.engine.events import ContextEvent, SilentTruncation, UsageDoubted
from foldline.engine.one_shot import check
from foldline.errors import InvalidInput
from foldline.view.transcript import Usage
from tests.property.sessions import BUILDERS, DIALECTS, POLICIES
from tests.remembered import REMEMBERED

TURNS = 40
WINDOW = 16_000
ROOM = 15_000

Report = Callable[[int, int, int], object]
"""A report for turn n of a request that has so many tokens, of which so many are new."""


def inside(tokens: int, cached: int = 0) -> dict[str, Any]:
    return {"prompt_tokens": tokens, "completion_tokens": 30, "prompt_tokens_details": {"cached_tokens": cached}}


def beside(tokens: int, cached: int = 0) -> dict[str, Any]:
    return {"input_tokens": tokens, "output_tokens": 30, "cache_read_input_tokens": cached}


FALSE: dict[str, Report] = {
    "zeros": lambda turn, size, new: inside(0),
    "zeros from a point on": lambda turn, size, new: inside(size if turn < 5 else 0),
    "now and then zero": lambda turn, size, new: inside(size if turn % 3 else 0),
    "one": lambda turn, size, new: inside(1),
    "three beside no cache": lambda turn, size, new: {"input_tokens": 3, "output_tokens": 10},
    "only what is new": lambda turn, size, new: inside(new),
    "constant": lambda turn, size, new: inside(5_000),
    "constant near the window": lambda turn, size, new: inside(15_500),
    "cached more than there is": lambda turn, size, new: beside(size, 15_500 - size if turn > 3 else 0),
    "ten times": lambda turn, size, new: inside(10 * size),
    "a hundred times": lambda turn, size, new: inside(100 * size),
    "sums of inner calls": lambda turn, size, new: inside(size * (1 + turn * 7 % 4)),
    "another request's": lambda turn, size, new: inside(700 + turn * 2_903 % 9_000),
    "stale": lambda turn, size, new: inside(max(1, size - new)),
    "a third": lambda turn, size, new: inside(size // 3),
    "huge": lambda turn, size, new: inside(10**30),
    "negative": lambda turn, size, new: inside(-size),
    "not a number": lambda turn, size, new: {"prompt_tokens": math.nan},
    "a string": lambda turn, size, new: {"prompt_tokens": str(size)},
    "nothing": lambda turn, size, new: {},
    "none": lambda turn, size, new: None,
}

NOT_TOLD = ("stale", "cached more than there is")
"""What another reading explains, and what is near enough."""

TRUE: dict[str, Report] = {
    "inside": lambda turn, size, new: inside(size, size - new),
    "beside": lambda turn, size, new: beside(new, size - new),
    "inside, in the names of the other": lambda turn, size, new: beside(size, size - new),
    "beside, in the names of the other": lambda turn, size, new: inside(new, size - new),
}


class Walk:
    """A session of many turns whose provider reports as it is told to."""

    def __init__(self, dialect: str, policy: str, report: Report, tokenizer: float = 1.0) -> None:
        self.told: list[ContextEvent] = []
        self.context = Context(
            dialect=dialect,
            policy=policy,
            window=WINDOW,
            max_output_tokens=1_000,
            on_event=self.told.append,
            counter=REMEMBERED,
        )
        self.sizes: list[int] = []
        self.true_sizes: list[int] = []
        self.folding = 0
        self.refused = 0
        build, before = BUILDERS[dialect], 0
        for turn in range(TURNS):
            self.context.extend(build.user(f"question {turn}: " + lines(40, turn), False))
            request = self.context.prepare()
            if turn % 8 == 0:
                assert check(request.messages, dialect=dialect, system=request.system) == []
            size = self.context.view.estimated_tokens
            self.sizes.append(size)
            self.true_sizes.append(int(tokenizer * size))
            self.folding += bool(request.folds)
            new = size - before if size > before else size
            try:
                self.context.observe(report(turn, int(tokenizer * size), int(tokenizer * new)))
            except InvalidInput:
                self.refused += 1
            before = size
            self.context.extend(build.says(f"answer {turn}: " + lines(5, 500 + turn), None))


@cache
def lines(count: int, seed: int) -> str:
    return "".join(f"line {number}: name_{seed}_{number * 7919 % 99991} = {number}\n" for number in range(count))


@cache
def true_walk(dialect: str, policy: str) -> Walk:
    """The walk where each report is our own count; one for all who look at it."""
    return Walk(dialect, policy, TRUE["inside"])


@pytest.mark.parametrize("kind", FALSE)
@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_report_that_cannot_be_true_lets_nothing_over_the_window_and_folds_not_at_each_turn(
    kind: str, dialect: str
) -> None:
    for policy in POLICIES:
        walk = Walk(dialect, policy, FALSE[kind])
        assert max(walk.sizes) <= ROOM, policy
        assert walk.folding <= 1.5 * true_walk(dialect, policy).folding + 2, policy
        doubts = [event for event in walk.told if isinstance(event, UsageDoubted | SilentTruncation)]
        assert doubts or walk.refused or kind in NOT_TOLD, policy


@pytest.mark.parametrize("kind", TRUE)
@pytest.mark.parametrize("dialect", DIALECTS)
def test_cached_tokens_inside_or_beside_are_read_so_that_it_can_be_true(kind: str, dialect: str) -> None:
    for policy in POLICIES:
        walk = true_walk(dialect, policy) if kind == "inside" else Walk(dialect, policy, TRUE[kind])
        assert max(walk.sizes) <= ROOM
        assert [event for event in walk.told if isinstance(event, UsageDoubted | SilentTruncation)] == []


@pytest.mark.parametrize("tokenizer", [0.6, 0.9, 1.25, 1.6])
@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_tokenizer_that_counts_otherwise_is_learned_and_nothing_is_over_the_window_by_either_count(
    tokenizer: float, dialect: str
) -> None:
    for policy in POLICIES:
        walk = Walk(dialect, policy, TRUE["inside"], tokenizer)
        assert max(walk.sizes) <= ROOM
        assert max(walk.true_sizes) <= ROOM
        assert walk.folding <= 2.5 * true_walk(dialect, policy).folding + 2, policy
        doubted = sum(isinstance(event, UsageDoubted) for event in walk.told)
        assert doubted <= 1, policy
        assert walk.context.view.meter.ratio == pytest.approx(max(0.8, tokenizer), rel=0.02)


def test_a_report_for_an_earlier_request_is_measured_by_the_size_of_that_one() -> None:
    context = Context(window=WINDOW, max_output_tokens=1_000)
    context.append({"role": "user", "content": lines(100, 1)})
    first = context.prepare().tokens
    context.append({"role": "user", "content": lines(100, 2)})
    context.prepare()
    from_first = context.observe({"prompt_tokens": round(1.2 * first)})
    assert from_first.doubt, "it is taken for the newest request, of which it cannot be true"
    assert context.observe(Usage(input_tokens=round(1.2 * first), request=1)).doubt == ""
    assert context.view.meter.ratio == pytest.approx(1.2, rel=0.01)
