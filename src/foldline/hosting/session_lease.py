"""The lease of this process on a stored session: the agent is acquired for each turn and released after it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from time import monotonic
from typing import Final

from foldline.agent.assemble import Parts, assemble
from foldline.agent.events import AgentEvent, Listener, Notice
from foldline.agent.loop import Agent
from foldline.agent.settings.model import PolicySettings
from foldline.agent.tools.base import PermissionRequest
from foldline.agent.workers import run_to_end
from foldline.errors import FoldlineError, InvalidInput, SessionLost, SessionTaken
from foldline.hosting.actor_values import SessionState
from foldline.hosting.agent_conversation import with_policy
from foldline.hosting.runtime import Runtime
from foldline.store.base import Store, StoredSession

__all__ = ["DialectMismatch", "SessionLease"]

# A lease is held for one turn. Polled, as no store can notify all processes; half a second is short beside a turn.
_FIRST_WAIT_SECONDS: Final = 0.05
_LONGEST_WAIT_SECONDS: Final = 0.5


class DialectMismatch(InvalidInput):
    """The session speaks another dialect than the current model. A new session can start from what it shows."""

    def __init__(self, name: str, own: str, current: str) -> None:
        super().__init__(f"speaks {own}, and the current model {current}; begin a session from it", place=name)


class SessionLease:
    """One session. It stays in memory while no other process writes it; else it is read again.

    `emit` receives the agent's events in the thread of the loop. It serves one user at a time: see `SessionActor`.
    """

    def __init__(
        self,
        runtime: Runtime,
        store: Store,
        name: str,
        *,
        allowed: Callable[[PermissionRequest], Awaitable[bool]],
        emit: Listener,
        stored: StoredSession | None = None,
    ) -> None:
        self.name: Final = name
        self._runtime, self._store, self._allowed, self._emit = runtime, store, allowed, emit
        self._loop, self._thread = asyncio.get_running_loop(), threading.get_ident()
        self.stored = stored
        self.agent: Agent | None = None

    @property
    def current(self) -> tuple[Agent, StoredSession]:
        """The agent and its session, while they are acquired."""
        if self.agent is None or self.stored is None:
            raise RuntimeError("the session is not acquired")
        return self.agent, self.stored

    async def acquire(self, wait_seconds: float, slot: asyncio.Semaphore | None = None) -> Agent:
        """Acquire the agent; no other process writes the session from here on. O(log) if it is not in memory.

        With a `slot`, acquire that too; the caller releases it. While another process holds the session, the slot is
        free for others. Raises SessionTaken if another process still holds it after `wait_seconds`, DialectMismatch,
        InvalidInput (deleted or damaged), OSError.
        """
        until, pause_seconds = monotonic() + wait_seconds, _FIRST_WAIT_SECONDS
        while True:
            # Built for each attempt: the model may have changed while this one waited.
            parts = await self._runtime.parts(self._allowed)
            async with AsyncExitStack() as stack:
                # The slot first, the session second: a session that is held while it waits for a slot would be
                # withheld from processes that have one.
                if slot is not None:
                    await stack.enter_async_context(slot)
                try:
                    self.agent = await run_to_end(self._open, parts)
                except SessionTaken:
                    if monotonic() >= until:
                        raise
                except SessionLost:  # another process took it over since the last attempt: read it again
                    await self.unload()
                else:
                    stack.pop_all()  # the caller releases the slot, after the turn
                    return self.agent
            await asyncio.sleep(pause_seconds)
            pause_seconds = min(2 * pause_seconds, _LONGEST_WAIT_SECONDS)

    async def use_policy(self, selected: PolicySettings) -> None:
        """Continue under another policy, while acquired. O(log)."""
        agent, _ = self.current
        parts = replace(await self._runtime.parts(self._allowed), writes_in_thread=True)
        parts = with_policy(parts, selected)
        self.agent = await run_to_end(assemble, parts, tell=self._emit_in_loop, session=agent.session)

    async def save(self) -> None:
        """Write the snapshot. Nothing depends on it: a full disk is reported, and ends nothing."""
        if self.agent is None:
            return
        try:
            await run_to_end(self.agent.session.save)
        except (OSError, SessionLost) as fault:
            self._emit_in_loop(Notice(f"The snapshot of the session could not be written: {fault}"))

    async def wake(self) -> None:
        """End the rest of the session in memory: a fold that has begun meanwhile is ended first."""
        if self.agent is not None:
            await self.agent.session.wake()

    async def read(self) -> SessionState:
        """The session as far as it is written, whoever holds it, under the current model. O(log)."""
        return await run_to_end(self._read, await self._runtime.parts(self._allowed))

    async def release(self) -> None:
        """Let another process have the session; the agent stays in memory."""
        if self.stored is not None:
            try:
                await run_to_end(self.stored.release)
            except (OSError, FoldlineError):  # an unreachable database frees the session when its lease expires
                await self.unload()

    async def unload(self) -> None:
        """Release memory and files."""
        # Cleared before the await: the next request must not find an agent whose files are being closed.
        agent, stored = self.agent, self.stored
        self.stored = self.agent = None
        if agent is not None:
            agent.session.stop_writing_ahead()
        if stored is not None:
            with suppress(OSError, FoldlineError):
                await run_to_end(stored.close)

    async def discard(self) -> None:
        """Delete the session. Raises SessionTaken, InvalidInput, OSError."""
        if self.stored is None:
            await run_to_end(self._store.delete, self.name)
            return
        if self.agent is not None:
            self.agent.session.stop_writing_ahead()
        # Acquired first: another process may be in the middle of a turn, and would write into a deleted session.
        await run_to_end(self.stored.acquire)
        await run_to_end(self.stored.discard)
        self.stored = self.agent = None

    # --- inside, in a thread: a long session takes seconds to read ---------------------------------------------------

    def _read(self, parts: Parts) -> SessionState:
        recording = self._store.read(self.name)
        header = recording.header
        if header.dialect != parts.provider.dialect:
            return SessionState(recording.replay(), header, recording.tally)
        settings = assemble(parts, tell=lambda event: None).session.settings
        context = recording.replay(
            model=parts.provider.model,
            window=parts.window_tokens,
            max_output_tokens=settings.max_output_tokens,
            system=settings.system,
            tools=settings.tools,
            counter=settings.counter,
        )
        return SessionState(context, header, recording.tally, settings.system, settings.tools)

    def _open(self, parts: Parts) -> Agent:
        if self.stored is None:
            self.stored = self._store.open(self.name)
        elif self.stored.acquire() and self.agent is not None:  # nobody else has written since: memory is up to date
            return self.agent
        if self.agent is not None:  # what it writes ahead would be for a session that has gone on elsewhere
            self._loop.call_soon_threadsafe(self.agent.session.stop_writing_ahead)
        stored, self.agent = self.stored, None
        try:
            if stored.header.dialect != parts.provider.dialect:
                raise DialectMismatch(self.name, stored.header.dialect, parts.provider.dialect)
            if stored.tally.running:  # its process was killed during a turn
                stored.turn("ended", reason="interrupted")
            return assemble(_with_own_policy(parts, stored), tell=self._emit_in_loop, stored=stored)
        except BaseException:
            # Without this the lease would keep every other process out until it expires.
            stored.release()
            raise

    def _emit_in_loop(self, event: AgentEvent) -> None:
        # Work in a thread emits too, and listeners are not thread-safe.
        if threading.get_ident() == self._thread:
            self._emit(event)
        else:
            self._loop.call_soon_threadsafe(self._emit, event)


def _with_own_policy(parts: Parts, stored: StoredSession) -> Parts:
    """Return the parts under the session's own policy; record the current model in the session."""
    header = stored.header
    parts = replace(parts, writes_in_thread=True)  # a slow disk or database must delay one session, not all
    if header.model != parts.provider.model:
        stored.change(model=parts.provider.model)
    if header.policy != parts.settings.policy_value().name:
        with suppress(InvalidInput):  # the policy no longer exists
            return with_policy(parts, PolicySettings(name=header.policy))
    return parts
