"""Conversations in a store: written when they are folded, so that any process continues with the same folds.

A conversation without folds needs no store: the client sends all of it with its next request. A fold is bound to the
links of the hash chain at which it was made, and a request with one of those links continues that session.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from threading import Lock
from typing import Final, NamedTuple
from weakref import WeakKeyDictionary

from foldline.conversations.conversation import Conversation
from foldline.errors import InvalidInput, SessionLost, SessionTaken
from foldline.messages import Wire
from foldline.store.base import Store, StoredSession
from foldline.store.clock import seconds_since
from foldline.store.recording import without_stale_limits
from foldline.view.archive import Archive, ManyAtOnce, MemoryArchive, key_of
from foldline.view.transcript import Entry, Event

__all__ = ["ConversationStore", "LateArchive", "StoredConversation"]

# Prefixes of the keys that are bound to sessions. Stored: do not change them.
_EXACT: Final = "proxy="
_TOLERANT: Final = "proxy~"
_NAMED: Final = "proxy:"
# Marks a session in which a model wrote a summary with system text and tools before it; with their hash, which ones.
_SCOPED: Final = "proxy!"


class LateArchive:
    """An archive in memory until a store is attached: most conversations never fold and never need one."""

    def __init__(self) -> None:
        self._memory = MemoryArchive()
        self._pending: dict[str, bytes] = {}
        self._attached: Archive | None = None

    def put(self, data: bytes, /) -> str:
        """Store the bytes and return their key."""
        key = key_of(data)
        if key not in self._pending and (self._attached is None or key not in self._attached):
            self._pending[key] = data
        return key

    def get(self, key: str, /) -> bytes:
        """Return the bytes under a key. Raises KeyError."""
        if key in self._pending or self._attached is None:
            return self._pending[key]
        return self._attached.get(key)

    def where(self, key: str, /) -> str:
        """Return a word for the location."""
        return self._memory.where(key)

    def __contains__(self, key: object, /) -> bool:
        return key in self._pending or (self._attached is not None and key in self._attached)

    def attach(self, archive: Archive) -> None:
        """Move all bytes into this archive, now and in future. Raises OSError, and keeps the bytes then."""
        pending = list(self._pending.values())
        if isinstance(archive, ManyAtOnce):
            archive.put_all(pending)
        else:
            for data in pending:
                archive.put(data)
        self._pending.clear()
        self._attached = archive


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredConversation:
    """A conversation as read from a store: the events of its log that are still in force, and its originals.

    `count` is the number of all its events. `idle_seconds` is the time since the last write, by the clocks of the
    writers and of this machine. `summary_scope` is the hash of the system text and tools that a model read when it
    wrote in the session: b"" if it read messages alone, None if it read something that the reader has not sent.
    """

    session: str
    count: int
    events: tuple[Event, ...]
    archive: Archive
    idle_seconds: float = 0.0
    summary_scope: bytes | None = b""

    @property
    def messages(self) -> Iterator[Wire]:
        """The messages as they were recorded."""
        return (event.recorded for event in self.events if isinstance(event, Entry))


class _SourceSession(NamedTuple):
    """The session that a conversation was read from, with its number of events in the store and in memory."""

    session: str
    stored_events: int
    loaded_events: int
    summary_scope: bytes


class _OpenSession:
    """A session being written, with how much of the conversation it has."""

    def __init__(self, session: StoredSession, events: int = 0, summary_scope: bytes = b"") -> None:
        self.session, self.events, self.summary_scope = session, events, summary_scope


class ConversationStore:
    """The conversations of one store. Methods block, for use in a worker thread, and raise OSError if it is lost.

    A function that opens the store is called on first use, and again until it succeeds.
    """

    def __init__(self, store: Store | Callable[[], Store]) -> None:
        self._open_store = store if callable(store) else None
        self._store = None if callable(store) else store
        self._opening = Lock()
        # Weak: a conversation that leaves the cache takes its entries along.
        self._sessions: WeakKeyDictionary[Conversation, _OpenSession] = WeakKeyDictionary()
        self._sources: WeakKeyDictionary[Conversation, _SourceSession] = WeakKeyDictionary()

    @property
    def store(self) -> Store:
        """The store, opened. Raises OSError."""
        store = self._store
        return self.open() if store is None else store

    def open(self) -> Store:
        """Return the store, opened once however many threads ask for it at the same moment.

        Raises OSError, and InvalidInput for an impossible location.
        """
        # A lock of threads, not of the loop: this runs in worker threads, and two of them may come first.
        with self._opening:
            if self._store is None:
                if self._open_store is None:
                    raise InvalidInput("is closed", place="store")
                self._store = self._open_store()
            return self._store

    def find(self, exact: Sequence[bytes], tolerant: Sequence[bytes]) -> tuple[str, str] | None:
        """Return the key and the session of the longest stored chain, or None. Two look-ups at most."""
        keys = [_EXACT + link.hex() for link in reversed(exact)]
        return self.store.first_session_of(keys) or self.store.first_session_of(
            [_TOLERANT + link.hex() for link in reversed(tolerant)]
        )

    def session_named(self, name: str) -> str | None:
        """Return the session with the name that a client gave it."""
        return self.store.session_of(_NAMED + name)

    def read(self, session: str, scope: bytes = b"") -> StoredConversation:
        """Read a conversation for a client with this scope. O(log). Raises InvalidInput for a damaged one."""
        recording = self.store.read(session)
        events = tuple(without_stale_limits(recording.events, recording.tally))
        archive = self.store.archive(session)
        return StoredConversation(
            session=session,
            count=recording.tally.events,
            events=events,
            archive=archive,
            idle_seconds=seconds_since(recording.tally.updated),
            # Read last: a writer binds the scope before the events that depend on it.
            summary_scope=self._summary_scope(session, scope),
        )

    def adopt(self, conversation: Conversation, stored: StoredConversation) -> None:
        """Have the next write continue the session from which this conversation was read."""
        loaded = conversation.context.event_count
        self._sources[conversation] = _SourceSession(stored.session, stored.count, loaded, stored.summary_scope or b"")

    def write(
        self, conversation: Conversation, archive: LateArchive, exact: bytes, tolerant: bytes, *, name: str = ""
    ) -> tuple[str, ...]:
        """Write the new events and bind them to the latest links. Returns the bound keys. O(new).

        If another process has written to the session, continues in a new one. Raises SessionLost if that is impossible
        because a part of the conversation is not in memory.
        """
        opened = self._acquire(conversation)
        try:
            # The scope first: a reader that sees the events must see it too.
            if conversation.summary_scope != opened.summary_scope:
                self.store.bind_all(_scope_keys(opened.session.id, conversation.summary_scope), opened.session.id)
                opened.summary_scope = conversation.summary_scope
            opened.session.append(conversation.context.events_after(opened.events))
            opened.events = conversation.context.event_count
            archive.attach(opened.session.archive)
            opened.session.save(conversation.context)
        finally:
            opened.session.release()
        # The links last: nobody finds a session that is only half written.
        keys = [_EXACT + exact.hex(), _TOLERANT + tolerant.hex(), *([_NAMED + name] if name else [])]
        self.store.bind_all(keys, opened.session.id)
        return tuple(keys)

    def session_of(self, conversation: Conversation) -> str:
        """Return the id of its session; "" if it was never written."""
        opened = self._sessions.get(conversation)
        if opened is not None:
            return opened.session.id
        source = self._sources.get(conversation)
        return "" if source is None else source.session

    def has_unwritten(self, conversation: Conversation) -> bool:
        """Whether a conversation with folds has events that are not in the store."""
        opened, source = self._sessions.get(conversation), self._sources.get(conversation)
        written = opened.events if opened is not None else source.loaded_events if source is not None else 0
        return conversation.folded and written < conversation.context.event_count

    def events(self, conversation: Conversation) -> tuple[Event, ...]:
        """Return the whole log of a conversation, with released entries. O(log).

        Raises InvalidInput for a damaged session, and SessionLost for one that was closed or changed by others.
        """
        context = conversation.context
        opened = self._sessions.get(conversation)
        if not context.released:
            return context.events
        if opened is None:
            raise SessionLost(conversation.name)
        stored = self.read(opened.session.id, conversation.summary_scope)
        if stored.summary_scope not in (b"", conversation.summary_scope):  # another process has written to it
            raise SessionLost(conversation.name)
        return (*stored.events, *context.events_after(opened.events))

    def forget(self, conversation: Conversation) -> None:
        """Close the session of a conversation."""
        self._sources.pop(conversation, None)
        opened = self._sessions.pop(conversation, None)
        if opened is not None:
            opened.session.close()

    def close(self) -> None:
        """Close all sessions and the store."""
        for opened in list(self._sessions.values()):
            opened.session.close()
        self._sessions.clear()
        with self._opening:
            store, self._store, self._open_store = self._store, None, None
        if store is not None:
            store.close()

    def _summary_scope(self, session: str, scope: bytes) -> bytes | None:
        keys = _scope_keys(session, scope)
        found = self.store.first_session_of(keys)
        return b"" if found is None else scope if found[0] == keys[0] else None

    def _acquire(self, conversation: Conversation) -> _OpenSession:
        """Return its session, locked for writing; a new one if it has none or another process has written to it."""
        opened = self._sessions.get(conversation) or self._reopen(conversation)
        if opened is not None:
            with suppress(SessionTaken, SessionLost, InvalidInput):
                if opened.session.acquire():
                    return opened
            opened.session.close()
            # Released entries exist only in the session that is lost now: read it anew.
            if conversation.context.released:
                raise SessionLost(opened.session.id)
        created = _OpenSession(self._create(conversation, None if opened is None else opened.session.id))
        self._sessions[conversation] = created
        return created

    def _reopen(self, conversation: Conversation) -> _OpenSession | None:
        """Open the session from which it was read, unless someone has written to it since."""
        # Removed in any case: a source serves one attempt, and from then on the open session counts.
        source = self._sources.pop(conversation, None)
        if source is None:
            return None
        try:
            stored = self.store.open(source.session)
        except InvalidInput:
            return None
        # By the number of events: a log only grows, so as many events are the same events.
        if stored.tally.events != source.stored_events:
            stored.close()
            return None
        opened = _OpenSession(stored, source.loaded_events, source.summary_scope)
        self._sessions[conversation] = opened
        return opened

    def _create(self, conversation: Conversation, parent: str | None) -> StoredSession:
        context = conversation.context
        return self.store.create(
            dialect=conversation.dialect,
            model=conversation.model or None,
            policy=context.policy.name,
            window=context.limits.window_tokens,
            title=conversation.title,
            parent=parent,
        )


def _scope_keys(session: str, scope: bytes) -> list[str]:
    return [f"{_SCOPED}{session}!{scope.hex()}", f"{_SCOPED}{session}"]
