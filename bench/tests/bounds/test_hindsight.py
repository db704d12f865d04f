"""Policies against the best in hindsight: the bound holds for what each really paid."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from foldline.catalog.models import CACHE_RULES
from foldline.recorded.files import read_session
from foldline.replay import MeasuredSession, Replay, context_for, replay
from foldline_bench.bounds.hindsight import WatchedSender, bound_of, course_of

EXAMPLES = sorted((Path(__file__).parents[3] / "examples" / "sessions").glob("*.json.gz"))
SMALLER = [path for path in EXAMPLES if "share-general" not in path.name]


@cache
def recorded(path: Path) -> MeasuredSession:
    return MeasuredSession(read_session(path))


def watched(path: Path, policy: str, window: int, rule: str = "anthropic") -> tuple[Replay, WatchedSender]:
    recording, prices = recorded(path), CACHE_RULES[rule]
    sender = WatchedSender(context_for(recording, policy, window=window, rule=prices))
    return replay(recording, policy, window=window, rule=prices, sender=sender), sender


def assert_no_less_than_its_bound(done: Replay, sender: WatchedSender) -> None:
    for rule in ("anthropic", "openai"):
        for cold_every in (None, 20):
            bound = bound_of(done, sender, CACHE_RULES[rule], cold_every=cold_every)
            assert bound.schedule_ratio >= 1 - 1e-9
            # The word that keeps roles in turn, at each fold, is in the sizes that both are fitted to.
            assert bound.schedule_cost_tokens <= 1.001 * bound.anew.cost_tokens


@pytest.mark.parametrize("path", SMALLER, ids=lambda path: path.stem[:24])
def test_no_policy_pays_less_than_its_bound(path: Path) -> None:
    assert_no_less_than_its_bound(*watched(path, "cost", 8_000))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem[:24])
def test_economical_pays_at_least_its_bound_and_at_most_twice_the_best_schedule(path: Path) -> None:
    for window in (6_000, 16_000):
        done, sender = watched(path, "economical", window)
        if window == 6_000:
            assert_no_less_than_its_bound(done, sender)
        assert bound_of(done, sender, CACHE_RULES["anthropic"]).schedule_ratio <= 2


def test_a_course_is_made_of_what_was_sent_first() -> None:
    done, sender = watched(EXAMPLES[0], "economical", 8_000)
    course = course_of(done, sender, CACHE_RULES["anthropic"])
    assert course.points, "the session folds at this window"
    sent = 0
    for turn, new, broken in zip(done.turns, course.arrivals, sender.cuts, strict=True):
        sent += sum(new)
        if not broken:  # before the first fold a request is the head and all that came
            assert turn.tokens == course.terms.fixed_tokens + sent
    assert sent + course.terms.fixed_tokens > done.turns[-1].tokens
