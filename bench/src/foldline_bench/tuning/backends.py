"""Backends that run the work in this process or in processes of this machine; `ray_backend` has that of a cluster."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from itertools import islice
from multiprocessing import get_context, parent_process, resource_tracker
from threading import Thread
from types import TracebackType
from typing import Final, Protocol, Self, TypeVar

from foldline.errors import FoldlineError

__all__ = ["Backend", "BackendFailed", "InProcess", "LocalProcesses", "core_count"]

Given = TypeVar("Given")
Got = TypeVar("Got")


class Backend(Protocol):
    """Runs pieces of work in parallel. A context manager: leaving it ends pending work.

    `batch` is how many replays of one session a piece of work should have. An interrupt loses those in progress.
    """

    batch: int
    about: str

    def each(self, work: Callable[[Given], Got], pieces: Sequence[Given]) -> Iterator[Got]:
        """Yield the result of each piece, in order of completion. Errors of the work are raised here."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class BackendFailed(FoldlineError):  # noqa: N818 - names what happened
    """The backend failed: its processes died repeatedly, or the cluster is unreachable."""


def core_count() -> int:
    """Return the number of cores that this process may use."""
    # In a container or under taskset these are fewer than the machine has.
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class InProcess:
    """Runs one piece after another in this process: nothing has to start, which suits few sessions."""

    batch = 1
    about = "this process"

    def each(self, work: Callable[[Given], Got], pieces: Sequence[Given]) -> Iterator[Got]:
        """Yield the result of each piece, in order."""
        return map(work, pieces)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing to end."""


# Workers are restarted this often for pieces that were pending when one of them died.
_STARTS: Final = 3

# Pieces submitted for each worker: one in progress and one that is ready next. With more, an interrupt would find a
# long queue to cancel, and a dead worker a long list to repeat.
_AHEAD: Final = 2


class LocalProcesses:
    """Runs pieces in processes of this machine.

    A worker leaves Ctrl-C to its parent, and ends when the parent is gone, however that ended.
    """

    # Started by spawn: fork would copy locks that threads of this process hold, and does not exist on every system.

    batch = 1

    def __init__(self, workers: int | None = None) -> None:
        self._workers = workers or core_count()
        self.about = f"{self._workers} processes of this machine"
        self._pool: ProcessPoolExecutor | None = None

    def each(self, work: Callable[[Given], Got], pieces: Sequence[Given]) -> Iterator[Got]:
        """Yield the result of each piece, in order of completion. Raises BackendFailed."""
        left = list(pieces)
        for start in range(_STARTS):
            under_way: dict[Future[Got], Given] = {}
            waiting = iter(left)
            left = []
            try:
                while self._fill(work, waiting, under_way):
                    for future in wait(under_way, return_when=FIRST_COMPLETED).done:
                        result = future.result()
                        del under_way[future]
                        yield result
                return
            except BrokenProcessPool:
                # A worker died, of lack of memory as a rule. The pool is of no use then, and does not say which piece
                # it was: all that were in progress are repeated.
                left = [*under_way.values(), *waiting]
                self._stop()
                if start == _STARTS - 1:
                    raise BackendFailed(f"worker processes died {_STARTS} times; is there memory enough?") from None

    def _fill(
        self, work: Callable[[Given], Got], waiting: Iterator[Given], under_way: dict[Future[Got], Given]
    ) -> bool:
        """Submit as many pieces as the workers need now; return whether any are in progress."""
        if self._pool is None:
            _start_tracker()
            self._pool = ProcessPoolExecutor(self._workers, mp_context=get_context("spawn"), initializer=_begin)
        # The pool starts workers when pieces are submitted.
        with _deaf_to_interrupts():
            for piece in islice(waiting, _AHEAD * self._workers - len(under_way)):
                under_way[self._pool.submit(work, piece)] = piece
        return bool(under_way)

    def _stop(self) -> None:
        pool, self._pool = self._pool, None
        if pool is None:
            return
        # Private, as there is no public way to end a piece in progress before Python 3.14 (`terminate_workers`).
        workers = list((pool._processes or {}).values())
        pool.shutdown(wait=False, cancel_futures=True)
        for worker in workers:
            worker.terminate()
        for worker in workers:
            worker.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the workers, whatever they do."""
        self._stop()


def _start_tracker() -> None:
    """Start multiprocessing's resource tracker before any worker."""
    # Its start resets the signal mask, and would undo `_deaf_to_interrupts` if a worker started it. It outlives this
    # process and cleans up after a kill; the filter keeps it from printing warnings into the terminal then.
    before = os.environ.get("PYTHONWARNINGS")
    os.environ["PYTHONWARNINGS"] = ",".join(filter(None, (before, "ignore:resource_tracker:UserWarning")))
    try:
        resource_tracker.ensure_running()
    finally:
        if before is None:
            del os.environ["PYTHONWARNINGS"]
        else:
            os.environ["PYTHONWARNINGS"] = before


@contextmanager
def _deaf_to_interrupts() -> Iterator[None]:
    """Defer Ctrl-C to the end of the block, and start processes that never receive it."""
    # Children inherit the mask. Ignoring the signal in the worker alone would leave a gap until its interpreter runs.
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _begin() -> None:
    """Initialise a worker."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """End this worker when its parent is gone: if that was killed, the worker would wait for work for ever."""
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
