"""Summaries by the upstream itself, with the key of the client whose conversation is summed up."""

from __future__ import annotations

import asyncio
import inspect
import json
from collections import OrderedDict
from collections.abc import Iterable
from concurrent.futures import CancelledError, Future
from hashlib import blake2b
from threading import RLock
from typing import TYPE_CHECKING, Final

from foldline.context import Completion, SummarizeWith
from foldline.errors import InvalidInput
from foldline.interfaces.proxy.windows import asking_client, endpoint_of
from foldline.providers.http import provider_for
from foldline.providers.summarise import summariser

if TYPE_CHECKING:
    import httpx

    from foldline.providers.endpoint import Endpoint

__all__ = ["Summaries"]

_KEPT: Final = 256
"""Clients that branch off ask for the same summary again, and soon."""

_LONGEST_SECONDS: Final = 300.0
"""A client waits for its reply meanwhile: those in use give up after ten minutes."""

_LATE_SECONDS: Final = 15.0  # for a loop that is too busy to keep the time


class Summaries:
    """Asks for summaries, each once: what was asked in the same words is remembered, the last `most_kept`
    of them.

    `model` writes them in place of the model of the conversation. Failures are not remembered. Close it.
    """

    def __init__(self, base_url: str, *, model: str | None, most_kept: int = _KEPT) -> None:
        self._base_url, self._model, self._most_kept = base_url, model, most_kept
        self._known: OrderedDict[bytes, Completion] = OrderedDict()
        self._asking: dict[bytes, Future[Completion]] = {}
        self._lock = RLock()  # who asks may hear at once that it is done
        self._work: set[asyncio.Task[object]] = set()
        self._closed = False
        self._client: httpx.AsyncClient | None = None

    def for_request(
        self,
        dialect: str,
        model: str,
        headers: Iterable[tuple[bytes, bytes]],
        loop: asyncio.AbstractEventLoop,
    ) -> SummarizeWith:
        """A summariser with a client's key, to be called in a thread while `loop` runs in another.

        It raises what a provider raises (ProviderError), TimeoutError, and InvalidInput, also when all is closed
        meanwhile.
        """
        asked, given = self._model or model, list(headers)

        def summarise(messages: list[dict[str, str]], max_output_tokens: int) -> Completion:
            if _runs_here(loop):
                raise InvalidInput("must be called in a thread: its loop would wait for itself", place="summarise")
            key = _key(dialect, asked, messages, max_output_tokens)
            with self._lock:
                if key in self._known:
                    self._known.move_to_end(key)
                    return self._known[key]
                future = self._asking.get(key)
                if future is None or future.done():  # done, and not known: it failed a moment ago
                    endpoint = endpoint_of(self._base_url, dialect, asked, given)
                    future = self._asking[key] = self._begun(endpoint, messages, max_output_tokens, loop)
                    future.add_done_callback(lambda done: self._done(key, done))
            try:
                return future.result(_LONGEST_SECONDS + _LATE_SECONDS)
            except CancelledError:
                raise InvalidInput("given up: no summaries are asked for any more", place="summarise") from None

        return summarise

    async def aclose(self) -> None:
        """Give up what is being asked, so that no thread waits any longer, and close the connections."""
        with self._lock:
            self._closed = True
            waited = list(self._asking.values())
        for future in waited:
            future.cancel()  # and its task with it
        await asyncio.gather(*self._work, return_exceptions=True)
        if self._client is not None:
            await self._client.aclose()

    def _begun(
        self,
        endpoint: Endpoint,
        messages: list[dict[str, str]],
        max_output_tokens: int,
        loop: asyncio.AbstractEventLoop,
    ) -> Future[Completion]:
        if self._closed:
            raise InvalidInput("no summaries are asked for any more", place="summarise")
        work = self._asked(endpoint, messages, max_output_tokens)
        try:
            return asyncio.run_coroutine_threadsafe(work, loop)
        except RuntimeError as error:
            work.close()
            raise InvalidInput("its loop has ended", place="summarise") from error

    async def _asked(self, endpoint: Endpoint, messages: list[dict[str, str]], max_output_tokens: int) -> Completion:
        task = asyncio.current_task()
        assert task is not None
        self._work.add(task)
        task.add_done_callback(self._work.discard)
        if self._client is None:
            self._client = asking_client(endpoint)
        provider = provider_for(endpoint, client=self._client)
        async with asyncio.timeout(_LONGEST_SECONDS):
            answer = summariser(provider)(messages, max_output_tokens)
            text = await answer if inspect.isawaitable(answer) else answer
        return text if isinstance(text, Completion) else Completion(text)

    def _done(self, key: bytes, done: Future[Completion]) -> None:
        with self._lock:
            if self._asking.get(key) is done:  # another may have taken its place
                del self._asking[key]
            if done.cancelled() or done.exception() is not None:
                return
            self._known[key] = done.result()
            if len(self._known) > self._most_kept:
                self._known.popitem(last=False)


def _key(dialect: str, model: str, messages: list[dict[str, str]], max_output_tokens: int) -> bytes:
    asked = json.dumps([dialect, model, messages, max_output_tokens], ensure_ascii=True)
    return blake2b(asked.encode(), digest_size=32).digest()


def _runs_here(loop: asyncio.AbstractEventLoop) -> bool:
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False
