"""How long something was left alone, by a clock that goes on while the machine sleeps.

A provider's cache does so too: a lid that was closed for an hour leaves it as cold as an hour of waiting. Python's
monotonic clock stands still meanwhile on Linux and macOS.
"""

from __future__ import annotations

import time
from collections.abc import Callable

__all__ = ["Idle", "sleepless_seconds"]


def sleepless_seconds() -> float:
    """Seconds since some moment, sleep of the machine included: since it started where the system counts that (Linux).

    Elsewhere the time of day, which may be set.
    """
    boottime = getattr(time, "CLOCK_BOOTTIME", None)
    return time.time() if boottime is None else time.clock_gettime(boottime)


class Idle:
    """The time since something was last used; `seconds` have passed already. O(1)."""

    def __init__(self, seconds: float = 0.0, *, clock: Callable[[], float] = sleepless_seconds) -> None:
        self._clock = clock
        self._used_at = clock() - seconds

    def ends(self) -> None:
        """It is used now."""
        self._used_at = self._clock()

    @property
    def seconds(self) -> float:
        """For how long it was not used; 0 where the clock was set back behind its last use."""
        return max(0.0, self._clock() - self._used_at)
