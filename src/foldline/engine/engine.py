"""Where a fold is decided: `Engine.fit` before each request, `Engine.compact` when a user requests it.

One engine runs all policies. It calls no model: where it needs a text it yields an `Ask` and continues with the text
that is sent in, or with the SummaryError that is thrown in. The two drivers of `Context` (sync, async) call the model.

`fit` decides in this order; each step has a method of its name:

1. `fits`: is the request within every limit of its provider? Only a request that is not is folded under HARD pressure.
2. `examined_to`: has anything come since the last look? Without news, a request that fits is left alone.
3. `_landing_if_due`: is it time? The limit is passed, the trigger of the policy is reached, or keeping has cost as much
   as folding (`Rent`). The answer is the size to land at, which is below what triggered: else every message would fold.
4. `run`: reducers propose in order, until the view has landed (`target_tokens`).
5. `_run_rungs`: what the policy leaves over a limit is the business of the rungs, which need no model and always work.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias, TypeVar

from foldline.catalog.models import CACHE_RULES, CacheRule
from foldline.codecs.base import Codec
from foldline.codecs.limits import Caps
from foldline.engine.cached_summary import CachedSummary
from foldline.engine.events import FoldFailed, SilentTruncation, UsageDoubted
from foldline.engine.folding import INLINE_BYTES, Folding, PreparedSummary, Reading, Waiting, announced
from foldline.engine.policy import FOR_AMOUNTS, FOR_BYTES, MILD_RUNGS, RUNGS, Policy
from foldline.engine.recorder import Recorder
from foldline.engine.window_usage import UsageTotals, WindowUsage
from foldline.errors import DoesNotFit, InvalidInput, SummaryError
from foldline.messages import Wire
from foldline.reducers.base import Ask, Move, Reducer
from foldline.reducers.digest import FallbackDigest
from foldline.reducers.images import OldMedia
from foldline.reducers.minimum import floor_of, too_large, too_many, too_many_bytes
from foldline.reducers.reading import ReadAhead
from foldline.tokens import message_tokens, wire_bytes
from foldline.view.budget import Need, Pressure, TokenLimits, limited
from foldline.view.calibration import Meter
from foldline.view.economics import Bill, Rent, foldable
from foldline.view.request import PrefixForecast, Request, RequestAdjuster
from foldline.view.system_and_tools import System, Tools
from foldline.view.transcript import Entry, Fold, Seq, Usage
from foldline.view.usage import UsageReports
from foldline.view.view import View

__all__ = ["Engine", "Steps"]

# Share of the byte budget that its rungs aim at: at the budget itself they would run for every message.
BYTES_LANDING = 0.85

# What a summary written ahead has to free to be a fold by itself: all but this share of the way to the landing.
ENOUGH = 0.4

# Share of a number of images or messages that its rungs aim at, for the same reason.
AMOUNTS_LANDING = 0.75

T = TypeVar("T")
Steps: TypeAlias = Generator[Ask | Reading | Waiting, Any, T]
"""Work on the way to a T: it may call a model (it is sent a text), have a view read (the result), or wait (nothing)."""


@dataclass(slots=True, kw_only=True)
class Engine:
    """The decisions of one session. `Context` is its public face; recovery and replay use it directly."""

    recorder: Recorder
    policy: Policy
    limits: TokenLimits
    rent: Rent | None = None
    auto: bool = True
    rules_share: float = 0.0
    max_request_bytes: int | None = None
    caps: Caps = field(default_factory=Caps)
    """What a request may hold besides tokens and bytes. When a refusal names another number,
    `engine.caps = engine.caps.learned(max_images=50)` applies it to the next request."""
    outgoing: RequestAdjuster = field(init=False)
    """Settles the messages of a request as a whole. `engine.outgoing.alternating = True` serves a server whose roles
    must alternate."""
    forecast: PrefixForecast = field(default_factory=PrefixForecast)
    """Where the next request may begin to differ."""
    cached_summary: CachedSummary = field(default_factory=lambda: CachedSummary(CACHE_RULES["none"]))
    prepared: PreparedSummary = field(default_factory=PreparedSummary)
    """The summary that was written ahead of the next fold."""
    reports: UsageReports = field(default_factory=UsageReports)
    totals: UsageTotals = field(default_factory=UsageTotals)
    trigger_at_limit: bool = False
    """Whether only the limit itself triggers, not the policy (one-shot `fit`)."""
    answered_tokens: int | None = None
    """Input of the last request that this model answered, as the provider counted it."""
    examined_to: Seq = -1
    """`next_seq` at the last look: preparing twice without news is one need, and folds nothing more."""
    reading: ReadAhead = field(default_factory=ReadAhead)
    folding: Folding | None = None
    """The call that is running; None while every one of them waits for a model."""
    summary_usage: list[Usage] = field(default_factory=list)
    """What the model calls of finished foldings reported since the last request."""
    ask_again_at: dict[str, int] = field(default_factory=dict)
    """By reducer, the size of everything ever appended at which it may ask again after a rejected text."""
    # Whether the last report was doubted: only the first of several in a row is emitted.
    _doubting: bool = False

    def __post_init__(self) -> None:
        self.outgoing = RequestAdjuster(self.codec.dialect)

    @property
    def codec(self) -> Codec:
        """The codec of the session's dialect."""
        return self.recorder.codec

    @property
    def view(self) -> View:
        """What the model is shown. A fork and an undo replace it."""
        return self.recorder.view

    @property
    def meter(self) -> Meter:
        """The correction by reported usage."""
        return self.recorder.view.meter

    # --- messages and requests ---------------------------------------------------------------------------------------

    def append(
        self, wire: Wire, *, agent_visible: bool = True, user_visible: bool = True, kind: str = "", pinned: bool = False
    ) -> Entry:
        """Record one message in its own JSON. Raises InvalidInput. O(size of the message)."""
        message = self.codec.read(wire)
        if not (agent_visible and user_visible and not kind):
            message = replace(message, agent_visible=agent_visible, user_visible=user_visible, kind=kind)
        entry = self.recorder.append(message, wire)
        if pinned:
            self.recorder.pin(entry.seq, pinned=True)
        return entry

    def prepare(self, folding: Folding) -> Steps[Request]:
        """Fold what has to be folded, and build the next request. Raises DoesNotFit and InvalidInput."""
        recorder = self.recorder
        if not recorder.path and not recorder.released:
            raise InvalidInput("no messages", place="messages")
        with self.active(folding):
            yield from self.fit(folding.has_model)
        if not folding.folds and self.policy.reducers:
            self.reading.go_on(recorder.view, self.limits.input_tokens)
        return self._request()

    def _request(self) -> Request:
        recorder, view, preamble = self.recorder, self.recorder.view, self.recorder.system_and_tools
        # From here on nothing may fail: what the request reports as new is reported once, and then forgotten.
        system, as_before = preamble.render()
        messages, system, tools, stable, mended = self.outgoing.adjust(*view.wires(), system, preamble.tools)
        self.reports.record(view.estimated_tokens, self.recorder.view.meter.changes)
        self.recorder.view.meter.sent()
        stable = stable if as_before else 0
        breaks_at, lasts_until = self.forecast.next(messages, stable, view)
        changes, recorder.changes = tuple(recorder.changes), []
        usage, self.summary_usage = tuple(self.summary_usage), []
        request = Request(
            messages=messages,
            system=system,
            tools=tools,
            tokens=self.used_tokens,
            max_output_tokens=self.limits.max_output_tokens,
            stable_until=stable,
            folds=changes,
            repairs=(*view.repairs, *mended),
            asked=usage,
            breaks_at=breaks_at,
            lasts_until=lasts_until,
            origins=self.outgoing.origins(view.origins()),
        )
        self.cached_summary.sent(request, view, recorder.next_seq, preamble)
        return request

    def set_system_and_tools(self, system: System, tools: Tools, leading: Sequence[Wire]) -> None:
        """Send these from now on; `leading` in place of the system messages that the log begins with. O(their size)."""
        preamble = self.recorder.system_and_tools
        larger = leading != preamble.leading and self._set_leading(leading)
        if preamble.update(system, tools) or larger:
            self.recorder.view.base_tokens = preamble.tokens
            self.recorder.view.meter.drop_offset()

    def _set_leading(self, leading: Sequence[Wire]) -> bool:
        # The log keeps the messages that it began with. The view shows those, so the difference is counted beside it.
        more_tokens = more_bytes = 0
        entries = self.recorder.view.entries
        for seq, wire in enumerate(leading):
            message = self.codec.read(wire)
            if (entry := entries.get(seq)) is not None and entry.recorded != wire:
                more_tokens += message_tokens(message, self.recorder.counter) - entry.tokens
                more_bytes += wire_bytes(wire) - wire_bytes(entry.recorded) if self.recorder.view.counts_bytes else 0
        if self.recorder.system_and_tools.leading:
            self.cached_summary.forget()  # the cached prompt begins with the old ones
        return self.recorder.system_and_tools.set_leading(leading, more_tokens, more_bytes)

    def use_cache_rule(self, rule: CacheRule, *, same_model: bool) -> None:
        """Reckon with these prices and this lifetime of the cache from now on. O(1)."""
        # Another model has another tokenizer and another cache: nothing that was measured holds for it.
        if not same_model:
            self.answered_tokens = None
            self.recorder.view.meter.restart()
            self.cached_summary.reset(rule)
        self.cached_summary.rule = rule
        if self.rent is not None:
            self.rent.rule = rule

    def note_limits(self, before: TokenLimits) -> None:
        """Record limits that a refusal has changed: a replay keeps to them from there on. O(1)."""
        if self.limits != before:
            self.recorder.log.append(limited(self.limits))

    # --- usage -------------------------------------------------------------------------------------------------------

    @property
    def figures(self) -> WindowUsage:
        """How full the window is, by reported usage and by the request as it stands. O(1)."""
        asks_at = self.policy.ask_at_tokens(self.limits)
        return self.totals.figures(self.recorder.folds, self.limits, self.used_tokens, asks_at)

    def observe(self, usage: Usage) -> Usage:
        """Record the usage that was reported for a request, and correct the count by it unless it is doubted."""
        emit, found = self.recorder.emit, usage if self.rent is None else self.rent.with_state(usage)
        if not found.reported:  # our own count in place of a report: it says nothing about itself
            self.note_usage(found)
            if found.doubt:
                emit(UsageDoubted(found.doubt, found.input_tokens, 0))
            return found
        judged = self.reports.check(found, self.recorder.view.meter, self.limits.window_tokens)
        found = judged.usage
        if why := self.measure(found, usage.input_tokens):
            found = replace(found, doubt=why)
        self.note_usage(found)
        if not found.doubt:
            self.cached_summary.reported(found)
        if (reached := self.policy.threshold(found.input_tokens, self.limits)) is not None:
            emit(reached)
        if judged.cut:
            emit(SilentTruncation(judged.cut, judged.estimated_tokens, found.input_tokens))
        elif found.doubt and not self._doubting:
            emit(UsageDoubted(found.doubt, judged.estimated_tokens, found.input_tokens))
        self._doubting = bool(found.doubt)
        return found

    def note_usage(self, usage: Usage) -> None:
        """Record what was reported for a request. O(1)."""
        self.recorder.log.append(usage)
        self.totals.report(usage)

    def measure(self, usage: Usage, told: int = 0) -> str:
        """Correct our count by a report, that told of `told` tokens; why it is not believed, "" if it is. O(1)."""
        # A replayed report brings its running number: the requests of this session count on from there.
        self.reports.number = max(self.reports.number, usage.request)
        if not usage.estimated_tokens:
            return ""
        # A report without cached tokens cannot have been read the wrong way (inside the input count or beside it).
        sure = not (usage.cached_tokens or usage.written_tokens)
        why = self.recorder.view.meter.observe(
            usage.estimated_tokens, usage.input_tokens, usage.output_tokens or None, sure=sure
        )
        if not why:
            self.answered_tokens = min(usage.input_tokens, told or usage.input_tokens)  # surely, in either reading
        if not why and not usage.current:
            # The prefix has changed since that request: its exact size no longer applies.
            self.recorder.view.meter.drop_offset()
        return why

    # --- limits ------------------------------------------------------------------------------------------------------

    @property
    def used_tokens(self) -> int:
        """Size of the request as the provider would count it, by the reports so far."""
        return self.recorder.view.tokens

    @property
    def limit_tokens(self) -> int:
        """The most that a request may count: the input limit, and by our own count no more than there is room for.

        Reports that are lower than our count may let a request come nearer to the limit, but never over the window.
        """
        return min(self.limits.input_tokens, self.recorder.view.meter.used(self.limits.room_tokens))

    def fits(self) -> bool:
        """Whether the request is within its token limit, its byte budget and the other limits of its provider."""
        return self.used_tokens <= self.limit_tokens and self._bytes_over() <= 0 and not self._amounts_over()

    def check_floor(self) -> None:
        """Raise DoesNotFit, before any model is called, when what must stay is over the limit."""
        # The floor is our own count of folds that were never sent: the ratio brings it into the provider's tokens.
        floor = floor_of(self.recorder.view)
        tokens = round(floor.tokens * self.recorder.view.meter.ratio) if floor.folds else self.used_tokens
        if tokens > self.limit_tokens:
            raise too_large(tokens, self.limit_tokens, floor.parts)

    def does_not_fit(self, reason: str | None = None) -> DoesNotFit:
        """The error for a request that is over its limit with nothing left to fold."""
        # Amounts and bytes first: each has a unit of its own, and an error in tokens would name a limit that holds.
        if amounts := self._amounts_over():
            name, number, most = amounts[0]
            return too_many(self.recorder.view, name, number, most, reason)
        over = self._bytes_over()
        if self.used_tokens <= self.limit_tokens and over > 0:
            return too_many_bytes(self.recorder.view, over, self.max_request_bytes or 0, reason)
        floor = floor_of(self.recorder.view)
        least = round(floor.tokens * self.recorder.view.meter.ratio) if floor.folds else self.used_tokens
        return too_large(least, self.limit_tokens, floor.parts, reason, used_tokens=self.used_tokens)

    def _amounts_over(self) -> list[tuple[str, int, int]]:
        return list(self.caps.over(self.recorder.view.amounts))

    def _amounts_landed(self) -> bool:
        return not any(self.caps.share(AMOUNTS_LANDING).over(self.recorder.view.amounts))

    def _bytes_over(self) -> int:
        if self.max_request_bytes is None:
            return 0
        return self.recorder.view.request_bytes + self.recorder.system_and_tools.size_bytes - self.max_request_bytes

    # --- deciding ----------------------------------------------------------------------------------------------------

    def fit(self, with_model: bool) -> Steps[None]:
        """Make the next request fit, as the policy has it; without `asking` no model writes. Raises DoesNotFit."""
        if not self.auto:
            if not self.fits():
                raise self.does_not_fit(reason="folding is switched off (auto=False)")
            return
        # Without this a second `prepare` would run the guard and the trigger again, on a request that was just settled.
        if self.fits() and (self.trigger_at_limit or self.examined_to == self.recorder.next_seq):
            return
        while True:
            # The mark is set before the work: messages may be appended while a model writes, and they have to pass the
            # guard too. The second round asks no model, so that a session that never pauses comes to an end.
            self.examined_to = self.recorder.next_seq
            yield from self.followed(self._fit_once(with_model))
            if self.examined_to == self.recorder.next_seq:
                return
            with_model = False

    def followed(self, steps: Steps[None]) -> Steps[None]:
        """Run steps, and `after_fold` of the policy if they folded anything."""
        before = 0 if self.folding is None else len(self.folding.folds)
        yield from steps
        if self.folding is not None and len(self.folding.folds) > before:
            yield from self.run(self.policy.after_fold, Pressure.SOFT, 0, False)

    def _fit_once(self, with_model: bool) -> Steps[None]:
        """One look at the request: guard, what always runs, and a fold where one is due."""
        policy, recorder = self.policy, self.recorder
        # The guard sees what is new before it was ever sent. To shorten it now breaks no cached prefix, so the guard
        # runs at every look, and `unsent_from` moves on behind it.
        yield from self.run(policy.guard, Pressure.SOFT, 0, False)
        recorder.unsent_from = recorder.next_seq
        yield from self.run(policy.always, Pressure.SOFT, 0, with_model)
        if (reached := policy.threshold(self.used_tokens, self.limits)) is not None:
            recorder.emit(reached)
        if not policy.auto:
            if not self.fits():
                raise self.does_not_fit(reason=f"policy {policy.name} folds only when asked")
            return
        landing = self._landing_if_due()
        if landing is None:
            return
        if not self.fits():
            self.check_floor()  # before a model is paid for a summary that cannot help
        most = policy.trigger.limit_tokens(self.limits)
        with self.announced(f"policy {policy.name}", limit_tokens=most, limit_bytes=policy.trigger.bytes):
            yield from self._fold(landing, with_model)

    def _landing_if_due(self) -> float | None:
        """Decide whether to fold: the size at which the request should land, or None while it is not time."""
        policy, limits, rent = self.policy, self.limits, self.rent
        base = limits.input_tokens if self.trigger_at_limit else policy.trigger.limit_tokens(limits)
        landing = policy.landing_tokens(base, self.recorder.view.fixed_tokens)
        cold = self.folding is not None and self.folding.cold
        if rent is not None:
            rent.rhythm.request(self.recorder.view.newest_user, cold)  # counts this request, whatever comes of it
        if not self.fits():
            return policy.with_newest(landing, self.recorder.view, limits)
        if self.trigger_at_limit:
            return None
        # A share of the window is a wish: while the summary for this fold is being written, what fits can wait for it.
        waits = self.prepared.writing and policy.by_share
        if policy.trigger.due(self.recorder.view, self.used_tokens, limits) and not waits:
            return policy.with_newest(landing, self.recorder.view, limits)
        if rent is not None:
            # `due` pays the rent of this request too, so it is asked once for each request that nothing else folds.
            bill = self.bill(rent, landing)
            if rent.due(bill, cold=cold) and not waits:
                return self.used_tokens - bill.removable_tokens
        return None

    def bill(self, rent: Rent, landing_tokens: float) -> Bill:
        """What a fold would bring and cost now. O(log tiles) between folds."""
        return foldable(self.recorder.view, self.recorder.span_stop, int(rent.keep * landing_tokens), rent.digest)

    def _fold(self, landing: float, with_model: bool) -> Steps[None]:
        """Run the reducers of the policy, and the rungs for what they leave over a limit."""
        policy, folding = self.policy, self.folding
        before = len(folding.folds) if folding is not None else 0
        # The built-in reducers go by the target alone; one of a user may save a harsh step for what does not fit.
        pressure = Pressure.SOFT if self.fits() else Pressure.HARD
        if not (yield from self._put_in_prepared(landing)):
            # Beside what was written ahead no model is asked, unless the window is full: nobody is to wait for it.
            with_model = with_model and (pressure is Pressure.HARD or folding is None or len(folding.folds) == before)
            yield from self.run(policy.reducers, pressure, landing, with_model)
        # `after_compact` tidies up behind a summary. Without a fold there is none, and it would only change the prefix.
        if folding is not None and len(folding.folds) > before:
            yield from self.run(policy.after_compact, pressure, 0, False)
        # A policy without a landing of its own (None: "all that it proposes") still needs one for the rungs.
        rung_landing = policy.landing_tokens(self.limits.input_tokens, self.recorder.view.fixed_tokens, default=0.60)
        yield from self._run_rungs(rung_landing)
        if self.rent is not None:
            self.rent.settle()  # also where nothing could be folded: else it would be tried again at each request
        if over := policy.trigger.unmet(self.recorder.view, self.used_tokens, self.limits):
            self.report_failure(policy.name, f"nothing more may go: {over}", 0, self.recorder.next_seq)

    def _put_in_prepared(self, landing_tokens: float) -> Steps[bool]:
        """Put in the summary that was written ahead; whether that is enough of a fold. With a full window it waits."""
        folding, prepared, before = self.folding, self.prepared, self.used_tokens
        if prepared.writing and not self.fits() and folding is not None and folding.wait is not None:
            with self.suspended():
                yield Waiting(folding.wait)
        held = prepared.holds(self.recorder)
        fold = prepared.take()
        if fold is None:
            return False
        if not held:
            self.report_failure(fold.reducer, "what it covers has changed since", fold.start, fold.stop)
        elif self.commit(fold) is not None and self.fits():
            most = landing_tokens + ENOUGH * (before - landing_tokens) if landing_tokens else before
            due = self.policy.trigger.due(self.recorder.view, self.used_tokens, self.limits)
            return self.used_tokens <= most and not due
        return False

    def _run_rungs(self, landing_tokens: float) -> Steps[None]:
        """Bring the request within its limits without a model: tokens first, then bytes, then amounts.

        Fewer tokens are fewer bytes and images as well, never the reverse: so the order is the cheapest one. Raises
        DoesNotFit when all of it is not enough.
        """
        for number, rung in enumerate(RUNGS):
            if self.used_tokens <= self.limit_tokens:
                break
            # The first rungs lose little: they may go down to the landing, so that the next messages find room. The
            # others stop as soon as the request fits.
            target = landing_tokens if number < MILD_RUNGS else self.limit_tokens
            yield from self.run((rung,), Pressure.HARD, target, False)
        for rung in FOR_BYTES:
            if (over := self._bytes_over()) > 0:
                # Reducers know tokens only, so the excess of bytes is handed to them as the same share of tokens.
                share = 1 - over / max(1, self.recorder.view.size_bytes)
                target = max(1.0, BYTES_LANDING * share * self.used_tokens)
                yield from self.run((rung,), Pressure.HARD, target, False, until=lambda: self._bytes_over() <= 0)
        if self._amounts_over():
            yield from self.run((OldMedia(self.caps),), Pressure.HARD, 0, False)
            for rung in FOR_AMOUNTS:
                if amounts := self._amounts_over():
                    target = max(1.0, AMOUNTS_LANDING * min(most / n for _, n, most in amounts) * self.used_tokens)
                    yield from self.run((rung,), Pressure.HARD, target, False, until=self._amounts_landed)
        if not self.fits():
            raise self.does_not_fit()

    # --- compaction --------------------------------------------------------------------------------------------------

    def compact(self, instructions: str | None, folding: Folding) -> Steps[tuple[Fold, ...]]:
        """Fold all that may be folded into a summary, as a user requested it; the folds that came of it.

        Without a model a digest stands for each span. Raises SummaryError: then the view is as it was.
        """
        summarize = (folding.chosen or self.policy.compactor).focused(instructions)
        # The digest is signed as the summary would be: `figures` start anew at either (S4.04).
        reducer = summarize if folding.has_model else FallbackDigest(summarize, name=summarize.name)
        folding.requested = True
        with self.active(folding), self.announced("compaction was asked for"):
            yield from self._compact(reducer, folding)
        return tuple(fold for fold in folding.folds if fold.id in self.recorder.folds)

    def _compact(self, reducer: Reducer, folding: Folding) -> Steps[None]:
        recorder = self.recorder
        need = self.need(Pressure.SOFT, 0)
        try:
            view = self.recorder.view
            found = yield from self.proposals(reducer, replace(need, target_tokens=need.limit_tokens))
            if self.recorder.view is not view:
                raise SummaryError("the session has changed under the summary")
            if not found:
                raise SummaryError("there is nothing to fold")
            # All summaries are written before the first fold is committed: a later one that fails costs nothing then.
            folds: list[Fold] = []
            for move in found:
                fold = (yield from self.answer(move)) if isinstance(move, Ask) else move
                folds.append(fold)
            if any(self.commit(fold) is None for fold in folds):
                raise SummaryError("the session has changed under the summary")
            yield from self.run((*self.policy.after_compact, *self.policy.after_fold), Pressure.SOFT, 0, False)
        except BaseException as error:
            if isinstance(error, SummaryError):
                self.report_failure(reducer.name, error.reason, 0, recorder.next_seq)
            # A user who asked for one summary must not find half of it. Folds are committed after all texts are
            # there, so there is one to take back only where the session changed meanwhile.
            made = {fold.id for fold in folding.folds if fold.id in recorder.folds}
            if not recorder.released:
                recorder.unfold(sorted(made))
                recorder.changes = [
                    event
                    for event in recorder.changes
                    if (event.id if isinstance(event, Fold) else event.fold) not in made
                ]
            raise

    # --- running reducers --------------------------------------------------------------------------------------------

    def need(self, pressure: Pressure, target_tokens: float) -> Need:
        """What reducers are called with, in the tokens of the view."""
        # Limits are in the provider's tokens and reducers count in ours, so the target is converted here, once: a
        # reducer that knew of the ratio would have to apply it at each of its sums.
        used_tokens, meter = self.recorder.view.estimated_tokens, self.recorder.view.meter
        return Need(
            pressure,
            used_tokens,
            meter.target(used_tokens, target_tokens) if target_tokens > 0 else 0,
            self.limit_tokens,
            self.limits.room_tokens,
            self.recorder.unsent_from,
            self.limits.max_output_tokens,
            self.folding is not None and self.folding.requested,
            self.cached_summary.rule,
            self.reports.number,
        )

    def run(
        self,
        reducers: Iterable[Reducer],
        pressure: Pressure,
        target_tokens: float,
        with_model: bool,
        *,
        until: Callable[[], bool] | None = None,
    ) -> Steps[None]:
        """Let reducers propose in order, and commit what they propose until the target is met (0: all they propose)."""

        def landed() -> bool:
            if until is not None:
                return until()
            return (
                target_tokens > 0
                and self.used_tokens <= target_tokens
                and not self.policy.trigger.over_counts(self.recorder.view, self.limits)
            )

        need: Need | None = None
        row = tuple(reducers)
        for at, reducer in enumerate(row):
            if landed():
                return
            # Anew after each fold, and `landed` before each: an earlier fold may have been enough.
            view = self.recorder.view
            need = need or self.need(pressure, target_tokens)
            if target_tokens > 0 and not with_model and until is None:
                need = replace(need, followers=row[at + 1 :])
            for move in (yield from self.proposals(reducer, need, asks=with_model and self.may_ask(reducer.name))):
                need = None
                if landed():
                    return
                if self.recorder.view is not view:
                    break  # a fork or an undo came while a model wrote: the other proposals are about the old view
                if isinstance(move, Fold):
                    self.commit(move)
                elif with_model and self.may_ask(reducer.name):
                    yield from self._ask(move)

    def proposals(self, reducer: Reducer, need: Need, *, asks: bool = True) -> Generator[Reading, Any, list[Move]]:
        """What a reducer proposes, in order; without `asks` one that does nothing but ask is passed over.

        A large view is read in a thread where the call has one. Nothing is recorded meanwhile, and nothing is changed
        here, so that other calls may read the view at the same time.
        """
        view, folding = self.recorder.view, self.folding
        if not asks and getattr(reducer, "only_asks", False):
            return []
        if folding is None or folding.in_thread is None or view.content_bytes <= INLINE_BYTES:
            return list(reducer.propose(view, need))
        # The view computes these on first use. Two threads must not do that at once, so it is done before they read.
        _ = view.name_counts, view.between(0, len(view.tiles))
        with self.suspended():
            found: list[Move] = yield Reading(lambda: list(reducer.propose(view, need)))
        return found if self.recorder.view is view else []

    def may_ask(self, reducer: str) -> bool:
        """Whether a reducer whose text was rejected may ask again. O(1)."""
        # By what was ever appended, not by the size of the view: a fold of another reducer shrinks the view, and would
        # put off the next try for ever.
        return self.recorder.appended_tokens >= self.ask_again_at.get(reducer, 0)

    def _ask(self, ask: Ask) -> Steps[None]:
        """Commit what comes of one ask. A failure is emitted, not raised: the next reducer takes over."""
        try:
            self.commit((yield from self.answer(ask)))
        except SummaryError as error:
            self.report_failure(ask.reducer, error.reason, ask.start, ask.stop)
            self.put_off(ask.reducer)

    def put_off(self, reducer: str) -> None:
        """Let a reducer whose text was rejected wait until it asks again."""
        # A model that failed at this history fails at it again, and every try is paid for. The next one waits for as
        # much new history as lies between two folds.
        growth = (self.policy.trigger.fraction or 1.0) - (self.policy.landing or 0.6)
        wait_tokens = int(max(0.1, growth) * self.limits.input_tokens)
        self.ask_again_at[reducer] = self.recorder.appended_tokens + wait_tokens

    def answer(self, ask: Ask) -> Steps[Fold]:
        """The fold that comes of an ask, over as many calls as it takes. Raises SummaryError, also after a fork.

        Where it costs less, the question goes to the session itself, whose last request the provider has in its cache.
        When that fails in a way that a prompt of its own would not, the ask is made again, plainly.
        """
        view = self.recorder.view
        cached: Ask | None = None
        if self.folding is not None and self.folding.continues:
            preamble, cold = self.recorder.system_and_tools, self.folding.cold
            cached = self.cached_summary.cheaper(ask, view, preamble, self.limits, cold=cold)
        move: Fold | Ask = ask if cached is None else cached
        while isinstance(move, Ask):
            sent = move
            try:
                move = yield from self._write(sent, view)
            except SummaryError as error:
                if sent is not cached or self.recorder.view is not view or not self.cached_summary.failed(error):
                    raise
                move = ask
            else:
                if sent is cached:
                    self.cached_summary.succeeded()
        return move

    def _write(self, ask: Ask, view: View) -> Steps[Fold | Ask]:
        """What comes of one text. Raises SummaryError, also after a fork."""
        with self.suspended():
            text = yield ask
        if self.recorder.view is not view:
            raise SummaryError("the session has changed under the summary")
        return ask.finish(text)

    def commit(self, fold: Fold, *, again: bool = False) -> Fold | None:
        """Commit a fold as one of the running call's; None when it was refused, which is emitted."""
        folding = self.folding
        if folding is None:
            return self.account(self.recorder.commit(fold, batch=fold.batch, again=again))
        # The number is taken at the first fold, not at the start of the call: calls that fold nothing leave no gap, and
        # of two that overlap each has its own.
        batch = self.recorder.next_batch if folding.batch < 0 else folding.batch
        committed = self.recorder.commit(fold, batch=batch, again=again, requested=folding.requested)
        if committed is not None:
            folding.add(committed)
        return self.account(committed)

    def account(self, fold: Fold | None) -> Fold | None:
        """Account for a fold that was committed, by a call or in a replay. O(1).

        A fold over whole groups ends the rent, whoever wanted it: a compaction and a recovery pay its price too.
        """
        if fold is not None:
            if self.rent is not None and not fold.form:
                self.rent.settle()
            if fold.reducer in self.policy.checkpoints:
                self.totals.checkpoint(fold.id)
        return fold

    def report_failure(self, reducer: str, reason: str, start: Seq, stop: Seq) -> None:
        """Emit that a fold was wanted and not made; the end of the folding names it too."""
        if self.folding is not None:
            self.folding.failure = reason
        self.recorder.emit(FoldFailed(reducer, reason, start, stop))

    # --- the running call --------------------------------------------------------------------------------------------

    @contextmanager
    def active(self, folding: Folding) -> Iterator[Folding]:
        """Run one call that may fold. While it waits for a model, others may run theirs (`suspended`)."""
        before, self.folding = self.folding, folding
        self.recorder.view.rules.room_tokens = int(self.rules_share * self.limits.input_tokens)
        try:
            yield folding
        finally:
            self.folding = before
            # Also after a failure: a model call that brought nothing was paid for, and the next request reports it.
            self.summary_usage += folding.usage

    @contextmanager
    def suspended(self) -> Iterator[None]:
        """Set the running call aside, while its model writes or its view is read."""
        folding, self.folding = self.folding, None
        try:
            yield
        finally:
            self.folding = folding

    def announced(self, reason: str, **limits: int | None) -> AbstractContextManager[None]:
        """Emit the beginning of a folding and its end; `limits` are those of `folding.announced`."""
        return announced(self.recorder, self.folding or Folding(), lambda: self.used_tokens, reason, **limits)
