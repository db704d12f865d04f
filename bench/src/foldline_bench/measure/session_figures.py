"""One session under one system, measured: what `replay` saw, and which requests providers would refuse."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from time import monotonic, process_time

from foldline.catalog.models import CacheRule
from foldline.messages import Wire
from foldline.replay import HitCount, Replay, Sender, Sent, Turn, bill_tokens
from foldline_bench.bounds.clairvoyant import Clairvoyant
from foldline_bench.bounds.hindsight import Bound
from foldline_bench.measure.refusals import HARD, SOFT, refusals
from foldline_bench.values import COLD_EVERY, BoundFigures, Price, SessionFigures, SessionRecall, SummaryCosts

__all__ = ["Allowance", "AllowanceSpentError", "CheckedSender", "bound_figures", "cold_figures", "figures_of_session"]


class AllowanceSpentError(BaseException):
    """The time of a system is over. No `Exception`, so that code that swallows those cannot swallow it."""


class Allowance:
    """The time that a system has for all its requests, by the clock. Measuring them takes nothing of it."""

    def __init__(self, seconds: float) -> None:
        self.left_seconds = seconds

    @contextmanager
    def spending(self) -> Iterator[None]:
        """Charge the time of a block. Raises AllowanceSpentError inside it when no time is left.

        For the main thread; it has SIGALRM to itself meanwhile.
        """
        if self.left_seconds <= 0:
            raise AllowanceSpentError
        began = monotonic()
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
    """A sender whose time is taken, and whose requests are looked at as providers would."""

    def __init__(self, sender: Sender, allowance: Allowance, errors: Sequence[str] = ()) -> None:
        self.refusals: list[frozenset[str]] = []
        self.errors = errors
        self._sender = sender
        self._allowance = allowance

    def send(self, new: Sequence[Wire]) -> Sent:
        """Send by the measured sender. Raises DoesNotFit as it does; nothing is sent then, which counts as no request.

        Raises AllowanceSpentError when there is no time left.
        """
        self.refusals.append(frozenset({"empty"}))
        with self._allowance.spending():
            began = process_time()
            sent = self._sender.send(new)
            spent = process_time() - began if sent.cpu_seconds is None else sent.cpu_seconds
        self.refusals[-1] = refusals(sent.messages)
        return replace(sent, cpu_seconds=spent)


def figures_of_session(done: Replay, watched: CheckedSender, rules: Mapping[str, CacheRule]) -> SessionFigures:
    """The figures of one replayed session; `watched` was its sender. O(turns · rules)."""
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
        cpu_seconds=[turn.cpu_seconds for turn in done.turns],
        bound=None,
    )


def cold_figures(figures: SessionFigures, told: Replay, rules: Mapping[str, CacheRule]) -> None:
    """Add the prices with cold caches, from a replay whose policy knew of the pauses. O(turns · rules)."""
    whole, summaries = _prices(told.turns, rules), _summaries(told.turns, rules)["cost"]
    for name in rules:
        figures["cost"][name]["cold"] = whole[name]["cold"]
        figures["summaries"]["cost"][name]["cold"] = summaries[name]["cold"]


def bound_figures(bound: Bound, knowing: Clairvoyant) -> BoundFigures:
    """The best in hindsight as it is written."""

    def ratio(least_tokens: float) -> float:
        return bound.cost_tokens / least_tokens if least_tokens else 1.0

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
    )
