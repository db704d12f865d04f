"""Summaries by the upstream itself, with the key of the client whose conversation is summed up."""

from __future__ import annotations

import asyncio
import json
from collections import OrderedDict
from collections.abc import Iterable
from concurrent.futures import Future
from hashlib import blake2b
from threading import RLock
from typing import TYPE_CHECKING, Final

from foldline.context import Completion, SummarizeWith
from foldline.interfaces.proxy.windows import endpoint_of
from foldline.providers.bodies import load_httpx
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


class Summaries:
    """Asks for summaries, each once: what was asked in the same words is remembered, the newest 256 of them.

    `model` writes them in place of the model of the conversation. Failures are not remembered. Close it.
    """

    def __init__(self, base_url: str, *, model: str | None) -> None:
        self._base_url, self._model = base_url, model
        self._known: OrderedDict[bytes, Completion] = OrderedDict()
        self._asking: dict[bytes, Future[Completion]] = {}
        self._lock = RLock()  # who asks may hear at once that it is done
        self._client: httpx.AsyncClient | None = None

    def for_request(
        self,
        dialect: str,
        model: str,
        headers: Iterable[tuple[bytes, bytes]],
        loop: asyncio.AbstractEventLoop,
    ) -> SummarizeWith:
        """A summariser with a client's key, to be called in a thread while `loop` runs in another.

        It raises what a provider raises (ProviderError), InvalidInput, and TimeoutError.
        """
        asked, given = self._model or model, list(headers)

        def summarise(messages: list[dict[str, str]], max_output_tokens: int) -> Completion:
            key = _key(dialect, asked, messages, max_output_tokens)
            with self._lock:
                if key in self._known:
                    self._known.move_to_end(key)
                    return self._known[key]
                future = self._asking.get(key)
                if future is None:
                    endpoint = endpoint_of(self._base_url, dialect, asked, given)
                    work = self._asked(endpoint, messages, max_output_tokens)
                    future = self._asking[key] = asyncio.run_coroutine_threadsafe(work, loop)
                    future.add_done_callback(lambda done: self._done(key, done))
            return future.result()

        return summarise

    async def aclose(self) -> None:
        """Close the connections."""
        if self._client is not None:
            await self._client.aclose()

    async def _asked(self, endpoint: Endpoint, messages: list[dict[str, str]], max_output_tokens: int) -> Completion:
        if self._client is None:
            self._client = load_httpx().AsyncClient(trust_env=not endpoint.is_local, timeout=endpoint.timeout_seconds)
        provider = provider_for(endpoint, client=self._client)
        async with asyncio.timeout(_LONGEST_SECONDS):
            answer = summariser(provider)(messages, max_output_tokens)
            text = await answer if asyncio.iscoroutine(answer) else answer
        return text if isinstance(text, Completion) else Completion(str(text))

    def _done(self, key: bytes, done: Future[Completion]) -> None:
        with self._lock:
            self._asking.pop(key, None)
            if done.cancelled() or done.exception() is not None:
                return
            self._known[key] = done.result()
            if len(self._known) > _KEPT:
                self._known.popitem(last=False)


def _key(dialect: str, model: str, messages: list[dict[str, str]], max_output_tokens: int) -> bytes:
    asked = json.dumps([dialect, model, messages, max_output_tokens], ensure_ascii=True)
    return blake2b(asked.encode(), digest_size=32).digest()
