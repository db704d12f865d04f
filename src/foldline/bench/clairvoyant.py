"""The cheapest choice of what to hide, for one who knows what every later reply will refer to.

What a policy's requests still showed has to be shown at the same requests; everything else may leave after it has been
sent once. This says how much knowing what will be needed is worth at most, beside knowing when to fold (`bound`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import inf

from foldline.bench.bound import least_price
from foldline.bench.hindsight import Course, Watching
from foldline.catalog.prices import CacheRule
from foldline.replay import Recording

__all__ = ["Clairvoyant", "Need", "clairvoyant_of", "least_hiding_tokens", "needs_of"]


@dataclass(frozen=True, slots=True)
class Need:
    """So many tokens of a message have to be shown up to and with a request."""

    message: int
    last_request: int
    tokens: float


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
    needs: Collection[Need],
    *,
    fixed_tokens: float,
    latest_cuts: Sequence[int],
    rule: CacheRule,
    cold: Collection[int] = frozenset(),
) -> float:
    """The least bill when of all messages before the newest cut only what is needed is shown. O(requests · messages).

    A fold may reach to `latest_cuts` at each request, and writes only what stands after its cut: what is needed before
    it, and what leaves there once it is needed no more, costs no writing. So no choice of what to hide and when, at
    places however many, pays less.
    """
    at = list(accumulate((float(tokens) for new in arrivals for tokens in new), initial=0.0))
    dying: dict[int, list[Need]] = defaultdict(list)
    alive = [0.0] * (len(at) - 1)
    for need in needs:
        alive[need.message] += need.tokens
        dying[need.last_request + 1].append(need)
    bills, come = [0.0] + [inf] * (len(at) - 1), 0
    for request, new in enumerate(arrivals):
        for need in dying[request]:
            alive[need.message] -= need.tokens
        come += len(new)
        fresh, first = float(sum(new)), request == 0 or request in cold
        shown, best, after = 0.0, inf, list(bills)
        for cut in range(come + 1):
            size = fixed_tokens + shown + at[come] - at[cut]
            going_on = bills[cut] + least_price(rule, size, size if first else fresh)
            folded = inf
            if best < inf and cut <= latest_cuts[request]:
                folded = best + least_price(rule, size, size if first else at[come] - at[cut])
            best = min(best, bills[cut])
            after[cut] = min(going_on, folded)
            if cut < come:
                shown += min(alive[cut], at[cut + 1] - at[cut])
        bills = after
    return min(bills)


def needs_of(recording: Recording, watching: Watching, *, far_only: bool, whole: bool) -> tuple[Need, ...]:
    """What has to stay for the references that the requests met. O(size of the session).

    A fact that several earlier messages hold could be shown by any of them: such a reference asks for nothing here.
    With `whole` the message that holds the fact stays whole. One token of each fact is left out for rounding.
    """
    lens = recording.lens.branch()
    holders: Mapping[str, list[int]] = defaultdict(list)
    last: dict[tuple[int, str], int] = {}
    seen, place = 0, 0
    for index, reply in enumerate(recording.replies):
        for message in range(seen, reply.start):
            for fact in recording.history[message].facts:
                holders[fact].append(message)
        seen = reply.start
        if not watching.sent[index]:
            continue
        single = [
            (holders[ref.fact][0], ref.fact)
            for ref in recording.references[index]
            if len(holders[ref.fact]) == 1 and (ref.far or not far_only)
        ]
        if single:
            shown = frozenset[str]().union(*(lens.look(wire).facts for wire in watching.messages[index]))
            last.update(((message, fact), place) for message, fact in single if fact in shown)
        place += 1
    if not whole:
        counted = {fact: max(0, recording.counter.text(fact) - 1) for _, fact in last}
        return tuple(Need(message, request, counted[fact]) for (message, fact), request in last.items())
    ends: dict[int, int] = {}
    for (message, _), request in last.items():
        ends[message] = max(request, ends.get(message, 0))
    return tuple(Need(message, request, watching.first_tokens[message]) for message, request in ends.items())


def clairvoyant_of(watching: Watching, recording: Recording, course: Course) -> Clairvoyant:
    """The least bills for a replayed session at the recall that it reached; `course` is that of the replay."""
    fixed = watching.fixed_entries()
    made = [index for index, sent in enumerate(watching.sent) if sent]
    before = [0, *(watching.come[index] for index in made)]
    latest = [max(sent, watching.cuts[index]) for sent, index in zip(before, made, strict=False)]

    def least(*, far_only: bool, whole: bool) -> float:
        needs = needs_of(recording, watching, far_only=far_only, whole=whole)
        return least_hiding_tokens(
            course.arrivals,
            [need for need in needs if need.message not in fixed],
            fixed_tokens=course.terms.fixed_tokens,
            latest_cuts=latest,
            rule=course.terms.rule,
            cold=course.terms.cold,
        )

    return Clairvoyant(
        least(far_only=False, whole=False), least(far_only=True, whole=False), least(far_only=False, whole=True)
    )
