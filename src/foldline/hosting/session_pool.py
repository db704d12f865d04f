"""All sessions of one process, each an actor: find them by id or key, create them, bound their memory, stop them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from time import monotonic
from typing import Final

from foldline.agent.events import AgentEvent, Notice
from foldline.agent.tools.base import PermissionRequest
from foldline.agent.workers import run_to_end
from foldline.errors import InvalidInput, Stopping
from foldline.hosting.agent_conversation import carry_over, named_policy, with_policy
from foldline.hosting.process import stop_with_grace
from foldline.hosting.runtime import Options, Runtime, open_call_log, settings_for
from foldline.hosting.session_actor import ActorLimits, SessionActor
from foldline.hosting.session_choice import store_place
from foldline.store.addresses import open_store
from foldline.store.base import Store, StoredSession
from foldline.store.learned_limits import LearnedLimits
from foldline.store.paths import calls_path, learned_path

__all__ = ["AskPermission", "PoolListener", "SessionPool", "open_pool"]

AskPermission = Callable[[str, PermissionRequest], Awaitable[bool]]
"""Asks a person about one tool call: the session's id, and the call."""

PoolListener = Callable[[str, AgentEvent], None]
"""Receives every event of every session, with the session's id."""

# Far below the idle time of a session, and one pass over the actors costs microseconds.
_SWEEP_SECONDS: Final = 5.0


class SessionPool:
    """The sessions of a store, run on one runtime. Use it as an async context manager.

    `allowed` asks a person about one tool call in a session (its id); without it such calls are refused. The owner of
    the runtime closes that.
    """

    def __init__(
        self, runtime: Runtime, store: Store, *, limits: ActorLimits | None = None, allowed: AskPermission | None = None
    ) -> None:
        self.runtime, self.store = runtime, store
        self.limits: Final = limits or ActorLimits()
        self._ask_permission = allowed
        self._turns = asyncio.Semaphore(self.limits.turns)
        self._actors: dict[str, SessionActor] = {}
        self._listeners: dict[object, PoolListener] = {}
        # Two first messages of one chat must not create two sessions for it.
        self._keys: dict[str, asyncio.Lock] = {}
        self._idle_event = asyncio.Event()
        self._sweeper: asyncio.Task[None] | None = None
        self._stopping = False

    async def __aenter__(self) -> SessionPool:
        self._sweeper = asyncio.create_task(self._sweep())
        return self

    async def __aexit__(self, *_: object) -> None:
        await stop_with_grace(self.stop, 0.0)  # a signal at this point must not leave a turn without a recorded end

    # --- sessions ----------------------------------------------------------------------------------------------------

    async def create(self, *, policy: str | None = None, title: str = "", source: str | None = None) -> SessionActor:
        """Create a session. With `source` it starts with what that session shows, in the current dialect.

        Raises InvalidInput (an unknown policy or source), Stopping, OSError.
        """
        if self._stopping:
            raise Stopping
        selected = None if policy is None else named_policy(policy)
        parts = with_policy(await self.runtime.parts(self._allowed("")), selected)

        def created() -> StoredSession:
            return self.store.create(
                dialect=parts.provider.dialect,
                model=parts.provider.model,
                policy=parts.settings.policy_value().name,
                window=parts.window_tokens,
                title=title,
                parent=None if source is None else self.store.find(source),
            )

        # Read before anything is created: a bad source leaves no empty session behind.
        context = None if source is None else (await asyncio.to_thread(self.store.read, source)).replay()
        stored = await run_to_end(created)
        if context is not None:
            try:
                await run_to_end(carry_over, context, parts, emit=lambda event: None, stored=stored)
            except BaseException:
                stored.discard()
                raise
        # Created by this process, but first come, first served: another one may run the first turn.
        await run_to_end(stored.release)
        return self._actor(stored.id, stored)

    async def actor(self, name: str) -> SessionActor:
        """Find a session by its id, a prefix of it, or "latest". Raises InvalidInput if there is none, OSError."""
        # The whole id of a known session, as in nearly every request: no look into the store.
        if name in self._actors:
            return self._actors[name]
        return self._actor(await asyncio.to_thread(self.store.find, name))

    async def session_for_key(self, key: str, *, policy: str | None = None, title: str = "") -> SessionActor:
        """The session bound to a key (a chat, a schedule), created if there is none.

        If it speaks another dialect than the current model, a new session carries it on. Raises what `create` raises.
        """
        async with self._keys.setdefault(key, asyncio.Lock()):
            name = await asyncio.to_thread(self.store.session_of, key)
            if name is not None:
                actor = await self.actor(name)
                dialect = await asyncio.to_thread(self._header_dialect, name)
                if dialect == self.runtime.provider.dialect:
                    return actor
            # Bound after it was created: a crash in between leaves an unbound session, not a key without one.
            created = await self.create(policy=policy, title=title, source=name)
            await asyncio.to_thread(self.store.bind, key, created.id)
            return created

    async def renew(self, key: str, *, policy: str | None = None, title: str = "") -> SessionActor:
        """Bind a new session to a key; the former one stays, under its id. Raises what `create` raises."""
        async with self._keys.setdefault(key, asyncio.Lock()):
            created = await self.create(policy=policy, title=title)
            await asyncio.to_thread(self.store.bind, key, created.id)
            return created

    async def delete(self, name: str) -> str:
        """Delete a session with all that belongs to it; return its id. Raises InvalidInput, SessionTaken, OSError."""
        actor = await self.actor(name)
        await actor.delete()
        self._actors.pop(actor.id, None)
        return actor.id

    @property
    def actors(self) -> dict[str, SessionActor]:
        """The sessions in use since the start, by id."""
        return dict(self._actors)

    @property
    def stopping(self) -> bool:
        """Whether the pool refuses new work."""
        return self._stopping

    # --- events ------------------------------------------------------------------------------------------------------

    def subscribe(self, listener: PoolListener) -> Callable[[], None]:
        """Call a listener for every event of every session; return a function that ends it.

        The listener must not wait, nor raise.
        """
        # A key of its own: the same listener may subscribe twice.
        mark = object()
        self._listeners[mark] = listener

        def end() -> None:
            self._listeners.pop(mark, None)

        return end

    # --- stopping ----------------------------------------------------------------------------------------------------

    async def stop(self, grace_seconds: float) -> None:
        """Refuse new work, let turns end or pause within `grace_seconds`, then cancel them. All ends are recorded."""
        # New work is refused first, so that the set of actors below is final.
        self._stopping = True
        if self._sweeper is not None:
            self._sweeper.cancel()
            await asyncio.gather(self._sweeper, return_exceptions=True)
            self._sweeper = None
        # Side by side: the grace period is for all of them together.
        await asyncio.gather(*(actor.stop(grace_seconds) for actor in self._actors.values()))
        self._actors.clear()

    # --- inside ------------------------------------------------------------------------------------------------------

    def _actor(self, name: str, stored: StoredSession | None = None) -> SessionActor:
        actor = self._actors.get(name)
        if actor is None:
            actor = SessionActor(
                self.runtime,
                self.store,
                name,
                limits=self.limits,
                turns=self._turns,
                allowed=self._allowed(name),
                emit=self._emit,
                on_idle=self._idle_event.set,
                stored=stored,
            )
            self._actors[name] = actor
        return actor

    def _header_dialect(self, name: str) -> str:
        first = list(self.store.records(name, stop=1))
        if not first:
            raise InvalidInput("the log is empty", place=name)
        return str(first[0].get("dialect", ""))

    def _allowed(self, name: str) -> Callable[[PermissionRequest], Awaitable[bool]]:
        async def allowed(ask: PermissionRequest) -> bool:
            if self._ask_permission is not None:
                return await self._ask_permission(name, ask)
            self._emit(name, Notice(f"Refused, as nobody can be asked here (--yes allows it): {ask.what}"))
            return False

        return allowed

    def _emit(self, name: str, event: AgentEvent) -> None:
        # A copy: a listener may end its own subscription.
        for listener in tuple(self._listeners.values()):
            listener(name, event)

    async def _sweep(self) -> None:
        """Unload sessions that are idle for long, and the longest idle ones while too many are warm."""
        while True:
            with suppress(TimeoutError):  # not wait_for: it swallows a cancellation that arrives with the event
                async with asyncio.timeout(min(_SWEEP_SECONDS, self.limits.idle_seconds)):
                    await self._idle_event.wait()
            self._idle_event.clear()
            warm = sorted((one for one in self._actors.values() if one.warm), key=lambda one: one.used_at)
            # The least recently used sessions come first in `warm`.
            too_many = max(0, len(warm) - self.limits.warm)
            for place, actor in enumerate(warm):
                if place < too_many or monotonic() - actor.used_at >= self.limits.idle_seconds:
                    await actor.unload_if_idle()
            # An actor without a context is small, but a server may see millions of ids. No await in this loop: nobody
            # can submit work to an actor between the check and the removal.
            for name, actor in list(self._actors.items()):
                if not actor.warm and not actor.busy and monotonic() - actor.used_at >= self.limits.idle_seconds:
                    del self._actors[name]


@asynccontextmanager
async def open_pool(
    options: Options,
    environ: Mapping[str, str],
    *,
    workspace: Path,
    store: str | None,
    yes: bool,
    limits: ActorLimits,
    notice: Callable[[str], None],
    allowed: AskPermission | None = None,
) -> AsyncIterator[SessionPool]:
    """Open the sessions of a store, run by the agent that these options describe; close everything with the block.

    `store` is a place for `open_store` (None: that of the environment, else the user's folder). `yes` runs allowed
    tools without asking; otherwise `allowed` asks a person, and without it they are refused. `notice` receives what
    ends nothing. Turns are cut off at the end of the block: call `SessionPool.stop` before it to let them end. Raises
    InvalidInput (options, settings, a bad place), MissingExtra, what `select_model` raises, and OSError.
    """
    if not workspace.is_dir():
        raise InvalidInput("is no folder", place=f"--workspace: {workspace}")
    loaded = settings_for(options, environ)
    # A settings file in a foreign folder could name a command or send the key elsewhere; the user is told what is off.
    for withheld in loaded.withheld:
        notice(f"not before it is trusted (foldline config trust): {withheld}")
    place = store_place(store, environ)
    learned = LearnedLimits(learned_path(environ))
    async with AsyncExitStack() as stack:
        opened = await asyncio.to_thread(open_store, place)  # a database may be far away
        stack.callback(opened.close)
        runtime = await Runtime.start(
            loaded.settings,
            environ,
            workspace=workspace.resolve(),
            learned=learned,
            calls=open_call_log(calls_path(environ), notice, loaded.settings.keep_calls),
            notice=notice,
        )
        stack.push_async_callback(runtime.aclose)
        yield await stack.enter_async_context(
            SessionPool(runtime, opened, limits=limits, allowed=_everything if yes else allowed)
        )


async def _everything(name: str, ask: PermissionRequest) -> bool:
    del name, ask
    return True
