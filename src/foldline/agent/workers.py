"""Thread pools for blocking work: a bounded number of threads per kind of work, shared fairly between owners.

A thread cannot be ended from outside. So work gets a `StopSignal` that it polls, nobody waits for work that was
cancelled, no owner (a session) holds all threads of a pool, and no process waits for them at its end. Long work yields
at its next poll to work that has not begun: a short job waits for no long one.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from contextvars import Context, ContextVar, copy_context
from dataclasses import dataclass, field
from functools import partial
from time import perf_counter, sleep
from typing import Any, Final, ParamSpec, TypeVar

from foldline.errors import InvalidInput

__all__ = [
    "CALLS",
    "FOLDS",
    "NAMES",
    "READERS",
    "TOOLS",
    "StopSignal",
    "WorkCancelled",
    "Workers",
    "owned_by",
    "run_in_thread",
    "run_to_end",
    "until_stopped",
]

P = ParamSpec("P")
T = TypeVar("T")

# How long a job runs before it gives up the interpreter, if it polls its `StopSignal` that often.
RUN_SECONDS: Final = 0.002
PAUSE_SECONDS: Final = 0.0005
# How long a job runs before it yields its slot to waiting jobs.
SLICE_SECONDS: Final = 0.1
# Jobs that may have yielded at a time. Each still holds its thread, so that their number bounds the threads.
MAX_YIELDED: Final = 64
# How long an idle thread waits for a job before it ends.
IDLE_SECONDS: Final = 10.0
# Queued jobs of one owner.
MAX_WAITING: Final = 200

_OWNER: Final[ContextVar[object]] = ContextVar("owner", default=None)
_STOP: Final[ContextVar[StopSignal | None]] = ContextVar("stop", default=None)


class WorkCancelled(Exception):  # noqa: N818 - says what happened; no error of ours: it never leaves the thread
    """The call that this job belongs to is over; its result would be dropped."""


class StopSignal:
    """Tells a job in a thread that nobody waits for its result any more."""

    def __init__(self, yield_slot: Callable[[], None] = lambda: None) -> None:
        self._yield_slot = yield_slot
        self._is_set = False
        self._paused_at = self._began_at = perf_counter()

    def begin(self) -> None:
        """Start the clock of the job."""
        self._paused_at = self._began_at = perf_counter()

    def set(self) -> None:
        """Make `check` and `poll` raise from now on."""
        self._is_set = True

    def check(self) -> None:
        """Raise WorkCancelled if the job is to end; give up the interpreter now and then, above all to the event loop.

        A job that holds a lock or a connection, or waits for a process, calls `poll` instead: this may block on others.
        """
        if perf_counter() - self._began_at > SLICE_SECONDS:
            self._yield_slot()
            self._began_at = perf_counter()
        self.poll()

    def poll(self) -> None:
        """Do the same without yielding to other jobs."""
        if self._is_set:
            raise WorkCancelled("the call was cancelled")
        if perf_counter() - self._paused_at > RUN_SECONDS:
            sleep(PAUSE_SECONDS)
            self._paused_at = perf_counter()

    @property
    def is_set(self) -> bool:
        """Whether the job is to end."""
        return self._is_set


def until_stopped(items: Iterable[T]) -> Iterator[T]:
    """Iterate while somebody waits for the job of this thread. Raises WorkCancelled."""
    stop = _STOP.get()
    for item in items:
        if stop is not None:
            stop.poll()  # not `check`: a log is open meanwhile
        yield item


@contextmanager
def owned_by(owner: object) -> Iterator[None]:
    """Assign jobs of the block to `owner`, unless they have one already (those of a sub-agent)."""
    token = _OWNER.set(owner if _OWNER.get() is None else _OWNER.get())
    try:
        yield
    finally:
        _OWNER.reset(token)


@dataclass(slots=True, eq=False)
class _ThreadJob:
    """A job, and the future that waits for it."""

    work: Callable[[StopSignal], Any]
    owner: object
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Any]
    run_to_end: bool
    context: Context = field(default_factory=copy_context)
    stop: StopSignal = field(default_factory=StopSignal)

    def run(self) -> None:
        self.stop.begin()
        try:
            self.context.run(_STOP.set, self.stop)
            result = self.context.run(self.work, self.stop)
        except BaseException as error:  # noqa: BLE001 - raised again in the event loop
            self._deliver(self.future.set_exception, error)
        else:
            self._deliver(self.future.set_result, result)

    def _deliver(self, end: Callable[[Any], None], what: object) -> None:
        with suppress(RuntimeError):  # the event loop is closed, and nobody waits
            self.loop.call_soon_threadsafe(lambda: None if self.future.done() else end(what))


class Workers:
    """A pool of up to `threads` threads, at most `per_owner` of them for one owner (all but one by default).

    Owners take turns, new jobs go before those that yielded, and the queue of an owner is bounded. Safe for several
    event loops and threads.
    """

    def __init__(
        self, name: str, threads: int, *, per_owner: int | None = None, max_waiting: int = MAX_WAITING
    ) -> None:
        self._name, self._max_running, self._max_waiting = name, threads, max_waiting
        self._per_owner = max(1, threads - 1) if per_owner is None else per_owner
        self._changed = threading.Condition()
        self._waiting: OrderedDict[object, deque[_ThreadJob]] = OrderedDict()
        self._yielded: deque[_ThreadJob] = deque()
        # By owner: jobs that run or have yielded. Both hold a thread, so both count against its share.
        self._started: Counter[object] = Counter()
        self._running = self._idle = 0
        self._threads: set[threading.Thread] = set()

    async def run(self, work: Callable[[StopSignal], T], *, run_to_end: bool = False) -> T:
        """Run `work` in a thread, and return its result.

        A cancellation removes a queued job; a running one is signalled and no longer waited for, except with
        `run_to_end`, where its end is awaited. Raises what the work raises, and InvalidInput if the owner's queue is
        full.
        """
        loop = asyncio.get_running_loop()
        job = _ThreadJob(work, _OWNER.get(), loop, loop.create_future(), run_to_end)
        job.stop = StopSignal(partial(self._yield_slot, job))
        self._add(job)
        try:
            return await (asyncio.shield(job.future) if run_to_end else job.future)
        except asyncio.CancelledError:
            # The caller was cancelled, and still waits: a write must not be left to run alone.
            if not self._cancel(job) and run_to_end and not job.future.done():
                await asyncio.wait({job.future})
            if job.future.done() and not job.future.cancelled():
                # Retrieved, or asyncio logs an error that nobody waits for.
                job.future.exception()
            raise

    def _add(self, job: _ThreadJob) -> None:
        with self._changed:
            queue = self._waiting.get(job.owner, deque())
            if len(queue) >= self._max_waiting:
                raise InvalidInput(f"{self._max_waiting:,} calls of this session wait already; make fewer at a time")
            queue.append(job)
            self._waiting[job.owner] = queue
            self._start_thread()
            self._changed.notify_all()

    def _cancel(self, job: _ThreadJob) -> bool:
        """Signal a job to end. Returns whether it was still queued, and now never runs."""
        with self._changed:
            job.stop.set()
            self._changed.notify_all()
            queue = self._waiting.get(job.owner)
            if queue is None or job not in queue:
                return False
            queue.remove(job)
            if not queue:
                del self._waiting[job.owner]
            return True

    # --- under the lock -----------------------------------------------------------------------------------------------

    def _start_thread(self) -> None:
        """Start a thread if a queued job has none."""
        self._threads = {thread for thread in self._threads if thread.is_alive()}
        waiting = sum(map(len, self._waiting.values()))
        if self._idle < waiting and len(self._threads) - len(self._yielded) < self._max_running:
            # Daemon: a hostile pattern in a thread must not keep the process alive.
            thread = threading.Thread(target=self._thread_loop, name=self._name, daemon=True)
            self._threads.add(thread)
            thread.start()

    def _next_job(self) -> _ThreadJob | None:
        """Return the first queued job of the next owner below its share."""
        # By owner, not by age: the one with the longest queue would otherwise fill the pool. O(owners).
        return next(
            (queue[0] for owner, queue in self._waiting.items() if self._started[owner] < self._per_owner), None
        )

    def _wait_for_job(self) -> _ThreadJob | None:
        """Wait for a job and start it. Returns None after IDLE_SECONDS without one."""
        with self._changed:
            while True:
                job = self._next_job() if self._running < self._max_running else None
                if job is not None:
                    queue = self._waiting[job.owner]
                    queue.popleft()
                    # To the back of the round: the next job is another owner's.
                    self._waiting.move_to_end(job.owner)
                    if not queue:
                        del self._waiting[job.owner]
                    self._started[job.owner] += 1
                    self._running += 1
                    return job
                self._idle += 1
                woken = self._changed.wait(IDLE_SECONDS)
                self._idle -= 1
                if not woken and not self._waiting:
                    self._threads.discard(threading.current_thread())
                    return None

    # --- in a thread -------------------------------------------------------------------------------------------------

    def _thread_loop(self) -> None:
        while (job := self._wait_for_job()) is not None:
            try:
                job.run()
            finally:
                with self._changed:
                    self._running -= 1
                    self._started[job.owner] -= 1
                    if not self._started[job.owner]:
                        del self._started[job.owner]
                    self._changed.notify_all()
            del job  # or its result would stay in memory until the next job

    def _yield_slot(self, job: _ThreadJob) -> None:
        """Give the slot of a job to waiting ones. Returns when it is its turn again, or it is to end."""
        with self._changed:
            waits = self._next_job() is not None or self._yielded
            if not waits or job.run_to_end or len(self._yielded) >= MAX_YIELDED:
                return
            self._yielded.append(job)
            self._running -= 1
            self._start_thread()
            self._changed.notify_all()
            # Its own thread waits here: the state of the job is on that thread's stack and cannot move.
            while not job.stop.is_set and not self._is_turn_of(job):
                self._changed.wait()
            self._yielded.remove(job)
            self._running += 1
            self._changed.notify_all()

    def _is_turn_of(self, job: _ThreadJob) -> bool:
        return self._running < self._max_running and self._yielded[0] is job and self._next_job() is None


TOOLS: Final = Workers("foldline-tool", 3)
"""For tools in this process: reading, searching, comparing."""
READERS: Final = Workers("foldline-reader", 4)
"""For waiting on processes that read hostile files."""
NAMES: Final = Workers("foldline-name", 16)
"""For name resolution. Many threads, since the name server of a host decides how long it takes."""
FOLDS: Final = Workers("foldline-fold", 1)
"""For folds of large histories. They never yield, so that one thread beside the event loop is enough."""
CALLS: Final = Workers("foldline-calls", 1)
"""For the log of model calls: its writes wait for a disk, or for another process that writes."""


async def run_in_thread(work: Callable[[StopSignal], T], *, run_to_end: bool = False) -> T:
    """Run work of a tool in a thread of `TOOLS`; see `Workers.run`."""
    return await TOOLS.run(work, run_to_end=run_to_end)


async def run_to_end(work: Callable[P, T], /, *arguments: P.args, **named: P.kwargs) -> T:
    """Run a function in a thread. A cancellation waits for its end: half-done writes would have no owner."""
    task = asyncio.ensure_future(asyncio.to_thread(work, *arguments, **named))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait({task})
        if not task.cancelled():
            task.exception()
        raise
