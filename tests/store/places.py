"""A store of any kind at its place, for the tests that hold for all of them and for the processes that they start."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeAlias, TypeVar

from foldline.errors import SessionTaken
from foldline.store import FileStore, Store
from foldline.store.clock import Clock, now_utc

__all__ = ["Places", "patiently", "store_at"]

T = TypeVar("T")

Places: TypeAlias = Callable[[str], str]
"""A new place for a store of a kind: "files", "sqlite" or "postgresql"."""


def store_at(place: str, lease_seconds: float = 10.0, clock: Clock = now_utc) -> Store:
    """A store at a place, as one more process would open it."""
    if "://" not in place:
        return FileStore(place, clock=clock)
    from foldline.store.sql.store import SqlStore  # the processes that write files start without it

    return SqlStore.at(place, lease_seconds=lease_seconds, clock=clock)


def patiently(take: Callable[[], T], seconds: float = 30.0) -> T:
    """What `take` returns once nobody else has the session: the lease of one that was killed runs out."""
    until = time.monotonic() + seconds
    while True:
        try:
            return take()
        except SessionTaken:
            if time.monotonic() >= until:
                raise
            time.sleep(0.02)
