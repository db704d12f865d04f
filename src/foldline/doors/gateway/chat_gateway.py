"""The logic behind every chat platform: who may write, to which session it goes, in which order, and what is sent back.

Each person has one session in each chat and thread. Their messages are answered in order; commands that only read or
stop are answered at once. People who are not allowed get no answer, not even a refusal: a bot is found by its name, and
an answer would show that it lives, and could be provoked at will.
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
from foldline.doors.gateway.replies import (
    REPORTED_ERRORS,
    Pace,
    Progress,
    after_restart,
    error_sentence,
    reply,
    send_text,
)
from foldline.errors import FoldlineError, Stopping, TooManyWaiting
from foldline.hosting.process import stop_with_grace
from foldline.hosting.session_pool import SessionPool

__all__ = ["ChatGateway"]

# Strangers named in the log, once each: a public bot must not fill its owner's disk.
_STRANGERS: Final = 1_000
# Messages that wait in one conversation; as many as a session queues.
_MOST_WAITING: Final = 16
# How long the last answers may take to send.
_STOP_SECONDS: Final = 10.0
# The same without a grace period. Anything unsent is sent after the next start.
_AT_ONCE_SECONDS: Final = 1.0

# A full disk is noticed by its owner in minutes, not seconds.
_RETRY_SECONDS: Final = 1.0
# The turn of the first version has run; a second turn for a corrected letter could repeat its work.
_EDITED: Final = "An edit changes nothing here: the first version counts. Send it as a new message."

_UNFORESEEN: Final = (
    "⚠ Something unexpected went wrong here. Your request may be done in part. The owner finds the reason in the log."
)

_COMMANDS: Final = {each.name: each for each in COMMANDS}


@dataclass(slots=True)
class _Queue:
    """The messages of one person in one chat, in order. The message in progress is not in `waiting`."""

    waiting: deque[PendingMessage] = field(default_factory=deque)
    task: asyncio.Task[None] | None = None


class ChatGateway:
    """Answers the messages of one account. `users` are the allowed ids; `notice` receives lines for its owner."""

    def __init__(
        self,
        pool: SessionPool,
        gateway: Gateway,
        *,
        users: Collection[str],
        notice: Callable[[str], None],
        pace: Pace | None = None,
        max_file_bytes: int | None = None,
    ) -> None:
        self._pool, self._gateway, self._notice = pool, gateway, notice
        self._users, self._pace = frozenset(users), pace or Pace()
        own = gateway.max_file_bytes
        self._max_file_bytes = own if max_file_bytes is None else min(own, max_file_bytes)
        self._inbox = Inbox(pool.store, gateway.name)
        self._queues: dict[str, _Queue] = {}
        self._immediate: set[asyncio.Task[None]] = set()
        self._turns: dict[str, Progress] = {}
        self._strangers: set[str] = set()  # bounded by _STRANGERS: ids are free to invent
        # New messages wait until the pending ones are queued: order holds across a restart.
        self._opened = asyncio.Event()
        self._stopping = False

    async def run(self, stopping: asyncio.Event, *, grace_seconds: float = 30.0) -> None:
        """Receive and answer until `stopping` is set; then let turns end or pause, and send their answers.

        Messages behind them are answered after the next start. If this is cancelled, turns are cut off. Raises what
        `Gateway.run` raises, and OSError.
        """
        with ExitStack() as stack:
            stack.callback(self._pool.subscribe(self._on_event))
            receiving = asyncio.create_task(self._receive())
            stop_request = asyncio.create_task(stopping.wait())
            try:
                await asyncio.wait({receiving, stop_request}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                # Reception ends first: a message that arrives during the stop is delivered again after the next start.
                for task in (receiving, stop_request):
                    task.cancel()
                try:
                    await asyncio.gather(receiving, stop_request, return_exceptions=True)
                finally:
                    await stop_with_grace(self._stop, grace_seconds)
        if not receiving.cancelled() and (fault := receiving.exception()) is not None:
            raise fault

    async def _receive(self) -> None:
        for each in await self._inbox.open():
            if each.message.user in self._users:
                self._enqueue(each)
            else:  # the user was allowed when it came, and is no longer
                await self._inbox.remove(each.message.key)
        # After the loop, without an await between: `receive` would otherwise queue a new message before an old one.
        self._opened.set()
        await self._gateway.announce([(each.name, each.description) for each in COMMANDS])
        await self._gateway.run(self.receive)

    async def receive(self, messages: Sequence[Incoming]) -> None:
        """Store the new messages of allowed people. Waits while the disk is full."""
        await self._opened.wait()
        for each in messages:
            self._report_stranger(each)
        # Before the inbox: messages of strangers must never reach the disk.
        allowed = [each for each in messages if each.user in self._users]
        reported = False
        while True:
            try:
                new = await self._inbox.add(allowed)
                break
            except OSError as fault:
                if not reported:
                    self._notice(f"Messages wait, as they cannot be stored: {fault}")
                reported = True
                await asyncio.sleep(_RETRY_SECONDS)
        for each in new:
            self._enqueue(PendingMessage(each))

    def _report_stranger(self, message: Incoming) -> None:
        known = message.user in self._users or message.user in self._strangers
        if not known and len(self._strangers) < _STRANGERS:
            self._strangers.add(message.user)
            self._notice(f"Not answered: user {message.user} is not allowed.")

    # --- order -------------------------------------------------------------------------------------------------------

    def _key(self, message: Incoming) -> str:
        where = message.where
        return f"{self._gateway.name}:{where.chat}:{where.thread}:{message.user}"

    def _enqueue(self, pending: PendingMessage) -> None:
        """Handle a message at once, or after those before it."""
        message, key = pending.message, self._key(pending.message)
        queue = self._queues.get(key)
        # No await from here to the end: two messages must not both find the last free place.
        waiting = 0 if queue is None else len(queue.waiting)
        if _is_immediate(message):
            self._start_now(self._handle(pending, waiting))
        elif waiting >= _MOST_WAITING:  # answered with a refusal, so that the person knows to send it again
            self._start_now(self._handle(pending, waiting, refused=TooManyWaiting(waiting)))
        else:
            queue = self._queues.setdefault(key, _Queue())
            queue.waiting.append(pending)
            self._start_next(key, queue)

    def _start_next(self, key: str, queue: _Queue) -> None:
        """Start the next message if none is in progress. At a stop, the rest stays in the inbox."""
        if queue.task is None and queue.waiting and not self._stopping:
            pending = queue.waiting.popleft()
            queue.task = asyncio.create_task(self._handle(pending, len(queue.waiting)))
            queue.task.add_done_callback(lambda task: self._task_done(task, key, queue))
        # By identity: the key may belong to a newer queue by now. Empty queues go, or memory would grow with chats.
        elif queue.task is None and self._queues.get(key) is queue:
            del self._queues[key]

    def _task_done(self, task: asyncio.Task[None], key: str, queue: _Queue) -> None:
        queue.task = None
        self._report_failure(task)
        self._start_next(key, queue)

    def _start_now(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._immediate.add(task)  # the loop itself holds tasks by weak references only
        task.add_done_callback(self._immediate.discard)
        task.add_done_callback(self._report_failure)

    def _report_failure(self, task: asyncio.Task[None]) -> None:
        """Report an unforeseen error; other people are still answered."""
        if not task.cancelled() and (fault := task.exception()) is not None:
            self._notice("".join(traceback.format_exception(fault)))

    async def _stop(self, grace_seconds: float) -> None:
        self._stopping = True
        # Turns first: the tasks below wait for their outcomes, and then send them.
        await self._pool.stop(grace_seconds)
        tasks = {queue.task for queue in self._queues.values() if queue.task is not None} | self._immediate
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=_STOP_SECONDS if grace_seconds else _AT_ONCE_SECONDS)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    # --- one message -------------------------------------------------------------------------------------------------

    async def _handle(self, pending: PendingMessage, waiting: int, *, refused: FoldlineError | None = None) -> None:
        """Answer a message and remove it from the inbox. One that a stop interrupts stays for the next start."""
        message, keep = pending.message, False
        try:
            if refused is not None:
                raise refused
            await self._process(pending, waiting)
        except (Stopping, asyncio.CancelledError):
            keep = True
        except NotDelivered as fault:
            self._notice(f"Not delivered to user {message.user}: {fault}")
        except REPORTED_ERRORS as fault:
            if isinstance(fault, OSError):
                self._notice(f"A message of user {message.user} could not be handled: {fault}")
            await self._send_notice(message, escape_markdown(error_sentence(fault)))
        except BaseException:  # the owner gets the traceback, the person a sentence
            await self._send_notice(message, _UNFORESEEN)
            raise
        finally:
            # After the answer is sent: a crash in between sends it twice, and the other order could send none.
            if not keep:
                await self._forget(message)

    async def _process(self, pending: PendingMessage, waiting: int) -> None:
        message, key = pending.message, self._key(pending.message)
        if message.edited:
            await send_text(self._gateway, message.where, _EDITED)
            return
        command = parse_command(message.text) if message.own else None
        progress = Progress(self._gateway, message.where, self._pace)
        if command is None:
            actor = await self._pool.session_for_key(key)
            # Notices of the session arrive by its id, outside of any turn's listener.
            self._turns[actor.id] = progress
            try:
                await reply(
                    actor,
                    self._gateway,
                    message,
                    progress,
                    self._max_file_bytes,
                    key=f"{self._gateway.name}:{message.key}",
                )
            finally:
                self._turns.pop(actor.id, None)
            return
        await send_text(self._gateway, message.where, await self._run_command(pending, *command, progress, waiting))

    async def _run_command(
        self, pending: PendingMessage, name: str, argument: str, progress: Progress, waiting: int
    ) -> str:
        """Return the answer of a command. One that changes something is never started twice."""
        command = _COMMANDS.get(name)
        if command is None:
            return unknown_command(name)
        request = CommandRequest(self._pool, self._key(pending.message), argument, waiting)
        if command.immediate:
            return await command.run(request)
        # A crash after this point finds it begun. It may have done its work, so it is reported, not repeated.
        if pending.begun:
            return after_restart(f"/{name}")
        await self._inbox.mark_begun(pending.message.key)
        async with progress:
            return await command.run(request)

    async def _send_notice(self, message: Incoming, text: str) -> None:
        try:
            await send_text(self._gateway, message.where, text)
        except NotDelivered as fault:
            self._notice(f"Not delivered to user {message.user}: {fault}")

    async def _forget(self, message: Incoming) -> None:
        try:
            await self._inbox.remove(message.key)
        except OSError as fault:
            self._notice(f"The end of an answer could not be recorded: {fault}")

    def _on_event(self, name: str, event: AgentEvent) -> None:
        if isinstance(event, Notice) and name in self._turns:
            self._turns[name].notice(event.text)


def _is_immediate(message: Incoming) -> bool:
    """Whether a message need not wait for those before it."""
    command = parse_command(message.text) if message.own else None
    if command is None:
        return message.edited
    # An unknown command is answered at once too: it touches no session.
    return command[0] not in _COMMANDS or _COMMANDS[command[0]].immediate
