"""Received messages without an answer yet, in the store, so that no crash loses them.

A platform delivers a message again until its arrival is confirmed, which happens once the message is stored here. From
then on the message is answered, or its sender learns that it was not. The keys of the newest messages are remembered,
since a confirmation may not have reached the platform.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from foldline.agent.workers import run_to_end
from foldline.doors.gateway.base import Incoming
from foldline.errors import InvalidInput
from foldline.messages import Json
from foldline.store.base import Store

__all__ = ["Inbox", "PendingMessage"]

# More than a platform hands over at once (Telegram: 100).
_REMEMBERED: Final = 500


@dataclass(frozen=True, slots=True)
class PendingMessage:
    """A message without an answer, and whether its command was begun."""

    message: Incoming
    begun: bool = False


class Inbox:
    """The messages of one account. One process at a time has it: a platform delivers to one."""

    def __init__(self, store: Store, account: str) -> None:
        self._store, self._key = store, f"{account}:inbox"
        self._waiting: dict[str, PendingMessage] = {}
        self._seen: deque[str] = deque(maxlen=_REMEMBERED)
        # One writer at a time: the store keeps one object for each inbox, and the last write wins.
        self._writing = asyncio.Lock()

    async def open(self) -> list[PendingMessage]:
        """Return the pending messages, oldest first. Raises OSError, and InvalidInput for damaged data."""
        stored = await run_to_end(self._store.load_state, self._key)
        found = stored.get("waiting", [])
        if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
            raise InvalidInput("is no inbox", place=self._key)
        waiting = [PendingMessage(Incoming.of(each["message"]), bool(each["begun"])) for each in found]
        self._waiting = {each.message.key: each for each in waiting}
        self._seen.extend(str(key) for key in stored.get("seen", []))
        return waiting

    async def add(self, messages: Sequence[Incoming]) -> list[Incoming]:
        """Store messages; return the new ones. Raises OSError, and has stored none then."""
        async with self._writing:
            # By key also within the batch: a platform may deliver one message twice at once.
            new = {each.key: each for each in messages if each.key not in self._seen}
            if not new:
                return []
            seen, waiting = deque(self._seen, maxlen=_REMEMBERED), dict(self._waiting)
            # Bounded: a platform repeats a message soon or never.
            seen.extend(new)
            waiting |= {key: PendingMessage(each) for key, each in new.items()}
            # Memory follows the disk: if the write fails, the platform delivers the messages again.
            await self._write(waiting, seen)
            return list(new.values())

    async def mark_begun(self, key: str) -> None:
        """Record that a message's command has begun, and must not run twice. Raises OSError."""
        async with self._writing:
            if key in self._waiting:
                begun = replace(self._waiting[key], begun=True)
                await self._write({**self._waiting, key: begun}, self._seen)

    async def remove(self, key: str) -> None:
        """Remove an answered message. Raises OSError; it is answered once more after a restart then."""
        async with self._writing:
            if key in self._waiting:
                await self._write({k: each for k, each in self._waiting.items() if k != key}, self._seen)

    async def _write(self, waiting: dict[str, PendingMessage], seen: deque[str]) -> None:
        # The whole inbox each time. It is small: a conversation queues 16 messages, and most are answered at once.
        stored: list[Json] = [{"message": each.message.as_json(), "begun": each.begun} for each in waiting.values()]
        await run_to_end(self._store.save_state, self._key, {"waiting": stored, "seen": list(seen)})
        self._waiting, self._seen = waiting, seen
