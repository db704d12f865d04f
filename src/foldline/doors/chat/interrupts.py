"""Ctrl-C and the signals that end a process: once stops the running work, twice within a second leaves the chat."""

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

# Two presses within this time mean "leave".
_TWICE_SECONDS: Final = 1.2

T = TypeVar("T")


class LeaveError(Exception):
    """The person leaves the chat; `code` is the exit code."""

    def __init__(self, code: int = 0) -> None:
        super().__init__(code)
        self.code = code


class Interrupts:
    """The effect of Ctrl-C. `on_idle` is called for one that comes while nothing runs.

    `exit_code` is set once the chat is to end, else None.
    """

    def __init__(self, *, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._last = -10.0 * _TWICE_SECONDS  # no press yet: the clock may begin at 0
        self._task: asyncio.Task[Any] | None = None  # the work that Ctrl-C cancels; one at a time
        self.on_idle: Callable[[BaseException], object] = lambda error: None
        self.exit_code: int | None = None

    def pressed(self) -> bool:
        """Note one press; return whether it is the second of two."""
        now = self._clock()
        # After a pair the clock is reset, so that three presses are not two pairs.
        twice = now - self._last <= _TWICE_SECONDS
        self._last = -10.0 * _TWICE_SECONDS if twice else now
        return twice

    def stop(self) -> None:
        """Handle Ctrl-C: cancel what runs; the second time, leave the chat after it."""
        # At the prompt the loop that catches KeyboardInterrupt counts the press, with `pressed`.
        if self._task is None:
            self.on_idle(KeyboardInterrupt())
            return
        if self.pressed():
            # Leaving waits for the work to end in order: its turn must be recorded.
            self.exit_code = 0
        self._task.cancel()

    def leave(self, code: int) -> None:
        """Handle a signal to end: cancel what runs, and leave the chat in order."""
        self.exit_code = code
        if self._task is not None:
            self._task.cancel()
        else:
            self.on_idle(LeaveError(code))

    async def run(self, work: Coroutine[Any, Any, T]) -> T | None:
        """Run work that Ctrl-C cancels; return None then. Raises LeaveError if the chat is to end."""
        task = self._task = asyncio.create_task(work)
        result: T | None = None
        try:
            result = await task
        except asyncio.CancelledError:
            # Two tasks may have been cancelled: the work, by Ctrl-C, or this one, by its own caller. Only the first
            # is handled here.
            own = asyncio.current_task()
            if own is not None and own.cancelling():
                task.cancel()
                raise
        finally:
            self._task = None
        if self.exit_code is not None:
            raise LeaveError(self.exit_code)
        return result

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Handle the signals until the block ends. Use it inside a running loop."""
        if sys.platform == "win32":  # its loops handle no signals: Ctrl-C raises KeyboardInterrupt as usual
            yield
            return
        # 128 and the number of the signal: what a shell reports of a process that it ended.
        exit_code = {number: partial(self.leave, 128 + number) for number in (signal.SIGTERM, signal.SIGHUP)}
        with signal_handlers({signal.SIGINT: self.stop, **exit_code}):
            yield
