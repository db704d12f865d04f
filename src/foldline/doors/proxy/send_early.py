"""Sends a request, and works on it while the upstream does."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeAlias

from foldline.doors.proxy.upstream import Answer

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
        sending.add_done_callback(_abort)  # also where nobody can wait for that: a second cancellation
        sending.cancel()
        await asyncio.wait({sending})
        raise


def _abort(sending: asyncio.Task[Answer]) -> None:
    if not sending.cancelled() and sending.exception() is None:
        sending.result().abort()
