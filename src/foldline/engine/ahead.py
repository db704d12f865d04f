"""Summaries written ahead: asked for while the prefix is warm and nobody waits, put in when the fold is due.

`Context.ahead` says when it is time (`due`), gives the question (`ask`) and takes the text (`supply`); `write` and
`write_async` do both with a summariser. Nothing runs by itself: who calls them beside the turns is the caller's
business. The next fold of the policy puts the text in, unless the branch was left or something it covers was folded,
pinned or taken back meanwhile. Then it is dropped, and the fold is made as it would have been without.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

from foldline.catalog.prices import request_price
from foldline.engine.drivers import AsyncSummarize, SummarizeWith, drive, drive_async, text_of
from foldline.engine.engine import Engine, Steps
from foldline.engine.events import FoldFailed, SummaryWritten
from foldline.engine.folding import Folding, Reading, Wait
from foldline.errors import InvalidInput, SummaryError
from foldline.reducers.base import Ask
from foldline.view.budget import Need, Pressure
from foldline.view.economics import Bill, pays_before_cold
from foldline.view.transcript import Fold, Seq
from foldline.view.view import View

__all__ = ["AheadState", "SummariesAhead", "chance_of_return", "seconds_before_cold"]

AheadState: TypeAlias = Literal["none", "due", "writing", "ready"]

# How much has to be appended before it looks again where it found nothing to summarise, as a share of the input limit:
# a look reads the view, and what it found hardly changes with one more message.
LOOK_AGAIN = 0.04

# Share of the usual tail that a summary leaves whole at least, however much is still expected before its fold.
LEAST_TAIL = 0.25


# How long before the cache expires a session that rests is folded: a share of its lifetime, and seconds. The summary is
# begun by then; the provider looks its prefix up when the question comes, not when the answer ends.
BEFORE_COLD = 0.1
LEAST_SECONDS = 30.0

# A session that rests is summarised up to a tail that is a share of this much of it.
RESTING_SHARE = 0.5

# A summary as a share of what it replaces, where a model says what matters.
SUMMARY_SHARE = 0.15

# Price of a token written, in tokens read: 4 to 6 by the catalogue at most providers.
OUTPUT_RATIO = 5.0


@dataclass(slots=True)
class SummariesAhead:
    """The summary of a session that is written before its fold is due; see `Context.ahead`."""

    _engine: Engine
    _folding: Callable[[SummarizeWith | AsyncSummarize | None, float], Folding]
    wait: Wait | None = None
    """How `prepare_async` waits for the summary that is being written, once the window is full. None: it does not wait,
    and asks the model itself."""
    # What `ask` has begun and `supply` goes on with.
    _open: Steps[object] | None = None
    _asked: Folding | None = None

    @property
    def state(self) -> AheadState:
        """Whether one is due, being written, or ready to be put in. O(1), O(tiles) once after a fold."""
        prepared = self._engine.prepared
        if prepared.writing:
            return "writing"
        if prepared.holds(self._engine.recorder):
            return "ready"
        return "due" if is_due(self._engine) else "none"

    @property
    def failure(self) -> str:
        """Why the last summary was not written; "" where it was, or is being written."""
        return self._engine.prepared.failure

    @property
    def due(self) -> bool:
        """Whether it is time to write one. O(1) between folds."""
        return self.state == "due"

    def ask(
        self, summarize: SummarizeWith | None = None, *, continues: bool = False, idle_seconds: float = 0.0
    ) -> Ask | None:
        """The question for a summary, if it is time for one; answer it with `supply`. O(view) where it is.

        With `continues`, or a `summarize` that can (`Continues`), the caller can send `Ask.request` where it is set:
        the last request with the question at its end, which the provider reads from its cache. Otherwise, and without
        it, `Ask.prompt` is the question.
        """
        if not self.due:
            return None
        folding = self._folding(summarize, idle_seconds)
        folding = replace(folding, has_model=True, continues=folding.continues or continues)
        return self._go_on(write(self._engine, folding), folding, None)

    def ask_before_cold(
        self, summarize: SummarizeWith | None = None, *, chance: float = 0.5, answered: bool = False
    ) -> Ask | None:
        """The question for `fold_before_cold`, if folding pays; answer it with `supply`. O(view).

        `answered`: the reply to the last message has come, and is not recorded yet.
        """
        folding = replace(self._folding(summarize, 0.0), has_model=True)
        return self._go_on(fold_before_cold(self._engine, folding, chance, answered=answered), folding, None)

    def supply(self, answer: object) -> Ask | None:
        """Take the text or `Completion` that was asked for, or a SummaryError in its place.

        Returns the next question where the input is read in pieces.

        Raises InvalidInput where nothing was asked. A text that is no summary is reported as `FoldFailed`.
        """
        steps, folding = self._open, self._asked
        if steps is None or folding is None:
            raise InvalidInput("no summary was asked for", place="supply")
        try:
            found: str | SummaryError = (
                answer if isinstance(answer, SummaryError) else text_of(answer, folding.usage.append)
            )
        except SummaryError as error:
            found = error
        return self._go_on(steps, folding, found)

    def write(self, summarize: SummarizeWith, *, idle_seconds: float = 0.0) -> bool:
        """Write a summary if it is time for one; whether it was written. A failure is reported, not raised."""
        if not self.due:
            return False
        folding = self._folding(summarize, idle_seconds)
        return drive(write(self._engine, folding), summarize, folding.usage.append)

    async def write_async(self, summarize: AsyncSummarize, *, idle_seconds: float = 0.0) -> bool:
        """`write` with an async summariser. Turns may go on meanwhile; a cancellation leaves everything as it was."""
        writing = await self.begin_async(summarize, idle_seconds=idle_seconds)
        return await writing if writing is not None else False

    async def begin_async(
        self, summarize: AsyncSummarize, *, idle_seconds: float = 0.0
    ) -> Coroutine[Any, Any, bool] | None:
        """The first half of `write_async`, which reads the history; the second, which asks the model, is the result.

        Nothing may be recorded during the first, for a large view is read in a thread; the second runs beside turns.
        None where nothing is to be written.
        """
        if not self.due:
            return None
        folding = self._folding(summarize, idle_seconds)
        steps = write(self._engine, folding)
        try:
            step = next(steps)
            while isinstance(step, Reading):
                step = steps.send(step.work() if folding.in_thread is None else await folding.in_thread(step.work))
        except StopIteration:
            return None
        except BaseException:
            steps.close()
            raise
        return drive_async(steps, summarize, folding.usage.append, begun=_asked(step))

    def fold_before_cold(self, summarize: SummarizeWith, *, chance: float = 0.5) -> tuple[Fold, ...]:
        """Fold now where that pays, as the provider's cache is about to expire: the summary is read from it still.

        For a session whose turn is over. `chance` is how likely it goes on once the cache is cold. By price: nothing is
        folded where the summary costs more than the next request would save. A failure is reported, not raised.
        """
        folding = self._folding(summarize, 0.0)
        return drive(fold_before_cold(self._engine, folding, chance), summarize, folding.usage.append)

    async def fold_before_cold_async(self, summarize: AsyncSummarize, *, chance: float = 0.5) -> tuple[Fold, ...]:
        """`fold_before_cold` with an async summariser."""
        folding = self._folding(summarize, 0.0)
        steps = fold_before_cold(self._engine, folding, chance)
        return await drive_async(steps, summarize, folding.usage.append, folding.in_thread)

    def drop(self) -> None:
        """Forget a summary that was written or asked for. What it cost stays counted."""
        if self._open is not None:
            self._open.close()
            self._open = self._asked = None
        self._engine.prepared.fold = None

    def _go_on(self, steps: Steps[object], folding: Folding, found: str | SummaryError | None) -> Ask | None:
        self._open, self._asked = None, None
        try:
            step = steps.throw(found) if isinstance(found, SummaryError) else steps.send(found)
            while isinstance(step, Reading):
                step = steps.send(step.work())
        except StopIteration:
            return None
        self._open, self._asked = steps, folding
        return _asked(step)


def _asked(step: object) -> Ask:
    if not isinstance(step, Ask):
        raise TypeError(f"a summary that is written ahead waits for nothing else: {step!r}")
    return step


# --- deciding ---------------------------------------------------------------------------------------------------------


def seconds_before_cold(lifetime_seconds: float) -> float:
    """How long after its last request a session whose cache lives so long is folded, if it rests. O(1)."""
    margin = max(BEFORE_COLD * lifetime_seconds, min(LEAST_SECONDS, lifetime_seconds / 2))
    return lifetime_seconds - margin


def chance_of_return(cold_returns: int) -> float:
    """How likely a session that rests goes on, where it has so many times before. O(1)."""
    return (cold_returns + 1) / (cold_returns + 2)


def is_due(engine: Engine) -> bool:
    """Whether to write a summary now: the fold that would need it comes near, and there is none yet. O(1)."""
    policy, prepared, recorder = engine.policy, engine.prepared, engine.recorder
    if not (policy.ahead and policy.auto and engine.auto) or engine.trigger_at_limit or prepared.writing:
        return False
    if recorder.appended_tokens < prepared.look_again_at or prepared.holds(recorder):
        return False
    return _nearness(engine) >= policy.ahead


def _nearness(engine: Engine) -> float:
    """How near the next fold is: 1.0 where it is due. O(log tiles)."""
    limits, view, rent, trigger = engine.limits, engine.recorder.view, engine.rent, engine.policy.trigger
    used_tokens = engine.used_tokens
    near = max(trigger.nearness(view, used_tokens, limits), used_tokens / max(1, engine.limit_tokens))
    if rent is None:
        return near
    landing = engine.policy.landing_tokens(trigger.limit_tokens(limits), view.fixed_tokens)
    return max(near, rent.nearness(engine.bill(rent, landing)))


def write(engine: Engine, folding: Folding) -> Steps[bool]:
    """Write a summary of what the next fold would summarise; whether it is there. Raises nothing but cancellations."""
    recorder, prepared = engine.recorder, engine.prepared
    if (stale := prepared.take()) is not None:
        recorder.emit(FoldFailed(stale.reducer, "what it covers has changed since", stale.start, stale.stop))
    with engine.active(folding):
        ask = yield from _question(engine)
        if ask is None:
            prepared.look_again_at = recorder.appended_tokens + int(LOOK_AGAIN * engine.limits.input_tokens)
            return False
        before = len(folding.usage)
        written = yield from _kept(engine, ask)
        if written is not None:
            recorder.emit(SummaryWritten(written.start, written.stop, written.tokens, tuple(folding.usage[before:])))
        return written is not None


def _kept(engine: Engine, ask: Ask) -> Steps[Fold | None]:
    """The fold that comes of a question, kept as the prepared one; None, with its reason reported, where none does."""
    recorder, prepared = engine.recorder, engine.prepared
    view = recorder.view
    prepared.begin(recorder, ask.start, ask.stop)
    try:
        fold = yield from engine.answer(ask)
    except SummaryError as error:
        engine.report_failure(ask.reducer, error.reason, ask.start, ask.stop)
        prepared.failure = error.reason
        if recorder.view is view:
            engine.put_off(ask.reducer)
            prepared.look_again_at = engine.ask_again_at[ask.reducer]
        return None
    finally:
        prepared.writing = False
    if prepared.finish(recorder, fold):
        return fold
    engine.report_failure(fold.reducer, "what it covers has changed since", fold.start, fold.stop)
    return None


def fold_before_cold(
    engine: Engine, folding: Folding, chance: float, *, answered: bool = False
) -> Steps[tuple[Fold, ...]]:
    """Fold while the prefix is warm, if that pays; the folds. Raises nothing but cancellations.

    Where messages have come while the model wrote, the summary waits for its fold.
    """
    policy, recorder, prepared = engine.policy, engine.recorder, engine.prepared
    if not (policy.auto and engine.auto) or not recorder.path or prepared.writing:
        return ()
    if not (answered or recorder.view.answered()):
        return ()
    with engine.active(folding):
        ask = yield from _question_of_rest(engine)
        if ask is None or not _pays(engine, ask, folding.continues, chance):
            return ()
        stood = recorder.next_seq
        with engine.announced("the provider's cache is about to expire"):
            if not prepared.holds(recorder):
                written = yield from _kept(engine, ask)
                if written is not None and recorder.next_seq != stood:
                    recorder.emit(SummaryWritten(written.start, written.stop, written.tokens, tuple(folding.usage)))
            fold = prepared.take() if recorder.next_seq == stood else None
            if fold is not None and engine.commit(fold) is not None:
                yield from engine.run((*policy.after_compact, *policy.after_fold), Pressure.SOFT, 0, False)
    return tuple(fold for fold in folding.folds if fold.id in recorder.folds)


def _question_of_rest(engine: Engine) -> Steps[Ask | None]:
    """What the policy would ask about a session that rests: of all but its newest part, however small it is."""
    policy, view = engine.policy, engine.recorder.view
    landing = policy.landing_tokens(policy.trigger.limit_tokens(engine.limits), view.fixed_tokens, default=0.6)
    need = engine.need(Pressure.SOFT, min(landing, RESTING_SHARE * engine.used_tokens))
    for reducer in policy.reducers:
        if getattr(reducer, "only_asks", False) and engine.may_ask(reducer.name):
            found = yield from engine.proposals(reducer, need)
            asks = [move for move in found if isinstance(move, Ask)]
            if asks:
                return max(asks, key=lambda ask: _size(view, ask))
    return None


def _pays(engine: Engine, ask: Ask, continues: bool, chance: float) -> bool:
    """Whether the summary costs less than what it saves once the cache is cold."""
    rule, view, used = engine.cached_summary.rule, engine.recorder.view, engine.used_tokens
    ratio = view.meter.ratio
    size = ratio * _size(view, ask)
    summary = min(ratio * ask.max_output_tokens, SUMMARY_SHARE * size)
    after = max(0, used - int(size))
    bill = Bill(max(0, int(size - summary)), int(summary), after, used)
    plain = ratio * ask.plain_tokens
    read = min(plain, request_price(rule, used, used)) if continues else plain
    return pays_before_cold(bill, rule, question=read + OUTPUT_RATIO * summary, chance=chance)


def _size(view: View, ask: Ask) -> int:
    return view.between(view.index(ask.start), view.index(ask.stop - 1) + 1)


def _question(engine: Engine) -> Steps[Ask | None]:
    """What the policy would ask when its fold is due; None where it would land without a model."""
    policy, view = engine.policy, engine.recorder.view
    base = policy.trigger.limit_tokens(engine.limits)
    need = engine.need(Pressure.SOFT, policy.landing_tokens(base, view.fixed_tokens))
    need = replace(need, coming_tokens=_coming(engine, need))
    saved: dict[Seq, int] = {}
    for reducer in policy.reducers:
        # Milder reducers run first, and where they are enough no summary is wanted. They may shorten the same entry
        # twice: only the larger saving counts.
        if need.target_tokens and need.used_tokens + need.coming_tokens - sum(saved.values()) <= need.target_tokens:
            return None
        found = yield from engine.proposals(reducer, need, asks=engine.may_ask(reducer.name))
        asks = [move for move in found if isinstance(move, Ask)]
        if asks:
            # Pins part the session into spans. One summary is kept at a time: that of the largest.
            return max(asks, key=lambda ask: _size(view, ask))
        for move in found:
            if isinstance(move, Fold):
                saved[move.start] = max(saved.get(move.start, 0), _saving(view, move))
    return None


def _coming(engine: Engine, need: Need) -> int:
    """Tokens of the view that are expected before the fold is due. They will be a part of its tail."""
    trigger, view = engine.policy.trigger, engine.recorder.view
    if trigger.fraction is None:
        return 0
    mark = min(trigger.mark_tokens(engine.limits.input_tokens, view.fixed_tokens), engine.limit_tokens)
    coming = max(0.0, mark - engine.used_tokens) / max(1.0, view.meter.ratio)
    # Of a small landing most would be expected to come: something of what is there now has to stay whole.
    tail = engine.policy.kept_share * max(0, need.target_tokens - view.fixed_tokens)
    return int(min(coming, (1 - LEAST_TAIL) * tail))


def _saving(view: View, fold: Fold) -> int:
    """Tokens that a proposed fold would save."""
    first, last = view.index(fold.start), view.index(fold.stop - 1) + 1
    entry = view.tiles[first].entry_reformed_by(fold)
    before = view.between(first, last) if entry is None else view.tiles[first].form_tokens(entry)
    return max(0, before - fold.tokens)
