"""Threads for work that takes its time: so many for each kind of work, shared fairly by those who ask for it.

A thread cannot be ended from outside. So what runs in one here gets a `Stop` that it looks at, nobody waits for it once
it is cancelled, no owner (a session) holds all threads of a kind, and no process waits for them at its end.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from contextvars import Context, ContextVar, copy_context
from dataclasses import dataclass, field
from time import perf_counter, sleep
from typing import Any, Final, TypeVar

from foldline.errors import InvalidInput

__all__ = ["NAMES", "READERS", "TOOLS", "Cancelled", "Stop", "Workers", "owned_by", "while_wanted"]

T = TypeVar("T")

RUN_SECONDS: Final = 0.002
"""What work in a thread runs before it lets others have the interpreter, where it looks at its `Stop` so often."""
PAUSE_SECONDS: Final = 0.0005
IDLE_SECONDS: Final = 10.0
"""How long a thread waits for more to do before it ends."""
MOST_WAITING: Final = 200
"""Pieces of work of one owner that wait, at most."""

_OWNER: Final[ContextVar[object]] = ContextVar("owner", default=None)
_STOP: Final[ContextVar[Stop | None]] = ContextVar("stop", default=None)


class Cancelled(Exception):  # noqa: N818 - says what happened; no error of ours: it never leaves the thread
    """The call that this work was for is over; nobody will see what it brings."""


class Stop:
    """Tells work in a thread that nobody waits for it any more."""

    def __init__(self) -> None:
        self._is_set = False
        self._paused_at = perf_counter()

    def set(self) -> None:
        """From now on `check` raises."""
        self._is_set = True

    def check(self) -> None:
        """Raises Cancelled when the work is to end; now and then lets other threads go on, the loop above all."""
        if self._is_set:
            raise Cancelled("the call was cancelled")
        if perf_counter() - self._paused_at > RUN_SECONDS:
            sleep(PAUSE_SECONDS)
            self._paused_at = perf_counter()


def while_wanted(items: Iterable[T]) -> Iterator[T]:
    """The items, as long as somebody waits for the work of this thread. Raises Cancelled."""
    stop = _STOP.get()
    for item in items:
        if stop is not None:
            stop.check()
        yield item


@contextmanager
def owned_by(owner: object) -> Iterator[None]:
    """What is run in the block belongs to `owner`, unless it belongs to somebody already (a sub-agent's work)."""
    token = _OWNER.set(owner if _OWNER.get() is None else _OWNER.get())
    try:
        yield
    finally:
        _OWNER.reset(token)


@dataclass(slots=True, eq=False)
class _Job:
    """One piece of work, and where what it brings is waited for."""

    work: Callable[[Stop], Any]
    owner: object
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Any]
    context: Context = field(default_factory=copy_context)
    stop: Stop = field(default_factory=Stop)

    def run(self) -> None:
        try:
            self.context.run(_STOP.set, self.stop)
            result = self.context.run(self.work, self.stop)
        except BaseException as error:  # noqa: BLE001 - it is raised where it is waited for
            self._tell(self.future.set_exception, error)
        else:
            self._tell(self.future.set_result, result)

    def _tell(self, end: Callable[[Any], None], what: object) -> None:
        with suppress(RuntimeError):  # the loop is closed, and nobody waits
            self.loop.call_soon_threadsafe(lambda: None if self.future.done() else end(what))


class Workers:
    """Up to `threads` threads for one kind of work, of which one owner has `each` at a time at most (all but one, if
    not given).

    Owners take turns; what one has waiting is bounded. Safe for several loops and threads.
    """

    def __init__(self, name: str, threads: int, *, each: int | None = None, most_waiting: int = MOST_WAITING) -> None:
        self._name, self._most, self._most_waiting = name, threads, most_waiting
        self._each = max(1, threads - 1) if each is None else each
        self._changed = threading.Condition()
        self._waiting: OrderedDict[object, deque[_Job]] = OrderedDict()
        self._running: Counter[object] = Counter()
        self._threads: set[threading.Thread] = set()
        self._idle = 0

    async def run(self, work: Callable[[Stop], T], *, to_its_end: bool = False) -> T:
        """What `work` returns.

        A cancellation takes it out of the queue, or is passed on to it and no longer waits; with `to_its_end` it waits
        until it has ended. Raises what the work raises, and InvalidInput where too much of this owner waits.
        """
        loop = asyncio.get_running_loop()
        job = _Job(work, _OWNER.get(), loop, loop.create_future())
        self._add(job)
        try:
            return await (asyncio.shield(job.future) if to_its_end else job.future)
        except asyncio.CancelledError:
            job.stop.set()
            if not self._taken_out(job) and to_its_end and not job.future.done():
                await asyncio.wait({job.future})
            if job.future.done() and not job.future.cancelled():
                job.future.exception()
            raise

    def _add(self, job: _Job) -> None:
        with self._changed:
            queue = self._waiting.setdefault(job.owner, deque())
            if len(queue) >= self._most_waiting:
                raise InvalidInput(f"{self._most_waiting:,} calls of this session wait already; make fewer at a time")
            queue.append(job)
            self._threads = {thread for thread in self._threads if thread.is_alive()}
            if self._idle < sum(map(len, self._waiting.values())) and len(self._threads) < self._most:
                thread = threading.Thread(target=self._work, name=self._name, daemon=True)
                self._threads.add(thread)
                thread.start()
            self._changed.notify()

    def _taken_out(self, job: _Job) -> bool:
        """Whether it had not begun, and never will."""
        with self._changed:
            queue = self._waiting.get(job.owner)
            if queue is None or job not in queue:
                return False
            queue.remove(job)
            if not queue:
                del self._waiting[job.owner]
            return True

    def _work(self) -> None:
        while (job := self._next()) is not None:
            try:
                job.run()
            finally:
                with self._changed:
                    self._running[job.owner] -= 1
                    if not self._running[job.owner]:
                        del self._running[job.owner]
                    self._changed.notify()
            del job  # what it holds is not kept until the next one comes

    def _next(self) -> _Job | None:
        """The next piece of work, of the owner whose turn it is; None after some time without any."""
        with self._changed:
            while True:
                for owner, queue in self._waiting.items():
                    if self._running[owner] < self._each:
                        job = queue.popleft()
                        self._running[owner] += 1
                        self._waiting.move_to_end(owner)
                        if not queue:
                            del self._waiting[owner]
                        return job
                self._idle += 1
                woken = self._changed.wait(IDLE_SECONDS)
                self._idle -= 1
                if not woken and not self._waiting:
                    self._threads.discard(threading.current_thread())
                    return None


TOOLS: Final = Workers("foldline-tool", 3)
"""What tools do in this process: reading, searching, comparing."""
READERS: Final = Workers("foldline-reader", 4)
"""Waiting for processes that read what may not be read in this one."""
NAMES: Final = Workers("foldline-name", 16)
"""Asking for addresses of hosts: whoever answers for a host decides how long that takes."""
