"""Blocking work outside of the event loop: worker threads, and a store that may fail without delaying requests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from time import monotonic
from typing import Final, Protocol, TypeVar

from foldline.conversations.conversation_cache import CachedConversation
from foldline.conversations.persistence import ConversationStore, StoredConversation
from foldline.errors import FoldlineError, SessionLost
from foldline.view.transcript import Event

__all__ = ["STORE_LOST", "StoreGuard", "WorkerThreads"]

STORE_LOST: Final = "the store does not answer"
"""The warning of a request for which the store did not answer."""

# How long a failed store is left alone: no request waits for it meanwhile.
_RETRY_SECONDS: Final = 5.0

# Recording and folding compute, and share one interpreter; more threads than this only wait for it.
_THREADS: Final = 16
# Summaries wait for a model in these, for minutes. In a pool of their own they hold up nothing else.
_SUMMARY_THREADS: Final = 64

T = TypeVar("T")
_NO_KEYS: Final[tuple[str, ...]] = ()


class WorkerThreads:
    """Two thread pools: one for work, one for work that may wait for a model."""

    def __init__(self) -> None:
        self._workers = ThreadPoolExecutor(_THREADS, thread_name_prefix="foldline-conversation")
        self._summarisers = ThreadPoolExecutor(_SUMMARY_THREADS, thread_name_prefix="foldline-summary")

    async def run(self, work: Callable[..., T], *arguments: object, summarizes: bool = False) -> T:
        """Run a function in a thread. A cancelled caller still waits for it: half-done work would have no owner."""
        pool = self._summarisers if summarizes else self._workers
        future = asyncio.get_running_loop().run_in_executor(pool, work, *arguments)
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            while not future.done():
                with suppress(asyncio.CancelledError):  # a second cancellation, as at the shutdown of a server
                    await asyncio.wait({future})
            if not future.cancelled():
                future.exception()  # retrieved, so that asyncio does not log it
            raise

    def close(self) -> None:
        """Start no more work."""
        for pool in (self._workers, self._summarisers):
            pool.shutdown(wait=False, cancel_futures=True)


class _RunInThread(Protocol):
    async def __call__(self, work: Callable[[], T], /) -> T: ...


class StoreGuard:
    """The store of a proxy. If it is `shared`, other processes may continue a conversation at any time.

    A failure is reported by `notice`. Then the store is left alone for `retry_seconds`.
    """

    def __init__(
        self,
        store: ConversationStore,
        *,
        shared: bool,
        run: _RunInThread,
        notice: Callable[[str], None],
        retry_seconds: float = _RETRY_SECONDS,
    ) -> None:
        self.store, self.shared = store, shared
        self._run, self._notice, self._retry_seconds = run, notice, retry_seconds
        self._lost_at: float | None = None
        self._leaving: dict[asyncio.Task[None], CachedConversation] = {}

    @property
    def up(self) -> bool:
        """Whether the store answered the latest question."""
        return self._lost_at is None

    async def find(
        self,
        exact: Sequence[bytes],
        tolerant: Sequence[bytes],
        *,
        name: str,
        own: CachedConversation | None,
        scope: bytes = b"",
    ) -> tuple[StoredConversation | None, str]:
        """Return the stored conversation of a request, and a warning if the store does not answer.

        Returns None if the store has nothing newer than `own`, the cached conversation of the request.
        """
        store, links = self.store, {*exact, *tolerant}
        # A conversation evicted a moment ago must be written first, or an older state of it would be read.
        if pending := [
            task for task, cached in self._leaving.items() if not links.isdisjoint([*cached.exact, *cached.tolerant])
        ]:
            await asyncio.wait(pending)

        def read() -> StoredConversation | None:
            session = store.session_named(name) if name else None
            if session is None:
                key, session = store.find(exact, tolerant) or ("", None)
                # The same key may lead to another session by now: another process has folded the same messages and
                # was the last to write.
                if own is not None and key in own.keys and session == store.session_of(own.conversation):
                    return None
            return None if session is None else store.read(session, scope)

        return await self._attempt(read, None)

    async def events(self, cached: CachedConversation) -> Sequence[Event]:
        """Return the whole log of a conversation, or nothing if a part of it is lost. O(log).

        Raises SessionLost for a conversation that was evicted meanwhile.
        """
        if not cached.conversation.context.released:
            return cached.conversation.context.events
        nothing: tuple[Event, ...] = ()
        return (await self._attempt(lambda: self.store.events(cached.conversation), nothing))[0]

    async def write(self, cached: CachedConversation) -> str:
        """Write a folded conversation and release what the store has. Returns a warning. Raises SessionLost."""

        def write() -> tuple[str, ...]:
            keys = self._write(cached)
            cached.conversation.release()
            return keys

        keys, warning = await self._attempt(write, _NO_KEYS)
        cached.keys.update(keys)
        return warning

    def leave(self, cached: CachedConversation) -> None:
        """Close a conversation that was evicted, after writing its unwritten events."""
        if not cached.lock.locked() and not self._has_unwritten(cached):
            self.store.forget(cached.conversation)
            return
        # A task, since eviction happens in the middle of another request, which must not wait for this write.
        task = asyncio.create_task(self._write_and_forget(cached))
        self._leaving[task] = cached
        task.add_done_callback(self._leaving.pop)

    def drop(self, cached: CachedConversation) -> None:
        """Close a conversation that will be read anew."""
        self.store.forget(cached.conversation)

    async def aclose(self) -> None:
        """Wait for pending writes and close the store."""
        if self._leaving:
            await asyncio.wait(set(self._leaving))
        await self._run(self.store.close)

    async def _write_and_forget(self, cached: CachedConversation) -> None:
        async with cached.lock:
            try:
                if self._has_unwritten(cached):
                    await self._attempt(lambda: self._write(cached), _NO_KEYS)
            except SessionLost:  # the process that continued it has written it
                return
            finally:
                self.store.forget(cached.conversation)

    def _has_unwritten(self, cached: CachedConversation) -> bool:
        return cached.stored and self.store.has_unwritten(cached.conversation)

    def _write(self, cached: CachedConversation) -> tuple[str, ...]:
        tips = cached.exact[-1], cached.tolerant[-1]
        return self.store.write(cached.conversation, cached.archive, *tips, name=cached.name)

    async def _attempt(self, work: Callable[[], T], default: T) -> tuple[T, str]:
        """Return the result of work on the store, or the default and a warning."""
        # A lost store is no reason to refuse a request, nor to delay each of them by a timeout.
        lost = self._lost_at
        if lost is not None and monotonic() - lost < self._retry_seconds:
            return default, STORE_LOST
        try:
            result = await self._run(work)
        except SessionLost:
            raise
        except (OSError, FoldlineError) as error:
            # Only OSError means that the store is lost; a FoldlineError concerns one session, as a damaged log does.
            if isinstance(error, OSError):
                self._lost_at = monotonic()
            self._notice(f"The store cannot be used: {error}")
            return default, STORE_LOST
        if lost is not None:
            self._lost_at = None
            self._notice("The store answers again.")
        return result, ""
