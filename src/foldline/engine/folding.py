"""The state of one call that may fold, and how its beginning and its end are told.

Calls may overlap (`prepare_async`): each has its own state, so that what one of them folds, asks and fails at is never
taken for another's.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, TypeAlias

from foldline.engine.events import ContextEvent, FoldFinished, FoldStarted
from foldline.reducers.base import Move, Reducer
from foldline.view.budget import Need
from foldline.view.transcript import Fold, Usage
from foldline.view.view import View

__all__ = ["INLINE_BYTES", "Folding", "InThread", "Reading", "moves", "telling"]

INLINE_BYTES: Final = 128 * 1024
"""Content of a view that is read where the driver runs: some ten milliseconds for a reducer that reads all of it."""

InThread: TypeAlias = Callable[[Callable[[], Any]], Awaitable[Any]]
"""Runs a function in a thread, to its end also where who waits for it is cancelled."""


@dataclass(frozen=True, slots=True)
class Reading:
    """Work that only reads the view, which a driver may do in a thread. It is sent back what `work` returns."""

    work: Callable[[], Any]


@dataclass(slots=True, kw_only=True)
class Folding:
    """One prepare, compact or recover. Its folds are one batch, which `undo` takes back as one."""

    asks: bool = False
    """Whether there is a model to ask."""
    continues: bool = False
    """Whether that model can go on from a request of the session."""
    requested: bool = False
    """Whether a user requested it: then the newest user message may be folded too, once it is answered."""
    in_thread: InThread | None = None
    """Where a large view is read; None for reading it where the driver runs."""
    batch: int = -1
    """Number of the batch; -1 until the first fold."""
    folds: list[Fold] = field(default_factory=list)
    usage: list[Usage] = field(default_factory=list)
    """What the calls of the model reported."""
    failure: str | None = None
    """What went wrong last, if anything did."""


class _Engine(Protocol):
    """What `telling` looks at: the engine of a session."""

    folds: dict[int, Fold]
    folding: Folding | None

    @property
    def tell(self) -> Callable[[ContextEvent], None]: ...

    @property
    def view(self) -> View: ...

    @property
    def used_tokens(self) -> int: ...

    def apart(self) -> AbstractContextManager[None]: ...


def moves(engine: _Engine, reducer: Reducer, need: Need, *, asks: bool = True) -> Generator[Reading, Any, list[Move]]:
    """What a reducer proposes, in order; without `asks` one that does nothing else is not asked.

    Where the call has a thread for it, a large view is read there. Until then nothing may be recorded, and nothing is
    changed here: the view is worked out, so that others may read it at the same time.
    """
    view, folding = engine.view, engine.folding
    if not asks and getattr(reducer, "only_asks", False):
        return []
    if folding is None or folding.in_thread is None or view.content_bytes <= INLINE_BYTES:
        return list(reducer.propose(view, need))
    # What is worked out when it is asked for must not be by two at once.
    _ = view.spoken, view.between(0, len(view.tiles))
    with engine.apart():
        found: list[Move] = yield Reading(lambda: list(reducer.propose(view, need)))
    return found if engine.view is view else []


@contextmanager
def telling(
    engine: _Engine, reason: str, *, limit_tokens: int | None = None, limit_bytes: int | None = None
) -> Iterator[None]:
    """Tell that folding begins, and how it ended: also when it failed or was cancelled (S2.08)."""
    folding = engine.folding or Folding()
    folding.failure = None
    folds_before, usage_before = len(folding.folds), len(folding.usage)
    view = engine.view
    start = FoldStarted(reason, engine.used_tokens, view.message_count, view.content_bytes, limit_tokens, limit_bytes)

    def finished(error: str | None) -> FoldFinished:
        view = engine.view
        return FoldFinished(
            tuple(fold for fold in folding.folds[folds_before:] if fold.id in engine.folds),
            engine.used_tokens,
            view.message_count,
            view.content_bytes,
            start.tokens,
            start.messages,
            start.size_bytes,
            limit_bytes is not None,
            error,
            tuple(folding.usage[usage_before:]),
        )

    engine.tell(start)
    try:
        yield
    except BaseException as error:
        engine.tell(finished(str(error) or type(error).__name__))
        raise
    engine.tell(finished(folding.failure))
