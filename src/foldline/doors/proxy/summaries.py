"""Summaries by the upstream itself, with the key of the client whose conversation is summed up."""

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

from foldline.doors.proxy.dialects import with_model_at
from foldline.doors.proxy.upstream import url_at
from foldline.doors.proxy.windows import asking_client, endpoint_of
from foldline.engine.context import Completion, Request
from foldline.errors import InvalidInput
from foldline.messages import Json
from foldline.providers.http import provider_for
from foldline.providers.summariser import ProviderSummariser, summariser
from foldline.view.transcript import Usage

if TYPE_CHECKING:
    import httpx

    from foldline.providers.endpoint import Endpoint

__all__ = ["ForRequest", "Summaries"]

Headers: TypeAlias = list[tuple[bytes, bytes]]

_BETAS: Final = b"anthropic-beta"
"""What a client has switched on of an API: a question that goes on from its request is read under the same."""

_KEPT: Final = 256
"""Clients that branch off ask for the same summary again, and soon."""

_LONGEST_SECONDS: Final = 300.0
"""A client waits for its reply meanwhile: those in use give up after ten minutes."""

_LATE_SECONDS: Final = 15.0  # for a loop that is too busy to keep the time


class Summaries:
    """Asks for summaries, each once: what a client asked in the same words is remembered, the last `most_kept`
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
        *,
        client: bytes = b"",
        target: str = "",
    ) -> ForRequest:
        """A summariser with a client's key, to be called in a thread while `loop` runs in another.

        `client` is a hash of that key: what was written for one client is not given to another. `target` is the path
        and query at which the client asks, and the summary is asked for (at a deployment of Azure's there is no other);
        a summary model takes the place of the one that the path names.

        It raises what a provider raises (ProviderError), TimeoutError, and InvalidInput, also when all is closed
        meanwhile.
        """
        if self._model and target:
            path, mark, query = target.partition("?")
            target = with_model_at(path, self._model) + mark + query
        return ForRequest(self, dialect, self._model or model, list(headers), loop, client=client, target=target)

    def asked(
        self, key: bytes, begin: Callable[[], Coroutine[Any, Any, Completion]], loop: asyncio.AbstractEventLoop
    ) -> Completion:
        """What is known under a key, or what `begin` brings in `loop`; only who begins it has its usage."""
        if _runs_here(loop):
            raise InvalidInput("must be called in a thread: its loop would wait for itself", place="summarise")
        began = False
        with self._lock:
            if key in self._known:
                self._known.move_to_end(key)
                return self._known[key]
            future = self._asking.get(key)
            if future is None or future.done():  # done, and not known: it failed a moment ago
                began = True
                future = self._asking[key] = self._begun(begin, loop)
                future.add_done_callback(lambda done: self._done(key, done))
        try:
            found = future.result(_LONGEST_SECONDS + _LATE_SECONDS)
        except CancelledError:
            raise InvalidInput("given up: no summaries are asked for any more", place="summarise") from None
        return found if began else replace(found, usage=None)

    async def from_upstream(
        self, endpoint: Endpoint, ask: Callable[[ProviderSummariser], Awaitable[Completion]]
    ) -> Completion:
        """One question to the upstream, as this client reaches it."""
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("not called in a task")
        self._work.add(task)
        task.add_done_callback(self._work.discard)
        if self._client is None:
            self._client = asking_client(endpoint)
        async with asyncio.timeout(_LONGEST_SECONDS):
            return await ask(summariser(provider_for(endpoint, client=self._client)))

    def endpoint(self, dialect: str, model: str, headers: Headers, target: str = "") -> Endpoint:
        """The upstream as a client with these headers reaches it at a path and query."""
        found = endpoint_of(self._base_url, dialect, model, headers)
        return replace(found, request_url=url_at(self._base_url, target)) if target else found

    def give_up(self) -> None:
        """Ask for nothing any more, and give up what is being asked, so that no thread waits any longer."""
        with self._lock:
            self._closed = True
            waited = list(self._asking.values())
        for future in waited:
            future.cancel()  # and its task with it

    async def aclose(self) -> None:
        """Give up what is being asked, and close the connections."""
        self.give_up()
        await asyncio.gather(*self._work, return_exceptions=True)
        if self._client is not None:
            await self._client.aclose()

    def _begun(
        self, begin: Callable[[], Coroutine[Any, Any, Completion]], loop: asyncio.AbstractEventLoop
    ) -> Future[Completion]:
        if self._closed:
            raise InvalidInput("no summaries are asked for any more", place="summarise")
        work = begin()
        try:
            return asyncio.run_coroutine_threadsafe(work, loop)
        except RuntimeError as error:
            work.close()
            raise InvalidInput("its loop has ended", place="summarise") from error

    def _done(self, key: bytes, done: Future[Completion]) -> None:
        with self._lock:
            if self._asking.get(key) is done:  # another may have taken its place
                del self._asking[key]
            if done.cancelled() or done.exception() is not None:
                return
            self._known[key] = replace(done.result(), usage=None)
            if len(self._known) > self._most_kept:
                self._known.popitem(last=False)


class ForRequest:
    """The summariser of one request of a client; `spent` is what the upstream reported for it."""

    def __init__(
        self,
        summaries: Summaries,
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
        self.spent: list[Usage] = []

    def __call__(self, messages: list[dict[str, str]], max_output_tokens: int, /) -> Completion:
        """A summary for plain texts."""
        key = _key([self._client, self._target, self._dialect, self.model, messages, max_output_tokens])
        return self._asked(key, None, lambda asks: asks(messages, max_output_tokens))

    def as_client(self, request: Request, fields: Mapping[str, Json], /) -> Completion:
        """A summary for the client's own request with the question at its end."""
        of = [request.system, request.tools, request.messages, request.max_output_tokens]
        key = _key([self._client, self._target, self._dialect, self.model, dict(fields), *of])
        return self._asked(key, fields, lambda asks: asks.continued(request))

    def _asked(
        self, key: bytes, fields: Mapping[str, Json] | None, ask: Callable[[ProviderSummariser], Awaitable[Completion]]
    ) -> Completion:
        async def begin() -> Completion:
            endpoint = self._summaries.endpoint(self._dialect, self.model, self._headers, self._target)
            if fields is not None:
                betas = b",".join(value for name, value in self._headers if name.lower() == _BETAS)
                more = {_BETAS.decode(): betas.decode("latin-1")} if betas else {}
                endpoint = replace(endpoint, extra=fields, headers={**endpoint.headers, **more})
            return await self._summaries.from_upstream(endpoint, ask)

        found = self._summaries.asked(key, begin, self._loop)
        if found.usage is not None:
            self.spent.append(found.usage)
        return found


def _key(asked: Json) -> bytes:
    return blake2b(json.dumps(asked, ensure_ascii=True).encode(), digest_size=32).digest()


def _runs_here(loop: asyncio.AbstractEventLoop) -> bool:
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False
