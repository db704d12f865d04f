"""One engine for all policies: takes messages up, decides when to fold, drives reducers, keeps the log.

The engine asks no model. Where one is wanted it yields an `Ask` and goes on with the text that is sent in, or with the
SummaryError that is thrown in; `Context` has the two drivers (sync, async) that pay.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TypeAlias, TypeVar

from foldline.beside import Beside
from foldline.budget import Limits, Need, Pressure, Rent, foldable
from foldline.codecs.base import Codec
from foldline.errors import DoesNotFit, FoldRefused, SummaryError
from foldline.events import ContextEvent, FoldFailed, Repaired, folding
from foldline.messages import Message, Wire
from foldline.meter import Meter
from foldline.originals import Originals
from foldline.pairing import Pairing
from foldline.policy import FOR_BYTES, MILD_RUNGS, RUNGS, Policy
from foldline.reducers.base import Ask, Reducer
from foldline.reducers.floor import floor_of, too_large, too_many_bytes
from foldline.tokens import Counter, message_tokens
from foldline.transcript import Branch, Entry, Event, Fold, Pin, Repair, Seq, Unfold
from foldline.view import View

__all__ = ["Engine", "Steps"]

T = TypeVar("T")
Steps: TypeAlias = Generator[Ask, str, T]
"""Work that may ask a model on its way to a T."""


@dataclass(slots=True)
class Engine:
    """The state of one session. Public names are for `Context` and recovery; users see `Context`."""

    codec: Codec
    counter: Counter
    policy: Policy
    limits: Limits
    originals: Originals
    view: View
    beside: Beside
    tell: Callable[[ContextEvent], None]
    rent: Rent | None = None
    auto: bool = True
    max_request_bytes: int | None = None
    span_stop: Seq = 0
    """Where the last fold over whole groups ends: what stands before it has been condensed."""
    trigger_at_limit: bool = False
    """Whether only the limit itself triggers (one-shot `fit`)."""
    pairing: Pairing = field(init=False)
    log: list[Event] = field(default_factory=list)
    path: list[Wire] = field(default_factory=list)
    """Recorded JSON of the active branch, and the seq of each."""
    path_seqs: list[Seq] = field(default_factory=list)
    folds: dict[int, Fold] = field(default_factory=dict)
    batches: list[list[int]] = field(default_factory=list)
    batch: list[int] | None = None
    """The folds of each finished batch, and of the one that is being made."""
    news: list[Fold | Unfold] = field(default_factory=list)
    fresh: Seq = 0
    settled: Seq = -1
    """Entries up to here have been looked at: preparing twice is the same need, and folds nothing more."""
    failure: str | None = None  # of the folding that is going on, or went on last
    next_seq: Seq = 0
    next_fold: int = 0
    taken_tokens: int = 0
    ask_again_at: int = 0
    """Size of everything ever taken up, and the size at which a model may be asked again after a rejected summary."""

    def __post_init__(self) -> None:
        self.pairing = Pairing(self.codec)

    # --- taking up ---------------------------------------------------------------------------------------------------

    def take(self, message: Message, recorded: Wire) -> Entry:
        """Record one message and show it. O(size of the message and of the block it joins)."""
        seq = self.next_seq
        moves = message.role == "system" and not self.codec.system_inside and message.agent_visible
        clean = self.codec.sanitize(self.codec.read({**recorded, "role": "user"}) if moves else message)
        faults = list(clean.faults)
        sent = replace(message, agent_visible=False) if moves or clean.message is None else clean.message
        if moves and clean.message is not None:
            self.beside.move(seq, clean.message)
            self.view.base_tokens = self.beside.tokens
            faults.append("system text among the messages; sent as the system text of the request")
        placed = self.pairing.take(seq, sent)
        faults += placed.faults
        tokens = message_tokens(placed.message, self.counter)
        entry = Entry(seq, placed.group, placed.message, tokens, recorded, tuple(faults))
        self.next_seq += 1
        self.taken_tokens += tokens
        self.log.append(entry)
        self.path.append(recorded)
        self.path_seqs.append(seq)
        self.view.append(entry, placed.joins, self.pairing.waits)
        for fault in faults:
            self.tell(Repaired(Repair(seq, "message", fault)))
        return entry

    def fork(self, keep: int) -> None:
        """Leave the branch after its first `keep` messages; folds that no longer hold are taken back. O(log)."""
        left = self.path_seqs[keep]
        self.beside.leave(left)
        self.view.base_tokens = self.beside.tokens
        del self.path[keep:]
        del self.path_seqs[keep:]
        held = self._rebuild({fold.id for fold in self.folds.values() if fold.stop <= left})
        while (hiding := self.view.hides_newest()) is not None:
            held = self._rebuild(held - {hiding})
        lost = [Unfold(number) for number in sorted(self.folds, reverse=True) if number not in held]
        self._forget(lost)
        self.log += [*lost, Branch(left, self.next_seq)]
        self.news += lost
        self.fresh = min(self.fresh, left)

    def take_back(self, batch: Sequence[int]) -> tuple[Unfold, ...]:
        """Undo folds, last first. O(log): what came in since may belong to groups that are shown again."""
        lost = [Unfold(number) for number in reversed(batch)]
        if lost:
            self._rebuild(set(self.folds) - set(batch))
            self._forget(lost)
            self.log += lost
            self.news += lost
        return tuple(lost)

    def _forget(self, lost: Sequence[Unfold]) -> None:
        for event in lost:
            del self.folds[event.fold]
        self.batches = [rest for batch in self.batches if (rest := [fold for fold in batch if fold in self.folds])]

    def _rebuild(self, folds: set[int]) -> set[int]:
        """The view anew from the log: the messages of the path, and of the folds only those given. Those that held."""
        old, view = self.view, self.view.empty()
        self.view, self.pairing = view, Pairing(self.codec)
        path, held, at = set(self.path_seqs), set[int](), 0
        self.span_stop = 0
        for event in self.log:
            if isinstance(event, Entry) and event.seq in path:
                if event.seq > at:
                    view.leave(at, event.seq)
                self._show_again(event)
                at = event.seq + 1
            elif isinstance(event, Pin) and event.seq in path:
                view.pin(event.seq, event.pinned)
            elif isinstance(event, Fold) and event.id in folds:
                view.asked = True
                try:
                    view.commit(event)
                except FoldRefused as refused:
                    self.tell(FoldFailed(event.reducer, f"no longer holds: {refused.reason}", event.start, event.stop))
                else:
                    held.add(event.id)
                    self._close(event)
                view.asked = False
        if at < self.next_seq:
            view.leave(at, self.next_seq)
        view.entries |= {seq: entry for seq, entry in old.entries.items() if seq not in view.entries}
        self.meter.folded()
        return held

    def _show_again(self, entry: Entry) -> None:
        clean = self.codec.sanitize(self.codec.read(entry.recorded)).message
        visible = clean is not None and entry.message.agent_visible
        placed = self.pairing.take(entry.seq, _flags(clean, entry) if clean and visible else entry.message)
        again = replace(entry, message=placed.message, group=placed.group)
        self.view.append(again, placed.joins, self.pairing.waits)

    # --- folding -----------------------------------------------------------------------------------------------------

    @property
    def used_tokens(self) -> int:
        """Size of the request as the provider would count it, as far as is known."""
        return self.view.tokens

    @property
    def meter(self) -> Meter:
        """The correction by reported usage."""
        return self.view.meter

    def fits(self) -> bool:
        """Whether the request is within its token limit and its byte budget."""
        return self.used_tokens <= self.limits.input_tokens and self._bytes_over() <= 0

    def need(self, pressure: Pressure, target_tokens: float) -> Need:
        """What reducers are asked for, in the tokens of the view."""
        return Need(
            pressure,
            self.view.estimated_tokens,
            self.meter.target(self.view.estimated_tokens, target_tokens) if target_tokens > 0 else 0,
            self.limits.input_tokens,
            self.limits.room_tokens,
            self.fresh,
            self.limits.max_output_tokens,
        )

    def settle(self, asking: bool) -> Steps[None]:
        """Make the next request fit, as the policy wants it. Raises DoesNotFit."""
        with self.batching():
            yield from self._settle(asking)

    @contextmanager
    def batching(self) -> Iterator[list[int]]:
        """Folds made inside are one batch, which `undo` takes back as one. Batches may overlap (`prepare_async`)."""
        before, self.batch = self.batch, (batch := list[int]())
        try:
            yield batch
        finally:
            self.batch = before
            if live := [number for number in batch if number in self.folds]:
                self.batches.append(live)

    def _settle(self, asking: bool) -> Steps[None]:
        policy = self.policy
        if not self.auto:
            if not self.fits():
                raise self.no_fit(reason="folding is switched off (auto=False)")
            return
        if self.fits() and (self.trigger_at_limit or self.settled == self.next_seq):
            return
        self.settled = self.next_seq
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
            with folding(self, f"policy {policy.name}", limit_tokens=most, limit_bytes=policy.trigger.bytes):
                yield from self._fold(target, asking)

    def _fold(self, target: float, asking: bool) -> Steps[None]:
        policy, before = self.policy, len(self.news)
        pressure = Pressure.SOFT if self.fits() else Pressure.HARD
        yield from self.run(policy.reducers, pressure, target, asking)
        if len(self.news) > before:
            yield from self.run(policy.after_compact, pressure, 0, False)
        yield from self._rungs(policy.landing_tokens(self.limits.input_tokens, self.view.fixed_tokens, default=0.60))
        if self.rent is not None:
            self.rent.settle()
        if over := policy.trigger.unmet(self.view, self.used_tokens, self.limits):
            self.fail(policy.name, f"nothing more may go: {over}", 0, self.next_seq)

    def _due(self) -> float | None:
        """Where the request should land if it is time to fold; None if it is not."""
        policy, limits = self.policy, self.limits
        base = limits.input_tokens if self.trigger_at_limit else policy.trigger.limit_tokens(limits)
        landing = policy.landing_tokens(base, self.view.fixed_tokens)
        if not self.fits():
            return landing
        if self.trigger_at_limit:
            return None
        if policy.trigger.due(self.view, self.used_tokens, limits):
            return landing
        if self.rent is not None:
            bill = foldable(self.view, self.span_stop, int(self.rent.keep * landing), self.rent.digest)
            if self.rent.due(bill):
                return self.used_tokens - self.meter.ratio * bill.removable_tokens
        return None

    def _rungs(self, landing_tokens: float) -> Steps[None]:
        """What needs no model, until the request fits."""
        for number, rung in enumerate(RUNGS):
            if self.used_tokens <= self.limits.input_tokens:
                break
            target = landing_tokens if number < MILD_RUNGS else self.limits.input_tokens
            yield from self.run((rung,), Pressure.HARD, target, False)
        for rung in FOR_BYTES:
            if self._bytes_over() > 0:
                yield from self.run((rung,), Pressure.HARD, 0, False, until=lambda: self._bytes_over() <= 0)
        if not self.fits():
            raise self.no_fit()

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
            for move in list(reducer.propose(self.view, self.need(pressure, target_tokens))):
                if met():
                    return
                if isinstance(move, Fold):
                    self.commit(move)
                elif asking and self.taken_tokens >= self.ask_again_at:
                    yield from self.ask(move)

    def ask(self, ask: Ask) -> Steps[Fold | None]:
        """Have one ask answered; None when nothing came of it, which is reported and not raised."""
        try:
            return self.commit((yield from self.answered(ask)))
        except SummaryError as error:
            self.fail(ask.reducer, error.reason, ask.start, ask.stop)
            growth = (self.policy.trigger.fraction or 1.0) - (self.policy.landing or 0.6)
            self.ask_again_at = self.taken_tokens + int(max(0.1, growth) * self.limits.input_tokens)
            return None

    def fail(self, reducer: str, reason: str, start: Seq, stop: Seq) -> None:
        """Tell of a fold that was wanted and not made; the end of the folding names it too."""
        self.failure = reason
        self.tell(FoldFailed(reducer, reason, start, stop))

    def answered(self, ask: Ask) -> Steps[Fold]:
        """The fold that comes of an ask, over as many asks as it takes. Raises SummaryError, also after a fork."""
        move: Fold | Ask = ask
        view = self.view
        while isinstance(move, Ask):
            batch, asked = self.batch, view.asked
            self.batch, view.asked = None, False  # other work may go on while the model writes
            try:
                text = yield move
            finally:
                self.batch, view.asked = batch, asked
            if self.view is not view:
                raise SummaryError("the session has changed under the summary")
            move = move.finish(text)
        return move

    def commit(self, fold: Fold) -> Fold | None:
        """Put a fold into effect and record it; None when it was refused, which is reported."""
        try:
            key = self.originals.keep(self.view, fold, self.view.is_form(fold))
            made = self.view.commit(replace(fold, id=self.next_fold, archive=key))
        except FoldRefused as refused:
            self.tell(FoldFailed(fold.reducer, refused.reason, fold.start, fold.stop))
            return None
        self.next_fold += 1
        self.folds[made.id] = made
        self.log.append(made)
        self.news.append(made)
        if self.batch is not None:
            self.batch.append(made.id)
        self._close(made)
        self.meter.folded()
        return made

    # --- limits ------------------------------------------------------------------------------------------------------

    def check_floor(self) -> None:
        """Raise DoesNotFit, before any model is called, when what must stay is over the limit."""
        floor = floor_of(self.view)
        tokens = round(floor.tokens * self.meter.ratio) if floor.folds else self.used_tokens
        if tokens > self.limits.input_tokens:
            raise too_large(tokens, self.limits.input_tokens, floor.parts)

    def no_fit(self, reason: str | None = None) -> DoesNotFit:
        """The error for a request that is over its limit with nothing left to fold."""
        over = self._bytes_over()
        if self.used_tokens <= self.limits.input_tokens and over > 0:
            return too_many_bytes(self.view, over, self.max_request_bytes or 0, reason)
        return too_large(self.used_tokens, self.limits.input_tokens, floor_of(self.view).parts, reason)

    def _bytes_over(self) -> int:
        if self.max_request_bytes is None:
            return 0
        return self.view.size_bytes + self.view.message_count + self.beside.size_bytes - self.max_request_bytes

    # --- inside ------------------------------------------------------------------------------------------------------

    def _close(self, fold: Fold) -> None:
        if not fold.form:
            self.pairing.close(fold.start, fold.stop)
            self.span_stop = max(self.span_stop, fold.stop)


def _flags(message: Message, entry: Entry) -> Message:
    """A message with what was said about the entry when it was taken up."""
    was = entry.message
    return replace(
        message, pinned=was.pinned, agent_visible=was.agent_visible, user_visible=was.user_visible, kind=was.kind
    )
