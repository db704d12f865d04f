"""Plan the requests of clients: find the conversation of each, record what is new, and decide what to send.

One request of a conversation is worked on at a time, different conversations side by side. Slow work (a long history,
a summary, a store) runs in threads, so that the streams of others go on.

In order: `incoming`, `passes_unchanged`, `plan` (`ConversationFinder.find`), `_plan_locked` (`_record`, then the plan).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Final

from foldline.codecs.limits import tool_names
from foldline.conversations.ahead import WritingAhead
from foldline.conversations.conversation_cache import CachedConversation, ConversationCache, PlannedRequest
from foldline.conversations.conversation_finder import ConversationFinder, is_smaller, may_be_stored
from foldline.conversations.incoming_request import IncomingRequest, PlanMode
from foldline.conversations.persistence import ConversationStore
from foldline.conversations.recall import ReadableConversation, compact_conversation, looks_back, readable_conversation
from foldline.conversations.request_body import RequestBody
from foldline.conversations.request_plan import (
    UNKNOWN_TOKENS,
    ConversationSettings,
    LimitsByClient,
    RequestPlan,
    limits_for,
    with_repairs,
)
from foldline.conversations.small_requests import is_small
from foldline.conversations.store_guard import StoreGuard, WorkerThreads
from foldline.engine.context import SummarizeWith
from foldline.engine.learned_caps import lesson_in, lesson_name
from foldline.errors import SessionLost, SummaryError
from foldline.failures.failure import Failure

__all__ = ["Conversations"]

# Text recorded on the event loop, a few milliseconds of work. More goes into a thread.
_MAX_INLINE_CHARS: Final = 64 * 1024

# Tries to lock a conversation before another request continues it.
_MAX_ATTEMPTS: Final = 3


class Conversations:
    """All conversations of a proxy, up to `max_bytes` of them in memory.

    With a `store`, folded conversations are stored too. If it is `shared`, other processes may continue them at any
    time, and each request looks there first. A lost store is reported by `notice` and by warnings.
    """

    def __init__(
        self,
        settings: ConversationSettings,
        *,
        max_bytes: int,
        store: ConversationStore | None = None,
        shared: bool = False,
        notice: Callable[[str], None] = lambda line: None,
    ) -> None:
        self._settings = settings
        self._cache = ConversationCache(max_bytes)
        self._threads = WorkerThreads()
        self._learned = LimitsByClient()
        self._store = None
        if store is not None:
            self._store = StoreGuard(store, shared=shared, run=self._threads.run, notice=notice)
        self._finder = ConversationFinder(settings, self._cache, self._threads, self._store)

    def __len__(self) -> int:
        return len(self._cache)

    @property
    def weight_bytes(self) -> int:
        """An estimate of the memory of all conversations."""
        return self._cache.bytes

    @property
    def shared(self) -> bool:
        """Whether other processes may continue its conversations."""
        return self._store is not None and self._store.shared

    @property
    def store_up(self) -> bool:
        """Whether the store answered the latest question; True without a store."""
        return self._store is None or self._store.up

    def incoming(
        self,
        body: RequestBody,
        window_tokens: int | None,
        *,
        learned_as: str = "",
        name: str = "",
        mode: PlanMode = "fold",
        summarize: SummarizeWith | None = None,
        client: bytes = b"",
    ) -> IncomingRequest:
        """Return a request under its limits. With an unknown window nothing is folded until the upstream refuses it.

        `name` is the client's own name for the conversation. `client` is a hash of its credential: conversations and
        learned limits of one client are not used for another. A refused window holds for all its requests with the same
        `learned_as`, by default the model.
        """
        learned_as = learned_as or body.model
        window_tokens = self._learned.window_tokens(client, learned_as, window_tokens or UNKNOWN_TOKENS)
        cap_tokens = self._learned.max_output_tokens(client, body.model)
        limits = limits_for(body, window_tokens, max_output_tokens=cap_tokens)
        return IncomingRequest(body, limits, name, mode, summarize, learned_as=learned_as, client=client)

    def passes_unchanged(self, request: IncomingRequest) -> bool:
        """Whether a request is sure to be sent as it came, so that it can be sent before it is planned. O(messages).

        That is: by the length of its text it is well below its limits, and it continues a cached conversation without
        folds, or begins one.
        """
        if request.name or (self._store is not None and self._store.shared):
            return False
        if self._settings.lessons_for(request.learned_as, request.client):
            return False
        match = self._cache.match(request)
        if match is not None and match.cached.compaction is not None:
            return False
        if self._store is not None and may_be_stored(match, request, shared=self._store.shared):
            return False
        if match is None:
            return is_small(request, None, self._settings.policy)
        cached = match.cached
        same = match.is_whole and not cached.name and cached.latest_fingerprint == request.fingerprint
        if not same or is_smaller(cached, request) or cached.lock.locked():
            return False
        return is_small(request, cached.conversation, self._settings.policy)

    async def plan(self, request: IncomingRequest, *, sent: bool = False) -> PlannedRequest:
        """Plan what to send for a request. With `sent` it has gone out unchanged, and is only recorded.

        Raises DoesNotFit, and InvalidInput for messages that cannot be parsed: those can only be passed on.
        """
        # The lock belongs to a conversation, and finding that takes awaits: once the lock is held, another request may
        # have continued, evicted or replaced the conversation. So each attempt checks again under the lock.
        request.sent = sent
        for _ in range(_MAX_ATTEMPTS):
            try:
                cached, warning = await self._finder.find(request)
            except SessionLost:
                continue  # the branch point was evicted meanwhile: the store has it
            async with cached.lock:
                if not self._finder.is_current(cached, request):
                    continue  # another request has continued it meanwhile
                writing = await self._needs_summary(cached, request)
                if writing is None:
                    try:
                        return await self._plan_locked(cached, request, warning)
                    except SessionLost:
                        self._finder.forget(cached)
            if writing is not None:
                await asyncio.wait([writing])
        # Other requests were faster each time: fold a conversation of its own for this one request, and store nothing.
        cached = self._finder.create(request, [])
        request.name, request.mode = "", "look" if request.mode == "fold" else request.mode
        async with cached.lock:
            return await self._plan_locked(cached, request, "")

    async def current_body(self, body: RequestBody, client: bytes = b"") -> bytes:
        """Return a request as it would be sent now, without new folds, for a count of its tokens.

        Records nothing: such a question may come while another request of the conversation is on its way.
        """
        request = IncomingRequest(body, limits_for(body, UNKNOWN_TOKENS), "", "look", None, client=client)
        match = self._cache.match(request)
        if match is None or not match.is_whole:
            return body.raw
        async with match.cached.lock:
            conversation = match.cached.conversation
            in_scope = conversation.summary_scope in (b"", request.scope)
            same = in_scope and self._finder.is_current(match.cached, request)
            return conversation.current_body(body) if same else body.raw

    def record_answer(self, planned: PlannedRequest, reported_tokens: int | None) -> None:
        """Record that a request was answered. `reported_tokens` is its size by the upstream's report, if any."""
        self._learned.record_answer(planned.client, planned.learned_as, planned.plan.tokens, reported_tokens)

    async def write_ahead(
        self, planned: PlannedRequest, summarize: SummarizeWith, *, rests: bool = False
    ) -> SummaryError | None:
        """Write the summary of a conversation's next fold, if it is time for one. Returns why the model did not answer.

        With `rests` the cache is about to expire: the conversation is folded, if that pays. It is locked only before
        and after the model writes: its next requests need not wait.
        """
        cached, plan = planned.cached, planned.plan
        work = WritingAhead(cached.conversation, plan.body, summarize, planned.scope, rests=rests)
        try:
            async with cached.lock:
                if plan.version != cached.conversation.version or cached not in self._cache:
                    return None
                asks = await self._threads.run(work.begin)
            while asks:
                answer = await self._threads.run(work.answer, summarizes=True)
                async with cached.lock:
                    asks = await self._threads.run(work.supply, answer)
                    if rests and not asks and cached in self._cache:
                        await self._write_rested(planned)
        finally:
            async with cached.lock:
                work.drop()
        return work.error

    async def recover(self, planned: PlannedRequest, failure: Failure) -> bool:
        """Plan a request anew after the upstream refused it. Returns whether to send it again. Raises DoesNotFit."""
        limit = failure.limit or 0
        if limit and failure.limit_of == "output":
            self._learned.learn_output(planned.client, planned.plan.body.model, limit)
        # A limit far below what this client was answered is not believed beyond this request: the request is made
        # smaller by itself, and its conversation stays as it was.
        doubted = failure.limit_of == "window" and self._learned.doubts(planned.client, planned.learned_as, limit)
        if doubted := limit > 0 and doubted and not planned.doubted:
            planned.doubted, planned.summarize = True, None
        cached, body = planned.cached, planned.plan.body
        if not doubted:
            async with cached.lock:
                if planned.plan.version == cached.conversation.version:
                    return await self._recover_latest(planned, failure)
        # Another request has continued the conversation, or the refusal is not believed: branch off for this one.
        limits = planned.plan.limits
        request = IncomingRequest(
            body, limits, "", planned.mode, planned.summarize, learned_as=planned.learned_as, client=planned.client
        )
        try:
            cached = await self._finder.branch(request, cached, len(body.messages))
        except SessionLost:
            cached = await self._threads.run(self._finder.create, request, [])
        async with cached.lock:
            await self._threads.run(cached.conversation.append, body)
            planned.cached = cached
            planned.plan = await self._threads.run(cached.conversation.plan, body, limits)
            if not planned.doubted:
                self._index(cached, request)
            return await self._recover_latest(planned, failure)

    # --- looking back ------------------------------------------------------------------------------------------------

    def newest(self, client: bytes | None, name_for: Callable[[bytes], str]) -> CachedConversation | None:
        """Return the conversation that this client (None: any) has used last, or the one that it has named.

        `name_for` returns the hash of that name for a client, "" without one. Conversations whose model can look back
        come first, then those with any tools: a question beside a conversation, as for a title, offers none.
        """
        mine = (cached for cached in self._cache if client is None or cached.client == client)
        named = [cached for cached in mine if name_for(cached.client) in ("", cached.name)]
        return max(reversed(named), key=looks_back, default=None)  # the first of equals: the newest

    async def readable(self, cached: CachedConversation) -> ReadableConversation:
        """Return a conversation for its tools. O(log). Raises SessionLost if it was evicted meanwhile."""
        async with cached.lock:
            events = await self._store.events(cached) if self._store is not None else cached.conversation.context.events
            return readable_conversation(cached, events)

    async def aclose(self) -> None:
        """Write what is not stored yet, and close everything."""
        if self._store is not None:
            for cached in self._cache:
                self._store.leave(cached)
            await self._store.aclose()
        self._threads.close()

    # --- planning ----------------------------------------------------------------------------------------------------

    async def _needs_summary(self, cached: CachedConversation, request: IncomingRequest) -> asyncio.Task[None] | None:
        """The summary that a request has to wait for: it does not fit, and one is being written. O(new)."""
        if cached.writing is None or request.mode != "fold":
            return None
        await self._record(cached, request)
        return cached.writing if cached.conversation.context.view.tokens > request.limits.input_tokens else None

    async def _plan_locked(self, cached: CachedConversation, request: IncomingRequest, warning: str) -> PlannedRequest:
        conversation, body, limits = cached.conversation, request.body, request.limits
        await self._record(cached, request)
        if cached.compaction is not None and request.mode == "fold" and not request.sent:
            asked, cached.compaction = cached.compaction, None
            compact = partial(compact_conversation, conversation, request, asked)
            cached.compaction_fault = await self._threads.run(compact, summarizes=request.summarize is not None)
        if request.mode == "refuse":
            conversation.check_fits(limits)
            return _planned(cached, request, conversation.unchanged_plan(body, limits), warning)
        # A warning: the store is lost, and what other processes folded is unknown. Folding anew would be no better.
        unknown = warning and not conversation.rewritten
        # The bytes have gone out, and another request has made the conversation grow meanwhile: nothing to fold now.
        outgrown = request.sent and not conversation.has_headroom(limits)
        if unknown or outgrown:
            return _planned(cached, request, conversation.unchanged_plan(body, limits), warning)
        cap_tokens, mended = self._learned.max_output_tokens(request.client, body.model), conversation.mended
        make_plan = partial(conversation.plan, body, limits, max_output_tokens=cap_tokens, scope=request.scope)
        # With headroom no summary is asked for and the plan takes microseconds: a thread would cost more.
        if conversation.has_headroom(limits):
            plan = make_plan()
        else:
            summarizes = request.summarize is not None
            plan = await self._threads.run(partial(make_plan, request.summarize), summarizes=summarizes)
        if request.sent:
            plan = replace(plan, data=body.raw, changed=False)  # even if a cap was learned meanwhile
        elif request.mode == "fold" and conversation.mended and not mended:
            warning = with_repairs(warning, conversation.dialect, conversation.context.view.repairs)
        planned = _planned(cached, request, plan, warning)
        if plan.new_folds or cached.write_pending:
            await self._write(planned)
        return planned

    async def _record(self, cached: CachedConversation, request: IncomingRequest) -> None:
        """Append the new messages of a request to its conversation."""
        conversation, body = cached.conversation, request.body
        if cached.latest_scope not in (b"", request.scope):
            conversation.scope_varies = True
        if cached.latest_scope != request.scope:
            cached.tool_names = frozenset(tool_names(body.tools))
        # Before appending: a request that cannot be parsed, or whose client leaves, counts as the latest as well.
        cached.latest_scope, cached.latest_fingerprint = request.scope, request.fingerprint
        if sum(stop - start for start, stop in body.item_spans[conversation.count :]) > _MAX_INLINE_CHARS:
            try:
                await self._threads.run(conversation.append, body)
            except asyncio.CancelledError:
                # The thread has finished by now. Index what it recorded, so that the next request finds all of it.
                if conversation.count == len(request.exact):
                    self._index(cached, request)
                raise
        else:
            conversation.append(body)
        self._index(cached, request)
        cached.stored = cached.stored or request.mode == "fold"

    def _index(self, cached: CachedConversation, request: IncomingRequest) -> None:
        """Find a conversation by the chains of its latest request from now on. O(new)."""
        for evicted in self._cache.add(cached, request.exact, cached.extended_tolerant(request)):
            if self._store is not None:
                self._store.leave(evicted)

    async def _write(self, planned: PlannedRequest) -> None:
        if self._store is not None and planned.mode == "fold":
            warning = await self._store.write(planned.cached)
            planned.cached.write_pending, planned.warning = bool(warning), warning or planned.warning

    async def _write_rested(self, planned: PlannedRequest) -> None:
        """Write a conversation that was folded while it rested. The caller holds its lock."""
        if planned.cached.conversation.folded:
            try:
                await self._write(planned)
            except SessionLost:  # the next request reads what the other process wrote
                self._finder.forget(planned.cached)

    # --- recovery ----------------------------------------------------------------------------------------------------

    async def _recover_latest(self, planned: PlannedRequest, failure: Failure) -> bool:
        """Plan the latest request of a conversation anew. The caller holds its lock."""
        cached = planned.cached
        recover = partial(cached.conversation.recover, planned.plan, failure, planned.summarize)
        plan = await self._threads.run(recover, summarizes=planned.summarize is not None)
        if plan is None:
            return False
        planned.plan = plan
        if planned.doubted:
            return True
        await self._store_lessons(planned)
        if plan.new_folds:
            try:
                await self._write(planned)
            except SessionLost:  # the next request reads what the other process wrote
                self._finder.forget(cached)
        return True

    async def _store_lessons(self, planned: PlannedRequest) -> None:
        """Store the window that a refusal named, and its other lessons."""
        # The conversation collects lessons by its own name of the model. They are moved out of it, because only this
        # class knows for which client and under which name they hold.
        learned, settings = planned.cached.conversation.learned, self._settings
        while learned:
            (_, name), number = learned.popitem()
            if not (lesson := lesson_in(name)):
                self._learned.learn_window(planned.client, planned.learned_as, number)
            key = settings.endpoint, lesson_name(planned.learned_as, lesson), planned.client
            await self._threads.run(settings.learned.__setitem__, key, number)  # may write a file


def _planned(cached: CachedConversation, request: IncomingRequest, plan: RequestPlan, warning: str) -> PlannedRequest:
    summarize = None if request.mode == "refuse" else request.summarize
    return PlannedRequest(
        cached,
        plan,
        request.mode,
        summarize,
        warning,
        learned_as=request.learned_as,
        client=request.client,
        scope=request.scope,
    )
