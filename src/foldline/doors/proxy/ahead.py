"""Summaries that are written after a response, or as the cache is about to expire, with the key of the client."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from time import monotonic
from typing import Any, Final, TypeAlias

from foldline.conversations.conversation_cache import PlannedRequest
from foldline.conversations.service import Conversations
from foldline.doors.proxy.summaries import SummaryClient
from foldline.engine.ahead import seconds_before_cold
from foldline.errors import ProviderError, SummaryError
from foldline.text.redaction import redact

__all__ = ["SummariesAfterResponses"]

Headers: TypeAlias = list[tuple[bytes, bytes]]

# Refusals of a key: it asks for nothing in the background for the next hour, and its folds ask as they always did.
_OF_THE_KEY: Final = frozenset({"auth", "quota", "rate"})
_REFUSED_SECONDS: Final = 3_600.0
_MAX_REFUSED: Final = 1_000

# Requests that are kept, with the key of their client, until their cache has expired: so many bytes of them.
_MAX_RESTING_BYTES: Final = 64 * 1024 * 1024


class SummariesAfterResponses:
    """At most one per conversation, begun while the prompt is in the upstream's cache.

    That is right after a response, or shortly before the cache expires, where the conversation rests (`rest`).

    `rest_seconds` says how long after a response, by the lifetime of its cache. In a store that processes share nobody
    knows whether a conversation rests: it may go on in another one.
    """

    def __init__(
        self,
        conversations: Conversations,
        summaries: SummaryClient,
        notice: Callable[[str], None],
        *,
        clock: Callable[[], float] = monotonic,
        rest_seconds: Callable[[float], float] = seconds_before_cold,
        max_resting_bytes: int = _MAX_RESTING_BYTES,
    ) -> None:
        self._conversations, self._summaries, self._notice, self._clock = conversations, summaries, notice, clock
        self._tasks: set[asyncio.Task[None]] = set()
        self._refused: OrderedDict[bytes, float] = OrderedDict()
        self._rest_seconds, self._max_resting_bytes = rest_seconds, max_resting_bytes
        # By the id of a conversation, the longest rest first: its timer, and the bytes that it keeps.
        self._resting: OrderedDict[int, tuple[asyncio.TimerHandle, int]] = OrderedDict()
        self._resting_bytes = 0
        self._closed = False

    def begin(self, planned: PlannedRequest, dialect: str, headers: Headers, target: str) -> None:
        """Begin to write the summary of the next fold, if it is time for one, and the rest. O(1) where it is not."""
        self.rest(planned, dialect, headers, target)
        cached = planned.cached
        # A held lock means that the next request has come: the end of that one is time enough.
        if planned.mode != "fold" or cached.writing is not None or cached.lock.locked():
            return
        if not self._is_refused(planned.client) and cached.conversation.context.ahead.due:
            self._start(planned, self._write(planned, dialect, headers, target))

    def rest(self, planned: PlannedRequest, dialect: str, headers: Headers, target: str) -> None:
        """Fold the conversation shortly before its cache expires, if that pays and no request comes before. O(1).

        Until then the request is kept in memory, with the key of its client.
        """
        place, lifetime_seconds = id(planned.cached), planned.cached.conversation.context.cache_lifetime_seconds
        self._end_rest(place)
        if self._closed or planned.mode != "fold" or not lifetime_seconds or self._conversations.shared:
            return

        def due() -> None:
            self._end_rest(place)
            cached = planned.cached
            busy = self._closed or cached.writing is not None or cached.lock.locked()
            if not busy and not self._is_refused(planned.client):
                self._start(planned, self._write(planned, dialect, headers, target, rests=True))

        timer = asyncio.get_running_loop().call_later(self._rest_seconds(lifetime_seconds), due)
        self._resting[place] = timer, len(planned.plan.body.raw)
        self._resting_bytes += len(planned.plan.body.raw)
        while self._resting_bytes > self._max_resting_bytes:
            self._end_rest(next(iter(self._resting)))

    @property
    def resting(self) -> int:
        """How many conversations wait to be folded before their cache expires."""
        return len(self._resting)

    async def aclose(self) -> None:
        """Cancel what is being written, and all other summaries: the threads that wait for them end."""
        self._closed = True
        for place in list(self._resting):
            self._end_rest(place)
        self._summaries.cancel()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _end_rest(self, place: int) -> None:
        timer, size_bytes = self._resting.pop(place, (None, 0))
        self._resting_bytes -= size_bytes
        if timer is not None:
            timer.cancel()

    def _is_refused(self, client: bytes) -> bool:
        refused_at = self._refused.get(client)
        return refused_at is not None and self._clock() - refused_at < _REFUSED_SECONDS

    def _start(self, planned: PlannedRequest, writing: Coroutine[Any, Any, None]) -> None:
        planned.cached.writing = task = asyncio.create_task(writing)
        self._tasks.add(task)
        task.add_done_callback(lambda done: self._ended(planned, done))

    def _ended(self, planned: PlannedRequest, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        # Nobody awaits it. The class of a fault alone: its message may hold words of the conversation.
        if not task.cancelled() and (fault := task.exception()) is not None:
            self._notice(
                f"Conversation {planned.session}: no summary ahead, a fault of the proxy: {type(fault).__name__}"
            )

    async def _write(
        self, planned: PlannedRequest, dialect: str, headers: Headers, target: str, *, rests: bool = False
    ) -> None:
        cached, model = planned.cached, planned.plan.body.model
        loop = asyncio.get_running_loop()
        writer = self._summaries.for_request(dialect, model, headers, loop, client=planned.client, target=target)
        try:
            error = await self._conversations.write_ahead(planned, writer, rests=rests)
        finally:
            cached.writing = None
            cached.asked.extend(writer.usages)  # counted with the next request of the conversation
        if error is not None:
            self._note(planned, error)

    def _note(self, planned: PlannedRequest, error: SummaryError) -> None:
        cause = error.__cause__
        if not isinstance(cause, ProviderError) or cause.failure.kind not in _OF_THE_KEY:
            return
        if planned.client not in self._refused:
            reason = redact(str(error))[:300]
            self._notice(f"Conversation {planned.session}: its key writes no summary ahead for an hour: {reason}")
        self._refused[planned.client] = self._clock()
        self._refused.move_to_end(planned.client)
        if len(self._refused) > _MAX_REFUSED:
            self._refused.popitem(last=False)
