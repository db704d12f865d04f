"""Repeats the events of a log, one by one: what `Context.replay` is made of.

A log may have been damaged, or edited. The messages in it are taken up as from anywhere, and repaired. What a fold
shows instead of them is sent as it stands: here it is judged before it is believed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from foldline.codecs.base import Codec
from foldline.codecs.rules import violations
from foldline.engine.engine import Engine
from foldline.engine.events import FoldFailed
from foldline.errors import FoldRefused, InvalidInput
from foldline.view.budget import limits_from
from foldline.view.pairing import arrange
from foldline.view.request import RequestAdjuster
from foldline.view.transcript import Branch, Entry, Event, Fold, Limited, Pin, Unfold, Usage

__all__ = ["repeat", "repeat_all"]


def repeat(
    engine: Engine,
    event: Event,
    *,
    append: Callable[..., object],
    pin: Callable[..., None],
    measure: Callable[[Usage], object],
) -> None:
    """Do what an event says was done; `append`, `pin` and `measure` are the session's own. O(what it did).

    A fold that shows what no provider would take, or that no longer holds, is left out and told. Raises InvalidInput
    for an event that contradicts those before it.
    """
    if isinstance(event, Entry):
        was = event.message
        engine.message_again(assistant=was.role == "assistant")
        append(event.recorded, agent_visible=not event.hidden, user_visible=was.user_visible, kind=was.kind)
    elif isinstance(event, Fold):
        _fold(engine, event)
    elif isinstance(event, Unfold):
        if event.fold in engine.folds:  # a fork takes its folds back by itself
            engine.take_back([event.fold])
    elif isinstance(event, Pin):
        try:
            pin(event.seq, pinned=event.pinned)
        except FoldRefused as refused:
            raise InvalidInput(
                f"a pin of what cannot be pinned: {refused.reason}", place=f"entry {event.seq}"
            ) from None
    elif isinstance(event, Branch):
        if event.start not in engine.path_seqs:
            raise InvalidInput("a fork from where the session is not", place=f"entry {event.start}")
        engine.fork(engine.path_seqs.index(event.start))
    elif isinstance(event, Limited):
        engine.limits = limits_from(event, engine.limits)
        engine.log.append(event)
    else:
        engine.note_usage(event)
        engine.report_again(event)
        measure(event)


def repeat_all(engine: Engine, events: Iterable[Event], again: Callable[[Event], None]) -> None:
    """Do again what a whole log says was done, and have what follows be what a provider takes. O(log).

    Where it would not be, all folds are taken back. Raises InvalidInput, with the rule that is broken, where that does
    not help, and as `repeat` does.
    """
    for event in events:
        again(event)
    if not engine.path or not _broken(engine):
        return
    engine.take_back(list(engine.folds))
    if found := _broken(engine):
        raise InvalidInput(f"the log leads to no valid request: {found}", place="events")


def _broken(engine: Engine) -> str:
    shown = engine.view.shown()
    sent, *_ = RequestAdjuster(engine.codec.dialect).adjust(shown, 0, None, None)
    found = violations(sent, engine.codec.dialect) if sent else []
    return str(found[0]) if found else ""


def _fold(engine: Engine, fold: Fold) -> None:
    fault = _fault(engine.codec, fold)
    if not fault:
        engine.repeat(fold)
        return
    engine.tell(FoldFailed(fold.reducer, f"is not valid as it was recorded: {fault}", fold.start, fold.stop))
    engine.next_fold = max(engine.next_fold, fold.id + 1)
    engine.next_batch = max(engine.next_batch, fold.batch + 1)


def _fault(codec: Codec, fold: Fold) -> str:
    """Why what a fold shows cannot be sent; "" if it can."""
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
    _, repairs = arrange(codec, block)
    return repairs[0].detail if repairs else ""
