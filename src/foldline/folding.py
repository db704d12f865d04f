"""The state of one call that may fold, and how its beginning and its end are told.

Calls may overlap (`prepare_async`): each has its own state, so that what one of them folds, asks and fails at is never
taken for another's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

from foldline.events import ContextEvent, FoldFinished, FoldStarted
from foldline.transcript import Fold, Usage
from foldline.view import View

__all__ = ["Folding", "telling"]


@dataclass(slots=True, kw_only=True)
class Folding:
    """One prepare, compact or recover. Its folds are one batch, which `undo` takes back as one."""

    asks: bool = False
    """Whether there is a model to ask."""
    continues: bool = False
    """Whether that model can go on from a request of the session."""
    wanted: bool = False
    """Whether a user asked for it: then a newest user message that is answered may be folded too."""
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
