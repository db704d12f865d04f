"""The state of one call that may fold: a prepare, a compaction or a recovery.

Calls may overlap (`prepare_async`): while one waits for a model, another may run. Each has its own `Folding`, so that
nothing that one of them folds, pays or fails at counts for another.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from foldline.view.transcript import Fold, Usage

__all__ = ["INLINE_BYTES", "Folding", "InThread", "Reading"]

INLINE_BYTES: Final = 128 * 1024
"""Content of a view that a reducer reads on the driver's own thread: about ten milliseconds of work."""

InThread: TypeAlias = Callable[[Callable[[], Any]], Awaitable[Any]]
"""Runs a function in a thread, to its end even if the caller that awaits it is cancelled."""


# A generator cannot await a thread itself: it yields the work, and the async driver runs it there.
@dataclass(frozen=True, slots=True)
class Reading:
    """Work that only reads the view, which a driver may run in a thread. The driver sends back what `work` returns."""

    work: Callable[[], Any]


@dataclass(slots=True, kw_only=True)
class Folding:
    """One prepare, compaction or recovery. Its folds are one batch, which `undo` takes back as one."""

    has_model: bool = False
    """Whether there is a model to write summaries."""
    continues: bool = False
    """Whether that model can continue from a request of the session."""
    requested: bool = False
    """Whether a user requested it: then the newest user message may be folded too, once it is answered."""
    cold: bool = False
    """Whether the provider's cache has expired since the last request."""
    in_thread: InThread | None = None
    """Where a large view is read; None for the driver's own thread."""
    # A number is taken at the first fold only: `undo` goes by numbers, and a call without folds is nothing to undo.
    batch: int = -1
    """Number of the batch; -1 until the first fold."""
    folds: list[Fold] = field(default_factory=list)
    usage: list[Usage] = field(default_factory=list)
    """What the model calls of this folding reported. The drivers append to it by `usage.append`."""
    failure: str | None = None
    """The last failure, if any."""

    def add(self, fold: Fold) -> None:
        """Count a committed fold as one of this call's. O(1)."""
        self.batch = fold.batch
        self.folds.append(fold)
