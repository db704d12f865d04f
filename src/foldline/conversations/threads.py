"""The threads in which work on conversations is done that takes long: streams of others go on meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Final, TypeVar

__all__ = ["Working"]

_THREADS: Final = 16
_ASKING_THREADS: Final = 64
"""Summaries wait in these for a model, for minutes; nothing else waits behind them."""

T = TypeVar("T")


class Working:
    """Two pools of threads: one for work, one for work that may wait for a model."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="foldline-conversation")
        self._asking = ThreadPoolExecutor(_ASKING_THREADS, thread_name_prefix="foldline-summary")

    async def run(self, work: Callable[..., T], *given: object) -> T:
        """Do something in a thread. A client that leaves is let go of when it is done: half of it would be nobody's."""
        return await _done_in(self._threads, work, *given)

    async def ask(self, work: Callable[[], T], *, asks: bool) -> T:
        """The same, where it may be that a model is asked (`asks`)."""
        return await _done_in(self._asking if asks else self._threads, work)

    def close(self) -> None:
        """Begin nothing any more."""
        for threads in (self._threads, self._asking):
            threads.shutdown(wait=False, cancel_futures=True)


async def _done_in(threads: ThreadPoolExecutor, work: Callable[..., T], *given: object) -> T:
    future = asyncio.get_running_loop().run_in_executor(threads, work, *given)
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        while not future.done():
            with suppress(asyncio.CancelledError):  # a second one, as at the end of a server
                await asyncio.wait({future})
        if not future.cancelled():
            future.exception()
        raise
