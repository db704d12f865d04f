"""Stores of any kind at a place, for tests of all kinds and for the processes that they start."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeAlias, TypeVar

from foldline.errors import SessionTaken
from foldline.store import FileStore, Store
from foldline.store.clock import Clock, now_utc

__all__ = ["Places", "retry_while_taken", "store_at"]

T = TypeVar("T")

Places: TypeAlias = Callable[[str], str]
"""Returns a new place for a kind of store: "files", "sqlite" or "postgresql"."""


def store_at(place: str, lease_seconds: float = 10.0, clock: Clock = now_utc) -> Store:
    """The store at a place, opened as by another process."""
    if "://" not in place:
        return FileStore(place, clock=clock)
    from foldline.store.sql.store import SqlStore  # the processes that write files start without it

    return SqlStore.at(place, lease_seconds=lease_seconds, clock=clock)


def retry_while_taken(acquire: Callable[[], T], seconds: float = 30.0) -> T:
    """The result of `acquire` once nobody else has the session: the lease of a killed writer expires."""
    until = time.monotonic() + seconds
    while True:
        try:
            return acquire()
        except SessionTaken:
            if time.monotonic() >= until:
                raise
            time.sleep(0.02)
