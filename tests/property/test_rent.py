"""Rent or buy: never more than twice the best folds in hindsight, in the model and in real replays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import inf
from typing import Any

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from foldline.catalog.models import CACHE_RULES
from foldline.catalog.prices import CacheRule
from foldline.errors import InvalidInput
from foldline.recorded.sessions import Session
from foldline.replay import MeasuredSession, Pauses, context_for, replay
from foldline.view.economics import Bill, Rent
from foldline_bench.bounds.hindsight import WatchedSender, bound_of
from foldline_bench.bounds.schedule import CostTerms, ShownShares, best_schedule, schedule_cost_tokens
from tests.property.depth import costly
from tests.property.sessions import BUILDERS, WORDS, Wire

rules = st.sampled_from(sorted(CACHE_RULES)).map(lambda name: CACHE_RULES[name])
sizes = st.one_of(st.integers(1, 400), st.sampled_from([5, 20, 200, 4_000]))


@st.composite
def courses(draw: st.DrawFn) -> tuple[list[list[int]], CostTerms, float]:
    """A session, its terms, and the share of what is folded that its digest takes (Rent's: at most a half).

    What is folded was sent whole once. Minimum prefix and blocks are left out: the bound relaxes them.
    """
    new = draw(st.lists(st.lists(sizes, min_size=1, max_size=2), min_size=1, max_size=30))
    new = new * draw(st.sampled_from([1, 1, 2]))
    keep = draw(st.sampled_from([0, 100, 500, 2_000]))
    fixed = draw(st.sampled_from([0, 100, 2_000]))
    share = draw(st.sampled_from([0.001, 0.1, 0.3, 0.5]))
    most = fixed + keep + 4_000 + sum(map(sum, new)) // 2
    terms = CostTerms(
        fixed_tokens=fixed,
        budget_tokens=draw(st.sampled_from([most, 10**9])),
        shown=ShownShares(((1.0, share),)),
        keep_tokens=[float(max(keep, sum(sizes))) for sizes in new],
        rule=replace(draw(rules), minimum_tokens=0, block_tokens=1),
        cold=draw(st.sets(st.integers(0, len(new)), max_size=6)),
    )
    return new, terms, share


def rented(new: Sequence[Sequence[int]], terms: CostTerms, share: float) -> list[tuple[int, int]]:
    """The folds that `Rent` makes, request by request, knowing nothing of what comes."""
    session, rent = terms.of(new), Rent(terms.rule, digest=share)
    cut, folds = 0, []
    for request in range(len(new)):
        cold = request in session.cold
        used = session.tokens(request, cut)
        best = max(cut, *session.cuts(request)[-1:], 0)
        digest = session.shown[best] - session.shown[cut]
        removable = session.at[best] - session.at[cut] - digest
        after = session.at[session.come[request]] - session.at[best]
        rent.rhythm.request(0, cold)
        bill = Bill(int(removable), int(digest), int(after), int(used))
        if used > session.budgets[request] or rent.due(bill, cold=cold):
            if best > cut:
                folds.append((request, best))
                cut = best
            rent.settle()
    return folds


@costly
@given(courses())
def test_rent_pays_at_most_twice_the_best_in_hindsight(course: tuple[list[list[int]], CostTerms, float]) -> None:
    new, terms, share = course
    try:
        best = best_schedule(new, terms)
    except InvalidInput:
        assume(False)
        raise
    paid = schedule_cost_tokens(new, rented(new, terms, share), terms)
    assume(paid < inf)  # a burst that only an early fold makes room for: then the budget decides, not the rent
    assert best.cost_tokens <= paid + 1e-6
    assert paid <= 2 * best.cost_tokens + 1e-6


def words(count: int, seed: int) -> str:
    return " ".join(f"{WORDS[(seed + 7 * n) % len(WORDS)]} {seed * n}" for n in range(count))


@st.composite
def built(draw: st.DrawFn) -> list[Wire]:
    """A session of tool calls and questions whose head alone is above each cache's minimum prefix.

    Each number is the size of one turn in words; a multiple of seven begins with a question of the user.
    """
    build = BUILDERS["openai-chat"]
    turns = draw(st.lists(st.one_of(st.integers(1, 120), st.integers(1, 900)), min_size=1, max_size=40))
    out = [*build.system(words(600, 1)), *build.user("please find out why the build fails", False)]
    for number, size in enumerate(turns):
        if size % 7 == 0:
            out += build.says(words(20, size), None) + build.user(words(20, size + 1), False)
        out += build.turn([f"c{number}"], [words(size, number)], words(10, size), None)
    return out + build.says("done", None)


def price(wires: list[Wire], rule: CacheRule, window: int, cold_every: int | None) -> Mapping[str, Any]:
    """What `economical` paid for a session, by its bound; each pause, after which the cache is cold, is told to it."""
    recording = MeasuredSession(Session(name="built", dialect="openai-chat", messages=tuple(wires)))
    pauses = None if cold_every is None else Pauses(cold_every, float(rule.lifetime_seconds))
    sender = WatchedSender(context_for(recording, "economical", window=window, rule=rule), pauses=pauses)
    done = replay(recording, "economical", window=window, rule=rule, sender=sender)
    bound = bound_of(done, sender, rule, cold_every=cold_every)
    anew = bound.cost_tokens / bound.anew.cost_tokens if bound.anew.cost_tokens else 1.0
    return {"ratio": bound.schedule_ratio, "anew": anew}


@settings(max_examples=40, deadline=None)
@given(built(), rules, st.sampled_from([6_000, 8_000, 12_000]))
def test_economical_pays_at_most_twice_the_best_schedule_of_its_folds(
    wires: list[Wire], rule: CacheRule, window: int
) -> None:
    found = price(wires, rule, window, None)
    assert found["ratio"] >= 1 - 1e-9
    assert found["anew"] <= 2  # its own folds write their digest anew


@settings(max_examples=20, deadline=None)
@given(built(), rules, st.sampled_from([6_000, 12_000]), st.integers(2, 9))
def test_the_bound_holds_with_cold_caches_too(wires: list[Wire], rule: CacheRule, window: int, every: int) -> None:
    found = price(wires, rule, window, every)
    assert found["ratio"] >= 1 - 1e-9
    assert found["anew"] <= 2
