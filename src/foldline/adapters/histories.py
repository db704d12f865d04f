"""Which conversation a call of a framework belongs to, and the context that follows it.

A framework owns its history and passes the whole of it with each call. A context follows it: what is new is appended,
an edit or a branch of the framework forks the context. In a new process, or once a conversation was evicted, the
history that the framework has stored is read from its beginning.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Final, Generic, TypeVar

from foldline.adapters.translation import FrameworkHistory, ShownMessage
from foldline.engine.context import Context
from foldline.messages import Wire, same_until
from foldline.view.request import Request
from foldline.view.transcript import Seq

__all__ = ["MOST_CONVERSATIONS", "FollowedHistory", "Histories"]

M = TypeVar("M")

MOST_CONVERSATIONS: Final = 256
"""Conversations kept in memory; the one that was idle for longest goes first."""

_SYSTEM: Final = frozenset({"system", "developer"})


class FollowedHistory:
    """One conversation: a context, and the entry of each message of the framework's history that it has recorded."""

    def __init__(self, key: Hashable | None, context: Context) -> None:
        self.key = key
        self.context = context
        self.capped = False
        """Whether a refusal has lowered the cap of the output."""
        self.told: tuple[object, ...] | None = None
        """What the last call said of its model."""
        self._wires: list[Wire] = []
        self._seqs: list[Seq] = []
        self._prepared_at = time.monotonic()

    def common(self, wires: list[Wire]) -> int:
        """How many leading messages of a history are recorded here. O(their size)."""
        return same_until(self._wires, wires)

    @property
    def count(self) -> int:
        """How many messages are recorded."""
        return len(self._wires)

    def talked(self, count: int) -> bool:
        """Whether any of the first `count` messages is more than system text, which many conversations share."""
        return any(wire.get("role") not in _SYSTEM for wire in self._wires[:count])

    def follow(self, history: FrameworkHistory[M]) -> None:
        """Record what is new in a history; fork where it differs. Raises InvalidInput, and then records nothing."""
        new = self.context.sync(history.wires)
        kept = len(history.wires) - len(new)
        self._wires[kept:] = [entry.recorded for entry in new]
        self._seqs[kept:] = [entry.seq for entry in new]

    def idle_seconds(self) -> float:
        """Seconds since this was asked last: since the last request was prepared."""
        before, self._prepared_at = self._prepared_at, time.monotonic()
        return self._prepared_at - before

    def shown(self, request: Request) -> Iterator[ShownMessage]:
        """The messages of a request with the places in the history that they show. O(messages)."""
        for wire, origin in zip(request.messages, request.origins, strict=True):
            if not origin.entries:
                yield ShownMessage(wire)
                continue
            place = bisect_left(self._seqs, origin.entries[0])
            yield ShownMessage(wire, place, whole=wire is self._wires[place])


class Histories(Generic[M]):
    """The conversations of one adapter, at most `most` idle ones in memory. Safe among threads and tasks.

    A conversation is lent to one call at a time. A second call of the same conversation that runs beside it (a
    sub-agent in the same thread, a batch) gets one of its own.
    """

    def __init__(self, most: int = MOST_CONVERSATIONS) -> None:
        self._most = most
        self._lock = Lock()
        self._idle: list[FollowedHistory] = []  # the one that was used last stands last

    def __len__(self) -> int:
        return len(self._idle)

    @contextmanager
    def lend(
        self, key: Hashable | None, history: FrameworkHistory[M], new_context: Callable[[], Context]
    ) -> Iterator[FollowedHistory]:
        """The conversation that a history continues, for one call. O(history, and conversations of that key)."""
        with self._lock:
            followed = self._found(key, history)
            if followed is not None:
                self._idle.remove(followed)
        if followed is None:
            followed = FollowedHistory(key, new_context())
        try:
            yield followed
        finally:
            with self._lock:
                if followed.count:
                    self._idle.append(followed)
                del self._idle[: -self._most]

    def context(self, key: Hashable | None) -> Context | None:
        """The context of the conversation that was used last under a key; None if there is none, or it is in use."""
        with self._lock:
            return next((one.context for one in reversed(self._idle) if one.key == key), None)

    def _found(self, key: Hashable | None, history: FrameworkHistory[M]) -> FollowedHistory | None:
        best: FollowedHistory | None = None
        best_rank = (False, 0)
        for followed in reversed(self._idle):
            common = followed.common(history.wires) if followed.key == key else 0
            # What has only its system text in common is another conversation (a sub-agent), not a branch of this one.
            # Without a name only a continuation is the same conversation: two that begin alike may be two users.
            continues = common == followed.count
            if followed.talked(common) and (continues or key is not None) and (continues, common) > best_rank:
                best, best_rank = followed, (continues, common)
        return best
