"""Where the work is done: in this process, or in processes of this machine. `on_ray` has the one for many machines."""

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

    `batch` is how many replays of one session a piece of work should have: what is under way is lost when all ends.
    """

    batch: int
    about: str

    def each(self, work: Callable[[Given], Got], pieces: Sequence[Given]) -> Iterator[Got]:
        """What came of each piece, in the order in which they end. Errors of the work are raised here."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class BackendFailed(FoldlineError):  # noqa: N818 - names what happened
    """The work cannot be done where it should be: its processes died again and again, or there is no such cluster."""


def core_count() -> int:
    """The cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class InProcess:
    """One after another, in this process: nothing to start, for a few sessions."""

    batch = 1
    about = "this process"

    def each(self, work: Callable[[Given], Got], pieces: Sequence[Given]) -> Iterator[Got]:
        """What came of each piece, in order."""
        return map(work, pieces)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing to end."""


# Workers are restarted this often for pieces that were pending when one of them died.
_STARTS: Final = 3

# Pieces submitted for each worker: one to work on, and one that is ready next.
_AHEAD: Final = 2


class LocalProcesses:
    """Processes of this machine, started anew (spawn) and not copied, so that it works on every system.

    A worker leaves Ctrl-C to the process that started it, and ends when that one is gone, however it ended.
    """

    batch = 1

    def __init__(self, workers: int | None = None) -> None:
        self._workers = workers or core_count()
        self.about = f"{self._workers} processes of this machine"
        self._pool: ProcessPoolExecutor | None = None

    def each(self, work: Callable[[Given], Got], pieces: Sequence[Given]) -> Iterator[Got]:
        """What came of each piece, in the order in which they end. Raises EngineFailed."""
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
                left = [*under_way.values(), *waiting]
                self._stop()
                if start == _STARTS - 1:
                    raise BackendFailed(f"worker processes died {_STARTS} times; is there memory enough?") from None

    def _fill(
        self, work: Callable[[Given], Got], waiting: Iterator[Given], under_way: dict[Future[Got], Given]
    ) -> bool:
        """Hand over as many pieces as the workers need now; whether any are under way."""
        if self._pool is None:
            _start_tracker()
            self._pool = ProcessPoolExecutor(self._workers, mp_context=get_context("spawn"), initializer=_begin)
        with _deaf_to_interrupts():  # a piece may start a worker
            for piece in islice(waiting, _AHEAD * self._workers - len(under_way)):
                under_way[self._pool.submit(work, piece)] = piece
        return bool(under_way)

    def _stop(self) -> None:
        pool, self._pool = self._pool, None
        if pool is None:
            return
        workers = list((pool._processes or {}).values())  # there is no public way to end a piece that is under way
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
    """Start multiprocessing's process that outlives this one, before workers are: its start would end the block below.

    It gives back what is left of a run that was killed, and is not to write into the terminal then.
    """
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
    """Ctrl-C waits until the block ends; processes that are started in it never hear it, nor while they begin."""
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
    """Without this, workers of a process that was killed would wait for work for ever."""
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
