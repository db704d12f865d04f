"""Settings and signals of a server process: the sharing of the interpreter among threads, SIGINT and SIGTERM."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from types import FrameType
from typing import Any, Final

__all__ = [
    "SWITCH_SECONDS",
    "ShutdownRequest",
    "is_running_process",
    "run_until_signal",
    "set_pace",
    "signal_handlers",
    "stop_with_grace",
]

SWITCH_SECONDS: Final = 0.000_5
"""The time slice of a thread while others wait for the interpreter (`sys.setswitchinterval`).

A thread that reads a file or a socket releases the interpreter, and waits this long to get it back from a thread that
computes. A reply does so a dozen times, a session list once for each session. With Python's 5 ms, a list during five
folds took 0.5 s; with this value it takes a tenth of that, and the folds take no longer.
"""


def set_pace() -> None:
    """Tune this process for serving. Call it once, after everything needed at startup is loaded.

    Loaded modules stay; objects of requests live as long as their request or session. Garbage collection at Python's
    default rate took a tenth of a proxy's time (measured with 64 streams), in pauses of up to 60 ms.
    """
    sys.setswitchinterval(SWITCH_SECONDS)
    # Frozen objects are not looked at again. Collected first, or garbage would be frozen with them.
    gc.collect()
    gc.freeze()
    # Larger generations: most objects of a request die by reference counting, long before a cycle matters.
    gc.set_threshold(20_000, 20, 50)


def is_running_process(pid: int) -> bool:
    """Whether this machine has a process with this number; True where that cannot be told (Windows)."""
    if sys.platform == "win32":  # there, signal 0 is Ctrl-C, and it would be sent (Python, os.kill)
        return True
    # Signal 0 is not delivered: it only checks that the process exists (POSIX, kill).
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:  # it exists, and belongs to another user
        return True
    return True


Handler = Callable[[], object]


@contextmanager
def signal_handlers(presses: Mapping[signal.Signals, Handler]) -> Iterator[None]:
    """Call these handlers in the running loop on their signal, until the block ends. Use it in the main thread."""
    loop = asyncio.get_running_loop()
    with ExitStack() as stack:
        for number, press in presses.items():
            try:
                loop.add_signal_handler(number, press)
                stack.callback(loop.remove_signal_handler, number)
            except NotImplementedError:  # the loops of Windows have none: Python's own, which wakes them
                stack.callback(signal.signal, number, signal.signal(number, _in_loop(loop, press)))
        yield


def _in_loop(loop: asyncio.AbstractEventLoop, press: Handler) -> Callable[[int, FrameType | None], None]:
    def handle(number: int, frame: FrameType | None) -> None:
        del number, frame
        loop.call_soon_threadsafe(press)

    return handle


class ShutdownRequest:
    """The event that a door waits for. A door says when it is open: until then the first signal cancels it.

    The second signal cancels it in any case. `stop_with_grace` knows of that cancellation when it stops the work in
    progress.
    """

    def __init__(self, notice: Callable[[str], None]) -> None:
        self.requested = asyncio.Event()
        self.is_open = self._is_cut_off = False
        self._notice = notice

    def press(self, work: asyncio.Task[None]) -> None:
        """Handle one signal."""
        if not self.requested.is_set():
            self.requested.set()
            if self.is_open:
                self._notice("Stopping (again: at once)")
            else:
                work.cancel()
        elif not self._is_cut_off:  # a third one would cut off the recording of the end
            self._is_cut_off = True
            work.cancel()


async def run_until_signal(
    door: Callable[[ShutdownRequest], Coroutine[Any, Any, None]], notice: Callable[[str], None]
) -> None:
    """Run a door until it ends: cleanly after a first SIGINT or SIGTERM, at once after a second. Raises its errors."""
    shutdown = ShutdownRequest(notice)
    # A task of its own: a signal cancels the door, and this function still sees how it ended.
    work = asyncio.create_task(door(shutdown))

    def press() -> None:
        shutdown.press(work)

    with signal_handlers({signal.SIGINT: press, signal.SIGTERM: press}):
        try:
            await work
        except asyncio.CancelledError:
            # After a signal the cancellation is the expected end. Without one, it came from outside, and is passed on.
            if not shutdown.requested.is_set():
                work.cancel()
                raise


async def stop_with_grace(stop: Callable[[float], Awaitable[object]], grace_seconds: float, *, spared: int = 0) -> None:
    """Call `stop` with the grace period, or with none if this task is cancelled, before or meanwhile.

    The first `spared` cancellations leave the grace in place.
    """
    # A cancellation is raised at one await only. If that was an earlier one, while another block was left, a `finally`
    # that stops the work would not know of it, and would wait for the whole grace period. So the count decides.
    task = asyncio.current_task()
    if task is not None and task.cancelling() > spared:
        await stop(0.0)
        return
    # `stop` may be called twice, so it must be safe to repeat: the second call cuts off what the first waits for.
    try:
        await stop(grace_seconds)
    except asyncio.CancelledError:
        await stop(0.0)
        raise
