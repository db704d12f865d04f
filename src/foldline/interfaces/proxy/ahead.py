"""Sends a request, and works on it while the upstream does."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeAlias

from foldline.interfaces.proxy.upstream import Answer

__all__ = ["sent_ahead"]

Sending: TypeAlias = Callable[[Callable[[], None]], Coroutine[Any, Any, Answer]]
"""Sends a request, given what is to be called once it has gone out."""


async def sent_ahead(send: Sending, work: Callable[[], Awaitable[None]]) -> Answer:
    """Send a request, do some work once it has gone out (or could not), and return the answer to it.

    Raises what `send` and `work` raise. Nobody gets an answer then: it is closed, and a request under way given up.
    """
    out = asyncio.Event()
    sending = asyncio.create_task(send(out.set))
    sending.add_done_callback(lambda _: out.set())
    try:
        await out.wait()
        await work()
        return await sending
    except BaseException:
        sending.cancel()
        for answer in await asyncio.gather(sending, return_exceptions=True):
            if isinstance(answer, Answer):
                await answer.close()
        raise
