"""Calls asynchronous code of a package from a system, which is synchronous."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar
from weakref import finalize

__all__ = ["Loop"]

_T = TypeVar("_T")


class Loop:
    """The event loop of one system, closed with it. One loop for all calls: packages keep objects that belong to it."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        finalize(self, self._loop.close)

    def run(self, call: Coroutine[Any, Any, _T]) -> _T:
        """Run a coroutine to its end; its errors are raised."""
        return self._loop.run_until_complete(call)
