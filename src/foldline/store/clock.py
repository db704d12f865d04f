"""How long something was left alone, by a clock that goes on while the machine sleeps.

A provider's cache does so too: a lid that was closed for an hour leaves it as cold as an hour of waiting. Python's
monotonic clock stands still meanwhile on Linux and macOS.
"""

from __future__ import annotations

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
    """Seconds since some moment, sleep of the machine included: since it started where the system counts that (Linux).

    Elsewhere the time of day, which may be set.
    """
    boottime = getattr(time, "CLOCK_BOOTTIME", None)
    return time.time() if boottime is None else time.clock_gettime(boottime)


class IdleTimer:
    """The time since something was last used; `seconds` have passed already. O(1)."""

    def __init__(self, seconds: float = 0.0, *, clock: Callable[[], float] = seconds_since_boot) -> None:
        self._clock = clock
        self._used_at = clock() - seconds

    def reset(self) -> None:
        """It is used now."""
        self._used_at = self._clock()

    @property
    def seconds(self) -> float:
        """For how long it was not used; 0 where the clock was set back behind its last use."""
        return max(0.0, self._clock() - self._used_at)


Clock: TypeAlias = Callable[[], datetime]


def seconds_since(at: str) -> float:
    """Seconds since a time as records have it; 0 for none, and for one that is still to come."""
    try:
        then = datetime.fromisoformat(at)
    except ValueError:
        return 0.0
    return max(0.0, (now_utc() - then).total_seconds()) if then.tzinfo else 0.0


def now_utc() -> datetime:
    """The time, in UTC."""
    return datetime.now(UTC)


def stamp(clock: Clock) -> str:
    """The time as records have it: ISO 8601, UTC, milliseconds."""
    return clock().astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
