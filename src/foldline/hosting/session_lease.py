"""A session of a store in the hands of this process: its agent, taken for each turn and let go of after it."""

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
from foldline.agent.settings.policies import PolicySettings
from foldline.agent.threads import to_its_end
from foldline.agent.tools.base import Ask
from foldline.errors import FoldlineError, InvalidInput, SessionLost, SessionTaken
from foldline.hosting.agent_conversation import with_policy
from foldline.hosting.runtime import Runtime
from foldline.store.base import Store, StoredSession

__all__ = ["DialectMismatch", "SessionLease"]

_FIRST_WAIT_SECONDS: Final = 0.05
_LONGEST_WAIT_SECONDS: Final = 0.5


class DialectMismatch(InvalidInput):
    """The session speaks another dialect than the model of now: a new one can begin with what is shown of it."""

    def __init__(self, name: str, own: str, current: str) -> None:
        super().__init__(f"speaks {own}, the model of now {current}; begin a session from it", place=name)


class SessionLease:
    """One session. What is read of it stays in memory while nobody else writes; else it is read again.

    `tell` hears the events of its agent, in the thread of the loop. Not for two users at a time: see `Actor`.
    """

    def __init__(
        self,
        runtime: Runtime,
        store: Store,
        name: str,
        *,
        allowed: Callable[[Ask], Awaitable[bool]],
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
        """The agent and its session, while they are in hand."""
        if self.agent is None or self.stored is None:
            raise RuntimeError("the session was not taken")
        return self.agent, self.stored

    async def acquire(self, wait_seconds: float, slot: asyncio.Semaphore | None = None) -> Agent:
        """Its agent, which nobody else writes from here on. O(log) where it is not in memory.

        With a `slot` it has that too, and whoever asked gives it back; while another process has the session, it is
        free for others.
        Raises SessionTaken when another process still has it after `wait_seconds`, AnotherDialect, InvalidInput (it is
        gone, or damaged), OSError.
        """
        until, pause_seconds = monotonic() + wait_seconds, _FIRST_WAIT_SECONDS
        while True:
            parts = await self._runtime.parts(self._allowed)
            async with AsyncExitStack() as stack:
                if slot is not None:
                    await stack.enter_async_context(slot)
                try:
                    self.agent = await to_its_end(self._open, parts)
                except SessionTaken:
                    if monotonic() >= until:
                        raise
                except SessionLost:  # between two looks
                    await self.unload()
                else:
                    stack.pop_all()
                    return self.agent
            await asyncio.sleep(pause_seconds)
            pause_seconds = min(2 * pause_seconds, _LONGEST_WAIT_SECONDS)

    async def use_policy(self, chosen: PolicySettings) -> None:
        """Go on under another policy, while it is in hand. O(log)."""
        agent, _ = self.current
        parts = replace(await self._runtime.parts(self._allowed), writes_in_thread=True)
        parts = with_policy(parts, chosen)
        self.agent = await to_its_end(assemble, parts, tell=self._emit_in_loop, session=agent.session)

    async def save(self) -> None:
        """Put the snapshot in place. Nothing depends on it, so a full disk is told and ends nothing."""
        if self.agent is None:
            return
        try:
            await to_its_end(self.agent.session.save)
        except (OSError, SessionLost) as fault:
            self._emit_in_loop(Notice(f"The snapshot of the session could not be written: {fault}"))

    async def release(self) -> None:
        """Let another process have it; its agent stays in memory."""
        if self.stored is not None:
            try:
                await to_its_end(self.stored.let_go)
            except (OSError, FoldlineError):  # a database that is away: it lets go of it by itself, after its lease
                await self.unload()

    async def unload(self) -> None:
        """Let go of memory and files."""
        stored, self.stored, self.agent = self.stored, None, None
        if stored is not None:
            with suppress(OSError, FoldlineError):
                await to_its_end(stored.close)

    async def discard(self) -> None:
        """Remove the session. Raises SessionTaken, InvalidInput, OSError."""
        if self.stored is None:
            await to_its_end(self._store.delete, self.name)
            return
        await to_its_end(self.stored.take)
        await to_its_end(self.stored.discard)
        self.stored = self.agent = None

    # --- inside, in a thread: reading a long session takes its time --------------------------------------------------

    def _open(self, parts: Parts) -> Agent:
        if self.stored is None:
            self.stored = self._store.open(self.name)
        elif self.stored.take() and self.agent is not None:
            return self.agent
        stored, self.agent = self.stored, None
        try:
            if stored.header.dialect != parts.provider.dialect:
                raise DialectMismatch(self.name, stored.header.dialect, parts.provider.dialect)
            if stored.tally.running:  # of a process that ended in the middle of it
                stored.turn("ended", reason="interrupted")
            return assemble(_with_own_policy(parts, stored), tell=self._emit_in_loop, stored=stored)
        except BaseException:
            stored.let_go()
            raise

    def _emit_in_loop(self, event: AgentEvent) -> None:
        if threading.get_ident() == self._thread:
            self._emit(event)
        else:
            self._loop.call_soon_threadsafe(self._emit, event)


def _with_own_policy(parts: Parts, stored: StoredSession) -> Parts:
    """The parts under the session's own policy; the session under the model of now."""
    header = stored.header
    parts = replace(parts, writes_in_thread=True)  # a slow disk or database holds up one session, not all
    if header.model != parts.provider.model:
        stored.change(model=parts.provider.model)
    if header.policy != parts.settings.policy_value().name:
        with suppress(InvalidInput):  # a policy that is there no more
            return with_policy(parts, PolicySettings(name=header.policy))
    return parts
