"""The state of one call that may fold, its announcement, and the summary that was prepared for one.

Calls may overlap (`prepare_async`): while one waits for a model, another may run. Each has its own `Folding`, so that
nothing that one of them folds, pays or fails at counts for another.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from foldline.engine.events import FoldFinished, FoldStarted
from foldline.engine.recorder import Recorder
from foldline.reducers.base import Compactor
from foldline.view.transcript import Fold, Seq, Usage
from foldline.view.view import View

__all__ = ["INLINE_BYTES", "Folding", "InThread", "PreparedSummary", "Reading", "Wait", "Waiting", "announced"]

INLINE_BYTES: Final = 128 * 1024
"""Content of a view that a reducer reads on the driver's own thread: about ten milliseconds of work."""

InThread: TypeAlias = Callable[[Callable[[], Any]], Awaitable[Any]]
"""Runs a function in a thread, to its end even if the caller that awaits it is cancelled."""

Wait: TypeAlias = Callable[[], Awaitable[object]]
"""Waits for the summary that is being written ahead, whatever comes of it."""


# A generator cannot await a thread itself: it yields the work, and the async driver runs it there.
@dataclass(frozen=True, slots=True)
class Reading:
    """Work that only reads the view, which a driver may run in a thread. The driver sends back what `work` returns."""

    work: Callable[[], Any]


@dataclass(frozen=True, slots=True)
class Waiting:
    """The window is full, and a summary is being written ahead: the async driver waits for it."""

    until: Wait


@dataclass(slots=True, kw_only=True)
class Folding:
    """One prepare, compaction or recovery. Its folds are one batch, which `undo` takes back as one."""

    has_model: bool = False
    """Whether there is a model to write summaries."""
    continues: bool = False
    """Whether that model can continue from a request of the session."""
    requested: bool = False
    """Whether a user requested it: then the newest user message may be folded too, once it is answered."""
    chosen: Compactor | None = None
    """What folds in place of the policy's compactor: what somebody chose."""
    cold: bool = False
    """Whether the provider's cache has expired since the last request."""
    in_thread: InThread | None = None
    """Where a large view is read; None for the driver's own thread."""
    wait: Wait | None = None
    """How to wait for a summary that is being written ahead; None: not at all."""
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


@contextmanager
def announced(
    recorder: Recorder,
    folding: Folding,
    used_tokens: Callable[[], int],
    reason: str,
    *,
    limit_tokens: int | None = None,
    limit_bytes: int | None = None,
) -> Iterator[None]:
    """Emit the beginning of a folding and its end, also when it failed or was cancelled (S2.08)."""
    folding.failure = None
    folds_before, usage_before = len(folding.folds), len(folding.usage)
    view, emit = recorder.view, recorder.emit
    start = FoldStarted(reason, used_tokens(), view.message_count, view.content_bytes, limit_tokens, limit_bytes)

    def finished(error: str | None) -> FoldFinished:
        view = recorder.view
        return FoldFinished(
            tuple(fold for fold in folding.folds[folds_before:] if fold.id in recorder.folds),
            used_tokens(),
            view.message_count,
            view.content_bytes,
            start.tokens,
            start.messages,
            start.size_bytes,
            limit_bytes is not None,
            error,
            tuple(folding.usage[usage_before:]),
        )

    emit(start)
    try:
        yield
    # A cancellation is no Exception, and listeners that show "compacting ..." wait for the end all the same.
    except BaseException as error:
        emit(finished(str(error) or type(error).__name__))
        raise
    emit(finished(folding.failure))


# --- prepared ---------------------------------------------------------------------------------------------------------

_Tiles: TypeAlias = tuple[tuple[Seq, Seq, int, bool], ...]


# In memory alone. A process that is killed loses one text that was paid for, and nothing of the session: the fold is
# an event only once it is put in.
@dataclass(slots=True)
class PreparedSummary:
    """At most one per session: being written, or waiting for its fold to be due.

    What it covers counts as changed once the branch was left, a fold was made or taken back there, or a group was
    pinned. Entries that are merely shown shorter by now do not count: the summary was written from more.
    """

    writing: bool = False
    fold: Fold | None = None
    failure: str = ""
    """Why the last one was not written; "" where it was."""
    look_again_at: int = 0
    """Size of everything ever appended before which nothing is looked for: the last look found nothing to summarise."""
    _tiles: _Tiles = field(default=(), repr=False)
    # The state of the recorder at the last comparison of tiles: between two folds it costs nothing to ask.
    _arrangement: int = -1

    def begin(self, recorder: Recorder, start: Seq, stop: Seq) -> None:
        """A summary of entries [start, stop) is being written from now on. O(tiles of the span)."""
        self.writing, self.fold, self.failure = True, None, ""
        self._tiles, self._arrangement = _tiles(recorder.view, start, stop), recorder.arrangement

    def finish(self, recorder: Recorder, fold: Fold) -> bool:
        """Keep what was written; whether it still holds."""
        self.writing, self.fold = False, fold
        if not self.holds(recorder):
            self.fold = None
        return self.fold is not None

    def holds(self, recorder: Recorder) -> bool:
        """Whether there is a summary, and what it covers is as it was. O(1), O(tiles of the span) after a fold."""
        if self.fold is None:
            return False
        if self._arrangement == recorder.arrangement:
            return True
        if self._tiles and _tiles(recorder.view, self.fold.start, self.fold.stop) == self._tiles:
            self._arrangement = recorder.arrangement
            return True
        return False

    def take(self) -> Fold | None:
        """Hand out the summary, which is kept no longer."""
        fold, self.fold = self.fold, None
        return fold


def _tiles(view: View, start: Seq, stop: Seq) -> _Tiles:
    """The tiles of [start, stop): their ends, folds and pins; () where tiles do not end there."""
    if not view.tiles or stop > view.tiles[-1].stop:
        return ()
    found = view.tiles[view.index(start) : view.index(stop - 1) + 1]
    if not found or found[0].start != start or found[-1].stop != stop:
        return ()
    return tuple((t.start, t.stop, -1 if t.fold is None else t.fold.id, t.pinned) for t in found)
