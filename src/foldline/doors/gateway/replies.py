"""One message of a person: the prompt for the agent, the turn, and the reply as messages of the platform."""

from __future__ import annotations

import json
from typing import Final

from foldline.agent.events import TurnEnded
from foldline.agent.workers import TOOLS, StopSignal
from foldline.display import size_text, telegram_footer, telegram_warning
from foldline.doors.chat.event_lines import failure_text
from foldline.doors.gateway.base import Attachment, ChatPlace, Gateway, Incoming, NotDelivered
from foldline.doors.gateway.markdown import Piece, close_fence, escape_markdown, split_text
from foldline.doors.gateway.progress import Progress
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

__all__ = ["REPORTED_ERRORS", "after_restart", "ending_sentence", "error_sentence", "prompt_of", "reply", "send_text"]

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

    Files are stored in the session. The person is told at once of parts that cannot be read. Raises NotDelivered, and
    what `SessionActor.keep` raises.
    """
    text = message.text
    parts = [text[1:] if message.own and text.startswith("//") else text]
    notes: list[str] = []
    taken_tokens = 0
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
        document = await store_document(actor, name, data, taken_tokens=taken_tokens)
        # The room that one file takes is gone for the next file of the message.
        taken_tokens += document.tokens if document.shown else 0
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
    `SessionActor.say` raises, and NotDelivered.
    """
    async with progress:
        words = await prompt_of(actor, gateway, message, max_file_bytes)
        if not words:
            return
        ended = await actor.run_turn(words, key=key, listener=progress.on_event)
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
"""What can be answered in a sentence (SessionTaken and AnotherDialect are InvalidInput). `Stopping` cannot: the message
waits for the next start."""


def error_sentence(fault: BaseException) -> str:
    """The sentence that tells a person of an error."""
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
            return f"The model could not be asked: {failure_text(str(fault))}"
        case FoldRefused() | DoesNotFit():
            return f"That cannot be done: {_one_line(str(fault))}."
        case OSError():
            return "What was said could not be written down here, so it was not taken. Its owner finds why in the log."
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
