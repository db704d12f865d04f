"""Summaries that are written after a response, with the key of the client that it went to."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from time import monotonic
from typing import Final, TypeAlias

from foldline.conversations.conversation_cache import PlannedRequest
from foldline.conversations.service import Conversations
from foldline.doors.proxy.summaries import SummaryClient
from foldline.errors import ProviderError, SummaryError
from foldline.text.redaction import redact

__all__ = ["SummariesAfterResponses"]

Headers: TypeAlias = list[tuple[bytes, bytes]]

# Refusals of a key: it asks for nothing in the background for the next hour, and its folds ask as they always did.
_OF_THE_KEY: Final = frozenset({"auth", "quota", "rate"})
_REFUSED_SECONDS: Final = 3_600.0
_MAX_REFUSED: Final = 1_000


class SummariesAfterResponses:
    """At most one per conversation, begun right after a response, while the prompt is in the upstream's cache."""

    def __init__(
        self,
        conversations: Conversations,
        summaries: SummaryClient,
        notice: Callable[[str], None],
        *,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._conversations, self._summaries, self._notice, self._clock = conversations, summaries, notice, clock
        self._tasks: set[asyncio.Task[None]] = set()
        self._refused: OrderedDict[bytes, float] = OrderedDict()

    def begin(self, planned: PlannedRequest, dialect: str, headers: Headers, target: str) -> None:
        """Begin to write the summary of the next fold, if it is time for one. O(1) where it is not."""
        cached = planned.cached
        # A held lock means that the next request has come: the end of that one is time enough.
        if planned.mode != "fold" or cached.writing is not None or cached.lock.locked():
            return
        refused_at = self._refused.get(planned.client)
        if refused_at is not None and self._clock() - refused_at < _REFUSED_SECONDS:
            return
        if not cached.conversation.context.ahead.due:
            return
        cached.writing = task = asyncio.create_task(self._write(planned, dialect, headers, target))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def aclose(self) -> None:
        """Cancel what is being written, and all other summaries: the threads that wait for them end."""
        self._summaries.cancel()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _write(self, planned: PlannedRequest, dialect: str, headers: Headers, target: str) -> None:
        cached, model = planned.cached, planned.plan.body.model
        loop = asyncio.get_running_loop()
        writer = self._summaries.for_request(dialect, model, headers, loop, client=planned.client, target=target)
        try:
            error = await self._conversations.write_ahead(planned, writer)
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
