"""The least bill with re-reads: below all schedules of small sessions, and below what any policy pays."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from itertools import accumulate, combinations, product
from math import ceil, inf
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.property.depth import costly

from foldline.catalog.models import CACHE_RULES
from foldline.catalog.prices import CacheRule, request_price
from foldline.engine.presets import POLICIES
from foldline.recorded.files import read_session
from foldline.recorded.sessions import Session
from foldline.replay import MeasuredSession, bill_tokens, context_for, replay
from foldline_bench.bounds.hindsight import WatchedSender, course_of
from foldline_bench.bounds.schedule import CostTerms, Lack, ShownShares, best_schedule
from foldline_bench.bounds.stages import (
    SourceUse,
    least_used_tokens,
    lone_terms,
    moment_lacks,
    stage_lacks,
    stages_bound_of,
    uses_of,
)

PLAIN = CacheRule(0.1, 1.25, 0, 1, 300)
EXAMPLES = sorted((Path(__file__).parents[3] / "examples" / "sessions").glob("*.json.gz"))
SMALLER = [path for path in EXAMPLES if "share-general" not in path.name]
FIXED, SHARE = 10, 0.25


def terms(rule: CacheRule = PLAIN, cold: frozenset[int] = frozenset()) -> CostTerms:
    return CostTerms(
        fixed_tokens=FIXED,
        budget_tokens=10_000,
        shown=ShownShares(((1.0, SHARE),)),
        keep_tokens=0,
        rule=rule,
        cold=cold,
        in_place=False,
    )


def use(
    request: int, source: int, *, first: int, again: float = 40, never: bool = False, lost: bool = True
) -> SourceUse:
    return SourceUse(request, source, again, never, lost, (), first, 20.0)


def staged(stream: list[list[int]], uses: Sequence[SourceUse], kept: CostTerms) -> float:
    return best_schedule(stream, replace(kept, lacks=stage_lacks(uses, stream, kept))).cost_tokens


# --- what each stage costs --------------------------------------------------------------------------------------------

LONG = [[1_000], *[[10]] * 30]


def test_what_is_used_again_soon_stays_whole_and_what_is_used_late_is_read_again() -> None:
    kept, whole = terms(), 0.1 * 750  # what a whole message of 1,000 tokens costs more at each request
    nothing = staged(LONG, (), kept)
    soon = staged(LONG, [use(3, 0, first=0, again=1_000)], kept)
    late = staged(LONG, [use(30, 0, first=0, again=1_000)], kept)
    assert nothing < soon < late
    assert soon - nothing <= 3 * whole
    assert late - nothing > 1_000, "thirty requests with it whole cost more than to read it again"


def test_a_use_that_the_short_form_serves_costs_nothing() -> None:
    served = [use(request, 0, first=0, lost=False) for request in range(1, 31)]
    assert staged(LONG, served, terms()) == staged(LONG, (), terms())


def test_what_was_cut_before_it_was_sent_is_read_again_or_comes_whole() -> None:
    once = [replace(use(5, 1, first=1, again=10, never=True), grown_tokens=100.0)]
    often = [replace(once[0], request=request) for request in range(5, 25)]
    nothing = staged(LONG, (), terms())
    assert nothing < staged(LONG, once, terms()) < staged(LONG, often, terms())
    assert staged(LONG, often, terms()) - nothing == pytest.approx(1.25 * 100), "written once"
    too_large = [replace(one, grown_tokens=inf) for one in often]
    assert staged(LONG, too_large, terms()) - nothing > 20 * 1.25 * 10, "what no request has room for is read each time"


def test_with_the_best_moments_a_lack_costs_the_request_from_the_cache_and_its_source() -> None:
    kept = replace(terms(), keep_tokens=1_000)
    lacks = moment_lacks([use(0, 0, first=0, again=40, never=True)], 1, kept)
    assert best_schedule([[90]], replace(kept, lacks=lacks)).cost_tokens == pytest.approx(125 + 0.1 * 100 + 1.25 * 40)


# --- against all schedules of small sessions --------------------------------------------------------------------------

rules = st.sampled_from([PLAIN, replace(PLAIN, minimum_tokens=50), replace(PLAIN, read_ratio=0.5, write_ratio=1.0)])
streams = st.lists(st.lists(st.integers(0, 60), min_size=0, max_size=2), min_size=1, max_size=4).filter(
    lambda stream: 0 < sum(map(len, stream)) <= 4
)


@st.composite
def sessions(draw: st.DrawFn) -> tuple[list[list[int]], tuple[SourceUse, ...]]:
    """A stream of messages, and uses of them in the order of the requests."""
    stream = draw(streams)
    come = list(accumulate(map(len, stream)))
    first = [request for request, new in enumerate(stream) for _ in new]
    uses = []
    for request, count in enumerate(come):
        for source in draw(st.sets(st.integers(0, count - 1), max_size=2)) if count else ():
            never, lost = draw(st.sampled_from([(False, False), (False, True), (False, True), (True, True)]))
            uses.append(
                use(request, source, first=first[source], again=draw(st.integers(1, 80)), never=never, lost=lost)
            )
    return stream, tuple(sorted(uses, key=lambda one: (one.request, one.source)))


def price(rule: CacheRule, tokens: float, written: float) -> float:
    """What a provider charges. Rounded up, since sizes here are no whole numbers: no tenth is worth less."""
    return request_price(rule, ceil(tokens), ceil(tokens) - ceil(written))


def folded_bills(stream: list[list[int]], uses: Sequence[SourceUse], kept: CostTerms) -> Iterator[float]:
    """What every sequence of folds pays, for all choices of messages that each of them leaves whole.

    Messages that some use finds cut come as they are, or whole.
    """
    count, requests = sum(map(len, stream)), len(stream)
    cut_before = sorted({one.source for one in uses if one.never_shown})
    for number in range(min(requests, count) + 1):
        for when, cuts in product(combinations(range(requests), number), combinations(range(1, count + 1), number)):
            stays = [[set(some) for size in range(cut + 1) for some in combinations(range(cut), size)] for cut in cuts]
            for whole in product(*stays):
                for grown in product((False, True), repeat=len(cut_before)):
                    grows = {source for source, does in zip(cut_before, grown, strict=True) if does}
                    bill = _folded_bill(
                        stream, uses, kept, dict(zip(when, zip(cuts, whole, strict=True), strict=True)), grows
                    )
                    if bill is not None:
                        yield bill


def _folded_bill(
    stream: list[list[int]],
    uses: Sequence[SourceUse],
    kept: CostTerms,
    folds: dict[int, tuple[int, set[int]]],
    grown: set[int],
) -> float | None:
    sizes = [size for new in stream for size in new]
    more = [20.0 if source in grown else 0.0 for source in range(len(sizes))]
    come, cut, reached, bill = 0, 0, 0, 0.0
    whole: set[int] = set()
    for request, new in enumerate(stream):
        before, come = come, come + len(new)
        if request in folds:
            stay, (cut, whole) = whole, folds[request]
            # What is short never becomes whole again.
            if cut > come or any(source < reached and source not in stay for source in whole):
                return None
            reached = cut
        digest = SHARE * sum(sizes[:cut])
        extra = sum((1 - SHARE) * sizes[source] + more[source] for source in whole)
        after = sum(sizes[cut:come]) + sum(more[cut:come])
        tokens = FIXED + digest + extra + after
        written = digest + extra + after if request in folds else sum(new) + sum(more[before:come])
        if request == 0 or request in kept.cold:
            written = tokens
        bill += price(kept.rule, tokens, written)
        for one in uses:
            shown = one.source >= cut or one.source in whole
            met = (one.source in grown and shown) if one.never_shown else (shown or not one.lost_when_short)
            if one.request == request and not met:
                bill += price(kept.rule, tokens + one.again_tokens, one.again_tokens)
    return bill


@costly
@given(sessions(), rules, st.frozensets(st.integers(1, 3), max_size=1))
def test_no_folds_and_no_choice_of_what_stays_whole_cost_less(
    session: tuple[list[list[int]], tuple[SourceUse, ...]], rule: CacheRule, cold: frozenset[int]
) -> None:
    stream, uses = session
    kept = terms(rule, cold)
    assert staged(stream, uses, kept) <= min(folded_bills(stream, uses, kept)) + 1e-6


def lone_bills(stream: list[list[int]], uses: Sequence[SourceUse], rule: CacheRule) -> Iterator[float]:
    """What the requests cost for all times at which each message becomes short, in place: what follows is written."""
    sizes = [float(size) for new in stream for size in new]
    first = [request for request, new in enumerate(stream) for _ in new]
    for times in product(*(range(start + 1, len(stream) + 1) for start in first)):

        def stage(source: int, request: int, times: tuple[int, ...] = times) -> tuple[float]:
            return (sizes[source] * (SHARE if request >= times[source] else 1.0),)

        def missed(one: SourceUse, times: tuple[int, ...] = times) -> bool:
            return one.never_shown or (one.lost_when_short and one.request >= times[one.source])

        yield _bill_in_place(first, len(stream), uses, rule, stage, missed=missed)


def _bill_in_place(
    first: Sequence[int],
    requests: int,
    uses: Sequence[SourceUse],
    rule: CacheRule,
    stage: Callable[[int, int], tuple[float, ...]],
    *,
    missed: Callable[[SourceUse], bool],
) -> float:
    bill, before = 0.0, list[float]()
    for request in range(requests):
        now = [size for source, start in enumerate(first) if start <= request for size in stage(source, request)]
        same = next((at for at, (one, two) in enumerate(zip(before, now, strict=False)) if one != two), len(before))
        cached = FIXED + sum(now[:same]) if request else 0.0
        tokens = FIXED + sum(now)
        bill += price(rule, tokens, tokens - cached)
        bill += sum(
            price(rule, tokens + one.again_tokens, one.again_tokens)
            for one in uses
            if one.request == request and missed(one)
        )
        before = now
    return bill


@costly
@given(sessions(), rules)
def test_no_times_at_which_messages_become_short_by_themselves_cost_less(
    session: tuple[list[list[int]], tuple[SourceUse, ...]], rule: CacheRule
) -> None:
    stream, uses = session
    kept = replace(terms(rule), keep_tokens=10_000)
    alone = lone_terms(stream, kept)
    assert staged(stream, uses, alone) <= min(lone_bills(stream, uses, rule)) + 1e-6


@st.composite
def lined(draw: st.DrawFn) -> tuple[list[list[int]], tuple[SourceUse, ...], list[list[int]]]:
    """A stream of messages, each of two lines, and uses of some of these lines."""
    halves = draw(st.lists(st.lists(st.integers(0, 40), min_size=2, max_size=2), min_size=1, max_size=3))
    stream = [[sum(pair)] for pair in halves] + [[]] * draw(st.integers(0, 4 - len(halves)))
    uses = []
    for request in range(len(stream)):
        for source in range(min(request + 1, len(halves))):
            wanted = draw(st.sets(st.integers(0, 1)))
            lines = tuple((f"{source}.{half}", float(halves[source][half])) for half in sorted(wanted))
            if lines:
                uses.append(SourceUse(request, source, float(draw(st.integers(1, 80))), False, True, lines, source))
    return stream, tuple(uses), halves


@costly
@given(lined(), rules)
def test_no_choice_of_the_lines_that_each_request_shows_costs_less(
    session: tuple[list[list[int]], tuple[SourceUse, ...], list[list[int]]], rule: CacheRule
) -> None:
    stream, uses, halves = session
    requests, bills = len(stream), []
    # One bit for each request after the first that has a line: it may leave, and come back.
    for there in product(*(range(1 << (requests - 1 - source)) for source in range(len(halves)) for _ in range(2))):

        def shown(source: int, half: int, request: int, there: tuple[int, ...] = there) -> bool:
            return request == source or bool(there[2 * source + half] >> (request - source - 1) & 1)

        def stage(source: int, request: int, shown: Callable[[int, int, int], bool] = shown) -> tuple[int, ...]:
            return tuple(size if shown(source, half, request) else 0 for half, size in enumerate(halves[source]))

        def missed(one: SourceUse, shown: Callable[[int, int, int], bool] = shown) -> bool:
            return not all(shown(one.source, int(line[-1]), one.request) for line, _ in one.lines)

        bills.append(_bill_in_place(range(len(halves)), len(stream), uses, rule, stage, missed=missed))
    assert least_used_tokens(uses, stream, terms(rule)) <= min(bills) + 1e-6


# --- recorded sessions ------------------------------------------------------------------------------------------------


@cache
def recorded(path: Path) -> MeasuredSession:
    return MeasuredSession(read_session(path))


def watched(recording: MeasuredSession, policy: str, window: int) -> tuple[WatchedSender, list[float]]:
    """Replay and return the sender, the total by which the bounds are judged, and each of the bounds."""
    rule = CACHE_RULES["anthropic"]
    sender = WatchedSender(context_for(recording, policy, window=window, rule=rule))
    done = replay(recording, policy, window=window, rule=rule, sender=sender)
    found = []
    for cold_every in (None, 20):
        bound = stages_bound_of(done, sender, recording, rule, cold_every=cold_every)
        bill = bill_tokens(done.turns, rule, cold_every=cold_every)
        again = sum(turn.reread_tokens[1] for turn, sent in zip(done.turns, sender.sent, strict=True) if sent)
        assert bound.total_tokens == pytest.approx(bill + again)
        least = [bound.moments_tokens, bound.stages_tokens, bound.alone_tokens]
        assert least == sorted(least, reverse=True)
        found += [tokens / bound.total_tokens for tokens in (*least, bound.uses_tokens)]
    return sender, found


@pytest.mark.parametrize(
    ("policy", "path"),
    [
        pytest.param(policy, path, id=f"{policy}-{path.stem[:24]}")
        for one, policy in enumerate(POLICIES)
        for other, path in enumerate(SMALLER)
        if (one + other) % 3 == 0  # every policy on a third of the sessions
    ],
)
def test_no_policy_pays_less_with_its_re_reads(path: Path, policy: str) -> None:
    _, found = watched(recorded(path), policy, 6_000)
    assert min(found) > 0
    assert max(found) <= 1 + 1e-9


def test_a_use_knows_whether_its_source_showed_the_line_when_it_was_whole_and_when_it_was_short() -> None:
    rule = CACHE_RULES["anthropic"]
    recording = recorded(SMALLER[1])
    sender = WatchedSender(context_for(recording, "cost", window=6_000, rule=rule))
    done = replay(recording, "cost", window=6_000, rule=rule, sender=sender)
    course = course_of(done, sender, rule)
    uses = uses_of(recording, sender, course, limit_tokens=done.limit_tokens)
    made = [turn for turn, sent in zip(done.turns, sender.sent, strict=True) if sent]
    lacking = [len(turn.rereads.high) for turn in made]
    cuts = list(accumulate((dict(course.folds).get(place, 0) for place in range(len(made))), max))
    for place, cut in enumerate(cuts):
        lost = sum(
            one.never_shown or (one.source < cut and one.lost_when_short) for one in uses if one.request == place
        )
        assert lost <= lacking[place], "of what the policy's own stages lack, at most what its request lacked"
    assert any(one.lost_when_short and not one.never_shown for one in uses)
    assert all(one.first_request <= one.request and one.again_tokens <= done.limit_tokens // 2 for one in uses)
    assert not sender.fixed_entries() & {one.source for one in uses}


def test_what_stays_as_it_was_sent_is_never_read_again() -> None:
    wires = tuple(
        {"role": "user" if place % 2 == 0 else "assistant", "content": f"about alpha_one, time {place}"}
        for place in range(8)
    )
    recording = MeasuredSession(Session(name="talk", dialect="openai-chat", messages=wires))
    _, found = watched(recording, "balanced", 8_000)
    assert found[0] == pytest.approx(1.0), "nothing was folded and nothing is lacking"


def test_lacks_count_before_each_cut_and_those_of_no_message_always() -> None:
    kept = replace(terms(), keep_tokens=10_000)
    lacks = [[], [Lack(-1, 0.0, 7.0), Lack(0, 0.0, 100.0)]]
    assert best_schedule([[5], [5]], replace(kept, lacks=lacks)).cost_tokens == pytest.approx(
        best_schedule([[5], [5]], kept).cost_tokens + 7
    )
