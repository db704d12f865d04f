"""Replays a recorded log: `Context.replay` builds a session from its events, one by one.

A log may be damaged or edited. Its messages are appended like any others, and repaired. A fold is different, since its
text is sent as it stands: it is checked before it is believed.
"""

from __future__ import annotations

from collections.abc import Iterable

from foldline.codecs.base import Codec
from foldline.codecs.dialect import violations
from foldline.engine.engine import Engine
from foldline.engine.events import FoldFailed
from foldline.errors import FoldRefused, InvalidInput
from foldline.view.budget import limits_from
from foldline.view.pairing import arrange
from foldline.view.request import RequestAdjuster
from foldline.view.transcript import Branch, Entry, Event, Fold, Limited, Pin, Unfold, Usage

__all__ = ["LogReplay"]


class LogReplay:
    """Applies the events of a log to the engine of a new session.

    The log holds no requests. A reply implies one: all before it was sent. What the live session knew of its requests
    (the rent they paid, which entries had been sent) is worked out from that, and the flags it takes live here.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        # Whether the last message belongs to a reply: of several items of one reply, the first implies the request.
        self._in_reply = False
        # Whether the request that the next reply answers has been counted for the rent.
        self._counted = False
        # Whether a fold came since the last request. The request that it was made for pays no rent.
        self._folded = False

    def run(self, events: Iterable[Event]) -> None:
        """Apply a whole log, and make sure that it leads to a valid request. O(log).

        Where it does not, all folds are taken back. Raises InvalidInput, with the rule that is broken, where that does
        not help, and as `apply` does.
        """
        for event in events:
            self.apply(event)
        recorder = self._engine.recorder
        if not recorder.path or not self._violation():
            return
        recorder.unfold(list(recorder.folds))
        if found := self._violation():
            raise InvalidInput(f"the log leads to no valid request: {found}", place="events")

    def apply(self, event: Event) -> None:
        """Apply one event. O(what it did).

        A fold that shows what no provider accepts, or that no longer holds, is left out, which is emitted. Raises
        InvalidInput for an event that contradicts those before it.
        """
        engine, recorder = self._engine, self._engine.recorder
        if isinstance(event, Entry):
            was = event.message
            self._message(assistant=was.role == "assistant")
            engine.append(event.recorded, agent_visible=not event.hidden, user_visible=was.user_visible, kind=was.kind)
        elif isinstance(event, Fold):
            self._fold(event)
        elif isinstance(event, Unfold):
            if event.fold in recorder.folds:  # a fork takes its folds back by itself
                recorder.unfold([event.fold])
        elif isinstance(event, Pin):
            self._pin(event)
        elif isinstance(event, Branch) and event.tip is not None:
            recorder.go_back(event.tip)
        elif isinstance(event, Branch):
            if event.start not in recorder.path_seqs:
                raise InvalidInput("a fork from where the session is not", place=f"entry {event.start}")
            recorder.fork(recorder.path_seqs.index(event.start))
        elif isinstance(event, Limited):
            engine.limits = limits_from(event, engine.limits)
            recorder.log.append(event)
        else:
            self._usage(event)

    def _message(self, *, assistant: bool) -> None:
        """Count the request that a reply implies, before the reply is appended. O(log tiles).

        A request whose report noted the rent was counted when the report came.
        """
        engine, recorder, rent = self._engine, self._engine.recorder, self._engine.rent
        if assistant and not self._in_reply and recorder.path:
            recorder.unsent_from = recorder.next_seq
            if rent is not None and not self._counted:
                base = engine.policy.trigger.limit_tokens(engine.limits)
                landing = engine.policy.landing_tokens(base, engine.view.fixed_tokens)
                bill = engine.bill(rent, landing)
                # The log does not say how long the pause before a request was: it counts as one in a warm cache.
                rent.rhythm.request(engine.view.newest_user, False)
                if not self._folded and rent.due(bill):
                    rent.settle()  # it was due, and there was nothing to fold: that ended the rent as well
                self._counted, self._folded = True, False
        elif rent is not None and not assistant:
            self._counted = False
        self._in_reply = assistant

    def _usage(self, usage: Usage) -> None:
        """A report: all that came before its reply was sent, and named by its request. O(1)."""
        engine, recorder, rent = self._engine, self._engine.recorder, self._engine.rent
        engine.note_usage(usage)
        recorder.changes = []
        if not self._in_reply:
            recorder.unsent_from = recorder.next_seq
        if rent is not None and rent.restore(usage):
            self._counted, self._folded = True, False
        engine.measure(usage)

    def _fold(self, fold: Fold) -> None:
        engine, recorder = self._engine, self._engine.recorder
        if fault := _fault(engine.codec, fold):
            reason = f"is not valid as it was recorded: {fault}"
            recorder.emit(FoldFailed(fold.reducer, reason, fold.start, fold.stop))
            recorder.skip(fold)
            return
        committed = engine.account(recorder.commit_recorded(fold))
        if committed is not None and not committed.form:
            self._folded = True

    def _pin(self, event: Pin) -> None:
        try:
            self._engine.recorder.pin(event.seq, pinned=event.pinned)
        except FoldRefused as refused:
            reason = f"a pin of what cannot be pinned: {refused.reason}"
            raise InvalidInput(reason, place=f"entry {event.seq}") from None

    def _violation(self) -> str:
        """The first rule that the next request would break; "" if it breaks none."""
        # Judged as a first request would be sent: a log says nothing of roles that a server wanted in turn.
        dialect = self._engine.codec.dialect
        sent, *_ = RequestAdjuster(dialect).adjust(self._engine.view.shown(), 0, None, None)
        found = violations(sent, dialect) if sent else []
        return str(found[0]) if found else ""


def _fault(codec: Codec, fold: Fold) -> str:
    """Why the messages that a fold shows cannot be sent; "" if they can."""
    # Written and read again: what a codec would repair on the way in must not be sent unrepaired.
    block = []
    for message in fold.shown:
        try:
            clean = codec.sanitize(codec.read(codec.write(message)))
        except InvalidInput as error:
            return str(error)
        if clean.faults or clean.message is None:
            return clean.faults[0] if clean.faults else "nothing of it can be sent"
        block.append((fold.start, message))
    if fold.form:
        return "" if len(block) == 1 else "one message in another form is one message"
    *_, repairs = arrange(codec, block)
    return repairs[0].detail if repairs else ""
