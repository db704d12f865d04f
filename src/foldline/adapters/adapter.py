"""What every adapter does for a call of the model: a view that fits, its usage back, an overflow retried inside.

The framework sees one call. It succeeds, or fails with the framework's own error where sending less cannot help, or
with DoesNotFit where nothing more can be reduced.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Generator, Hashable, Iterator
from contextlib import aclosing, closing, contextmanager
from typing import Final, Generic, TypeVar

from foldline.adapters.attempts import Attempts
from foldline.adapters.histories import MOST_CONVERSATIONS, Histories
from foldline.adapters.model_call import (
    AdapterSettings,
    FittedCall,
    ModelCall,
    ShownCall,
    check_settings,
    context_for,
)
from foldline.adapters.streams import StreamEvents, StreamReader
from foldline.adapters.translation import Translation, read_history
from foldline.agent.workers import run_to_end
from foldline.engine.context import AsyncSummarize, Completion, Context

__all__ = ["Adapter"]

M = TypeVar("M")
R = TypeVar("R")
E = TypeVar("E")

_INLINE_MESSAGES: Final = 64
"""Messages recorded on the event loop itself: about ten milliseconds of work."""


class Adapter(Generic[M]):
    """The three parts of an adapter, for the messages of one framework. Safe among threads and tasks."""

    def __init__(self, translation: Translation[M], settings: AdapterSettings) -> None:
        check_settings(settings, translation.dialect)
        self._translation = translation
        self._settings = settings
        # Windows that refusals have taught hold for all conversations of the adapter.
        self._learned: dict[tuple[str, str], int] = {}
        self._histories: Histories[M] = Histories(settings.get("most_conversations", MOST_CONVERSATIONS))

    def context(self, key: Hashable | None = None) -> Context | None:
        """The context of a conversation, to look into between calls (`explain`, `results`); None if there is none."""
        return self._histories.context(key)

    # --- whole answers -----------------------------------------------------------------------------------------------

    def call(self, call: ModelCall[M], send: Callable[[ShownCall[M]], R], usage_of: Callable[[R], object | None]) -> R:
        """Send a call as it fits, by `send`; `usage_of` reads the provider's report in the answer, None for none.

        Raises what `send` raises where sending less cannot help, DoesNotFit, and InvalidInput for messages that cannot
        be read.
        """
        summarize = self._settings.get("summarize")
        with self._lent(call) as fitted:
            fitted.begin()
            request = fitted.context.prepare(summarize, idle_seconds=fitted.followed.idle_seconds())
            while True:
                shown = fitted.shown(request)  # outside: an error of ours is no refusal of the provider
                try:
                    answer = send(shown)
                except Exception as error:  # of the framework or its user; raised again where it stays
                    failure = fitted.failure(error, request)
                    if not fitted.goes_on(fitted.context.recover(failure, summarize)):
                        raise
                else:
                    fitted.answered(usage_of(answer))
                    return answer
                request = fitted.context.prepare(summarize)

    async def call_async(
        self,
        call: ModelCall[M],
        send: Callable[[ShownCall[M]], Awaitable[R]],
        usage_of: Callable[[R], object | None],
    ) -> R:
        """`call` with an async `send`."""
        summarize = self._summarize_async()
        with self._lent(call) as fitted:
            await _begin(fitted)
            idle_seconds = fitted.followed.idle_seconds()
            request = await fitted.context.prepare_async(summarize, idle_seconds=idle_seconds)
            while True:
                shown = fitted.shown(request)
                try:
                    answer = await send(shown)
                except Exception as error:  # as in `call`
                    failure = fitted.failure(error, request)
                    if not fitted.goes_on(await fitted.context.recover_async(failure, summarize)):
                        raise
                else:
                    fitted.answered(usage_of(answer))
                    return answer
                request = await fitted.context.prepare_async(summarize)

    # --- streams -----------------------------------------------------------------------------------------------------

    def stream(
        self, call: ModelCall[M], send: Callable[[ShownCall[M]], Generator[E, None, None]], events: StreamEvents[E]
    ) -> Iterator[E]:
        """The events of a stream. A refusal before the answer begins is retried: the caller has seen nothing yet."""
        summarize = self._settings.get("summarize")
        with self._lent(call) as fitted:
            fitted.begin()
            request = fitted.context.prepare(summarize, idle_seconds=fitted.followed.idle_seconds())
            while True:
                reader, raised, shown = StreamReader(events), None, fitted.shown(request)
                try:
                    with closing(send(shown)) as sent:
                        for event in sent:
                            yield from reader.passed(event)
                except Exception as error:  # as in `call`, and raised at once where the caller has seen a part
                    if reader.begun:
                        raise
                    raised = error
                failed = reader.failed if raised is None else raised
                if failed is None or not fitted.goes_on(
                    fitted.context.recover(fitted.failure(failed, request), summarize)
                ):
                    break
                request = fitted.context.prepare(summarize)
            if raised is not None:
                raise raised
            yield from reader.rest()
            fitted.answered(reader.usage)

    async def stream_async(
        self, call: ModelCall[M], send: Callable[[ShownCall[M]], AsyncGenerator[E, None]], events: StreamEvents[E]
    ) -> AsyncIterator[E]:
        """`stream` with an async `send`."""
        summarize = self._summarize_async()
        with self._lent(call) as fitted:
            await _begin(fitted)
            idle_seconds = fitted.followed.idle_seconds()
            request = await fitted.context.prepare_async(summarize, idle_seconds=idle_seconds)
            while True:
                reader, raised, shown = StreamReader(events), None, fitted.shown(request)
                try:
                    async with aclosing(send(shown)) as sent:
                        async for event in sent:
                            for passed in reader.passed(event):
                                yield passed
                except Exception as error:  # as in `stream`
                    if reader.begun:
                        raise
                    raised = error
                failed = reader.failed if raised is None else raised
                if failed is None or not fitted.goes_on(
                    await fitted.context.recover_async(fitted.failure(failed, request), summarize)
                ):
                    break
                request = await fitted.context.prepare_async(summarize)
            if raised is not None:
                raise raised
            for passed in reader.rest():
                yield passed
            fitted.answered(reader.usage)

    # --- hooks -------------------------------------------------------------------------------------------------------

    @contextmanager
    def attempts(self) -> Iterator[Attempts[M]]:
        """The attempts at one call in a framework that makes them itself, and has hooks for each of them."""
        with closing(self.new_attempts()) as attempts:
            yield attempts

    def new_attempts(self) -> Attempts[M]:
        """The same for hooks that nothing is around: whoever calls must `close` them."""
        return Attempts(self._lent, _begin, self._summarize_async())

    # --- inside ------------------------------------------------------------------------------------------------------

    @contextmanager
    def _lent(self, call: ModelCall[M]) -> Iterator[FittedCall[M]]:
        """The call, with its conversation for itself until it ends."""
        history = read_history(self._translation, call.messages)
        told = self._settings.get("window") or call.window
        learned = self._learned.get((call.endpoint, call.model or ""))
        # A window that this server has refused to exceed is nearer to the truth than what anybody says of it.
        window = min(told or learned, learned) if learned else told

        def new_context() -> Context:
            return context_for(call, self._settings, self._translation.dialect, window, self._learned)

        with self._histories.lend(call.key, history, new_context) as followed:
            fitted = FittedCall(
                call=call,
                followed=followed,
                history=history,
                translation=self._translation,
                settings=self._settings,
                told_window=told,
                window=window,
            )
            yield fitted

    def _summarize_async(self) -> AsyncSummarize | None:
        summarize, in_thread = self._settings.get("summarize_async"), self._settings.get("summarize")
        if summarize is not None or in_thread is None:
            return summarize

        async def summarized(messages: list[dict[str, str]], max_output_tokens: int) -> str | Completion:
            return await asyncio.to_thread(in_thread, messages, max_output_tokens)

        return summarized


async def _begin(fitted: FittedCall[M]) -> None:
    """Begin in a thread where there is much to read: others share the event loop."""
    fitted.context.in_thread = run_to_end
    if fitted.new_messages > _INLINE_MESSAGES:
        await run_to_end(fitted.begin)
    else:
        fitted.begin()
