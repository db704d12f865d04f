"""The figures of one session under one system: those of its replay, and the requests that providers would refuse."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from time import monotonic, process_time
from typing import Final

from foldline.catalog.models import CacheRule
from foldline.catalog.prices import request_price
from foldline.messages import Wire
from foldline.replay import HitCount, Replay, Sender, Sent, Turn, bill_tokens, reread_tokens
from foldline_bench.bounds.clairvoyant import Clairvoyant
from foldline_bench.bounds.figures import BoundFigures
from foldline_bench.bounds.hindsight import Bound
from foldline_bench.bounds.stages import StagesBound
from foldline_bench.prices import COLD_EVERY
from foldline_bench.values import (
    Price,
    Rereading,
    SessionFigures,
    SessionRecall,
    SummaryCosts,
)

__all__ = [
    "HARD",
    "SOFT",
    "Allowance",
    "AllowanceSpentError",
    "CheckedSender",
    "bound_figures",
    "cold_figures",
    "figures_of_session",
    "pays_from_tokens",
    "refusals",
]


# What sums of prices may be off by.
_ROUNDING_TOKENS: Final = 0.01


class AllowanceSpentError(BaseException):
    """The time of a system is over."""

    # No Exception: packages catch those around calls of a model and retry, and would retry for ever.


class Allowance:
    """The time that a system has for all its requests, by the clock; that of measuring them is not charged."""

    def __init__(self, seconds: float) -> None:
        self.left_seconds = seconds

    @contextmanager
    def spending(self) -> Iterator[None]:
        """Charge the time of a block. Raises AllowanceSpentError inside it when no time is left. Main thread only."""
        if self.left_seconds <= 0:
            raise AllowanceSpentError
        began = monotonic()
        # A signal, as nothing else interrupts a package in the middle of its work. ITIMER_REAL and not the CPU timer: a
        # package that waits for a lock must end too.
        before = signal.signal(signal.SIGALRM, _over)
        signal.setitimer(signal.ITIMER_REAL, self.left_seconds)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
            self.left_seconds -= monotonic() - began


def _over(_signal: int, _frame: object) -> None:
    raise AllowanceSpentError


class CheckedSender:
    """Wraps a sender: measures its time, and checks its requests as providers would."""

    def __init__(self, sender: Sender, allowance: Allowance, errors: Sequence[str] = ()) -> None:
        self.refusals: list[frozenset[str]] = []
        self.errors = errors
        self._sender = sender
        self._allowance = allowance

    def send(self, new: Sequence[Wire]) -> Sent:
        """Send by the measured sender. Raises DoesNotFit as it does, and AllowanceSpentError when no time is left."""
        # Set before the call and replaced after it: a system that raises sent nothing, which every provider refuses.
        self.refusals.append(frozenset({"empty"}))
        with self._allowance.spending():
            began = process_time()
            sent = self._sender.send(new)
            spent = process_time() - began if sent.cpu_seconds is None else sent.cpu_seconds
        self.refusals[-1] = refusals(sent.messages)
        return replace(sent, cpu_seconds=spent)


def figures_of_session(done: Replay, watched: CheckedSender, rules: Mapping[str, CacheRule]) -> SessionFigures:
    """Return the figures of a replayed session; `watched` was its sender. O(turns · rules)."""
    return SessionFigures(
        requests=done.requests,
        refused=done.refused,
        errors=len(watched.errors),
        first_error=watched.errors[0][:300] if watched.errors else None,
        tokens=done.tokens,
        cached_tokens=done.cached_tokens,
        peak_ratio=done.peak_tokens / done.limit_tokens,
        over_budget=done.over_budget,
        invalid=sum(bool(turn.rules or found & HARD) for turn, found in zip(done.turns, watched.refusals, strict=True)),
        hard=sum(bool(found & HARD) for found in watched.refusals),
        soft=sum(bool(found & SOFT) for found in watched.refusals),
        rules=_by_rule(turn.rules for turn in done.turns),
        hard_rules=_by_rule(found & HARD for found in watched.refusals),
        soft_rules=_by_rule(found & SOFT for found in watched.refusals),
        cost=_prices(done.turns, rules),
        summaries=_summaries(done.turns, rules),
        recall=_recall(done),
        rereads=Rereading(
            messages=[*done.rereads], cost={name: [*reread_tokens(done.turns, rule)] for name, rule in rules.items()}
        ),
        cpu_seconds=[turn.cpu_seconds for turn in done.turns],
        bound=None,
        pays_from={name: pays_from_tokens(done.turns, rule) for name, rule in rules.items()},
    )


def pays_from_tokens(turns: Sequence[Turn], rule: CacheRule) -> int | None:
    """Return the size from which on the bill with re-reads (high) stays below that of no management. O(turns).

    The size is that of all that was recorded so far; None if the bill is not below at the end.
    """
    # No management only appends: the request before is the cached beginning of each.
    found, before, ahead_tokens = None, 0, 0.0
    for turn in turns:
        cached = 0 if rule.expired(turn.idle_seconds) else before
        before = turn.recorded_tokens
        ahead_tokens += request_price(rule, before, cached)
        ahead_tokens -= bill_tokens((turn,), rule) + reread_tokens((turn,), rule)[1]
        found = None if ahead_tokens <= _ROUNDING_TOKENS else found or before
    return found


def cold_figures(figures: SessionFigures, told: Replay, rules: Mapping[str, CacheRule]) -> None:
    """Add the prices with cold caches, from a replay whose policy knew of the pauses. O(turns · rules)."""
    # A policy that knows of a pause folds in it, when the cache is lost anyway. Other systems have no such parameter:
    # their warm run is priced anew instead.
    whole, summaries = _prices(told.turns, rules), _summaries(told.turns, rules)["cost"]
    for name in rules:
        figures["cost"][name]["cold"] = whole[name]["cold"]
        figures["summaries"]["cost"][name]["cold"] = summaries[name]["cold"]


def bound_figures(bound: Bound, knowing: Clairvoyant, staged: StagesBound) -> BoundFigures:
    """Return the bounds in hindsight as the result has them."""

    def ratio(least_tokens: float, paid_tokens: float = bound.cost_tokens) -> float:
        return paid_tokens / least_tokens if least_tokens else 1.0

    return BoundFigures(
        schedule_tokens=bound.schedule_cost_tokens,
        anew_tokens=bound.anew.cost_tokens,
        folds=len(bound.schedule.folds),
        ratio=bound.schedule_ratio,
        anew_ratio=ratio(bound.anew.cost_tokens),
        far_tokens=knowing.far_tokens,
        facts_tokens=knowing.facts_tokens,
        messages_tokens=knowing.messages_tokens,
        needs_ratio=ratio(knowing.far_tokens),
        total_tokens=staged.total_tokens,
        moments_tokens=staged.moments_tokens,
        stages_tokens=staged.stages_tokens,
        alone_tokens=staged.alone_tokens,
        uses_tokens=staged.uses_tokens,
        stages_ratio=ratio(staged.stages_tokens, staged.total_tokens),
        alone_ratio=ratio(staged.alone_tokens, staged.total_tokens),
    )


def _by_rule(found: Iterable[frozenset[str]]) -> dict[str, int]:
    return dict(sorted(Counter(rule for rules in found for rule in rules).items()))


def _prices(turns: Sequence[Turn], rules: Mapping[str, CacheRule]) -> dict[str, Price]:
    return {
        name: Price(warm=bill_tokens(turns, rule), cold=bill_tokens(turns, rule, cold_every=COLD_EVERY))
        for name, rule in rules.items()
    }


def _summaries(turns: Sequence[Turn], rules: Mapping[str, CacheRule]) -> SummaryCosts:
    calls = [call for turn in turns for call in turn.summary_calls]
    return SummaryCosts(
        calls=len(calls),
        prompt_tokens=sum(call.prompt_tokens for call in calls),
        cached_tokens=sum(call.cached_tokens for call in calls),
        output_tokens=sum(call.output_tokens for call in calls),
        cost=_prices([replace(turn, tokens=0, cached_tokens=0) for turn in turns], rules),
    )


def _recall(done: Replay) -> SessionRecall:
    recall = done.recall

    def pair(tally: HitCount) -> list[int]:
        return [tally.kept, tally.total]

    return SessionRecall(
        all=pair(recall.all),
        beyond=[pair(tally) for tally in recall.beyond],
        line=pair(recall.line),
        far_tool=pair(recall.far_tool),
        near=pair(recall.near),
        near_line=pair(recall.near_line),
        near_feasible=pair(recall.near_feasible),
    )


# `foldline.check` is as strict as the strictest server. To compare with others, what all servers refuse (hard) is apart
# from what only some refuse (soft): Anthropic and Gemini want a user's message first, Anthropic keeps system text
# outside the messages, several models accept no reply that is begun for them.
HARD: Final = frozenset({"empty", "orphan-result", "unanswered-call", "empty-content"})
SOFT: Final = frozenset({"first-not-user", "late-system", "ends-with-assistant"})

_SYSTEM: Final = frozenset({"system", "developer"})


def refusals(messages: Sequence[Wire]) -> frozenset[str]:
    """Return the rules of `HARD` and `SOFT` that a request in the Chat Completions dialect breaks. O(messages)."""
    body = [message for message in messages if message.get("role") not in _SYSTEM]
    if not body:
        return frozenset({"empty"})
    found = set() if body[0].get("role") == "user" else {"first-not-user"}
    begun = False
    open_calls: set[str] = set()
    for message in messages:
        role = message.get("role")
        if role in _SYSTEM:
            found |= {"late-system"} if begun else set()
            continue
        begun = True
        if role == "tool":
            answered = str(message.get("tool_call_id"))
            found |= set() if answered in open_calls else {"orphan-result"}
            open_calls.discard(answered)
            continue
        # Only results may follow calls: any other message closes the group, complete or not.
        found |= {"unanswered-call"} if open_calls else set()
        calls = (message.get("tool_calls") or ()) if role == "assistant" else ()
        open_calls = {str(call.get("id")) for call in calls}
        found |= set() if message.get("content") or calls else {"empty-content"}
    found |= {"unanswered-call"} if open_calls else set()
    found |= {"ends-with-assistant"} if body[-1].get("role") == "assistant" else set()
    return frozenset(found)
