"""One message of a person: the prompt for the agent, the progress of the turn, and the reply as messages."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from dataclasses import dataclass
from time import monotonic
from types import TracebackType
from typing import Final

from foldline.agent.events import AgentEvent, ReplyFinished, ToolStarted, TurnEnded
from foldline.agent.workers import TOOLS, StopSignal
from foldline.display import size_text, telegram_footer, telegram_warning
from foldline.doors.chat.event_lines import call_text, failure_text, seconds_text
from foldline.doors.gateway.base import Attachment, ChatPlace, Gateway, Incoming, NotDelivered
from foldline.doors.gateway.markdown import Piece, close_fence, escape_markdown, split_text
from foldline.engine.window_usage import WindowUsage
from foldline.errors import (
    DoesNotFit,
    FoldRefused,
    InvalidInput,
    ProviderError,
    SessionLost,
    SessionTaken,
    Stopping,
    SummaryError,
    TooManyWaiting,
)
from foldline.hosting.documents import store_document
from foldline.hosting.session_actor import SessionActor
from foldline.hosting.session_lease import DialectMismatch
from foldline.text.formatting import plain_line

__all__ = [
    "REPORTED_ERRORS",
    "Pace",
    "Progress",
    "after_restart",
    "ending_sentence",
    "error_sentence",
    "prompt_of",
    "reply",
    "send_text",
]

# One line of a phone's screen is about 40 characters: longer text pushes the answer away.
_LINE_CHARS: Final = 200
# A turn that repeats a failure in many wordings must not bury its own answer.
_MOST_NOTICES: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How often the display of a running turn may change, in seconds.

    Telegram shows "typing" for five seconds, and accepts about twenty messages and edits a minute in a group.
    """

    typing_seconds: float = 4.5
    first_line_seconds: float = 4.0
    line_seconds: float = 4.0


class Progress:
    """Shows a running turn in its chat until the block ends. `on_event` is the listener of the turn."""

    def __init__(self, gateway: Gateway, place: ChatPlace, pace: Pace) -> None:
        self._gateway, self._place, self._pace = gateway, place, pace
        self._changed, self._finished = asyncio.Event(), asyncio.Event()
        self._tools: Counter[str] = Counter()
        self._line, self._shown, self._sent = "", "", ""
        self._started_at = monotonic()
        self._tasks: list[asyncio.Task[None]] = []
        self.figures: WindowUsage | None = None
        """The figures after the last reply."""
        self.notices: list[str] = []
        """Sentences for the person, shown below the answer."""

    async def __aenter__(self) -> Progress:
        self._tasks = [asyncio.create_task(self._show_typing()), asyncio.create_task(self._show_calls())]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Both: a task may wait for either.
        self._finished.set()
        self._changed.set()
        # Otherwise the tasks end by themselves, and the last line says what was done.
        if isinstance(error, asyncio.CancelledError):
            for task in self._tasks:
                task.cancel()
        # Awaited before the answer is sent: a late edit of the progress line would appear below it.
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def on_event(self, event: AgentEvent) -> None:
        """Note an event of the turn."""
        if isinstance(event, ReplyFinished):
            self.figures = event.figures
        elif isinstance(event, ToolStarted):
            self._tools[plain_line(event.tool, 64)] += 1
            self._line = f"⏳ {escape_markdown(plain_line(call_text(event), _LINE_CHARS))}"
            self._changed.set()

    def notice(self, text: str) -> None:
        """Add a sentence for the person, once."""
        if text not in self.notices and len(self.notices) < _MOST_NOTICES:
            self.notices.append(text)

    async def _show_typing(self) -> None:
        while not self._finished.is_set():
            await self._gateway.typing(self._place)
            await self._wait(self._pace.typing_seconds)

    async def _show_calls(self) -> None:
        """Send one line once the turn has lasted, edit it as the turn goes on, and say what was done in the end."""
        # Most turns are shorter, and their answer says enough.
        await self._wait(self._pace.first_line_seconds)
        while not self._finished.is_set():
            await self._changed.wait()
            # Cleared before the line is read: a call that starts during the edit sets it again, and is shown next.
            self._changed.clear()
            if self._line and not self._finished.is_set():
                await self._show(self._line)
                await self._wait(self._pace.line_seconds)
        if self._sent:
            done = ", ".join(f"{tool} ×{count}" if count > 1 else tool for tool, count in self._tools.items())
            await self._show(
                f"✓ {escape_markdown(plain_line(done, _LINE_CHARS))} ({seconds_text(monotonic() - self._started_at)})"
            )

    async def _show(self, line: str) -> None:
        # Telegram answers an edit without a change with an error (editMessageText).
        if line == self._shown:
            return
        try:
            if self._sent:
                await self._gateway.edit(self._place, self._sent, line)
            else:
                self._sent = await self._gateway.send(self._place, line)
        except NotDelivered:
            return  # the answer will say so
        self._shown = line

    async def _wait(self, seconds: float) -> None:
        """Wait for some seconds, or until the turn is over."""
        try:
            async with asyncio.timeout(seconds):
                await self._finished.wait()
        except TimeoutError:
            return


# --- progress of a running turn ---------------------------------------------------------------------------------------


_NAME_CHARS: Final = 100
_NOTICE_CHARS: Final = 1_000


async def send_text(gateway: Gateway, place: ChatPlace, text: str) -> None:
    """Send a text in as many messages as it takes. Raises NotDelivered."""

    def cut(stop: StopSignal) -> list[Piece]:
        def units(line: str) -> int:
            stop.check()
            return gateway.units(line)

        return split_text(text, gateway.max_units, units)

    # A million short lines take some seconds; a text that may be one message does not.
    short = len(text) <= gateway.max_units
    for piece in cut(StopSignal()) if short else await TOOLS.run(cut):
        if piece.body.strip():
            await gateway.send(place, piece.text)


async def prompt_of(actor: SessionActor, gateway: Gateway, message: Incoming, max_file_bytes: int) -> str:
    """Return the prompt for the agent: the text and the files; "" if there is nothing.

    Files are stored in the session. Parts that cannot be read are reported to the person at once. Raises NotDelivered,
    and what `SessionActor.archive` raises.
    """
    text = message.text
    # "//" is the escape for a text that begins with a slash. A forwarded text is never a command, so it needs none.
    parts = [text[1:] if message.own and text.startswith("//") else text]
    notes: list[str] = []
    used_tokens = 0
    for kind in message.unreadable:
        goes_on = " I go on with the rest." if text.strip() or message.files else ""
        await send_text(gateway, message.where, f"I cannot read {kind}: the model here is given text only.{goes_on}")
        notes.append(f"[With it the user sent something that cannot be read here: {kind}.]")
    for file in message.files:
        # The sender chooses the name, and the model reads it: one line, without control characters.
        name = plain_line(file.name, _NAME_CHARS) or "file"
        try:
            data = await _fetch(gateway, file, max_file_bytes)
        except NotDelivered as fault:
            await send_text(
                gateway,
                message.where,
                f"{escape_markdown(name)} was not read: {escape_markdown(plain_line(str(fault)))}.",
            )
            # The model is told too, or it would answer as if nothing had been attached.
            notes.append(f"[With it the user sent the file {json.dumps(name)}, which was not read: {fault}.]")
            continue
        document = await store_document(actor, name, data, used_tokens=used_tokens)
        # The room that one file takes is gone for the next file of the message.
        used_tokens += document.tokens if document.shown else 0
        parts.append(document.prompt_text)
    texts = [part for part in parts if part.strip()]
    return "\n\n".join([*texts, *notes]) if texts else ""


async def _fetch(gateway: Gateway, file: Attachment, max_bytes: int) -> bytes:
    if file.size_bytes is not None and file.size_bytes > max_bytes:
        raise NotDelivered(f"it has {size_text(file.size_bytes)}, and at most {size_text(max_bytes)} are taken here")
    return await gateway.fetch(file, max_bytes)


async def reply(
    actor: SessionActor, gateway: Gateway, message: Incoming, progress: Progress, max_file_bytes: int, *, key: str
) -> None:
    """Run one turn for a message and send its answer, how it ended, and how full the window is (S4.02, S4.03).

    A `key` that the session has seen runs nothing: the outcome of that turn is sent again. Raises what
    `SessionActor.run_turn` raises, and NotDelivered.
    """
    async with progress:
        prompt = await prompt_of(actor, gateway, message, max_file_bytes)
        if not prompt:  # only parts that cannot be read: the person knows, and the model has nothing to answer
            return
        ended = await actor.run_turn(prompt, key=key, listener=progress.on_event)
    # Outside of the block: "typing" has ended before the answer appears.
    figures = await _figures(actor, progress)
    await send_text(gateway, message.where, _reply_text(ended, progress.notices, figures))
    if figures is not None and figures.asks:
        await send_text(gateway, message.where, telegram_warning(figures))


async def _figures(actor: SessionActor, progress: Progress) -> WindowUsage | None:
    try:
        return await actor.inspect(lambda state: state.context.figures)
    except (*REPORTED_ERRORS, Stopping):  # without figures the answer is still worth sending
        return progress.figures


def _reply_text(ended: TurnEnded, notices: list[str], figures: WindowUsage | None) -> str:
    """The whole reply after a turn; its last line are the figures."""
    # A reply that was cut in the middle of a code block would turn the figures below it into code.
    texts = close_fence(ended.text.strip("\n"))
    end = ending_sentence(ended)
    if not texts.strip() and not end:
        end = "The answer was empty."
    parts = [
        texts,
        escape_markdown(end),
        *(f"ℹ {escape_markdown(plain_line(notice, _NOTICE_CHARS))}" for notice in notices),
    ]
    if figures is not None:
        parts.append(telegram_footer(figures))
    return "\n\n".join(part for part in parts if part.strip())


REPORTED_ERRORS = (
    DoesNotFit,
    FoldRefused,
    InvalidInput,
    ProviderError,
    SessionLost,
    SummaryError,
    TooManyWaiting,
    OSError,
)
"""Errors that are answered in a sentence. `Stopping` is not among them: the message waits for the next start."""


def error_sentence(fault: BaseException) -> str:
    """The sentence that tells a person of an error."""
    # Subclasses stand before their bases: SessionTaken and DialectMismatch are InvalidInput.
    match fault:
        case TooManyWaiting():
            return f"{fault.queued} messages wait here already. Send it again when one of them is answered."
        case SessionTaken():
            return "This conversation is in use elsewhere at the moment. Send it again in a minute."
        case DialectMismatch():
            return "This conversation was held with a model of another kind. /new begins another one."
        case SessionLost():
            return "Another process has taken this conversation over. Send it again to go on."
        case SummaryError():
            return f"Nothing was compacted: {_one_line(fault.reason)}."
        case ProviderError():
            return f"The call of the model failed: {failure_text(str(fault))}"
        case FoldRefused() | DoesNotFit():
            return f"That cannot be done: {_one_line(str(fault))}."
        case OSError():
            # Not the text of the error: it names paths of this machine.
            return (
                "Your message could not be stored here, so it was not answered. The owner finds the reason in the log."
            )
        case InvalidInput():
            return f"That cannot be done: {_one_line(fault.reason)}."
    return _one_line(str(fault))


def ending_sentence(ended: TurnEnded) -> str:
    """The sentence below an answer on how its turn ended; "" if it is done."""
    match ended.reason:
        case "done":
            return ""
        case "failed":
            return f"⚠ {failure_text(ended.message) or 'The turn broke off.'}"
        case "interrupted":
            return '⚠ This was interrupted by a restart. Your message is kept; say "go on" to continue.'
        case "cancelled":
            return "⏹ Stopped."
        case "paused":
            return '⏸ I am being restarted. What was done is kept; say "go on" to continue.'
        case _:
            return f"⚠ {_one_line(ended.message) or ended.reason}"


def after_restart(command: str) -> str:
    """The sentence on a command that a restart interrupted: it may have been done."""
    return f"⚠ {command} was interrupted by a restart. /context shows how things stand."


def _one_line(text: str) -> str:
    return plain_line(text, 1_000).rstrip(".")
