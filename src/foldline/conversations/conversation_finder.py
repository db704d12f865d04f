"""Find the conversation of a request: in memory, in the store, as a branch of another one, or a new one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final, Literal
from uuid import uuid4

from foldline.conversations.conversation import Conversation
from foldline.conversations.conversation_cache import CachedConversation, ConversationCache, Match, common
from foldline.conversations.incoming_request import IncomingRequest, tolerant_links, without_leading_text
from foldline.conversations.persistence import LateArchive, StoredConversation
from foldline.conversations.request_plan import ConversationSettings
from foldline.conversations.store_guard import StoreGuard, WorkerThreads
from foldline.view.transcript import Entry, Event, Fold, Unfold, Usage

__all__ = ["ConversationFinder", "events_before", "inherited_events", "is_smaller", "may_be_stored"]

# An answer and the reply to it by the user or a tool. A turn may have more messages, but most have two.
_TURN_MESSAGES: Final = 2


class ConversationFinder:
    """Finds and creates the conversations of a cache, with the help of a store if there is one."""

    def __init__(
        self, settings: ConversationSettings, cache: ConversationCache, threads: WorkerThreads, store: StoreGuard | None
    ) -> None:
        self._settings, self._cache, self._threads, self._store = settings, cache, threads, store

    async def find(self, request: IncomingRequest) -> tuple[CachedConversation, str]:
        """Return the conversation that a request continues, or a new one that begins as far as one is known.

        The warning says that the store did not answer. Raises SessionLost if a branch point was evicted meanwhile.
        """
        match, warning, name = self._cache.match(request), "", request.name
        if self._store is not None and may_be_stored(match, request, shared=self._store.shared):
            # Only links from the end of the match on: the store may know more than memory, and never needs less.
            after = 0 if match is None else match.depth - 1
            stored, warning = await self._store.find(
                request.exact[after:],
                request.tolerant()[after:],
                name="" if match is not None and match.cached.name == name else name,
                own=None if match is None else match.cached,
                scope=request.scope,
            )
            if stored is not None:
                loaded = await self._load(request, stored)
                # What memory has of the same conversation is older now. A lock means that a request still works on
                # it: it stays for that one, and is evicted in its turn.
                same = match is not None and match.is_whole and match.cached.name in ("", name)
                if same and match is not None and not match.cached.lock.locked():
                    self.forget(match.cached)
                return self._named(loaded, name), warning
        if match is None:
            return self._named(self.create(request, []), name), warning
        # A conversation whose summaries were written under other system text or tools must not leak them: branch.
        in_scope = match.cached.conversation.summary_scope in (b"", request.scope)
        if match.is_whole and match.cached.name in ("", name) and in_scope:
            if not is_smaller(match.cached, request):
                return self._named(match.cached, name), warning
            # A side question to a model with a smaller window, as for a title: it is not worth a summary, and is not
            # stored, because the store must lead to the main conversation.
            request.summarize, request.mode = None, "look" if request.mode == "fold" else request.mode
        branch = await self.branch(request, match.cached, match.depth)
        if _replaces_last_message(match, request) and not match.cached.lock.locked():
            # The same conversation except for a reminder at its end: keep its name, so that people see one, not many.
            branch.conversation.name = match.cached.conversation.name
            self.forget(match.cached)
        return self._named(branch, name), warning

    def is_current(self, cached: CachedConversation, request: IncomingRequest) -> bool:
        """Whether a request still begins with all of a conversation, and the cache still has it."""
        # An evicted conversation has been written to the store, and must be read from there.
        return cached.is_prefix_of(request) and (not cached.exact or cached in self._cache)

    def forget(self, cached: CachedConversation) -> None:
        """Drop a conversation that is read anew, because another process or request has continued it."""
        self._cache.drop(cached)
        if self._store is not None:
            self._store.drop(cached)

    async def branch(self, request: IncomingRequest, source: CachedConversation, count: int) -> CachedConversation:
        """Create a conversation that begins with the first messages of another one. O(log)."""
        # Under the lock of the source: a request that continues it must not append while its log is copied.
        async with source.lock:
            conversation = source.conversation
            events = conversation.context.events if self._store is None else await self._store.events(source)
            idle_seconds, scope = conversation.idle.seconds, conversation.summary_scope
            varies = count == conversation.count and source.latest_scope != request.scope
        inherited = inherited_events(events, count, scope, request.scope)
        branch = await self._threads.run(self.create, request, inherited, idle_seconds, scope)
        branch.conversation.scope_varies = branch.conversation.scope_varies or varies
        return branch

    def create(
        self,
        request: IncomingRequest,
        events: Sequence[Event],
        idle_seconds: float = 0.0,
        summary_scope: bytes | None = b"",
    ) -> CachedConversation:
        """Create a conversation that begins with events, whose summaries a model wrote in this scope."""
        # A random name: a number or a hash of the messages would tell one client about the conversations of others.
        archive, name = LateArchive(), uuid4().hex[:16]
        settings = replace(self._settings, lessons=self._settings.lessons_for(request.learned_as, request.client))
        conversation = Conversation(
            name, request.body, settings, request.limits, archive=archive, events=events, idle_seconds=idle_seconds
        )
        if summary_scope == request.scope:
            conversation.summary_scope = request.scope
        else:
            conversation.scope_varies = summary_scope != b""
        return CachedConversation(conversation, archive, request.fingerprint, client=request.client)

    async def _load(self, request: IncomingRequest, stored: StoredConversation) -> CachedConversation:
        """Load a stored conversation, or a branch of it if the request takes another course."""

        def load() -> CachedConversation:
            dialect = request.body.dialect
            messages = without_leading_text(dialect, list(stored.messages))
            # The tolerant chain: the store has parsed messages, not the client's text that the exact chain hashes.
            links = tolerant_links(dialect, messages, client=request.client)
            depth = common(links, request.tolerant())
            events = inherited_events(stored.events, depth, stored.summary_scope, request.scope)
            cached = self.create(request, events, stored.idle_seconds, stored.summary_scope)
            # Only the whole of it continues the session. A branch gets a session of its own with its first fold.
            if depth == len(links) and stored.summary_scope is not None and self._store is not None:
                cached.archive.attach(stored.archive)
                self._store.store.adopt(cached.conversation, stored)
            return cached

        return await self._threads.run(load)

    def _named(self, cached: CachedConversation, name: str) -> CachedConversation:
        if name:
            self._cache.set_name(cached, name)
        return cached


def may_be_stored(match: Match | None, request: IncomingRequest, *, shared: bool) -> bool:
    """Whether a store may know more of a request than memory does. Others write to a `shared` one too."""
    if request.mode == "refuse":
        return False
    if shared and len(request.exact) > 1:
        return True
    if match is None:
        # A first question has no folds but the size guard's, and that would cut it the same way again.
        return bool(request.name) or not request.is_first
    if not match.is_whole or match.cached.name != request.name:
        return True
    # With more than one new turn it may be another conversation whose beginning is the same by chance.
    return len(request.exact) - match.depth > _TURN_MESSAGES and not match.cached.conversation.folded


def is_smaller(cached: CachedConversation, request: IncomingRequest) -> bool:
    """Whether a request goes to another model with a smaller window than the conversation has been using."""
    context = cached.conversation.context
    return context.model != (request.body.model or None) and request.limits.input_tokens < context.limits.input_tokens


def _replaces_last_message(match: Match, request: IncomingRequest) -> bool:
    """Whether the only difference is a last message that moved to the end: a reminder, sent with each request."""
    conversation, dialect = match.cached.conversation, request.body.dialect
    entry = conversation.context.view.entries.get(conversation.count - 1)
    if entry is None or match.depth != conversation.count - 1:
        return False
    return tolerant_links(dialect, [entry.recorded]) == tolerant_links(dialect, request.body.messages[-1:])


def inherited_events(events: Sequence[Event], count: int, summary_scope: bytes | None, scope: bytes) -> list[Event]:
    """Return the events that a branch of the first `count` messages inherits. O(log).

    `summary_scope` is what a model read when it wrote in the log (b"": messages alone), `scope` that of the branch.
    """
    folds: Literal["all", "alone", "none"]
    folds = "all" if summary_scope == b"" else "alone" if summary_scope == scope else "none"
    return events_before(events, count, folds=folds)


def events_before(
    events: Iterable[Event], count: int, *, folds: Literal["all", "alone", "none"] = "all"
) -> list[Event]:
    """Return the events that concern only the first `count` messages of a log. O(events).

    With `folds` "alone", only folds made when there were no later messages; with "none", no folds.
    """
    # A model that continues a client's request reads all of it. Its summary may reveal later messages, and the branch
    # has not sent those.
    selected: list[Event] = []
    selected_folds, entries, whole = set(), 0, True
    for event in events:
        if isinstance(event, Entry):
            entries += 1
            whole = whole and event.seq < count
            if event.seq < count:
                selected.append(event)
        elif isinstance(event, Fold):
            if event.stop <= count and (folds == "all" or (folds == "alone" and entries <= count)):
                selected_folds.add(event.id)
                selected.append(event)
            else:
                whole = False
        elif isinstance(event, Unfold):
            if event.fold in selected_folds:
                selected.append(event)
        elif isinstance(event, Usage):
            # After a left-out event a report still says how this provider counts, but not the size of what is shown.
            selected.append(event if whole else replace(event, current=False))
    return selected
