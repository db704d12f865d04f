"""Conversations in memory, found by the hash chains of their messages. The least recently used are evicted first."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final
from weakref import WeakValueDictionary

from foldline.agent.tools.base import CompactionRequest
from foldline.conversations.conversation import Conversation
from foldline.conversations.incoming_request import IncomingRequest, PlanMode, tolerant_links
from foldline.conversations.persistence import LateArchive
from foldline.conversations.request_plan import RequestPlan
from foldline.engine.context import SummarizeWith
from foldline.view.transcript import Usage

__all__ = ["CachedConversation", "ConversationCache", "Match", "PlannedRequest", "common"]

# Memory for the links of one message: two links, two table slots, and the lists of those found by them.
_LINKS_BYTES: Final = 500

# The role of the model: "model" in Gemini, "assistant" in all other dialects.
_MODEL_ROLES: Final = ("assistant", "model")

# Items of the dialect openai-responses that a model wrote.
_OUTPUT_ITEMS: Final = frozenset({"function_call", "reasoning", "custom_tool_call", "local_shell_call"})


@dataclass(slots=True, eq=False, weakref_slot=True)
class CachedConversation:
    """A conversation in memory, with everything by which it is found. Hold its `lock` to work on it.

    `fingerprint` is the hash of model, system text and tools of its first request, `latest_fingerprint` of its latest
    one. `latest_scope` is the hash of the latest system text and tools alone. `name` is the client's own name for it.
    `client` is the hash of its client's credential, `tool_names` are those of its latest request. `compaction` is one
    that its client has asked for and that the next request makes; `compaction_fault` says why the last one failed.
    `keys` are those by which the store finds it, as far as known here; `stored` says whether it belongs there at all.
    """

    conversation: Conversation
    archive: LateArchive
    fingerprint: bytes
    latest_fingerprint: bytes = b""
    latest_scope: bytes = b""
    name: str = ""
    client: bytes = b""
    tool_names: frozenset[str] = frozenset()
    compaction: CompactionRequest | None = None
    compaction_fault: str = ""
    keys: set[str] = field(default_factory=set)
    stored: bool = False
    exact: list[bytes] = field(default_factory=list)
    tolerant: list[bytes] = field(default_factory=list)
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    weight_bytes: int = 0  # when it was last used
    write_pending: bool = False  # a write failed: the next request tries again
    truncated: str = ""  # why the upstream seems to have cut its last prompt, until the client was told
    doubted: bool = False  # the report on its last request cannot be true
    writing: asyncio.Task[None] | None = None  # writes the summary of its next fold
    asked: list[Usage] = field(default_factory=list)  # what such summaries used, until a request reports it

    def is_prefix_of(self, request: IncomingRequest) -> bool:
        """Whether a request begins with all messages of the conversation."""
        count = self.conversation.count
        if not self.exact:
            return count <= len(request.body.messages)
        if count > len(request.exact) or count != len(self.exact):
            return False
        return self.exact[-1] == request.exact[count - 1] or self.tolerant[-1] == request.tolerant()[count - 1]

    def extended_tolerant(self, request: IncomingRequest) -> list[bytes]:
        """Return the tolerant chain of a request that continues the conversation. O(new)."""
        if not self.exact:
            return request.tolerant()
        # Only the new messages are hashed: over a long conversation, a whole chain for each request would be quadratic.
        links = self.tolerant
        return [*links, *tolerant_links(request.body.dialect, request.messages[len(links) :], after=links[-1])]


@dataclass(slots=True)
class PlannedRequest:
    """A request and what to send for it. `warning` says what could not be done as it should.

    What a refusal of it names is learned under `learned_as`, for this `client` alone. `doubt` says why a report on it
    cannot be true, unless the report before was doubted too. `doubted` says that it was changed for a limit that is not
    believed: the next request is sent as if there had been none.
    """

    cached: CachedConversation
    plan: RequestPlan
    mode: PlanMode
    summarize: SummarizeWith | None
    warning: str = ""
    learned_as: str = ""
    doubt: str = ""
    client: bytes = b""
    doubted: bool = False
    scope: bytes = b""

    def take_asked(self) -> tuple[Usage, ...]:
        """What summaries used that were written after earlier responses, once."""
        asked, self.cached.asked = tuple(self.cached.asked), []
        return asked

    @property
    def session(self) -> str:
        """The name of the conversation."""
        return self.cached.conversation.name

    @property
    def title(self) -> str:
        """The first words of its user."""
        return self.cached.conversation.title

    def observe(self, usage: Usage, stop_reason: str = "") -> str:
        """Record a usage report of the upstream. Returns why the prompt seems to have been cut, or ""."""
        # A held lock means that the next request is being worked on: this one is no longer the latest.
        if not self.cached.lock.locked():
            doubt = self.cached.conversation.observe(self.plan, usage)
            self.doubt, self.cached.doubted = "" if self.cached.doubted else doubt, bool(doubt)
        return self.plan.truncated(usage, stop_reason)


@dataclass(frozen=True, slots=True)
class Match:
    """A conversation that shares the first `depth` messages with a request."""

    cached: CachedConversation
    depth: int

    @property
    def is_whole(self) -> bool:
        """Whether the request begins with all of the conversation."""
        return self.depth == len(self.cached.exact)


class ConversationCache:
    """Conversations by the links of their chains, up to `max_bytes` of them, and always one however large.

    A shared link leads to every conversation that has it, so a beginning is found while one of them is cached.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._all: OrderedDict[int, CachedConversation] = OrderedDict()  # by id, least recently used first
        self._by_link: dict[bytes, list[CachedConversation]] = {}
        self._by_name: WeakValueDictionary[str, CachedConversation] = WeakValueDictionary()
        self.bytes = 0  # weight of all conversations when they were last used

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[CachedConversation]:
        return iter(list(self._all.values()))

    def __contains__(self, cached: CachedConversation) -> bool:
        return id(cached) in self._all

    def match(self, request: IncomingRequest) -> Match | None:
        """Return the conversation that a request continues or branches from, or None. O(messages) of look-ups."""
        named = self._by_name.get(request.name) if request.name else None
        if named is not None and named in self:
            depth = max(common(named.exact, request.exact), common(named.tolerant, request.tolerant()))
            return Match(named, depth) if depth else None
        match = self.match_links(request.exact, request.tolerant, request.fingerprint, model=request.body.model)
        return None if match is None or _is_coincidence(match, request) else match

    def match_links(
        self,
        exact: Sequence[bytes],
        tolerant: Callable[[], Sequence[bytes]],
        fingerprint: bytes = b"",
        *,
        model: str | None = None,
    ) -> Match | None:
        """Return the conversation with the longest beginning in common, or None. O(messages) of look-ups.

        Among equals, one with the same `fingerprint` wins, then the newest.
        """
        first = self._longest(exact, fingerprint)
        # A longer match for another model may be a side question to that model, so a whole match with the same
        # fingerprint is preferred. For the same `model` it is no side question: clients offer other tools from turn to
        # turn.
        if first is not None and first.cached.fingerprint != fingerprint and first.cached.conversation.model != model:
            own = self._longest_whole(exact, fingerprint)
            if own is not None:
                return own
        if first is not None and first.is_whole:
            return first
        # The tolerant chain costs several times the exact one: it is made only when that leads to no whole match.
        second = self._longest(tolerant(), fingerprint)
        return second if first is None or (second is not None and second.depth > first.depth) else first

    def set_name(self, cached: CachedConversation, name: str) -> None:
        """Find a conversation by the client's own name for it."""
        cached.name = name
        self._by_name[name] = cached

    def add(
        self, cached: CachedConversation, exact: Sequence[bytes], tolerant: Sequence[bytes]
    ) -> list[CachedConversation]:
        """Find a conversation by these chains from now on. Returns the conversations evicted for it. O(new)."""
        # An evicted conversation is in no table any more, so all of its links are entered again.
        if cached not in self:
            cached.exact, cached.tolerant = [], []
        self._relink(cached, cached.exact, exact)
        self._relink(cached, cached.tolerant, tolerant)
        before = cached.weight_bytes if cached in self else 0
        cached.weight_bytes = cached.conversation.weight_bytes + _LINKS_BYTES * len(exact)
        self.bytes += cached.weight_bytes - before
        self._all[id(cached)] = cached
        self._all.move_to_end(id(cached))
        evicted = []
        # The newest one stays, however large: its request is being worked on.
        while self.bytes > self._max_bytes and len(self._all) > 1:
            oldest = next(iter(self._all.values()))
            self.drop(oldest)
            evicted.append(oldest)
        return evicted

    def drop(self, cached: CachedConversation) -> None:
        """Remove a conversation. O(its messages)."""
        if self._all.pop(id(cached), None) is None:
            return
        self.bytes -= cached.weight_bytes
        self._unlink(cached, cached.exact)
        self._unlink(cached, cached.tolerant)

    def _longest(self, links: Sequence[bytes], fingerprint: bytes) -> Match | None:
        # From the end: almost every request continues a conversation, and is found at the first look-ups.
        for depth in range(len(links), 0, -1):
            found = self._by_link.get(links[depth - 1])
            if found:
                whole = next((each for each in reversed(found) if len(each.exact) == depth), found[-1])
                return Match(next((each for each in reversed(found) if each.fingerprint == fingerprint), whole), depth)
        return None

    def _longest_whole(self, links: Sequence[bytes], fingerprint: bytes) -> Match | None:
        """Return the longest conversation with this fingerprint that a request begins with."""
        for depth in range(len(links), 0, -1):
            for cached in reversed(self._by_link.get(links[depth - 1], ())):
                if cached.fingerprint == fingerprint and len(cached.exact) == depth:
                    return Match(cached, depth)
        return None

    def _relink(self, cached: CachedConversation, old: list[bytes], new: Sequence[bytes]) -> None:
        # One link hashes all before it, so only links from the first different one on have changed.
        same = common(old, new)
        self._unlink(cached, old[same:])
        del old[same:]
        for link in new[same:]:
            self._by_link.setdefault(link, []).append(cached)
            old.append(link)

    def _unlink(self, cached: CachedConversation, links: Sequence[bytes]) -> None:
        for link in links:
            found = self._by_link[link]
            found.remove(cached)
            if not found:
                del self._by_link[link]


def _is_coincidence(match: Match, request: IncomingRequest) -> bool:
    """Whether two requests share only a beginning that any two clients may have in common."""
    # Without a word of the model, the same opening question under other system text or tools is another conversation.
    shared = request.body.messages[: match.depth]
    answered = any(m.get("role") in _MODEL_ROLES or m.get("type") in _OUTPUT_ITEMS for m in shared)
    return not answered and match.cached.fingerprint != request.fingerprint


def common(one: Sequence[bytes], other: Sequence[bytes]) -> int:
    """Count the leading links that two chains have in common. O(log): one link hashes all before it."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[middle - 1] == other[middle - 1]:
            low = middle
        else:
            high = middle - 1
    return low
