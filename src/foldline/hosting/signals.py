"""Signals that end a door: the first lets it end in order, the second at once."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from types import FrameType
from typing import Any

__all__ = ["Ending", "heard", "stopped", "until_signal"]

Press = Callable[[], object]


@contextmanager
def heard(presses: Mapping[signal.Signals, Press]) -> Iterator[None]:
    """Call these in the running loop when their signal comes, until the block ends. To be used in the main thread."""
    loop = asyncio.get_running_loop()
    with ExitStack() as stack:
        for number, press in presses.items():
            try:
                loop.add_signal_handler(number, press)
                stack.callback(loop.remove_signal_handler, number)
            except NotImplementedError:  # the loops of Windows have none: Python's own, which wakes them
                stack.callback(signal.signal, number, signal.signal(number, _handed_over(loop, press)))
        yield


def _handed_over(loop: asyncio.AbstractEventLoop, press: Press) -> Callable[[int, FrameType | None], None]:
    def handle(number: int, frame: FrameType | None) -> None:
        del number, frame
        loop.call_soon_threadsafe(press)

    return handle


class Ending:
    """What a door waits for, and says when it is open: one that is not is cancelled by the first signal already.

    The second signal cancels it in any case. What it has under way is to be let go of by `stopped`, which knows of it.
    """

    def __init__(self, notice: Callable[[str], None]) -> None:
        self.asked = asyncio.Event()
        self.is_open = self._is_cut_off = False
        self._notice = notice

    def press(self, work: asyncio.Task[None]) -> None:
        """Take one signal."""
        if not self.asked.is_set():
            self.asked.set()
            if self.is_open:
                self._notice("Stopping (again: at once)")
            else:
                work.cancel()
        elif not self._is_cut_off:  # a third one would cut off how the end is written down
            self._is_cut_off = True
            work.cancel()


async def until_signal(door: Callable[[Ending], Coroutine[Any, Any, None]], notice: Callable[[str], None]) -> None:
    """Run a door until it ends: in order once SIGINT or SIGTERM asked it to, or cut off. Raises what it raises."""
    ending = Ending(notice)
    work = asyncio.create_task(door(ending))

    def press() -> None:
        ending.press(work)

    with heard({signal.SIGINT: press, signal.SIGTERM: press}):
        try:
            await work
        except asyncio.CancelledError:
            if not ending.asked.is_set():
                work.cancel()
                raise


async def stopped(stop: Callable[[float], Awaitable[object]], grace_seconds: float, *, spared: int = 0) -> None:
    """Call `stop` with the grace; with none once this task is cancelled, be it before or meanwhile.

    So many cancellations before it are `spared`: they leave the grace. A cancellation is raised at one await only. One
    that came at another, while a block is left, would be unknown to a `finally` that stops what is under way, and all
    of the grace be waited for.
    """
    task = asyncio.current_task()
    if task is not None and task.cancelling() > spared:
        await stop(0.0)
        return
    try:
        await stop(grace_seconds)
    except asyncio.CancelledError:
        await stop(0.0)
        raise
