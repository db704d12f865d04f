"""Repeats the events of a log, one by one: what `Context.replay` is made of."""

from __future__ import annotations

from collections.abc import Callable

from foldline.budget import limits_from
from foldline.engine import Engine
from foldline.transcript import Branch, Entry, Event, Fold, Limited, Pin, Unfold, Usage

__all__ = ["repeat"]


def repeat(
    engine: Engine,
    event: Event,
    *,
    append: Callable[..., object],
    pin: Callable[..., None],
    measure: Callable[[Usage], None],
) -> None:
    """Do what an event says was done; `append`, `pin` and `measure` are the session's own. O(what it did)."""
    if isinstance(event, Entry):
        was = event.message
        engine.message_again(assistant=was.role == "assistant")
        append(event.recorded, agent_visible=not event.hidden, user_visible=was.user_visible, kind=was.kind)
    elif isinstance(event, Fold):
        engine.repeat(event)
    elif isinstance(event, Unfold):
        if event.fold in engine.folds:  # a fork takes its folds back by itself
            engine.take_back([event.fold])
    elif isinstance(event, Pin):
        pin(event.seq, pinned=event.pinned)
    elif isinstance(event, Branch):
        engine.fork(engine.path_seqs.index(event.start))
    elif isinstance(event, Limited):
        engine.limits = limits_from(event, engine.limits)
        engine.log.append(event)
    else:
        engine.log.append(event)
        engine.report_again(event)
        measure(event)
