"""One reply of the model: as it streams in, as it breaks off, and as the end of a turn."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from typing import Any, Final, cast

from foldline.agent.events import EndReason, Listener, TurnEnded
from foldline.engine.context import Request
from foldline.errors import ProviderError
from foldline.providers.base import Provider, Reply, TextDelta

__all__ = ["BrokenOffError", "answered", "asks_again", "is_whole", "streamed"]

_WHOLE: Final = ("stop", "tool_calls")
_UNFINISHED: Final = {
    "length": "The answer was cut off at the output limit.",
    "refusal": "The model refused to answer.",
    "pause": "The model paused, and did not go on.",
    "malformed_call": "The model wrote calls that cannot be read.",
    "context_window": "The answer was cut off: the context window is full.",
    "failed": "The server broke off the answer.",
}


class BrokenOffError(ProviderError):
    """A reply broke off when some of it had been shown and kept: sent again, it would go on from half a sentence."""


async def streamed(provider: Provider, request: Request, tell: Listener, keep: Callable[[str], bool]) -> Reply:
    """Send a request and pass on what streams in; the whole reply.

    However it breaks off, `keep` gets the words that had come and says whether there were any. Raises ProviderError;
    BrokenOffError once words were kept.
    """
    said: list[str] = []
    try:
        async with aclosing(cast("Any", provider.stream(request))) as stream:
            async for piece in stream:
                if isinstance(piece, Reply):
                    return piece
                if isinstance(piece, TextDelta):
                    said.append(piece.text)
                tell(piece)
    except asyncio.CancelledError:  # while the stream closes too, though the whole reply has come
        keep("".join(said))
        raise
    except ProviderError as error:
        if keep("".join(said)):
            raise BrokenOffError(error.failure) from error
        raise
    raise AssertionError("a stream ends with its reply, or raises")


def is_whole(reply: Reply) -> bool:
    """Whether a reply ended as one does that the model finished: of another the calls may be cut off."""
    return reply.finish_reason in (*_WHOLE, "length")


def asks_again(reply: Reply) -> str | None:
    """Why the same question is worth asking again, as a sentence for the user; None where it is not.

    Calls that nobody can read, and a reply without a word that the server gave up. Words that were shown stay: a second
    answer would go on beside the half of the first.
    """
    if reply.finish_reason == "malformed_call" or (_lost_its_calls(reply) and not reply.text.strip()):
        return "The model wrote a call that cannot be read; asked again."
    given_up = not reply.text.strip() and reply.finish_reason not in (*_WHOLE, "length", "refusal", "context_window")
    return f"The server ended the reply without an answer ({reply.finish_reason}); asked again." if given_up else None


def _lost_its_calls(reply: Reply) -> bool:
    """Whether a reply ended with calls, as the server says, and has none: it could not read them."""
    return reply.finish_reason == "tool_calls" and not reply.calls


def answered(reply: Reply, iteration: int) -> TurnEnded:
    """The end of a turn by an answer, however little it is. One that did not end as an answer does is a failure."""
    said = "malformed_call" if _lost_its_calls(reply) else reply.finish_reason
    reason: EndReason = "done" if said in _WHOLE else "failed"
    if said == "length":
        reason = "length"
    elif said == "refusal":
        reason = "refusal"
    message = "" if reply.text.strip() else "The model said nothing."
    if said not in _WHOLE:
        message = _UNFINISHED.get(said, f"The server ended the answer for a reason of its own: {said[:80]}.")
    return TurnEnded(reason=reason, text=reply.text, message=message, iterations=iteration)
