"""A session as an actor: what is asked of it is done one after the other, here and over all servers that share it.

What is done runs in a task of its own, so that it outlives the connection that asked for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from time import monotonic
from typing import Any, Final, TypeVar

from foldline.agent.assemble import Parts, assemble
from foldline.agent.events import AgentEvent, Listener, TurnEnded
from foldline.agent.loop import Agent
from foldline.agent.settings.values import PolicySettings
from foldline.agent.threads import to_its_end
from foldline.agent.tools.base import Ask
from foldline.codecs import codec as codec_for
from foldline.display import summary_of
from foldline.engine.context import Context
from foldline.errors import InvalidInput, SessionLost, SessionTaken, Stopping, TooManyWaiting
from foldline.hosting.actor_values import ActorLimits, CompactionResult, KeyReused, SessionDeleted, SessionState
from foldline.hosting.runtime import Runtime
from foldline.hosting.session_lease import DialectMismatch, SessionLease
from foldline.hosting.turns import recorded_turn
from foldline.store.base import Store, StoredSession
from foldline.store.recording import snapshot_of
from foldline.store.snapshot import Snapshot
from foldline.view.transcript import Seq, Unfold

__all__ = ["ActorLimits", "CompactionResult", "SessionActor", "SessionState"]

T = TypeVar("T")

# What a turn that is cut off may take to write down that it was.
_CUT_OFF_SECONDS: Final = 5.0


class SessionActor:
    """One session. `tell` hears everything that happens in it; `turns` bounds how many run at once; `rests` is told
    when nothing is left to do.

    What is asked of it raises TooManyWaiting, Stopping, SessionTaken (another process has it for longer than is waited
    for), SessionLost, AnotherDialect, InvalidInput (it is gone or damaged) and OSError, beside what a method names.
    """

    def __init__(
        self,
        crew: Runtime,
        store: Store,
        name: str,
        *,
        limits: ActorLimits,
        turns: asyncio.Semaphore,
        allowed: Callable[[Ask], Awaitable[bool]],
        tell: Callable[[str, AgentEvent], None],
        rests: Callable[[], None] = lambda: None,
        stored: StoredSession | None = None,
    ) -> None:
        self.id: Final = name
        self._crew, self._store, self._limits, self._turns = crew, store, limits, turns
        self._tell, self._rests, self._allowed = tell, rests, allowed
        self._hand = SessionLease(crew, store, name, allowed=allowed, tell=self._hear, stored=stored)
        self._order = asyncio.Lock()  # first come, first served
        self._tasks: set[asyncio.Task[Any]] = set()
        self._works: asyncio.Task[Any] | None = None
        self._turn: asyncio.Task[TurnEnded] | None = None
        self._asked_by: object = None
        self._listener: Listener | None = None
        # Turns and compactions that are under way or wait.
        self._long: set[asyncio.Task[Any]] = set()
        self._compacting = False
        self._stopping = self._deleted = False
        self.used_at = monotonic()

    # --- how it stands -----------------------------------------------------------------------------------------------

    @property
    def running(self) -> bool:
        """Whether a turn is under way."""
        return self._turn is not None

    @property
    def queued(self) -> int:
        """How many wait behind what is being done."""
        return max(0, len(self._tasks) - 1)

    @property
    def warm(self) -> bool:
        """Whether its context is in memory."""
        return self._hand.agent is not None

    @property
    def snapshot(self) -> Snapshot | None:
        """How it stands, where it is in memory; None elsewhere. O(what is new)."""
        agent, stored = self._hand.agent, self._hand.stored
        if agent is None or stored is None:
            return None
        return snapshot_of(stored.header, stored.tally, agent.session.context, 0)

    @property
    def busy(self) -> bool:
        """Whether anything is being done, or waits to be."""
        return bool(self._tasks)

    # --- turns -------------------------------------------------------------------------------------------------------

    async def say(
        self, text: str, *, key: str = "", same_text: bool = False, listener: Listener | None = None
    ) -> TurnEnded:
        """One turn, after what waits already; `listener` hears its events.

        A `key` that a turn of this session had before runs nothing: the end of that turn is returned. Whoever asked may
        leave (cancel this): a turn that has not begun never does, one that has begun goes on or pauses, as
        `session.on_disconnect` says. Raises InvalidInput for no words and, with `same_text`, KeyUsed where that turn
        began with other words.
        """
        if not text.strip():
            raise InvalidInput("there is nothing in it", place="text")
        gone = asyncio.Event()

        async def turn(agent: Agent) -> TurnEnded:
            if gone.is_set():
                raise asyncio.CancelledError
            _, stored = self._hand.now
            if key in stored.tally.keys:
                records, codec = self._store.records(self.id), codec_for(stored.header.dialect)
                said, ended = await to_its_end(recorded_turn, records, stored.tally.keys[key], codec)
                if same_text and said != text:
                    raise KeyReused
                return ended
            self._listener, self._asked_by = listener, gone
            self._turn = asyncio.create_task(agent.run(text, key=key))
            try:
                return await self._ended(self._turn)
            finally:
                self._turn = self._listener = self._asked_by = None
                await self._hand.save()

        try:
            return await self._done(turn, is_turn=True, leaves=True)
        except asyncio.CancelledError:
            gone.set()
            session = self._crew.settings.session
            if self._asked_by is gone and (session is None or session.on_disconnect == "pause"):
                self.pause()
            raise

    def pause(self) -> None:
        """End the turn that runs once what is under way in it is recorded."""
        if self._hand.agent is not None:
            self._hand.agent.pause()

    def cancel(self) -> bool:
        """Stop the turn that runs; whether there was one. What waits behind it goes on."""
        return self._turn is not None and self._turn.cancel()

    # --- folds -------------------------------------------------------------------------------------------------------

    async def compact(self, instructions: str | None = None) -> CompactionResult:
        """Fold everything that may be folded. Raises SummaryError where there is nothing to be."""

        async def work(agent: Agent) -> CompactionResult:
            before = agent.session.figures
            self._compacting = True
            try:
                folds = await agent.session.compact(instructions, agent.summarize)
            finally:
                self._compacting = False
                await self._hand.save()
            shown = summary_of(folds) or "\n\n".join(fold.shown[0].text for fold in folds if fold.shown)
            return CompactionResult(before=before, after=agent.session.figures, folds=folds, summary=shown)

        return await self._done(work, is_turn=True)

    async def undo(self) -> tuple[Unfold, ...]:
        """Take back the last batch of folds; empty when there is none."""

        async def work(agent: Agent) -> tuple[Unfold, ...]:
            taken = await to_its_end(agent.session.undo)
            await self._hand.save()
            return taken

        return await self._done(work)

    async def pin(self, seq: Seq, *, pinned: bool = True) -> None:
        """Keep the group of a message whole, or no longer. Raises InvalidInput, FoldRefused when it is folded."""

        async def work(agent: Agent) -> None:
            await to_its_end(agent.session.pin, seq, pinned=pinned)

        await self._done(work)

    async def use_policy(self, name: str) -> None:
        """Fold by another policy from here on. Raises InvalidInput for one that is not there."""
        chosen = PolicySettings(name=name)

        async def work(agent: Agent) -> None:
            await self._hand.use_policy(chosen)

        await self._done(work)

    async def keep(self, data: bytes) -> str:
        """Put a document into the archive, as safe as the log; returns its key."""

        async def work(agent: Agent) -> str:
            return await to_its_end(self._hand.now[1].keep, data)

        return await self._done(work)

    # --- looking -----------------------------------------------------------------------------------------------------

    async def look(self, read: Callable[[SessionState], T]) -> T:
        """What `read` finds in the session as it stands now; while a turn runs, in the middle of it.

        It waits for no turn. A session that another process writes, or that speaks another dialect, is read as far as
        it is written. O(log) where it is not in memory.
        """

        async def work(agent: Agent) -> T:
            return read(self._seen())

        if self._turn is not None or self._compacting:
            return read(self._seen())
        if not self._long:
            with suppress(SessionTaken, DialectMismatch):
                return await self._done(work, wait_seconds=0.0)
        parts = await self._crew.parts(self._allowed)
        return read(await to_its_end(self._read, parts))

    async def whole(self) -> Context:
        """A context with everything in memory, folded or not; to be read only. O(log)."""

        async def work(agent: Agent) -> Context:
            return await to_its_end(agent.session.whole)

        if self._turn is not None:
            return await to_its_end(self._hand.now[0].session.whole)
        try:
            return await self._done(work, wait_seconds=0.0)
        except SessionTaken:
            parts = await self._crew.parts(self._allowed)
            return (await to_its_end(self._read, parts)).context

    # --- coming and going --------------------------------------------------------------------------------------------

    async def delete(self) -> None:
        """Stop what runs, and remove the session with all that belongs to it."""
        self._stopping = self._deleted = True
        try:
            for task in tuple(self._tasks):
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            async with self._order:
                await self._hand.discard()
        except BaseException:  # it is still there, so it can be used
            self._stopping = self._deleted = False
            raise

    async def cool(self) -> None:
        """Let go of memory and files, if nothing is under way."""
        if not self.busy and not self._order.locked():
            async with self._order:
                await self._hand.forget()

    async def stop(self, grace_seconds: float) -> None:
        """Take nothing more; let the turn end or pause, and cut it off after `grace_seconds`. It is recorded."""
        self._stopping = True
        for task in self._tasks - {self._works}:
            task.cancel()
        self.pause()
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=max(0.001, grace_seconds))
            if late and self.cancel():
                _, late = await asyncio.wait(late, timeout=_CUT_OFF_SECONDS)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
        await self._hand.forget()

    # --- inside ------------------------------------------------------------------------------------------------------

    async def _done(
        self,
        work: Callable[[Agent], Awaitable[T]],
        *,
        is_turn: bool = False,
        leaves: bool = False,
        wait_seconds: float | None = None,
    ) -> T:
        """The work, done when it is its turn, whether who asked for it stays or not. What `leaves` goes with them."""
        if self._stopping:
            raise self._refusal()
        if len(self._tasks) > self._limits.queued:
            raise TooManyWaiting(self.queued)
        waits = self._limits.take_seconds if wait_seconds is None else wait_seconds
        task = asyncio.create_task(self._in_order(work, is_turn, waits))
        self._tasks.add(task)
        task.add_done_callback(self._over)
        if is_turn:
            self._long.add(task)
            task.add_done_callback(self._long.discard)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.cancelled() and self._stopping:
                raise self._refusal() from None
            if leaves and self._works is not task:  # it would never begin: others may have its place
                task.cancel()
            raise

    def _refusal(self) -> SessionDeleted | Stopping:
        return SessionDeleted(self.id) if self._deleted else Stopping()

    def _over(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not self._tasks:
            self._rests()
        if not task.cancelled():
            task.exception()  # whoever asked has it, or has left

    async def _in_order(self, work: Callable[[Agent], Awaitable[T]], is_turn: bool, wait_seconds: float) -> T:
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self._order)
            try:
                try:
                    agent = await self._hand.take(wait_seconds, self._turns if is_turn else None)
                    if is_turn:
                        stack.callback(self._turns.release)
                    self._works, self.used_at = asyncio.current_task(), monotonic()
                    return await work(agent)
                except (SessionLost, OSError):
                    await self._hand.forget()  # what is in memory is no longer what is kept
                    raise
                finally:
                    await self._hand.let_go()
            finally:
                self._works, self.used_at = None, monotonic()

    async def _ended(self, turn: asyncio.Task[TurnEnded]) -> TurnEnded:
        """How a turn ended; one that is stopped is recorded as such, and whoever asked for it hears so."""
        try:
            async with asyncio.timeout(self._limits.turn_seconds):
                return await turn
        except TimeoutError:
            return TurnEnded(reason="cancelled", message=f"Stopped after {self._limits.turn_seconds:,.0f} seconds.")
        except asyncio.CancelledError:
            if turn.cancelled():
                return TurnEnded(reason="cancelled", message="Stopped.")
            raise

    def _seen(self) -> SessionState:
        agent, stored = self._hand.now
        under = agent.session.under
        return SessionState(agent.session.context, stored.header, stored.tally, under.system, under.tools)

    def _read(self, parts: Parts) -> SessionState:
        recording = self._store.read(self.id)
        header = recording.header
        if header.dialect != parts.provider.dialect:
            return SessionState(recording.replay(), header, recording.tally)
        under = assemble(parts, tell=lambda event: None).session.under
        context = recording.replay(
            model=parts.provider.model,
            window=parts.window_tokens,
            max_output_tokens=under.max_output_tokens,
            system=under.system,
            tools=under.tools,
            counter=under.counter,
        )
        return SessionState(context, header, recording.tally, under.system, under.tools)

    def _hear(self, event: AgentEvent) -> None:
        if self._listener is not None:
            self._listener(event)
        self._tell(self.id, event)
