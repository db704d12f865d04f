"""A session as an actor: its requests run one after another, in this process and over all servers that share it.

Work runs in a task of its own, so that it outlives the connection that requested it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, suppress
from time import monotonic
from typing import Any, Final, TypeVar

from foldline.agent.events import AgentEvent, Listener, TurnEnded
from foldline.agent.loop import Agent
from foldline.agent.session import AgentSession
from foldline.agent.tools.base import PermissionRequest
from foldline.agent.workers import run_to_end
from foldline.codecs import codec as codec_for
from foldline.display import summary_of
from foldline.engine.context import Context
from foldline.errors import InvalidInput, SessionLost, SessionTaken, Stopping, TooManyWaiting
from foldline.hosting.actor_values import ActorLimits, CompactionResult, KeyReused, SessionDeleted, SessionState
from foldline.hosting.agent_conversation import named_policy
from foldline.hosting.runtime import Runtime
from foldline.hosting.session_lease import DialectMismatch, SessionLease
from foldline.hosting.turns import recorded_turn
from foldline.store.base import Store, StoredSession
from foldline.store.recording import snapshot_of
from foldline.store.snapshot import Snapshot
from foldline.view.transcript import Seq, Unfold

__all__ = ["ActorLimits", "CompactionResult", "SessionActor", "SessionState"]

T = TypeVar("T")

# How long a cancelled turn may take to record its end.
_CUT_OFF_SECONDS: Final = 5.0


class SessionActor:
    """One session, with its requests in order.

    `emit` receives all of its events, `turns` bounds concurrent turns, `on_idle` is called when no work is left.
    Every request may raise TooManyWaiting, Stopping, SessionTaken (another process holds the session), SessionLost,
    DialectMismatch, InvalidInput (deleted or damaged) and OSError, besides the errors that its method names.
    """

    def __init__(
        self,
        runtime: Runtime,
        store: Store,
        name: str,
        *,
        limits: ActorLimits,
        turns: asyncio.Semaphore,
        allowed: Callable[[PermissionRequest], Awaitable[bool]],
        emit: Callable[[str, AgentEvent], None],
        on_idle: Callable[[], None] = lambda: None,
        stored: StoredSession | None = None,
    ) -> None:
        self.id: Final = name
        self._runtime, self._store, self._limits, self._turns = runtime, store, limits, turns
        self._emit, self._on_idle, self._allowed = emit, on_idle, allowed
        self._lease = SessionLease(runtime, store, name, allowed=allowed, emit=self._on_event, stored=stored)
        self._order_lock = asyncio.Lock()  # first come, first served
        self._tasks: set[asyncio.Task[Any]] = set()
        self._current_task: asyncio.Task[Any] | None = None
        self._turn: asyncio.Task[TurnEnded] | None = None
        self._turn_owner: object = None
        self._listener: Listener | None = None
        # Turns and compactions, running or waiting: `inspect` must not wait behind one.
        self._long_tasks: set[asyncio.Task[Any]] = set()
        self._compacting = self._stopping = self._deleted = False
        self.used_at = monotonic()

    # --- state -------------------------------------------------------------------------------------------------------

    @property
    def running(self) -> bool:
        """Whether a turn is running."""
        return self._turn is not None

    @property
    def queued(self) -> int:
        """The number of requests that wait behind the current one."""
        return max(0, len(self._tasks) - 1)

    @property
    def warm(self) -> bool:
        """Whether its context is in memory."""
        return self._lease.agent is not None

    @property
    def snapshot(self) -> Snapshot | None:
        """The current snapshot if the session is in memory, else None. O(what is new)."""
        agent, stored = self._lease.agent, self._lease.stored
        if agent is None or stored is None:
            return None
        return snapshot_of(stored.header, stored.tally, agent.session.context, 0)

    @property
    def busy(self) -> bool:
        """Whether work is running or waiting."""
        return bool(self._tasks)

    # --- turns -------------------------------------------------------------------------------------------------------

    async def run_turn(
        self, text: str, *, key: str = "", same_text: bool = False, listener: Listener | None = None
    ) -> TurnEnded:
        """Run one turn after the requests that already wait; `listener` receives its events.

        A `key` of an earlier turn of this session runs nothing: the outcome of that turn is returned. The caller may
        leave (cancel this call). A turn that has not begun is dropped then; one that has begun goes on or pauses, as
        `session.on_disconnect` says. Raises InvalidInput for an empty text and, with `same_text`, KeyReused if that
        turn began with another text.
        """
        if not text.strip():
            raise InvalidInput("there is nothing in it", place="text")
        caller_left = asyncio.Event()

        async def turn(agent: Agent) -> TurnEnded:
            if caller_left.is_set():  # the caller left while the session was being acquired
                raise asyncio.CancelledError
            _, stored = self._lease.current
            if key in stored.tally.keys:
                records, codec = self._store.records(self.id), codec_for(stored.header.dialect)
                recorded_text, ended = await run_to_end(recorded_turn, records, stored.tally.keys[key], codec)
                if same_text and recorded_text != text:
                    raise KeyReused
                return ended
            self._listener, self._turn_owner = listener, caller_left
            self._turn = asyncio.create_task(agent.run(text, key=key))
            try:
                return await self._outcome(self._turn)
            finally:
                self._turn = self._listener = self._turn_owner = None
                await self._lease.save()

        try:
            return await self._submit(turn, is_turn=True, leaves=True)
        except asyncio.CancelledError:
            caller_left.set()
            session = self._runtime.settings.session
            # By identity: by now the turn of another caller may be the one that runs.
            if self._turn_owner is caller_left and (session is None or session.on_disconnect == "pause"):
                self.pause()
            raise

    def pause(self) -> None:
        """Pause the running turn once its current step is recorded."""
        if self._lease.agent is not None:
            self._lease.agent.pause()

    def cancel(self) -> bool:
        """Cancel the running turn; return whether there was one. Requests behind it go on."""
        return self._turn is not None and self._turn.cancel()

    # --- folds -------------------------------------------------------------------------------------------------------

    async def compact(
        self, instructions: str | None = None, ranges: Sequence[tuple[Seq, Seq]] = ()
    ) -> CompactionResult:
        """Fold everything that may be folded, or `ranges` alone. Raises SummaryError if there is nothing to fold."""

        async def work(agent: Agent) -> CompactionResult:
            session, model, before = agent.session, agent.summarize, agent.session.figures
            fold = session.fold(ranges, instructions, model) if ranges else session.compact(instructions, model)
            folds = await self._folding(fold)
            shown = summary_of(folds) or "\n\n".join(fold.shown[0].text for fold in folds if fold.shown)
            return CompactionResult(before=before, after=agent.session.figures, folds=folds, summary=shown)

        return await self._submit(work, is_turn=True)

    async def undo(self) -> tuple[Unfold, ...]:
        """Undo the last batch of folds; empty if there is none."""
        return await self._change(lambda session: session.undo())

    async def pin(self, seq: Seq, *, pinned: bool = True) -> None:
        """Pin the group of a message, or unpin it. Raises InvalidInput, and FoldRefused if it is folded."""
        await self._change(lambda session: session.pin(seq, pinned=pinned))

    async def rewind(self, seq: Seq) -> int:
        """Go back to before a message, as a branch; return how many are left. Raises InvalidInput."""
        return await self._change(lambda session: session.rewind(seq))

    async def go_back(self, tip: Seq) -> int:
        """Go on from the end of a left branch; return how many messages are back. Raises InvalidInput."""
        return await self._change(lambda session: session.go_back(tip))

    async def use_policy(self, name: str) -> None:
        """Fold by another policy from now on. Raises InvalidInput for an unknown one."""
        selected = named_policy(name)

        async def work(agent: Agent) -> None:
            await self._lease.use_policy(selected)

        await self._submit(work)

    async def archive(self, data: bytes) -> str:
        """Store a document in the archive, as safe as the log; return its key."""

        async def work(agent: Agent) -> str:
            return await run_to_end(self._lease.current[1].put_original, data)

        return await self._submit(work)

    # --- reading -----------------------------------------------------------------------------------------------------

    async def inspect(self, read: Callable[[SessionState], T]) -> T:
        """Return what `read` finds in the current state; during a turn, in the middle of it.

        It never waits for a turn. A session that another process is writing, or that speaks another dialect, is read as
        far as it is written. O(log) if it is not in memory.
        """

        async def work(agent: Agent) -> T:
            return read(self._state())

        # It waits for nothing: a turn may take an hour, and its figures are shown while it runs.
        if self._turn is not None or self._compacting:
            return read(self._state())
        if not self._long_tasks:
            with suppress(SessionTaken, DialectMismatch):
                return await self._submit(work, wait_seconds=0.0)
        return read(await self._lease.read())

    async def whole(self) -> Context:
        """Return a context with all messages in memory, folded or not. Read-only. O(log)."""

        async def work(agent: Agent) -> Context:
            return await run_to_end(agent.session.whole)

        if self._turn is not None:
            return await run_to_end(self._lease.current[0].session.whole)
        try:
            return await self._submit(work, wait_seconds=0.0)
        except SessionTaken:
            return (await self._lease.read()).context

    # --- end ---------------------------------------------------------------------------------------------------------

    async def delete(self) -> None:
        """Cancel all work, and delete the session with everything that belongs to it."""
        self._stopping = self._deleted = True
        try:
            for task in tuple(self._tasks):
                task.cancel()
            await asyncio.gather(self._lease.wake(), *self._tasks, return_exceptions=True)
            async with self._order_lock:
                await self._lease.discard()
        except BaseException:  # the session still exists, so it must stay usable
            self._stopping = self._deleted = False
            raise

    async def unload_if_idle(self) -> None:
        """Release memory and files if nothing is running."""
        # Both: work may be queued without the lock, and the lock may be held by `delete`.
        if not self.busy and not self._order_lock.locked():
            async with self._order_lock:
                await self._lease.unload()

    async def stop(self, grace_seconds: float) -> None:
        """Refuse new work, let the turn end or pause, and cancel it after `grace_seconds`. Its end is recorded."""
        self._stopping = True
        await self._lease.wake()
        # What waits has changed nothing yet, so it is dropped; what runs is asked to pause between two steps.
        for task in self._tasks - {self._current_task}:
            task.cancel()
        self.pause()
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=max(0.001, grace_seconds))
            if late and self.cancel():
                _, late = await asyncio.wait(late, timeout=_CUT_OFF_SECONDS)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
        await self._lease.unload()

    # --- inside ------------------------------------------------------------------------------------------------------

    async def _change(self, change: Callable[[AgentSession], T]) -> T:
        """Change the session in a thread, and write its snapshot."""

        async def work(agent: Agent) -> T:
            await agent.session.wake()  # what was just undone must not be folded again while nobody looks
            result = await run_to_end(change, agent.session)
            await self._lease.save()
            return result

        return await self._submit(work)

    async def _submit(
        self,
        work: Callable[[Agent], Awaitable[T]],
        *,
        is_turn: bool = False,
        leaves: bool = False,
        wait_seconds: float | None = None,
    ) -> T:
        """Run `work` in order, to its end. With `leaves`, work that has not begun is dropped when the caller leaves."""
        # Three lifetimes are nested: the caller's, which a lost connection ends; the task's, which outlives it; and in
        # `_run_in_order` the lease's, which no other process may share. Only the task knows when the lease may go.
        if is_turn:
            await self._lease.wake()  # before it waits in order: a fold of the resting session may be at work
        if self._stopping:
            raise self._refusal()
        if len(self._tasks) > self._limits.queued:
            raise TooManyWaiting(self.queued)
        limit_seconds = self._limits.acquire_seconds if wait_seconds is None else wait_seconds
        task = asyncio.create_task(self._run_in_order(work, is_turn, limit_seconds))
        self._tasks.add(task)
        task.add_done_callback(self._forget_task)
        if is_turn:
            self._long_tasks.add(task)
            task.add_done_callback(self._long_tasks.discard)
        try:
            # Without the shield, a client that disconnects would cancel a turn whose tools have already run.
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            # Either the task was cancelled (`stop`, `delete`) or the caller was: the first is a refusal with a reason.
            if task.cancelled() and self._stopping:
                raise self._refusal() from None
            if leaves and self._current_task is not task:  # nobody wants it any more: free its place in the queue
                task.cancel()
            raise

    def _refusal(self) -> SessionDeleted | Stopping:
        return SessionDeleted(self.id) if self._deleted else Stopping()

    def _forget_task(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not self._tasks:
            self._on_idle()
        if not task.cancelled():
            task.exception()  # mark it as retrieved: the caller has it, or has left

    async def _run_in_order(self, work: Callable[[Agent], Awaitable[T]], is_turn: bool, wait_seconds: float) -> T:
        # Acquired: order, slot, lease. Released in reverse, so that the next request finds the lease free, and a turn
        # counts against `turns` for as long as it holds one. `acquire` takes the slot, as it frees it between attempts.
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self._order_lock)
            try:
                try:
                    agent = await self._lease.acquire(wait_seconds, self._turns if is_turn else None)
                    if is_turn:
                        stack.callback(self._turns.release)
                    self._current_task, self.used_at = asyncio.current_task(), monotonic()
                    agent.at_rest = self._fold_at_rest
                    return await work(agent)
                except (SessionLost, OSError):
                    await self._lease.unload()  # memory and disk may differ now, and the disk is right
                    raise
                finally:
                    await self._lease.release()
            finally:
                self._current_task, self.used_at = None, monotonic()

    async def _outcome(self, turn: asyncio.Task[TurnEnded]) -> TurnEnded:
        """Await a turn. A cancelled one ends with a reason, so that the caller learns of it."""
        try:
            async with asyncio.timeout(self._limits.turn_seconds):
                return await turn
        except TimeoutError:
            return TurnEnded(reason="cancelled", message=f"Stopped after {self._limits.turn_seconds:,.0f} seconds.")
        except asyncio.CancelledError:
            # `cancel` cancels the turn alone. If this task was cancelled instead, nobody waits for an outcome.
            if turn.cancelled():
                return TurnEnded(reason="cancelled", message="Stopped.")
            raise

    async def _fold_at_rest(self, fold: Callable[[], Awaitable[None]]) -> None:
        """Fold as the cache is about to expire, unless the session has gone on here or elsewhere; a turn ends it."""
        resting = self._lease.agent

        async def work(agent: Agent) -> None:
            if agent is resting:  # else it was read anew: another process has gone on with it
                await self._folding(fold())

        with suppress(SessionTaken, SessionLost, InvalidInput, OSError):  # the next turn meets it too, and tells it
            await self._run_in_order(work, is_turn=False, wait_seconds=0.0)

    async def _folding(self, work: Awaitable[T]) -> T:
        self._compacting = True
        try:
            return await work
        finally:
            self._compacting = False
            await self._lease.save()

    def _state(self) -> SessionState:
        agent, stored = self._lease.current
        settings = agent.session.settings
        return SessionState(agent.session.context, stored.header, stored.tally, settings.system, settings.tools)

    def _on_event(self, event: AgentEvent) -> None:
        if self._listener is not None:
            self._listener(event)
        self._emit(self.id, event)
