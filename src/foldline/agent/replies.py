"""One reply of the model: streamed, interrupted, or the end of a turn."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from typing import Any, Final, cast

from foldline.agent.events import EndReason, Listener, TurnEnded
from foldline.engine.context import Request
from foldline.errors import ProviderError
from foldline.providers.base import Provider, Reply, TextDelta

__all__ = ["ReplyInterrupted", "end_of", "is_complete", "retry_reason", "stream_reply"]

_COMPLETE: Final = ("stop", "tool_calls")
_REASONS: Final = {
    "length": "The answer was cut off at the output limit.",
    "refusal": "The model refused to answer.",
    "pause": "The model paused, and did not go on.",
    "malformed_call": "The model wrote calls that cannot be read.",
    "context_window": "The answer was cut off: the context window is full.",
    "failed": "The server broke off the answer.",
}


class ReplyInterrupted(ProviderError):  # noqa: N818 - says what happened, like DoesNotFit
    """A reply broke off after some of it was shown and recorded: a retry would continue from half a sentence."""


async def stream_reply(
    provider: Provider, request: Request, emit: Listener, record_partial: Callable[[str], bool]
) -> Reply:
    """Send a request, emit what streams in, and return the whole reply.

    If the stream breaks off, `record_partial` gets the words so far and says whether there were any. Raises
    ProviderError; ReplyInterrupted once words were recorded.
    """
    words: list[str] = []
    try:
        async with aclosing(cast("Any", provider.stream(request))) as stream:
            async for piece in stream:
                if isinstance(piece, Reply):
                    return piece
                if isinstance(piece, TextDelta):
                    words.append(piece.text)
                emit(piece)
    except asyncio.CancelledError:  # while the stream closes too, though the whole reply has come
        record_partial("".join(words))
        raise
    except ProviderError as error:
        if record_partial("".join(words)):
            raise ReplyInterrupted(error.failure) from error
        raise
    raise AssertionError("a stream ends with its reply, or raises")


def is_complete(reply: Reply) -> bool:
    """Return whether the model finished the reply. The calls of any other reply may be cut off."""
    return reply.finish_reason in (*_COMPLETE, "length")


def retry_reason(reply: Reply) -> str | None:
    """Return why the same request is worth sending again, as a sentence for the user; None if it is not.

    Retried are calls that cannot be read, and a reply without a word that the server gave up. Words that were shown
    stay: a second answer would stand beside half of the first.
    """
    if reply.finish_reason == "malformed_call" or (_lost_calls(reply) and not reply.text.strip()):
        return "The model wrote a call that cannot be read; asked again."
    given_up = not reply.text.strip() and reply.finish_reason not in (*_COMPLETE, "length", "refusal", "context_window")
    return f"The server ended the reply without an answer ({reply.finish_reason}); asked again." if given_up else None


def _lost_calls(reply: Reply) -> bool:
    """Return whether the server says that a reply ends with calls but sent none: it could not read them."""
    return reply.finish_reason == "tool_calls" and not reply.calls


def end_of(reply: Reply, iteration: int) -> TurnEnded:
    """Return the end of a turn by this reply. A reply without a normal finish reason is a failure."""
    # "tool_calls" without calls must not count as done: the model meant to go on.
    finish = "malformed_call" if _lost_calls(reply) else reply.finish_reason
    reason: EndReason = "done" if finish in _COMPLETE else "failed"
    if finish == "length":
        reason = "length"
    elif finish == "refusal":
        reason = "refusal"
    message = "" if reply.text.strip() else "The model said nothing."
    if finish not in _COMPLETE:
        message = _REASONS.get(finish, f"The server ended the answer for a reason of its own: {finish[:80]}.")
    return TurnEnded(reason=reason, text=reply.text, message=message, iterations=iteration)
