"""The least bill with re-reads in hindsight, where messages pass through stages: whole, short, gone.

A request that lacks what its reply uses costs one more request, in which the source is read again. Four lower bounds
on a policy's bill and its re-reads together, each with fewer constraints than the one before it: the best moments of
the policy's folds, the best stage of each message that they reach, that of every message, and what replies use alone.
docs/design/012-the-bound-with-stages.md derives them and says what is relaxed.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from math import inf

from foldline.catalog.prices import CacheRule
from foldline.replay import MeasuredSession, Replay, bill_tokens, reread_tokens
from foldline.replay.recall import MeasuredMessage, Reference
from foldline_bench.bounds.hindsight import Course, WatchedSender, course_of
from foldline_bench.bounds.schedule import CostTerms, Lack, best_schedule

__all__ = [
    "SourceUse",
    "StagesBound",
    "least_used_tokens",
    "lone_terms",
    "moment_lacks",
    "stage_lacks",
    "stages_bound_of",
    "uses_of",
]


@dataclass(frozen=True, slots=True)
class SourceUse:
    """The reply to a request uses lines of an earlier message, the source.

    To read it again writes `again_tokens`. `never_shown`: the source lacked such a line when it was first sent.
    `lost_when_short`: its short form lacks one. `lines` are the lines used and their sizes, `first_request` the
    first request that had the source, and `grown_tokens` what its first form lacks of it; infinite if no request has
    room for all of it.
    """

    request: int
    source: int
    again_tokens: float
    never_shown: bool
    lost_when_short: bool
    lines: tuple[tuple[str, float], ...]
    first_request: int
    grown_tokens: float = 0.0


@dataclass(frozen=True, slots=True)
class StagesBound:
    """A policy's bill with re-reads, and the least ones, in tokens at the full input price.

    `moments_tokens`: folds like the policy's own, at the best moments. `stages_tokens`: of what such a fold reaches,
    each message stays whole or becomes short. `alone_tokens`: each message becomes short by itself, as soon as it has
    been sent, and what follows is not written again. `uses_tokens`: what no reply uses leaves once it has been sent,
    and of the rest only the lines that are used stay.
    """

    total_tokens: float
    moments_tokens: float
    stages_tokens: float
    alone_tokens: float
    uses_tokens: float


# --- what a replay says -----------------------------------------------------------------------------------------------


def uses_of(
    recording: MeasuredSession, watching: WatchedSender, course: Course, *, limit_tokens: int
) -> tuple[SourceUse, ...]:
    """Return what the replies used, and which stage of its source would show it. O(references · messages)."""
    shown = _LineStages(recording, watching, course)
    out = []
    for place, index in enumerate(shown.made):
        by_source: dict[int, list[Reference]] = defaultdict(list)
        for ref in recording.references[index]:
            by_source[ref.source].append(ref)
        for source, refs in sorted(by_source.items()):
            if source in shown.fixed:
                continue
            tokens = recording.history[source].tokens
            out.append(
                SourceUse(
                    place,
                    source,
                    float(min(tokens, limit_tokens // 2)),
                    any(shown.never(place, ref) for ref in refs),
                    any(shown.lost(place, ref) for ref in refs),
                    tuple((line, max(0.0, recording.counter.text(line) - 1.0)) for line in {ref.line for ref in refs}),
                    shown.first(source),
                    float(max(0, tokens - watching.first_tokens[source]))
                    if tokens + course.terms.fixed_tokens <= limit_tokens
                    else inf,
                )
            )
    return tuple(out)


class _LineStages:
    """Which lines the requests of a replay show, and which their folds do."""

    def __init__(self, recording: MeasuredSession, watching: WatchedSender, course: Course) -> None:
        self.fixed = watching.fixed_entries()
        self.made = [index for index, sent in enumerate(watching.sent) if sent]
        self._come = [watching.come[index] for index in self.made]
        reader = recording.reader.copy()
        self._views = [[reader.read(wire) for wire in watching.messages[index]][::-1] for index in self.made]
        self._folds = course.folds
        self._history = recording.history
        self._forms: dict[int, list[MeasuredMessage]] = {}

    def first(self, source: int) -> int:
        """Return the first request that had a message."""
        return bisect_right(self._come, source)

    def never(self, place: int, ref: Reference) -> bool:
        """Return whether neither this request showed the line nor the one in which its message was first sent."""
        return not self._has(self._views[place], ref) and not self._has(self._views[self.first(ref.source)], ref)

    def lost(self, place: int, ref: Reference) -> bool:
        """Return whether the line is lost when its message is folded as the policy folded it."""
        fold = next((fold for fold, (_, cut) in enumerate(self._folds) if cut > ref.source), None)
        if fold is None:
            return False
        if self._folds[fold][0] <= place:
            return not self._has(self._views[place], ref)
        return not self._has(self._form(fold), ref)

    def _form(self, fold: int) -> list[MeasuredMessage]:
        """Return what the request of a fold shows besides the messages that stay whole behind its cut."""
        if fold not in self._forms:
            place, cut = self._folds[fold]
            whole = {message.text for message in self._history[cut : self._come[place]]}
            self._forms[fold] = [message for message in self._views[place] if message.text not in whole]
        return self._forms[fold]

    @staticmethod
    def _has(view: Sequence[MeasuredMessage], ref: Reference) -> bool:
        return any(ref.line in message.lines for message in view)


# --- the four bounds --------------------------------------------------------------------------------------------------


def _written_ratio(terms: CostTerms) -> float:
    # Below the cache's minimum nothing is written, and each token has the full price.
    rule = terms.rule
    return rule.write_ratio if terms.fixed_tokens >= rule.minimum_tokens else min(1.0, rule.write_ratio)


def moment_lacks(uses: Sequence[SourceUse], requests: int, terms: CostTerms) -> list[list[Lack]]:
    """Return what each request pays for re-reads, where all messages before the cut are short. O(uses)."""
    out: list[list[Lack]] = [[] for _ in range(requests)]
    for use in uses:
        if use.never_shown or use.lost_when_short:
            source = -1 if use.never_shown else use.source
            out[use.request].append(Lack(source, 1.0, _written_ratio(terms) * use.again_tokens))
    return out


def stage_lacks(uses: Sequence[SourceUse], arrivals: Sequence[Sequence[int]], terms: CostTerms) -> list[list[Lack]]:
    """Return what each request pays before the cut, where each message may be whole or short. O(uses · requests).

    Before a use that the short form would not serve, a message stays whole since the use before, or is read again. Each
    request between pays its share of the lesser.
    """
    session, least = terms.of(arrivals), _least_requests(arrivals, terms)
    sizes = [float(tokens) for new in arrivals for tokens in new]
    read, written = terms.rule.read_ratio, _written_ratio(terms)
    out: list[list[Lack]] = [[] for _ in arrivals]

    def again(use: SourceUse) -> float:
        return read * least[use.request] + written * use.again_tokens

    unshown: dict[int, list[SourceUse]] = defaultdict(list)
    last: dict[int, int] = {}
    for use in uses:
        if use.never_shown:
            unshown[use.source].append(use)
        elif use.lost_when_short:
            since = last.get(use.source, use.first_request)
            last[use.source] = use.request
            gap = range(min(since + 1, use.request), use.request + 1)
            more = sizes[use.source] - max(0.0, session.shown[use.source + 1] - session.shown[use.source])
            # In its first request a message is not read but written.
            rate = written if use.request == use.first_request else read
            for place in gap:
                if least[place] >= terms.rule.minimum_tokens:
                    out[place].append(Lack(use.source, 0.0, min(again(use) / len(gap), rate * max(0.0, more))))
    for source in unshown.values():
        # Or the message comes whole: what its first form lacks is written once.
        whole = sum(map(again, source))
        share = min(1.0, written * source[0].grown_tokens / whole) if whole else 0.0
        for use in source:
            out[use.request].append(Lack(-1, 0.0, share * again(use)))
    return out


def lone_terms(arrivals: Sequence[Sequence[int]], terms: CostTerms) -> CostTerms:
    """Return the terms where each message becomes short by itself, in place, once it has been sent. O(requests)."""
    # The cut is then behind the newest short message. What is whole before it was not written when that one became
    # short, so nothing before the cut counts as written.
    kept = terms.of(arrivals).keep_tokens
    keep = [min(tokens, float(sum(new))) for tokens, new in zip(kept, arrivals, strict=True)]
    return replace(terms, keep_tokens=keep, written_share=0.0, in_place=True)


def _least_requests(arrivals: Sequence[Sequence[int]], terms: CostTerms) -> list[float]:
    """Return the size of the smallest request that any allowed cut leaves, by request. O(requests · messages)."""
    session, out, furthest = terms.of(arrivals), [], 0
    for place in range(len(arrivals)):
        furthest = max(furthest, session.cuts(place).stop - 1)
        out.append(min(session.tokens(place, cut) for cut in range(min(furthest, session.come[place]) + 1)))
    return out


def least_used_tokens(uses: Sequence[SourceUse], arrivals: Sequence[Sequence[int]], terms: CostTerms) -> float:
    """Return the least bill where only lines that a reply uses stay, or their source is read again. O(uses)."""
    rule, read, written = terms.rule, terms.rule.read_ratio, _written_ratio(terms)
    total = 0.0
    bases = []
    for place, new in enumerate(arrivals):
        tokens, fresh = terms.fixed_tokens + float(sum(new)), float(sum(new))
        fresh = tokens if place == 0 or place in terms.cold else fresh
        bases.append(tokens)
        price = read * tokens + (rule.write_ratio - read) * fresh
        total += min(price, tokens) if tokens < rule.minimum_tokens else price
    last: dict[str, int] = {}
    for use in uses:
        kept = 0.0
        for line, tokens in use.lines:
            since = max(use.first_request, last.get(line, 0))
            last[line] = use.request
            # Or it leaves and is written again in time.
            kept += tokens * min(read * (use.request - since), max(read, _written_ratio(terms)))
        total += min(kept, read * bases[use.request] + written * use.again_tokens)
    return total


def stages_bound_of(
    done: Replay,
    watching: WatchedSender,
    recording: MeasuredSession,
    rule: CacheRule,
    *,
    cold_every: int | None = None,
) -> StagesBound:
    """Compare a replayed session's bill and re-reads with the least in hindsight. O(requests · messages).

    With `cold_every`, neither finds a cache at every request of such a number, as in `bill_tokens`.
    """
    course = course_of(done, watching, rule, cold_every=cold_every)
    arrivals, terms = course.arrivals, course.terms
    uses = uses_of(recording, watching, course, limit_tokens=done.limit_tokens)
    made = [turn for turn, sent in zip(done.turns, watching.sent, strict=True) if sent]
    alone = lone_terms(arrivals, terms)
    sent = _sent_whole(watching, arrivals)

    def least(terms: CostTerms, lacks: Sequence[Sequence[Lack]]) -> float:
        return best_schedule(arrivals, replace(terms, lacks=lacks)).cost_tokens

    return StagesBound(
        bill_tokens(made, rule, cold_every=cold_every) + reread_tokens(made, rule)[1],
        least(course.anew, moment_lacks(uses, len(arrivals), course.anew)),
        least(course.anew, stage_lacks(uses, arrivals, course.anew)),
        least(alone, stage_lacks(uses, arrivals, alone)),
        least_used_tokens(uses, sent, terms),
    )


def _sent_whole(watching: WatchedSender, arrivals: Sequence[Sequence[int]]) -> list[list[int]]:
    """Return the arrivals without those that the policy folded before they were sent. O(messages)."""
    cuts = [cut for cut, sent in zip(watching.cuts, watching.sent, strict=True) if sent]
    starts = accumulate(map(len, arrivals), initial=0)
    return [
        [0 if start + place < cut else tokens for place, tokens in enumerate(new)]
        for start, new, cut in zip(starts, arrivals, cuts, strict=False)
    ]
