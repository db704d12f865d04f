"""An event loop whose clock advances only while the loop waits: for tests of timeouts.

Where a timeout races against work, a busy machine lets the wrong one win. Here work takes no time at all, and a wait
for a timer takes none of the test's. Both ends of each connection must be in the loop, and nothing in a thread.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

__all__ = ["run"]

T = TypeVar("T")

# Real time for what the system still has under way, before a wait counts as one for a timer.
GRACE_SECONDS = 0.02


class _Selector(selectors.DefaultSelector):
    """Reports what is ready, and moves the clock to the next timer where nothing is."""

    def __init__(self) -> None:
        super().__init__()
        self.now_seconds = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """The events that are ready; without a timer it waits for one as any selector does."""
        if timeout is None or timeout <= 0:
            return super().select(timeout)
        ready = super().select(GRACE_SECONDS)
        if not ready:
            self.now_seconds += timeout
        return ready


class _Loop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._clock = _Selector()
        super().__init__(self._clock)

    def time(self) -> float:
        """Seconds that the loop has waited so far."""
        return self._clock.now_seconds


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run `work` to its end, as asyncio.run does."""
    with asyncio.Runner(loop_factory=_Loop) as runner:
        return runner.run(work)
