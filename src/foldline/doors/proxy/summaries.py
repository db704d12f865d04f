"""Summaries by the upstream itself, with the key of the client whose conversation it is."""

from __future__ import annotations

import asyncio
import json
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from concurrent.futures import CancelledError, Future
from dataclasses import replace
from hashlib import blake2b
from threading import RLock
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from foldline.doors.proxy.request_head import as_event_stream, with_model_at
from foldline.doors.proxy.windows import endpoint_of, upstream_client, url_at
from foldline.engine.context import Completion, Request
from foldline.errors import InvalidInput
from foldline.messages import Json
from foldline.providers.http import provider_for
from foldline.providers.summariser import ProviderSummariser, summariser
from foldline.view.transcript import Usage

if TYPE_CHECKING:
    import httpx

    from foldline.providers.endpoint import Endpoint

__all__ = ["RequestSummariser", "SummaryClient"]

Headers: TypeAlias = list[tuple[bytes, bytes]]

# Features that a client has switched on. A question that continues its request needs the same, or it is refused.
_BETAS: Final = b"anthropic-beta"

# Clients that branch off need the same summary again, and soon.
_MAX_CACHED: Final = 256

# The client waits meanwhile, and the clients in use give up after ten minutes.
_MAX_SECONDS: Final = 300.0

_LATE_SECONDS: Final = 15.0  # for a loop that is too busy to keep the time


class SummaryClient:
    """Requests summaries from the upstream, and caches the last `max_cached` by client and exact request.

    `model` writes them in place of the model of the conversation. Failures are not cached. Close it.
    """

    def __init__(self, base_url: str, *, model: str | None, max_cached: int = _MAX_CACHED) -> None:
        self._base_url, self._model, self._max_cached = base_url, model, max_cached
        self._cache: OrderedDict[bytes, Completion] = OrderedDict()
        self._pending: dict[bytes, Future[Completion]] = {}
        self._lock = RLock()  # reentrant: a future that is done already calls `_done` at once, inside the lock
        self._tasks: set[asyncio.Task[object]] = set()
        self._closed = False  # read and written under the lock: threads begin summaries, the loop closes
        self._client: httpx.AsyncClient | None = None

    def for_request(
        self,
        dialect: str,
        model: str,
        headers: Iterable[tuple[bytes, bytes]],
        loop: asyncio.AbstractEventLoop,
        *,
        client: bytes = b"",
        target: str = "",
    ) -> RequestSummariser:
        """A summariser for one request, to be called in a thread while `loop` runs in another.

        `client` is a hash of the client's key: a summary written for one client is not given to another. `target` is
        the path and query of the client's request, and the summary is requested there too: a deployment of Azure has
        no other. A summary model replaces the one that the path names.

        It raises what a provider raises (ProviderError), TimeoutError, and InvalidInput, also once this is closed.
        """
        # Streamed: a summary takes a minute, and a gateway may close a connection that is silent that long.
        target = as_event_stream(target)
        if self._model and target:
            path, mark, query = target.partition("?")
            target = with_model_at(path, self._model) + mark + query
        return RequestSummariser(self, dialect, self._model or model, list(headers), loop, client=client, target=target)

    def fetch(
        self, key: bytes, begin: Callable[[], Coroutine[Any, Any, Completion]], loop: asyncio.AbstractEventLoop
    ) -> Completion:
        """The completion for a key: cached, pending, or begun in `loop`. Only who begins it gets its usage."""
        if _is_running_here(loop):
            raise InvalidInput("must be called in a thread: its loop would wait for itself", place="summarise")
        began = False
        with self._lock:
            if key in self._cache:
                self._cache.move_to_end(key)
                return self._cache[key]
            # Clients repeat a request that takes long. The second one waits for the same summary.
            future = self._pending.get(key)
            if future is None or _has_failed(future):
                began = True
                future = self._pending[key] = self._begin(begin, loop)
                future.add_done_callback(lambda done: self._done(key, done))
        # The wait ends even if the loop is stuck: a thread that waits for ever would hold up the stop of the process.
        try:
            found = future.result(_MAX_SECONDS + _LATE_SECONDS)
        except CancelledError:
            raise InvalidInput("cancelled: the proxy requests no more summaries", place="summarise") from None
        return found if began else replace(found, usage=None)

    async def complete(
        self, endpoint: Endpoint, ask: Callable[[ProviderSummariser], Awaitable[Completion]]
    ) -> Completion:
        """Send one summary request to the upstream, as its client reaches it."""
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("not called in a task")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        if self._client is None:
            self._client = upstream_client(endpoint)
        async with asyncio.timeout(_MAX_SECONDS):
            return await ask(summariser(provider_for(endpoint, client=self._client)))

    def endpoint(self, dialect: str, model: str, headers: Headers, target: str = "") -> Endpoint:
        """The upstream as a client with these headers reaches it at a path and query."""
        found = endpoint_of(self._base_url, dialect, model, headers)
        return replace(found, request_url=url_at(self._base_url, target)) if target else found

    def cancel(self) -> None:
        """Cancel pending summaries, so that no thread waits any longer, and begin no more."""
        with self._lock:
            self._closed = True
            pending = list(self._pending.values())
        # Outside of the lock: a cancelled future calls `_done` here, which changes the table.
        for future in pending:
            future.cancel()  # which cancels its task too

    async def aclose(self) -> None:
        """Cancel pending summaries and close the connections."""
        self.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._client is not None:
            await self._client.aclose()

    def _begin(
        self, begin: Callable[[], Coroutine[Any, Any, Completion]], loop: asyncio.AbstractEventLoop
    ) -> Future[Completion]:
        if self._closed:
            raise InvalidInput("the proxy requests no more summaries", place="summarise")
        work = begin()
        try:
            return asyncio.run_coroutine_threadsafe(work, loop)
        except RuntimeError as error:
            work.close()
            raise InvalidInput("its loop has ended", place="summarise") from error

    def _done(self, key: bytes, done: Future[Completion]) -> None:
        with self._lock:
            if self._pending.get(key) is done:  # a second try may be pending by now
                del self._pending[key]
            if done.cancelled() or done.exception() is not None:
                return
            # Without usage: the tokens were paid for once, and count for the request that began it.
            self._cache[key] = replace(done.result(), usage=None)
            if len(self._cache) > self._max_cached:
                self._cache.popitem(last=False)


class RequestSummariser:
    """The summariser of one request of a client. `usages` is what the upstream reported for it."""

    def __init__(
        self,
        summaries: SummaryClient,
        dialect: str,
        model: str,
        headers: Headers,
        loop: asyncio.AbstractEventLoop,
        *,
        client: bytes = b"",
        target: str = "",
    ) -> None:
        self._client = client.hex()
        self._summaries, self._dialect, self._headers, self._loop = summaries, dialect, headers, loop
        self._target = target
        self.model = model
        self.usages: list[Usage] = []

    def __call__(self, messages: list[dict[str, str]], max_output_tokens: int, /) -> Completion:
        """A summary for plain texts."""
        # With the client in the key: a summary holds the words of a conversation, and may only go back to its owner.
        key = _key([self._client, self._target, self._dialect, self.model, messages, max_output_tokens])
        return self._fetch(key, None, lambda asks: asks(messages, max_output_tokens))

    def as_client(self, request: Request, fields: Mapping[str, Json], /) -> Completion:
        """A summary for the client's own request with the question at its end."""
        of = [request.system, request.tools, request.messages, request.max_output_tokens]
        key = _key([self._client, self._target, self._dialect, self.model, dict(fields), *of])
        return self._fetch(key, fields, lambda asks: asks.continued(request))

    def _fetch(
        self, key: bytes, fields: Mapping[str, Json] | None, ask: Callable[[ProviderSummariser], Awaitable[Completion]]
    ) -> Completion:
        async def begin() -> Completion:
            endpoint = self._summaries.endpoint(self._dialect, self.model, self._headers, self._target)
            if fields is not None:
                betas = b",".join(value for name, value in self._headers if name.lower() == _BETAS)
                more = {_BETAS.decode(): betas.decode("latin-1")} if betas else {}
                endpoint = replace(endpoint, extra=fields, headers={**endpoint.headers, **more})
            return await self._summaries.complete(endpoint, ask)

        found = self._summaries.fetch(key, begin, self._loop)
        if found.usage is not None:
            self.usages.append(found.usage)
        return found


def _key(request: Json) -> bytes:
    return blake2b(json.dumps(request, ensure_ascii=True).encode(), digest_size=32).digest()


def _has_failed(future: Future[Completion]) -> bool:
    # A future that has just succeeded is not in the cache yet: its callback comes after its waiters.
    return future.done() and (future.cancelled() or future.exception() is not None)


def _is_running_here(loop: asyncio.AbstractEventLoop) -> bool:
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False
