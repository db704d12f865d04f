"""Conversations in a store: written down when they are folded, so that any process goes on with the same folds.

What was never folded needs no store: the client brings all of it with its next request. A fold is bound to the links
of the chain at which it was made; a request that has one of them goes on with that session.
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

__all__ = ["Found", "Keeping", "LateArchive"]

_EXACT: Final = "proxy="
_TOLERANT: Final = "proxy~"
_NAMED: Final = "proxy:"
_SEEN: Final = "proxy!"
"""Says of a session that a model wrote in it with system text and tools in sight, and, with their hash, with which."""


class LateArchive:
    """An archive whose store is only known once there is something to keep: until then it holds it in memory."""

    def __init__(self) -> None:
        self._held = MemoryArchive()
        self._waiting: dict[str, bytes] = {}
        self._behind: Archive | None = None

    def put(self, data: bytes, /) -> str:
        """Keep the bytes; returns their key."""
        key = key_of(data)
        if key not in self._waiting and (self._behind is None or key not in self._behind):
            self._waiting[key] = data
        return key

    def get(self, key: str, /) -> bytes:
        """The bytes under a key. Raises KeyError."""
        if key in self._waiting or self._behind is None:
            return self._waiting[key]
        return self._behind.get(key)

    def where(self, key: str, /) -> str:
        """A word for the place."""
        return self._held.where(key)

    def __contains__(self, key: object, /) -> bool:
        return key in self._waiting or (self._behind is not None and key in self._behind)

    def behind(self, archive: Archive) -> None:
        """Put what waits into this archive, and what comes after it too. Raises OSError; then it waits on."""
        waiting = list(self._waiting.values())
        if isinstance(archive, ManyAtOnce):
            archive.put_all(waiting)
        else:
            for data in waiting:
                archive.put(data)
        self._waiting.clear()
        self._behind = archive


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A conversation in a store: its log of `count` events, those of them that hold now, and its originals.

    `idle_seconds` is how long ago it was written in, by the clocks of those who wrote and of this machine. `sight` is
    what a model had in sight that wrote in it: b"" for messages alone, None for what the one who reads it has not sent.
    """

    session: str
    count: int
    events: tuple[Event, ...]
    archive: Archive
    idle_seconds: float = 0.0
    sight: bytes | None = b""

    @property
    def messages(self) -> Iterator[Wire]:
        """Its messages as they were recorded."""
        return (event.recorded for event in self.events if isinstance(event, Entry))


class _Origin(NamedTuple):
    """The session from which a conversation was read, the events that it had, and how many they were in memory."""

    session: str
    events: int
    taken: int
    sight: bytes


class _Kept:
    """How much of a conversation is written, and where."""

    def __init__(self, session: StoredSession) -> None:
        self.session = session
        self.events = 0
        self.sight = b""


class Keeping:
    """The conversations of one store. Methods block, for use in a worker thread; all raise OSError when it is lost.

    A function that opens the store is called when it is first needed, and again until it succeeds.
    """

    def __init__(self, store: Store | Callable[[], Store]) -> None:
        self._opens = store if callable(store) else None
        self._store = None if callable(store) else store
        self._opening = Lock()
        self._kept: WeakKeyDictionary[Conversation, _Kept] = WeakKeyDictionary()
        self._origins: WeakKeyDictionary[Conversation, _Origin] = WeakKeyDictionary()

    @property
    def store(self) -> Store:
        """The store, opened. Raises OSError."""
        store = self._store
        return self.open() if store is None else store

    def open(self) -> Store:
        """The store, opened now if it was not: once, however many threads ask for it at the same moment.

        Raises OSError, and InvalidInput for a place that can be none.
        """
        with self._opening:
            if self._store is None:
                if self._opens is None:
                    raise InvalidInput("is closed", place="store")
                self._store = self._opens()
            return self._store

    def find(self, exact: Sequence[bytes], tolerant: Sequence[bytes]) -> tuple[str, str] | None:
        """The key and the session that the longest chain leads to, or None. Two look-ups at most."""
        keys = [_EXACT + link.hex() for link in reversed(exact)]
        return self.store.first_session_of(keys) or self.store.first_session_of(
            [_TOLERANT + link.hex() for link in reversed(tolerant)]
        )

    def named(self, name: str) -> str | None:
        """The session that goes by a name that a client gave."""
        return self.store.session_of(_NAMED + name)

    def read(self, session: str, sight: bytes = b"") -> Found:
        """A conversation, for one who sends the system text and tools of this hash. O(log).

        Raises InvalidInput when it is damaged.
        """
        recording = self.store.read(session)
        events = tuple(without_stale_limits(recording.events, recording.tally))
        archive = self.store.archive(session)
        return Found(
            session=session,
            count=recording.tally.events,
            events=events,
            archive=archive,
            idle_seconds=seconds_since(recording.tally.updated),
            sight=self._sight(session, sight),  # last: it is bound before anything is written that it is said of
        )

    def adopt(self, conversation: Conversation, found: Found) -> None:
        """Write this conversation on in the session from which it was read, from its next fold on."""
        taken = conversation.context.event_count
        self._origins[conversation] = _Origin(found.session, found.count, taken, found.sight or b"")

    def write(
        self, conversation: Conversation, archive: LateArchive, exact: bytes, tolerant: bytes, *, name: str = ""
    ) -> tuple[str, ...]:
        """Write down what is new, and bind it to the newest links; the keys that it goes by. O(new).

        Where another process has written meanwhile, this one goes on in a session of its own. Raises SessionLost when
        that cannot be, as a part of it is not in memory.
        """
        kept = self._taken(conversation)
        try:
            if conversation.sight != kept.sight:
                self.store.bind_all(_seen(kept.session.id, conversation.sight), kept.session.id)
                kept.sight = conversation.sight
            kept.session.append(conversation.context.events_after(kept.events))
            kept.events = conversation.context.event_count
            archive.behind(kept.session.archive)
            kept.session.save(conversation.context)
        finally:
            kept.session.release()
        keys = [_EXACT + exact.hex(), _TOLERANT + tolerant.hex(), *([_NAMED + name] if name else [])]
        self.store.bind_all(keys, kept.session.id)
        return tuple(keys)

    def session_of(self, conversation: Conversation) -> str:
        """The id of its session in the store; "" if it is not written."""
        kept = self._kept.get(conversation)
        if kept is not None:
            return kept.session.id
        origin = self._origins.get(conversation)
        return "" if origin is None else origin.session

    def unwritten(self, conversation: Conversation) -> bool:
        """Whether there is something to write of a conversation that has folds."""
        kept, origin = self._kept.get(conversation), self._origins.get(conversation)
        done = kept.events if kept is not None else origin.taken if origin is not None else 0
        return conversation.folded and done < conversation.context.event_count

    def events(self, conversation: Conversation) -> tuple[Event, ...]:
        """The whole log of a conversation, what was let go of too. O(log). Raises InvalidInput when it is damaged.

        And SessionLost when its session was forgotten.
        """
        context = conversation.context
        kept = self._kept.get(conversation)
        if not context.released:
            return context.events
        if kept is None:
            raise SessionLost(conversation.name)
        found = self.read(kept.session.id, conversation.sight)
        if found.sight not in (b"", conversation.sight):  # another process has written in it
            raise SessionLost(conversation.name)
        return (*found.events, *context.events_after(kept.events))

    def forget(self, conversation: Conversation) -> None:
        """Let go of its session."""
        self._origins.pop(conversation, None)
        kept = self._kept.pop(conversation, None)
        if kept is not None:
            kept.session.close()

    def close(self) -> None:
        """Let go of all sessions and of the store."""
        for kept in list(self._kept.values()):
            kept.session.close()
        self._kept.clear()
        with self._opening:
            store, self._store, self._opens = self._store, None, None
        if store is not None:
            store.close()

    def _sight(self, session: str, own: bytes) -> bytes | None:
        keys = _seen(session, own)
        found = self.store.first_session_of(keys)
        return b"" if found is None else own if found[0] == keys[0] else None

    def _taken(self, conversation: Conversation) -> _Kept:
        """Its session, taken for writing; a new one where it has none, or another process has written in it."""
        kept = self._kept.get(conversation) or self._opened(conversation)
        if kept is not None:
            with suppress(SessionTaken, SessionLost, InvalidInput):
                if kept.session.acquire():
                    return kept
            kept.session.close()
            if conversation.context.released:
                raise SessionLost(kept.session.id)  # of what was let go of it is to be read anew
        made = _Kept(self._created(conversation, None if kept is None else kept.session.id))
        self._kept[conversation] = made
        return made

    def _opened(self, conversation: Conversation) -> _Kept | None:
        """The session from which it was read, if nobody has written in it since."""
        origin = self._origins.pop(conversation, None)
        if origin is None:
            return None
        try:
            stored = self.store.open(origin.session)
        except InvalidInput:
            return None
        if stored.tally.events != origin.events:
            stored.close()
            return None
        kept = _Kept(stored)
        kept.events = origin.taken
        kept.sight = origin.sight
        self._kept[conversation] = kept
        return kept

    def _created(self, conversation: Conversation, parent: str | None) -> StoredSession:
        context = conversation.context
        return self.store.create(
            dialect=conversation.dialect,
            model=conversation.model or None,
            policy=context.policy.name,
            window=context.limits.window_tokens,
            title=conversation.title,
            parent=parent,
        )


def _seen(session: str, sight: bytes) -> list[str]:
    return [f"{_SEEN}{session}!{sight.hex()}", f"{_SEEN}{session}"]
