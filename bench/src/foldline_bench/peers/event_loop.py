"""Calling what is asynchronous in a package from a system, which is not."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar
from weakref import finalize

__all__ = ["Loop"]

_T = TypeVar("_T")


class Loop:
    """An event loop of one system, closed with it: what a package keeps for a loop stays good from call to call."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        finalize(self, self._loop.close)

    def run(self, call: Coroutine[Any, Any, _T]) -> _T:
        """Wait for a call; what it raises comes out."""
        return self._loop.run_until_complete(call)
