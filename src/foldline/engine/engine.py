"""One engine for all policies: takes messages up, decides when to fold, drives reducers, keeps the log.

The engine asks no model. Where one is wanted it yields an `Ask` and goes on with the text that is sent in, or with the
SummaryError that is thrown in; `Context` has the two drivers (sync, async) that pay.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

from foldline.catalog.models import CACHE_RULES, CacheRule
from foldline.codecs.caps import Caps
from foldline.engine.cached_summary import Continuing
from foldline.engine.events import FoldFailed
from foldline.engine.folding import Folding, Reading, moves, telling
from foldline.engine.policy import FOR_AMOUNTS, FOR_BYTES, MILD_RUNGS, RUNGS, Policy
from foldline.engine.recorder import Recorder
from foldline.errors import DoesNotFit, SummaryError
from foldline.messages import Wire
from foldline.reducers.base import Ask, Reducer
from foldline.reducers.images import OldMedia
from foldline.reducers.minimum import floor_of, too_large, too_many, too_many_bytes
from foldline.tokens import message_tokens, wire_bytes
from foldline.view.budget import Limits, Need, Pressure
from foldline.view.economics import Bill, Rent, foldable
from foldline.view.request import RequestAdjuster
from foldline.view.system_and_tools import System, Tools
from foldline.view.transcript import Fold, Seq, Usage
from foldline.view.view import View

__all__ = ["Engine", "Steps"]

BYTES_LANDING = 0.85
"""Share of the byte budget that its rungs aim at: at the budget itself they would run for every message."""

AMOUNTS_LANDING = 0.75
"""Share of a number of images or messages that its rungs aim at, for the same reason."""

T = TypeVar("T")
Steps: TypeAlias = Generator[Ask | Reading, Any, T]
"""Work that may ask a model on its way to a T (it is sent text), or have a view read (it is sent what came of it)."""


@dataclass(slots=True, kw_only=True)
class Engine(Recorder):
    """The state of one session, and when it folds. Public names are for `Context` and recovery; users see `Context`."""

    policy: Policy
    limits: Limits
    rent: Rent | None = None
    auto: bool = True
    max_request_bytes: int | None = None
    caps: Caps = field(default_factory=Caps)
    """What a request may hold besides tokens and bytes. A provider that names another number in a refusal is believed
    by `engine.caps = engine.caps.learned(max_images=50)`: the next request keeps to it."""
    outgoing: RequestAdjuster = field(init=False)
    """The last look at the messages of a request. A server that said that roles must alternate is believed by
    `engine.outgoing.alternating = True`."""
    trigger_at_limit: bool = False
    """Whether only the limit itself triggers (one-shot `fit`)."""
    answered_tokens: int | None = None
    """Input of the last request that this model answered, as the provider counted it."""
    settled: Seq = -1
    """Entries up to here have been looked at: preparing twice is the same need, and folds nothing more."""
    replying: bool = False
    """In a replay: whether the last message was one of a reply."""
    continuing: Continuing = field(default_factory=lambda: Continuing(CACHE_RULES["none"]))
    asked: list[Usage] = field(default_factory=list)
    """What the model calls of finished foldings reported since the last request."""
    ask_again_at: dict[str, int] = field(default_factory=dict)
    """Size of everything ever taken up at which a reducer may ask again after a rejected text, by its name."""

    def __post_init__(self) -> None:
        Recorder.__post_init__(self)
        self.outgoing = RequestAdjuster(self.codec.dialect)

    # --- folding -----------------------------------------------------------------------------------------------------

    def closed(self, fold: Fold) -> None:
        """A fold over whole groups ends the rent, whoever wanted it: a compaction and a recovery pay the price too.

        The figures begin anew with a checkpoint.
        """
        if self.rent is not None and not fold.form:
            self.rent.settle()
        if fold.reducer == self.policy.compactor.name:
            self.totals.checkpoint(fold.id)

    def send_beside(self, system: System, tools: Tools, leading: Sequence[Wire]) -> None:
        """Send these from now on; `leading` in place of the system messages that the log begins with. O(their size)."""
        larger = leading != self.beside.leading and self._lead(leading)
        if self.beside.update(system, tools) or larger:
            self.view.base_tokens = self.beside.tokens
            self.meter.folded()

    def _lead(self, leading: Sequence[Wire]) -> bool:
        more_tokens = more_bytes = 0
        entries = self.view.entries
        for seq, wire in enumerate(leading):
            message = self.codec.read(wire)
            if (entry := entries.get(seq)) is not None and entry.recorded != wire:
                more_tokens += message_tokens(message, self.counter) - entry.tokens
                more_bytes += wire_bytes(wire) - wire_bytes(entry.recorded) if self.view.weighed else 0
        if self.beside.leading:
            self.continuing.forget()  # the cache has another beginning
        return self.beside.set_leading(leading, more_tokens, more_bytes)

    def pay_by(self, rule: CacheRule, *, same_model: bool) -> None:
        """Reckon with these prices and this lifetime of the cache from now on. O(1)."""
        if not same_model:
            self.answered_tokens = None
            self.meter.begin_anew()
            self.continuing.begin_anew(rule)
        self.continuing.rule = rule
        if self.rent is not None:
            self.rent.rule = rule

    @property
    def used_tokens(self) -> int:
        """Size of the request as the provider would count it, as far as is known."""
        return self.view.tokens

    @property
    def limit_tokens(self) -> int:
        """The most that a request may count: the input limit, and by our own count no more than there is room for.

        Reports that are lower than our count may let a request come nearer to the limit, but never over the window.
        """
        return min(self.limits.input_tokens, self.meter.used(self.limits.room_tokens))

    def fits(self) -> bool:
        """Whether the request is within its token limit, its byte budget and the other limits of its provider."""
        return self.used_tokens <= self.limit_tokens and self._bytes_over() <= 0 and not self._amounts_over()

    def need(self, pressure: Pressure, target_tokens: float) -> Need:
        """What reducers are asked for, in the tokens of the view."""
        return Need(
            pressure,
            self.view.estimated_tokens,
            self.meter.target(self.view.estimated_tokens, target_tokens) if target_tokens > 0 else 0,
            self.limit_tokens,
            self.limits.room_tokens,
            self.fresh,
            self.limits.max_output_tokens,
            self.folding is not None and self.folding.requested,
        )

    @contextmanager
    def during(self, folding: Folding) -> Iterator[Folding]:
        """Do the work of one call that may fold. While it waits for a model others may do theirs (`apart`)."""
        before, self.folding = self.folding, folding
        try:
            yield folding
        finally:
            self.folding = before
            self.asked += folding.usage

    @contextmanager
    def apart(self) -> Iterator[None]:
        """Lay the call that is at work aside, while its model writes or its view is read."""
        folding, self.folding = self.folding, None
        try:
            yield
        finally:
            self.folding = folding

    def settle(self, asking: bool) -> Steps[None]:
        """Make the next request fit, as the policy wants it. Raises DoesNotFit."""
        if not self.auto:
            if not self.fits():
                raise self.no_fit(reason="folding is switched off (auto=False)")
            return
        if self.fits() and (self.trigger_at_limit or self.settled == self.next_seq):
            return
        while True:
            self.settled = self.next_seq
            yield from self._once(asking)
            if self.settled == self.next_seq:
                return
            asking = False  # messages came while a model was asked: they pass the guard too, and ask no more

    def _once(self, asking: bool) -> Steps[None]:
        policy = self.policy
        yield from self.run(policy.guard, Pressure.SOFT, 0, False)
        self.fresh = self.next_seq
        yield from self.run(policy.always, Pressure.SOFT, 0, asking)
        if (reached := policy.threshold(self.used_tokens, self.limits)) is not None:
            self.tell(reached)
        if not policy.auto:
            if not self.fits():
                raise self.no_fit(reason=f"policy {policy.name} folds only when asked")
            return
        target = self._due()
        if target is not None:
            if not self.fits():
                self.check_floor()
            most = policy.trigger.limit_tokens(self.limits)
            with telling(self, f"policy {policy.name}", limit_tokens=most, limit_bytes=policy.trigger.bytes):
                yield from self._fold(target, asking)

    def _fold(self, target: float, asking: bool) -> Steps[None]:
        policy, folding = self.policy, self.folding
        before = len(folding.folds) if folding is not None else 0
        pressure = Pressure.SOFT if self.fits() else Pressure.HARD
        yield from self.run(policy.reducers, pressure, target, asking)
        if folding is not None and len(folding.folds) > before:
            yield from self.run(policy.after_compact, pressure, 0, False)
        yield from self._rungs(policy.landing_tokens(self.limits.input_tokens, self.view.fixed_tokens, default=0.60))
        if self.rent is not None:
            self.rent.settle()  # also where nothing could be folded: it is not tried again at once
        if over := policy.trigger.unmet(self.view, self.used_tokens, self.limits):
            self.fail(policy.name, f"nothing more may go: {over}", 0, self.next_seq)

    def _due(self) -> float | None:
        """Where the request should land if it is time to fold; None if it is not."""
        policy, limits = self.policy, self.limits
        base = limits.input_tokens if self.trigger_at_limit else policy.trigger.limit_tokens(limits)
        landing = policy.landing_tokens(base, self.view.fixed_tokens)
        if self.rent is not None:
            self.rent.rhythm.request(self.view.newest_user, self.continuing.cold)
        if not self.fits():
            return landing
        if self.trigger_at_limit:
            return None
        if policy.trigger.due(self.view, self.used_tokens, limits):
            return landing
        if self.rent is not None:
            bill = self._bill(self.rent, landing)
            if self.rent.due(bill, cold=self.continuing.cold):
                return self.used_tokens - bill.removable_tokens
        return None

    def _bill(self, rent: Rent, landing_tokens: float) -> Bill:
        return foldable(self.view, self.span_stop, int(rent.keep * landing_tokens), rent.digest)

    def message_again(self, *, assistant: bool) -> None:
        """Before a message of a log is taken up: where it is a reply, all before it was sent, and the rent counts on.

        A request whose report noted the rent was counted there. Of several items of one reply the first counts.
        O(log tiles).
        """
        rent = self.rent
        if assistant and not self.replying and self.path:
            self.fresh = self.next_seq
            if rent is not None and not rent.counted:
                base = self.policy.trigger.limit_tokens(self.limits)
                landing = self.policy.landing_tokens(base, self.view.fixed_tokens)
                rent.replay_request(self._bill(rent, landing), self.view.newest_user)
        elif rent is not None and not assistant:
            rent.counted = False
        self.replying = assistant

    def report_again(self, usage: Usage) -> None:
        """A report of a log: what came before its reply was sent. O(1)."""
        self.news = []  # the request that this is a report for has named them
        if not self.replying:
            self.fresh = self.next_seq
        if self.rent is not None:
            self.rent.restore(usage)

    def _rungs(self, landing_tokens: float) -> Steps[None]:
        """What needs no model, until the request fits."""
        for number, rung in enumerate(RUNGS):
            if self.used_tokens <= self.limit_tokens:
                break
            target = landing_tokens if number < MILD_RUNGS else self.limit_tokens
            yield from self.run((rung,), Pressure.HARD, target, False)
        for rung in FOR_BYTES:
            if (over := self._bytes_over()) > 0:
                share = 1 - over / max(1, self.view.size_bytes)
                target = max(1.0, BYTES_LANDING * share * self.used_tokens)
                yield from self.run((rung,), Pressure.HARD, target, False, until=lambda: self._bytes_over() <= 0)
        if self._amounts_over():
            yield from self._fewer()
        if not self.fits():
            raise self.no_fit()

    def _fewer(self) -> Steps[None]:
        """What brings a request within the limits that are neither tokens nor bytes."""
        yield from self.run((OldMedia(self.caps),), Pressure.HARD, 0, False)
        for rung in FOR_AMOUNTS:
            if over := self._amounts_over():
                target = max(1.0, AMOUNTS_LANDING * min(most / n for _, n, most in over) * self.used_tokens)
                yield from self.run((rung,), Pressure.HARD, target, False, until=self._landed)

    def _landed(self) -> bool:
        return not any(self.caps.share(AMOUNTS_LANDING).over(self.view.amounts))

    def run(
        self,
        reducers: Iterable[Reducer],
        pressure: Pressure,
        target_tokens: float,
        asking: bool,
        *,
        until: Callable[[], bool] | None = None,
    ) -> Steps[None]:
        """Let reducers propose in order and commit what they propose until the target is met (0: all they propose)."""

        def met() -> bool:
            if until is not None:
                return until()
            return (
                target_tokens > 0
                and self.used_tokens <= target_tokens
                and not self.policy.trigger.over_counts(self.view, self.limits)
            )

        for reducer in reducers:
            if met():
                return
            view = self.view
            asks = asking and self.taken_tokens >= self.ask_again_at.get(reducer.name, 0)
            for move in (yield from moves(self, reducer, self.need(pressure, target_tokens), asks=asks)):
                if met():
                    return
                if self.view is not view:
                    break  # a fork or an undo came while a model wrote: this is about what was shown before
                if isinstance(move, Fold):
                    self.commit(move)
                elif asking and self.taken_tokens >= self.ask_again_at.get(reducer.name, 0):
                    yield from self.ask(move)

    def ask(self, ask: Ask) -> Steps[Fold | None]:
        """Have one ask answered; None when nothing came of it, which is reported and not raised."""
        try:
            return self.commit((yield from self.answered(ask)))
        except SummaryError as error:
            self.fail(ask.reducer, error.reason, ask.start, ask.stop)
            growth = (self.policy.trigger.fraction or 1.0) - (self.policy.landing or 0.6)
            self.ask_again_at[ask.reducer] = self.taken_tokens + int(max(0.1, growth) * self.limits.input_tokens)
            return None

    def fail(self, reducer: str, reason: str, start: Seq, stop: Seq) -> None:
        """Tell of a fold that was wanted and not made; the end of the folding names it too."""
        if self.folding is not None:
            self.folding.failure = reason
        self.tell(FoldFailed(reducer, reason, start, stop))

    def answered(self, ask: Ask) -> Steps[Fold]:
        """The fold that comes of an ask, over as many asks as it takes. Raises SummaryError, also after a fork."""
        view = self.view
        continues = self.folding is not None and self.folding.continues
        instead = self.continuing.instead(ask, view, self.beside, self.limits) if continues else None
        move: Fold | Ask = ask if instead is None else instead
        while isinstance(move, Ask):
            put = move
            try:
                move = yield from self._written(put, view)
            except SummaryError as error:
                if put is not instead or self.view is not view or not self.continuing.failed(error):
                    raise
                move = ask
            else:
                if put is instead:
                    self.continuing.succeeded()
        return move

    def _written(self, ask: Ask, view: View) -> Steps[Fold | Ask]:
        """What comes of one text. Raises SummaryError, also after a fork."""
        with self.apart():
            text = yield ask
        if self.view is not view:
            raise SummaryError("the session has changed under the summary")
        return ask.finish(text)

    # --- limits ------------------------------------------------------------------------------------------------------

    def check_floor(self) -> None:
        """Raise DoesNotFit, before any model is called, when what must stay is over the limit."""
        floor = floor_of(self.view)
        tokens = round(floor.tokens * self.meter.ratio) if floor.folds else self.used_tokens
        if tokens > self.limit_tokens:
            raise too_large(tokens, self.limit_tokens, floor.parts)

    def no_fit(self, reason: str | None = None) -> DoesNotFit:
        """The error for a request that is over its limit with nothing left to fold."""
        if amounts := self._amounts_over():
            name, number, most = amounts[0]
            return too_many(self.view, name, number, most, reason)
        over = self._bytes_over()
        if self.used_tokens <= self.limit_tokens and over > 0:
            return too_many_bytes(self.view, over, self.max_request_bytes or 0, reason)
        floor = floor_of(self.view)
        least = round(floor.tokens * self.meter.ratio) if floor.folds else self.used_tokens
        return too_large(least, self.limit_tokens, floor.parts, reason, used_tokens=self.used_tokens)

    def _amounts_over(self) -> list[tuple[str, int, int]]:
        return list(self.caps.over(self.view.amounts))

    def _bytes_over(self) -> int:
        if self.max_request_bytes is None:
            return 0
        return self.view.request_bytes + self.beside.size_bytes - self.max_request_bytes
