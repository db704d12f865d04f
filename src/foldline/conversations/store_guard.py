"""A store that may be lost: who asks it gets an answer or a warning, and never waits for long."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Final, Protocol, TypeVar

from foldline.conversations.conversation_cache import Held
from foldline.conversations.persistence import Found, Keeping
from foldline.errors import FoldlineError, SessionLost
from foldline.view.transcript import Event

__all__ = ["LOST", "StoreAtHand"]

_AGAIN_SECONDS: Final = 5.0
"""How long a store that failed is left alone: no request waits for it meanwhile."""

LOST: Final = "the store does not answer"
"""The warning of a request for which the store could not be asked."""

T = TypeVar("T")
_NONE: Final[tuple[str, ...]] = ()


class Run(Protocol):
    """Calls a function in a thread."""

    async def __call__(self, work: Callable[[], T], /) -> T: ...


class StoreAtHand:
    """The store of a proxy. If it is `shared`, other processes may go on with a conversation at any time.

    What fails is told by `notice`; then the store is left alone for `again_seconds`.
    """

    def __init__(
        self,
        keeping: Keeping,
        *,
        shared: bool,
        run: Run,
        notice: Callable[[str], None],
        again_seconds: float = _AGAIN_SECONDS,
    ) -> None:
        self.keeping, self.shared = keeping, shared
        self._run, self._notice, self._again_seconds = run, notice, again_seconds
        self._lost_at: float | None = None
        self._leaving: dict[asyncio.Task[None], Held] = {}

    @property
    def up(self) -> bool:
        """Whether it answered when it was last asked."""
        return self._lost_at is None

    async def find(
        self, exact: Sequence[bytes], tolerant: Sequence[bytes], *, name: str, own: Held | None, sight: bytes = b""
    ) -> tuple[Found | None, str]:
        """What it has for a request; None where that is what is known of its `own` conversation already.

        With a warning when it does not answer.
        """
        keeping, links = self.keeping, {*exact, *tolerant}
        # One that had to go a moment ago is written down first: else it would be read as it was before that.
        if busy := [
            task for task, held in self._leaving.items() if not links.isdisjoint([*held.exact, *held.tolerant])
        ]:
            await asyncio.wait(busy)

        def look() -> Found | None:
            session = keeping.named(name) if name else None
            if session is None:
                key, session = keeping.find(exact, tolerant) or ("", None)
                # The same key may lead elsewhere by now: another process has folded the same messages, and wrote last.
                if own is not None and key in own.keys and session == keeping.session_of(own.conversation):
                    return None
            return None if session is None else keeping.read(session, sight)

        return await self._trying(look, None)

    async def events(self, held: Held) -> Sequence[Event]:
        """The whole log of a conversation; nothing where a part of it is lost. O(log).

        Raises SessionLost for one that was let go of meanwhile.
        """
        if not held.conversation.context.released:
            return held.conversation.context.events
        nothing: tuple[Event, ...] = ()
        return (await self._trying(lambda: self.keeping.events(held.conversation), nothing))[0]

    async def write(self, held: Held) -> str:
        """Write down a conversation that was folded; a warning if that could not be done. Raises SessionLost."""

        def write() -> tuple[str, ...]:
            keys = self._written(held)
            held.conversation.release()
            return keys

        keys, warning = await self._trying(write, _NONE)
        held.keys.update(keys)
        return warning

    def leave(self, held: Held) -> None:
        """Let go of a conversation that is used no more; what is not written of it is written first."""
        if not held.lock.locked() and not self._unwritten(held):
            self.keeping.forget(held.conversation)
            return
        task = asyncio.create_task(self._left(held))
        self._leaving[task] = held
        task.add_done_callback(self._leaving.pop)

    def drop(self, held: Held) -> None:
        """Let go of a conversation that is read anew."""
        self.keeping.forget(held.conversation)

    async def aclose(self) -> None:
        """Wait for what is being written, and let go of everything."""
        if self._leaving:
            await asyncio.wait(set(self._leaving))
        await self._run(self.keeping.close)

    async def _left(self, held: Held) -> None:
        async with held.lock:
            try:
                if self._unwritten(held):
                    await self._trying(lambda: self._written(held), _NONE)
            except SessionLost:  # whoever went on with it has written it
                return
            finally:
                self.keeping.forget(held.conversation)

    def _unwritten(self, held: Held) -> bool:
        return held.kept and self.keeping.unwritten(held.conversation)

    def _written(self, held: Held) -> tuple[str, ...]:
        tips = held.exact[-1], held.tolerant[-1]
        return self.keeping.write(held.conversation, held.archive, *tips, name=held.name)

    async def _trying(self, work: Callable[[], T], otherwise: T) -> tuple[T, str]:
        """What is asked for, or a warning: a store that is lost is no reason to refuse a request."""
        lost = self._lost_at
        if lost is not None and monotonic() - lost < self._again_seconds:
            return otherwise, LOST
        try:
            done = await self._run(work)
        except SessionLost:
            raise
        except (OSError, FoldlineError) as error:
            if isinstance(error, OSError):
                self._lost_at = monotonic()
            self._notice(f"The store cannot be used: {error}")
            return otherwise, LOST
        if lost is not None:
            self._lost_at = None
            self._notice("The store answers again.")
        return done, ""
