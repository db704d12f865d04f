"""One call whose attempts the framework makes itself, and tells of by hooks: before each, after, and on an error."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, ExitStack
from typing import Generic, TypeVar

from foldline.adapters.model_call import FittedCall, ModelCall, ShownCall
from foldline.engine.context import AsyncSummarize
from foldline.view.request import Request

__all__ = ["Attempts"]

M = TypeVar("M")


class Attempts(Generic[M]):
    """The attempts at one call, one after another. `close` gives the conversation back, whatever became of them."""

    def __init__(
        self,
        lend: Callable[[ModelCall[M]], AbstractContextManager[FittedCall[M]]],
        begin: Callable[[FittedCall[M]], Awaitable[None]],
        summarize: AsyncSummarize | None,
    ) -> None:
        self._lend = lend
        self._begin = begin
        self._summarize = summarize
        self._lent = ExitStack()
        self._open: tuple[FittedCall[M], Request] | None = None

    async def begin(self, call: ModelCall[M]) -> ShownCall[M]:
        """What to send in an attempt at a call; the next one may go to another model, with other messages.

        Raises DoesNotFit, and InvalidInput for messages that cannot be read.
        """
        self.close()
        fitted = self._lent.enter_context(self._lend(call))
        try:
            await self._begin(fitted)
            request = await fitted.context.prepare_async(self._summarize, idle_seconds=fitted.followed.idle_seconds())
            shown = fitted.shown(request)
        except BaseException:
            self.close()
            raise
        self._open = fitted, request
        return shown

    async def failed(self, error: object) -> bool:
        """Whether another attempt at the same model can succeed; False where no attempt is open."""
        if self._open is None:
            return False
        fitted, request = self._open
        return fitted.goes_on(await fitted.context.recover_async(fitted.failure(error, request), self._summarize))

    def answered(self, usage: object | None) -> None:
        """Record the provider's report of the answer; None for none."""
        if self._open is not None:
            self._open[0].answered(usage)

    def close(self) -> None:
        """End the attempt that is open, if any."""
        self._open = None
        self._lent.close()
