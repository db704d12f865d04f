"""The cheapest choice of what to hide: below what any policy pays for what it shows."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import accumulate, pairwise, product
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.property.depth import costly

from foldline.catalog.models import CACHE_RULES
from foldline.catalog.prices import CacheRule, PriceStep
from foldline.engine.presets import POLICIES
from foldline.recorded.files import read_session
from foldline.recorded.sessions import Session
from foldline.replay import MeasuredSession, context_for, replay
from foldline_bench.bounds.clairvoyant import ReferenceNeed, clairvoyant_of, least_hiding_tokens, met_of, needs_of
from foldline_bench.bounds.hindsight import WatchedSender, bound_of, course_of
from foldline_bench.bounds.schedule import least_price

PLAIN = CacheRule(0.1, 1.25, 0, 1, 300)
STEPPED = replace(PLAIN, steps=(PriceStep(60, 2.0, 1.5), PriceStep(120, 3.0, 2.0)))
EXAMPLES = sorted((Path(__file__).parents[3] / "examples" / "sessions").glob("*.json.gz"))
SMALLER = [path for path in EXAMPLES if "share-general" not in path.name]


def least(arrivals: list[list[int]], *needs: ReferenceNeed, cold: frozenset[int] = frozenset()) -> float:
    come = [sum(map(len, arrivals[:request])) for request in range(len(arrivals))]
    return least_hiding_tokens(arrivals, needs, fixed_tokens=10, latest_cuts=come, rule=PLAIN, cold=cold)


def test_each_message_is_written_once_and_what_nothing_needs_is_read_never() -> None:
    first = 1.25 * (10 + 100)
    assert least([[100], [50]]) == pytest.approx(first + 1.25 * 50 + 0.1 * 10)


def test_what_is_needed_is_read_until_then() -> None:
    stream = [[100], [50], [50], [50]]
    assert least(stream, ReferenceNeed(0, 2, 30.0)) - least(stream) == pytest.approx(0.1 * 30 * 2)


def test_where_rewriting_costs_more_than_reading_nothing_is_hidden() -> None:
    kept = least_hiding_tokens([[10], [500], [1]], (), fixed_tokens=0, latest_cuts=[0, 0, 1], rule=PLAIN)
    assert kept == pytest.approx(12.5 + (625 + 1) + (1.25 + 51))


def test_a_cold_request_writes_all_that_it_shows() -> None:
    assert least([[100], [50]], ReferenceNeed(0, 1, 30.0), cold=frozenset({1})) == pytest.approx(
        137.5 + 1.25 * (10 + 30 + 50)
    )


def test_only_a_fact_that_one_message_holds_asks_for_that_message() -> None:
    talk = (
        "run it",
        "calling",
        "see alpha_one and beta_two",
        "noted beta_two",
        "use alpha_one",
        "go on",
        "use beta_two",
    )
    roles = ("user", "assistant", "user", "assistant", "assistant", "user", "assistant")
    wires = tuple({"role": role, "content": text} for role, text in zip(roles, talk, strict=True))
    recording = MeasuredSession(Session(name="talk", dialect="openai-chat", messages=wires))
    sender = WatchedSender(context_for(recording, "balanced", window=8_000, rule=PLAIN))
    replay(recording, "balanced", window=8_000, rule=PLAIN, sender=sender)
    met = met_of(recording, sender)
    # The reply that notes beta_two is the second, that which uses alpha_one the third; the last could have beta_two
    # from either message.
    whole = needs_of(met, recording, sender, far_only=False, whole=True)
    assert whole == (ReferenceNeed(2, 2, sender.first_tokens[2]),)
    assert needs_of(met, recording, sender, far_only=True, whole=True) == ()


rules = st.sampled_from([PLAIN, STEPPED, replace(PLAIN, minimum_tokens=80), replace(PLAIN, read_ratio=1.0)])
streams = st.lists(st.lists(st.integers(0, 60), max_size=2), min_size=1, max_size=4)
all_needs = st.lists(
    st.builds(ReferenceNeed, st.integers(0, 7), st.integers(0, 3), st.integers(0, 40).map(float)), max_size=6
)


def bill_of(
    stream: list[list[int]], needs: list[ReferenceNeed], cuts: tuple[int, ...], rule: CacheRule, cold: frozenset[int]
) -> float:
    """What the requests cost when the newest fold before each, or at it, is at the cut given for it."""
    sizes, come, before, bill = [size for new in stream for size in new], 0, 0, 0.0
    for request, (new, cut) in enumerate(zip(stream, cuts, strict=True)):
        come += len(new)
        needed = [0.0] * come
        for need in needs:
            if need.message < come and need.last_request >= request:
                needed[need.message] += need.tokens
        tail = float(sum(sizes[cut:come]))
        tokens = 10 + sum(map(min, needed[:cut], map(float, sizes))) + tail
        written = tail if cut != before else float(sum(new))
        bill += least_price(rule, tokens, tokens if request in cold | {0} else written)
        before = cut
    return bill


@costly
@given(streams, all_needs, rules, st.frozensets(st.integers(1, 3)), st.data())
def test_no_other_folds_cost_less(
    stream: list[list[int]], needs: list[ReferenceNeed], rule: CacheRule, cold: frozenset[int], data: st.DataObject
) -> None:
    come = list(accumulate(map(len, stream), initial=0))
    needs = [need for need in needs if need.message < come[-1]]
    latest = [data.draw(st.integers(*between)) for between in pairwise(come)]
    every = [
        cuts
        for cuts in product(*(range(most + 1) for most in accumulate(latest, max)))
        if all(
            older == newer or older < newer <= most
            for (older, newer), most in zip(pairwise((0, *cuts)), latest, strict=True)
        )
    ]
    found = least_hiding_tokens(stream, needs, fixed_tokens=10, latest_cuts=latest, rule=rule, cold=cold)
    assert found == pytest.approx(min(bill_of(stream, needs, cuts, rule, cold) for cuts in every))


@cache
def recorded(path: Path) -> MeasuredSession:
    return MeasuredSession(read_session(path))


@pytest.mark.parametrize(
    ("policy", "path"),
    [
        pytest.param(policy, path, id=f"{policy}-{path.stem[:24]}")
        for one, policy in enumerate(POLICIES)
        for other, path in enumerate(SMALLER)
        if (one + other) % 3 == 0  # every policy on a third of the sessions
    ],
)
def test_no_policy_pays_less_for_what_it_shows(path: Path, policy: str) -> None:
    rule = CACHE_RULES["anthropic"]
    recording = recorded(path)
    sender = WatchedSender(context_for(recording, policy, window=6_000, rule=rule))
    done = replay(recording, policy, window=6_000, rule=rule, sender=sender)
    for cold_every in (None, 20):
        bound = bound_of(done, sender, rule, cold_every=cold_every)
        found = clairvoyant_of(sender, recording, course_of(done, sender, rule, cold_every=cold_every))
        assert 0 < found.far_tokens <= found.facts_tokens + 1e-6
        assert found.facts_tokens <= found.messages_tokens + 1e-6
        assert found.facts_tokens <= bound.cost_tokens
        assert found.messages_tokens <= bound.cost_tokens, "none of them shortens so well that it goes below"
