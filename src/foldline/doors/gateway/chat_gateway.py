"""The desk behind every chat platform: who may write, which session it goes to, in which order, and what comes back.

Each person has a session in each chat and thread. What they send there is done one after the other; commands that look
or stop are done at once. Nothing is told to people who are not allowed, not even that: a bot is found by its name, and
an answer would say that it lives, and could be made to send messages.
"""

from __future__ import annotations

import asyncio
import traceback
from collections import deque
from collections.abc import Callable, Collection, Coroutine, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, Final

from foldline.agent.events import AgentEvent, Notice
from foldline.doors.gateway.base import Gateway, Incoming, NotDelivered
from foldline.doors.gateway.commands import COMMANDS, CommandRequest, parse_command, unknown_command
from foldline.doors.gateway.inbox import Inbox, PendingMessage
from foldline.doors.gateway.markdown import escape_markdown
from foldline.doors.gateway.progress import Pace, Progress
from foldline.doors.gateway.replies import REPORTED_ERRORS, after_restart, error_sentence, reply, send_text
from foldline.errors import FoldlineError, Stopping, TooManyWaiting
from foldline.hosting.process import stop_with_grace
from foldline.hosting.session_pool import SessionPool

__all__ = ["ChatGateway"]

# So many people who are not allowed are told of in the log, once each.
_STRANGERS: Final = 1_000
# Messages that wait in one conversation; as many as a session lets wait.
_MOST_WAITING: Final = 16
# What the last answers may take to be sent.
_STOP_SECONDS: Final = 10.0
# The same, where there is no grace. What is not sent by then is sent after the next start.
_AT_ONCE_SECONDS: Final = 1.0

_RETRY_SECONDS: Final = 1.0
# The turn that a message began has run; to run it again for a mended letter could do its work twice.
_EDITED: Final = "An edit changes nothing here: what was said first is kept. Send it as a new message."

_UNFORESEEN: Final = (
    "⚠ Something went wrong here that nobody foresaw. What you asked for may be done in part. "
    "Its owner finds why in the log."
)

_COMMANDS: Final = {each.name: each for each in COMMANDS}


@dataclass(slots=True)
class _Queue:
    """What one person sent to one place, in order; what is being done now is not among `waiting`."""

    waiting: deque[PendingMessage] = field(default_factory=deque)
    task: asyncio.Task[None] | None = None


class ChatGateway:
    """Answers what comes in over one account. `users` are the ids that may write, `notice` is told what its owner is
    to know.
    """

    def __init__(
        self,
        pool: SessionPool,
        gateway: Gateway,
        *,
        users: Collection[str],
        notice: Callable[[str], None],
        pace: Pace | None = None,
        most_file_bytes: int | None = None,
    ) -> None:
        self._pool, self._gateway, self._notice = pool, gateway, notice
        self._users, self._pace = frozenset(users), pace or Pace()
        own = gateway.most_file_bytes
        self._most_file_bytes = own if most_file_bytes is None else min(own, most_file_bytes)
        self._inbox = Inbox(pool.store, gateway.name)
        self._lanes: dict[str, _Queue] = {}
        self._at_once: set[asyncio.Task[None]] = set()
        self._turns: dict[str, Progress] = {}
        self._strangers: set[str] = set()
        self._opened = asyncio.Event()
        self._stopping = False

    async def run(self, stopping: asyncio.Event, *, grace_seconds: float = 30.0) -> None:
        """Receive and answer until `stopping` is set; then let turns end or pause, and send what there is of them.

        What waits behind them is answered after the next start. Once this is cancelled, turns are cut off. Raises as
        `Gateway.run` does, and OSError.
        """
        with ExitStack() as stack:
            stack.callback(self._pool.subscribe(self._hear))
            receiving = asyncio.create_task(self._receive())
            asked = asyncio.create_task(stopping.wait())
            try:
                await asyncio.wait({receiving, asked}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in (receiving, asked):
                    task.cancel()
                try:
                    await asyncio.gather(receiving, asked, return_exceptions=True)
                finally:
                    await stop_with_grace(self._stop, grace_seconds)
        if not receiving.cancelled() and (fault := receiving.exception()) is not None:
            raise fault

    async def _receive(self) -> None:
        for each in await self._inbox.open():
            if each.message.user in self._users:
                self._put(each)
            else:  # no longer
                await self._inbox.done(each.message.key)
        self._opened.set()
        await self._gateway.announce([(each.name, each.does) for each in COMMANDS])
        await self._gateway.run(self.take)

    async def take(self, messages: Sequence[Incoming]) -> None:
        """Take messages over: those of people who are allowed, and that are new. Waits while the disk is full."""
        await self._opened.wait()
        for each in messages:
            self._tell_of_stranger(each)
        allowed = [each for each in messages if each.user in self._users]
        told = False
        while True:
            try:
                new = await self._inbox.take(allowed)
                break
            except OSError as fault:
                if not told:
                    self._notice(f"Messages wait, as they cannot be written down: {fault}")
                told = True
                await asyncio.sleep(_RETRY_SECONDS)
        for each in new:
            self._put(PendingMessage(each))

    def _tell_of_stranger(self, message: Incoming) -> None:
        known = message.user in self._users or message.user in self._strangers
        if not known and len(self._strangers) < _STRANGERS:
            self._strangers.add(message.user)
            self._notice(f"Not answered: user {message.user} is not allowed.")

    # --- order -------------------------------------------------------------------------------------------------------

    def _key(self, message: Incoming) -> str:
        where = message.where
        return f"{self._gateway.name}:{where.chat}:{where.thread}:{message.user}"

    def _put(self, one: PendingMessage) -> None:
        """Do it at once, or when what came before is done."""
        message, key = one.message, self._key(one.message)
        lane = self._lanes.get(key)
        waiting = 0 if lane is None else len(lane.waiting)
        if _is_immediate(message):
            self._start(self._handled(one, waiting))
        elif waiting >= _MOST_WAITING:
            self._start(self._handled(one, waiting, refused=TooManyWaiting(waiting)))
        else:
            lane = self._lanes.setdefault(key, _Queue())
            lane.waiting.append(one)
            self._go_on(key, lane)

    def _go_on(self, key: str, lane: _Queue) -> None:
        """Begin with what waits next, if nothing is being done. What waits at a stop is in the inbox."""
        if lane.task is None and lane.waiting and not self._stopping:
            one = lane.waiting.popleft()
            lane.task = asyncio.create_task(self._handled(one, len(lane.waiting)))
            lane.task.add_done_callback(lambda task: self._ended(task, key, lane))
        elif lane.task is None and self._lanes.get(key) is lane:
            del self._lanes[key]

    def _ended(self, task: asyncio.Task[None], key: str, lane: _Queue) -> None:
        lane.task = None
        self._report(task)
        self._go_on(key, lane)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._at_once.add(task)
        task.add_done_callback(self._at_once.discard)
        task.add_done_callback(self._report)

    def _report(self, task: asyncio.Task[None]) -> None:
        """Tell of what nobody foresaw; others are answered all the same."""
        if not task.cancelled() and (fault := task.exception()) is not None:
            self._notice("".join(traceback.format_exception(fault)))

    async def _stop(self, grace_seconds: float) -> None:
        self._stopping = True
        await self._pool.stop(grace_seconds)
        tasks = {lane.task for lane in self._lanes.values() if lane.task is not None} | self._at_once
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=_STOP_SECONDS if grace_seconds else _AT_ONCE_SECONDS)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    # --- one message -------------------------------------------------------------------------------------------------

    async def _handled(self, one: PendingMessage, waiting: int, *, refused: FoldlineError | None = None) -> None:
        """Do what a message asks for, and let go of it. One that a stop was faster than waits for the next start."""
        message, stays = one.message, False
        try:
            if refused is not None:
                raise refused
            await self._done(one, waiting)
        except (Stopping, asyncio.CancelledError):
            stays = True
        except NotDelivered as fault:
            self._notice(f"Not delivered to user {message.user}: {fault}")
        except REPORTED_ERRORS as fault:
            if isinstance(fault, OSError):
                self._notice(f"A message of user {message.user} could not be taken: {fault}")
            await self._told(message, escape_markdown(error_sentence(fault)))
        except BaseException:  # its traceback is for the owner; the person hears that there is one
            await self._told(message, _UNFORESEEN)
            raise
        finally:
            if not stays:
                await self._let_go(message)

    async def _done(self, one: PendingMessage, waiting: int) -> None:
        message, key = one.message, self._key(one.message)
        if message.edited:
            await send_text(self._gateway, message.where, _EDITED)
            return
        command = parse_command(message.text) if message.own else None
        progress = Progress(self._gateway, message.where, self._pace)
        if command is None:
            actor = await self._pool.bound(key)
            self._turns[actor.id] = progress
            try:
                await reply(
                    actor,
                    self._gateway,
                    message,
                    progress,
                    self._most_file_bytes,
                    key=f"{self._gateway.name}:{message.key}",
                )
            finally:
                self._turns.pop(actor.id, None)
            return
        await send_text(self._gateway, message.where, await self._commanded(one, *command, progress, waiting))

    async def _commanded(self, one: PendingMessage, name: str, given: str, progress: Progress, waiting: int) -> str:
        """What a command answers. One that changes something is never begun a second time."""
        known = _COMMANDS.get(name)
        if known is None:
            return unknown_command(name)
        asked = CommandRequest(self._pool, self._key(one.message), given, waiting)
        if known.at_once:
            return await known.run(asked)
        if one.begun:
            return after_restart(f"/{name}")
        await self._inbox.begin(one.message.key)
        async with progress:
            return await known.run(asked)

    async def _told(self, message: Incoming, text: str) -> None:
        try:
            await send_text(self._gateway, message.where, text)
        except NotDelivered as fault:
            self._notice(f"Not delivered to user {message.user}: {fault}")

    async def _let_go(self, message: Incoming) -> None:
        try:
            await self._inbox.done(message.key)
        except OSError as fault:
            self._notice(f"That a message was answered could not be written down: {fault}")

    def _hear(self, name: str, event: AgentEvent) -> None:
        if isinstance(event, Notice) and name in self._turns:
            self._turns[name].notice(event.text)


def _is_immediate(message: Incoming) -> bool:
    """Whether a message waits for nothing that came before it."""
    command = parse_command(message.text) if message.own else None
    if command is None:
        return message.edited
    return command[0] not in _COMMANDS or _COMMANDS[command[0]].at_once
