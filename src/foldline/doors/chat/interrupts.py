"""Ctrl-C and the signals that end a process: once stops what runs, twice within a second leaves."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from functools import partial
from time import monotonic
from typing import Any, Final, TypeVar

from foldline.hosting.process import signal_handlers

__all__ = ["Interrupts", "LeaveError"]

# Two presses within this time are meant as one.
_TWICE_SECONDS: Final = 1.2

T = TypeVar("T")


class LeaveError(Exception):
    """The chat is to be left; `code` is the exit code."""

    def __init__(self, code: int = 0) -> None:
        super().__init__(code)
        self.code = code


class Interrupts:
    """What Ctrl-C does, by what runs. `idle` is called for one that comes while nothing runs.

    `leaving` is the exit code once the chat is to be left, else None.
    """

    def __init__(self, *, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._last = -10.0 * _TWICE_SECONDS
        self._task: asyncio.Task[Any] | None = None
        self.idle: Callable[[BaseException], object] = lambda error: None
        self.leaving: int | None = None

    def pressed(self) -> bool:
        """Note one press; whether it is the second of two."""
        now = self._clock()
        twice = now - self._last <= _TWICE_SECONDS
        self._last = -10.0 * _TWICE_SECONDS if twice else now
        return twice

    def stop(self) -> None:
        """Ctrl-C while something runs: it is stopped; the second time the chat is left after it."""
        if self._task is None:
            self.idle(KeyboardInterrupt())
            return
        if self.pressed():
            self.leaving = 0
        self._task.cancel()

    def leave(self, code: int) -> None:
        """A signal to end: what runs is stopped, and the chat left in order."""
        self.leaving = code
        if self._task is not None:
            self._task.cancel()
        else:
            self.idle(LeaveError(code))

    async def run(self, work: Coroutine[Any, Any, T]) -> T | None:
        """Run something that Ctrl-C stops: None then. Raises LeaveError when the chat is to be left."""
        task = self._task = asyncio.create_task(work)
        result: T | None = None
        try:
            result = await task
        except asyncio.CancelledError:
            own = asyncio.current_task()
            if own is not None and own.cancelling():
                task.cancel()
                raise
        finally:
            self._task = None
        if self.leaving is not None:
            raise LeaveError(self.leaving)
        return result

    @contextmanager
    def handled(self) -> Iterator[None]:
        """Take the signals over until the block ends. To be used inside a running loop."""
        if sys.platform == "win32":  # its loops take no signals: Ctrl-C raises as it does everywhere
            yield
            return
        leaving = {number: partial(self.leave, 128 + number) for number in (signal.SIGTERM, signal.SIGHUP)}
        with signal_handlers({signal.SIGINT: self.stop, **leaving}):
            yield
