"""Time stamps of records, and idle time by a clock that runs while the machine sleeps.

A provider's cache expires during sleep too: an hour with the lid closed leaves it as cold as an hour of waiting.
Python's monotonic clock stops meanwhile on Linux and macOS.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TypeAlias

__all__ = [
    "Clock",
    "IdleTimer",
    "now_utc",
    "seconds_since",
    "seconds_since_boot",
    "stamp",
]


def seconds_since_boot() -> float:
    """Seconds since a fixed moment, sleep included.

    On Linux that moment is the start of the machine. Elsewhere this is the time of day, which may be set.
    """
    # Python has no such clock on macOS and Windows. There a clock that somebody sets is the smaller error than one that
    # stops during sleep; `IdleTimer` never reports less than 0.
    boottime = getattr(time, "CLOCK_BOOTTIME", None)
    if sys.platform == "win32" or boottime is None:
        return time.time()
    return time.clock_gettime(boottime)


class IdleTimer:
    """The time since the last use; at first `seconds` have passed already. O(1)."""

    def __init__(self, seconds: float = 0.0, *, clock: Callable[[], float] = seconds_since_boot) -> None:
        self._clock = clock
        self._used_at = clock() - seconds

    def reset(self) -> None:
        """Mark a use now."""
        self._used_at = self._clock()

    @property
    def seconds(self) -> float:
        """Seconds since the last use; 0 when the clock was set back behind it."""
        return max(0.0, self._clock() - self._used_at)


Clock: TypeAlias = Callable[[], datetime]


def seconds_since(at: str) -> float:
    """Seconds since a time stamp; 0 for a malformed or future one."""
    # 0, the cautious answer: the cache then counts as warm, and nothing is folded only because it is cold.
    try:
        then = datetime.fromisoformat(at)
    except ValueError:
        return 0.0
    return max(0.0, (now_utc() - then).total_seconds()) if then.tzinfo else 0.0


def now_utc() -> datetime:
    """The current time in UTC."""
    return datetime.now(UTC)


def stamp(clock: Clock) -> str:
    """The current time as records hold it: ISO 8601, UTC, milliseconds."""
    return clock().astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
