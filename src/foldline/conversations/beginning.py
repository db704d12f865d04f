"""What a conversation begins with that branches off from another one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Literal

from foldline.view.transcript import Entry, Event, Fold, Unfold, Usage

__all__ = ["before", "kept_of"]


def kept_of(events: Sequence[Event], count: int, sight: bytes | None, own: bytes) -> list[Event]:
    """What a branch of the first messages of a log begins with. O(log).

    `sight` is what a model had in sight that wrote in it (b"": messages alone), `own` what the branch is sent beside.
    """
    return before(events, count, folds="all" if sight == b"" else "alone" if sight == own else "none")


def before(events: Iterable[Event], count: int, *, folds: Literal["all", "alone", "none"] = "all") -> list[Event]:
    """The events of a log that are about its first `count` messages alone: what a branch begins with. O(events).

    A model that goes on from a client's request has all of it in sight when it writes: with `folds` "alone" only
    those are kept that were made when there were no more than these messages. With "none" none is.
    """
    kept: list[Event] = []
    known, entries, whole = set(), 0, True
    for event in events:
        if isinstance(event, Entry):
            entries += 1
            whole = whole and event.seq < count
            if event.seq < count:
                kept.append(event)
        elif isinstance(event, Fold):
            if event.stop <= count and (folds == "all" or (folds == "alone" and entries <= count)):
                known.add(event.id)
                kept.append(event)
            else:
                whole = False
        elif isinstance(event, Unfold):
            if event.fold in known:
                kept.append(event)
        elif isinstance(event, Usage):
            # Where a part is left out it says how this provider counts, and no more the size of what is shown.
            kept.append(event if whole else replace(event, current=False))
    return kept
