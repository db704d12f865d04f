"""Writes the summary of the next fold in a task of its own, beside the turns of a session."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from foldline.engine.ahead import SummariesAhead, seconds_before_cold
from foldline.engine.context import AsyncSummarize

__all__ = ["AheadWriter"]


class AheadWriter:
    """One task at a time, for one session. It records nothing: what it has written is in the log once it is put in."""

    def __init__(self) -> None:
        self._task: asyncio.Task[bool] | None = None
        self._resting: asyncio.Task[object] | None = None
        self._told = ""

    @property
    def running(self) -> bool:
        """Whether a summary is being written."""
        return self._task is not None and not self._task.done()

    async def begin(self, ahead: SummariesAhead, summarize: AsyncSummarize, idle_seconds: float) -> None:
        """Begin to write a summary if it is time for one, and none is being written.

        It returns once the model is asked: until then the history is read, and nothing may be recorded.
        """
        if self.running:
            return
        writing = await ahead.begin_async(summarize, idle_seconds=idle_seconds)
        if writing is not None:
            self._task = asyncio.create_task(writing)

    def new_failure(self, ahead: SummariesAhead) -> str:
        """Why the last summary was not written, once: "" where there was none, or it was told before."""
        failure, before = ahead.failure, self._told
        if not self.running:
            self._told = failure
        return failure if failure and not before and not self.running else ""

    async def wait(self) -> None:
        """Wait for the summary that is being written, whatever comes of it. A cancellation ends the wait alone."""
        if self._task is not None:
            await asyncio.wait([self._task])

    def rest(self, lifetime_seconds: float, idle_seconds: float, fold: Callable[[], Awaitable[object]]) -> None:
        """Fold shortly before a cache of this lifetime expires (0: never), unless `wake` is called before."""
        if not lifetime_seconds:
            return

        async def later() -> None:
            await asyncio.sleep(max(0.0, seconds_before_cold(lifetime_seconds) - idle_seconds))
            await self.wait()
            await fold()

        self.wake()
        self._resting = asyncio.create_task(later())

    def wake(self) -> None:
        """The session goes on: what was to be done while it rests is not done."""
        if self._resting is not None:
            self._resting.cancel()
            self._resting = None

    async def awake(self) -> None:
        """`wake`, and wait until a fold that had begun has ended, so that its log is in order."""
        resting = self._resting
        self.wake()
        if resting is not None:
            await asyncio.wait([resting])

    def cancel(self) -> None:
        """Stop writing and resting. Nothing of the session changes; in the thread of its event loop."""
        self.wake()
        if self.running and self._task is not None:
            self._task.cancel()
