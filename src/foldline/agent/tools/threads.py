"""Blocking work of a tool in a thread, so that the calls of a turn run beside each other."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from foldline.agent.workers import TOOLS, Cancelled, Stop

__all__ = ["Cancelled", "Stop", "in_thread"]

T = TypeVar("T")


async def in_thread(work: Callable[[Stop], T], *, to_its_end: bool = False) -> T:
    """What `work` returns, from one of the threads that tools have; see `Workers.run`."""
    return await TOOLS.run(work, to_its_end=to_its_end)
