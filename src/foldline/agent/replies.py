"""One reply of the model: as it streams in, as it breaks off, and as the end of a turn."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from typing import Any, Final, cast

from foldline.agent.events import EndReason, Listener, TurnEnded
from foldline.context import Request
from foldline.errors import ProviderError
from foldline.providers.base import Provider, Reply, TextDelta

__all__ = ["BrokenOffError", "answered", "streamed"]

_UNFINISHED: Final = {
    "length": "The answer was cut off at the output limit.",
    "refusal": "The model refused to answer.",
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


def answered(reply: Reply, iteration: int) -> TurnEnded:
    """The end of a turn by an answer, however little it is."""
    reason: EndReason = "done"
    if reply.finish_reason == "length":
        reason = "length"
    elif reply.finish_reason == "refusal":
        reason = "refusal"
    message = _UNFINISHED.get(reason, "" if reply.text.strip() else "The model said nothing.")
    return TurnEnded(reason=reason, text=reply.text, message=message, iterations=iteration)
