"""Blocking work of a tool in a thread of its own, so that the calls of a turn run beside each other."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import TypeVar

__all__ = ["Cancelled", "Stop", "in_thread"]

T = TypeVar("T")


class Cancelled(Exception):  # noqa: N818 - says what happened; no error of ours: it never leaves the thread
    """The call that this work was for is over; nobody will see what it brings."""


class Stop:
    """Tells work in a thread that nobody waits for it any more."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def set(self) -> None:
        """From now on `check` raises."""
        self._event.set()

    def check(self) -> None:
        """Raises Cancelled when the work is to end."""
        if self._event.is_set():
            raise Cancelled("the call was cancelled")


async def in_thread(work: Callable[[Stop], T]) -> T:
    """What `work` returns. A cancellation is passed on to it, since a thread cannot be ended from outside."""
    stop = Stop()
    try:
        return await asyncio.to_thread(work, stop)
    except asyncio.CancelledError:
        stop.set()
        raise
