"""What a person in a chat is told of faults, and of how a turn ended: a sentence each."""

from __future__ import annotations

from foldline.agent.events import TurnEnded
from foldline.doors.chat.lines import failure_text
from foldline.errors import (
    DoesNotFit,
    FoldRefused,
    InvalidInput,
    ProviderError,
    SessionLost,
    SessionTaken,
    SummaryError,
    TooManyWaiting,
)
from foldline.hosting.session_lease import AnotherDialect
from foldline.text.printable import plain_line

__all__ = ["REFUSALS", "after_restart", "ending", "sentence"]

REFUSALS = (
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


def sentence(fault: BaseException) -> str:
    """What to tell the person who asked."""
    match fault:
        case TooManyWaiting():
            return f"{fault.queued} messages wait here already. Send it again when one of them is answered."
        case SessionTaken():
            return "This conversation is in use elsewhere at the moment. Send it again in a minute."
        case AnotherDialect():
            return "This conversation was held with a model of another kind. /new begins another one."
        case SessionLost():
            return "Another process has taken this conversation over. Send it again to go on."
        case SummaryError():
            return f"Nothing was compacted: {_words(fault.reason)}."
        case ProviderError():
            return f"The model could not be asked: {failure_text(str(fault))}"
        case FoldRefused() | DoesNotFit():
            return f"That cannot be done: {_words(str(fault))}."
        case OSError():
            return "What was said could not be written down here, so it was not taken. Its owner finds why in the log."
        case InvalidInput():
            return f"That cannot be done: {_words(fault.reason)}."
    return _words(str(fault))


def ending(ended: TurnEnded) -> str:
    """What to say below an answer of how its turn ended; "" where it is simply done."""
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
            return f"⚠ {_words(ended.message) or ended.reason}"


def after_restart(command: str) -> str:
    """What to say of a command that a restart interrupted: it may have been done."""
    return f"⚠ {command} was interrupted by a restart. /context shows how things stand."


def _words(text: str) -> str:
    return plain_line(text, 1_000).rstrip(".")
