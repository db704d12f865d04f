"""The cheapest choice of what to hide, with knowledge of what every later reply will refer to.

References that a policy's requests met have to be met at the same requests; everything else may leave after it has been
sent once. This bounds the value of knowing what will be needed, as `schedule` does for knowing when to fold.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import inf

from foldline.catalog.prices import CacheRule
from foldline.replay import MeasuredSession
from foldline_bench.bounds.hindsight import Course, WatchedSender
from foldline_bench.bounds.schedule import least_price

__all__ = [
    "Clairvoyant",
    "MetReference",
    "ReferenceNeed",
    "clairvoyant_of",
    "least_hiding_tokens",
    "met_of",
    "needs_of",
]


@dataclass(frozen=True, slots=True)
class ReferenceNeed:
    """So many tokens of a message have to be shown up to and including a request."""

    message: int
    last_request: int
    tokens: float


@dataclass(frozen=True, slots=True)
class MetReference:
    """A reference that a request met: the fact stood in it, and in one message alone of all before."""

    message: int
    fact: str
    request: int
    far: bool


@dataclass(frozen=True, slots=True)
class Clairvoyant:
    """Least bills at the recall that a policy reached, in tokens at the full input price.

    `facts_tokens`: of each message only the facts that are referred to stay, which is below any way of shortening.
    `far_tokens`: the same where only far references have to be met. `messages_tokens`: messages stay whole or leave.
    """

    facts_tokens: float
    far_tokens: float
    messages_tokens: float


def least_hiding_tokens(
    arrivals: Sequence[Sequence[int]],
    needs: Collection[ReferenceNeed],
    *,
    fixed_tokens: float,
    latest_cuts: Sequence[int],
    rule: CacheRule,
    cold: Collection[int] = frozenset(),
) -> float:
    """Return the least bill if only needed messages are shown before the newest cut. O(requests · messages).

    At each request a fold may reach up to `latest_cuts`. It writes only what is after its cut: neither what is needed
    before the cut nor what leaves there later costs writing. So no choice of what to hide and when, however fine, pays
    less.
    """
    # The further a fold reaches, the less it writes and the less each later request shows. So each fold reaches as far
    # as it may, from the least bill so far, and a cut is dropped once a newer one has as low a bill. That leaves one
    # fold to try for each request, and few cuts to extend.
    at = list(accumulate((float(tokens) for new in arrivals for tokens in new), initial=0.0))
    dying: dict[int, list[ReferenceNeed]] = defaultdict(list)
    alive = [0.0] * (len(at) - 1)
    for need in needs:
        alive[need.message] += need.tokens
        dying[need.last_request + 1].append(need)
    sizes = [float(tokens) for new in arrivals for tokens in new]
    bills, come = {0: 0.0}, 0
    for request, new in enumerate(arrivals):
        for need in dying[request]:
            alive[need.message] -= need.tokens
        come += len(new)
        # Several facts of a message may together count more tokens than it has: it is shown once.
        shown = list(accumulate(map(min, alive[:come], sizes), initial=fixed_tokens))
        whole, latest, oldest = request == 0 or request in cold, min(latest_cuts[request], come), min(bills)
        tokens = {cut: shown[cut] + at[come] - at[cut] for cut in (*bills, latest)}
        fresh = float(sum(new))
        after = {
            cut: bill + least_price(rule, tokens[cut], tokens[cut] if whole else fresh) for cut, bill in bills.items()
        }
        if oldest < latest:
            written = tokens[latest] if whole else at[come] - at[latest]
            folded = bills[oldest] + least_price(rule, tokens[latest], written)
            after[latest] = min(folded, after.get(latest, folded))
        bills = _worth_going_on(after)
    return min(bills.values())


def _worth_going_on(bills: Mapping[int, float]) -> dict[int, float]:
    """Return the cuts for which no newer cut has as low a bill."""
    useful: dict[int, float] = {}
    least = inf
    for cut, bill in sorted(bills.items(), reverse=True):
        if bill < least:
            useful[cut] = least = bill
    return useful


def met_of(recording: MeasuredSession, watching: WatchedSender) -> tuple[MetReference, ...]:
    """Return the references that the requests met, if a single message held the fact. O(size of the session)."""
    # A fact in several earlier messages could be shown by any of them. To demand one would make the bound too high.
    reader = recording.reader.copy()
    holders: Mapping[str, list[int]] = defaultdict(list)
    out: list[MetReference] = []
    seen, place = 0, 0
    for index, reply in enumerate(recording.replies):
        for message in range(seen, reply.start):
            for fact in recording.history[message].facts:
                holders[fact].append(message)
        seen = reply.start
        if not watching.sent[index]:
            continue
        single = [ref for ref in recording.references[index] if len(holders[ref.fact]) == 1]
        if single:
            shown = frozenset[str]().union(*(reader.read(wire).facts for wire in watching.messages[index]))
            out += (MetReference(holders[ref.fact][0], ref.fact, place, ref.far) for ref in single if ref.fact in shown)
        place += 1
    return tuple(out)


def needs_of(
    met: Iterable[MetReference], recording: MeasuredSession, watching: WatchedSender, *, far_only: bool, whole: bool
) -> tuple[ReferenceNeed, ...]:
    """Return what must stay for these references; with `whole`, the messages that hold them in full. O(references)."""
    # One token less for each fact: tokens of a fact alone and within a text may differ by one, and this is a lower
    # bound.
    wanted = [one for one in met if one.far or not far_only]
    if not whole:
        last = {(one.message, one.fact): one.request for one in wanted}
        counted = {fact: max(0, recording.counter.text(fact) - 1) for _, fact in last}
        return tuple(ReferenceNeed(message, request, counted[fact]) for (message, fact), request in last.items())
    ends = {one.message: one.request for one in wanted}
    return tuple(ReferenceNeed(message, request, watching.first_tokens[message]) for message, request in ends.items())


def clairvoyant_of(watching: WatchedSender, recording: MeasuredSession, course: Course) -> Clairvoyant:
    """Return the least bills for a replayed session at the recall that it reached; `course` is that of the replay."""
    fixed = watching.fixed_entries()
    made = [index for index, sent in enumerate(watching.sent) if sent]
    before = [0, *(watching.come[index] for index in made)]
    latest = [max(sent, watching.cuts[index]) for sent, index in zip(before, made, strict=False)]

    met = [one for one in met_of(recording, watching) if one.message not in fixed]

    def least(*, far_only: bool, whole: bool) -> float:
        return least_hiding_tokens(
            course.arrivals,
            needs_of(met, recording, watching, far_only=far_only, whole=whole),
            fixed_tokens=course.terms.fixed_tokens,
            latest_cuts=latest,
            rule=course.terms.rule,
            cold=course.terms.cold,
        )

    return Clairvoyant(
        least(far_only=False, whole=False), least(far_only=True, whole=False), least(far_only=False, whole=True)
    )
