"""A provider over HTTP, in any dialect: sends requests, retries them, and reads the stream.

Redirects are never followed, because the key would go along. The extra `chat` installs the client, httpx, which is
imported with the first request.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import replace
from datetime import UTC, datetime
from importlib import import_module
from time import monotonic
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from foldline.catalog.models import lookup
from foldline.codecs import codec, dialect_named
from foldline.engine.context import Request
from foldline.errors import InvalidInput, ProviderError
from foldline.failures.classification import classify
from foldline.failures.failure import Failure
from foldline.messages import Json
from foldline.providers.base import AssembledReply, Assembler, HttpDialect, Piece, Provider, Reply, Retrying
from foldline.providers.bodies import (
    BrokenEventError,
    EventReader,
    StreamedError,
    encode_body,
    json_object,
    load_httpx,
    read_bytes,
    root_message,
)
from foldline.providers.discovery import fetch_window
from foldline.providers.endpoint import Endpoint
from foldline.providers.retries import CONNECT_RETRIES, FAULT_RETRIES, pause, requested_pause, retries
from foldline.providers.summariser import text_only

if TYPE_CHECKING:
    import httpx

__all__ = ["HttpProvider", "http_dialect", "provider_for"]

_CONNECT_SECONDS: Final = 10.0
_MAX_ERROR_BYTES: Final = 1024 * 1024  # the part of an error that `classify` parses
_MAX_REPLY_BYTES: Final = 64 * 1024 * 1024
_SILENT_RETRIES: Final = 1  # after minutes of silence, because each retry costs minutes again

_MAX_ADAPTATIONS: Final = 3
_BAD_REQUEST: Final = frozenset({400, 422})
_MAY_BE_ADAPTED: Final = frozenset({"other", "malformed", "ambiguous"})
_JSON_HEADERS: Final = {"content-type": "application/json", "accept": "text/event-stream, application/json"}


def http_dialect(name: str) -> HttpDialect:
    """Return the requests and replies of a dialect, from its module of this package."""
    # By the name of the row: a new dialect brings its module and touches no table here.
    dialect: HttpDialect = import_module(f"foldline.providers.{dialect_named(name).module}").DIALECT
    return dialect


def provider_for(
    endpoint: Endpoint,
    *,
    client: httpx.AsyncClient | None = None,
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    chance: Callable[[], float] = random.random,
) -> Provider:
    """Return the provider of an endpoint. The caller closes `client`; `sleep` and `chance` are for tests.

    Raises MissingExtra without httpx. Opens no connection.
    """
    load_httpx()
    return HttpProvider(endpoint, client=client, sleep=sleep, chance=chance)


def _is_prompt(request: Request) -> bool:
    """Whether a request has no messages of a session, only those that are sent once."""
    before = request.messages[: -request.once] if request.once else [{}]
    return all(wire.get("role") in ("system", "developer") for wire in before)


class _Trouble(Exception):  # noqa: N818 - never leaves this module
    """A request without a reply: the reason, the number of retries, and the refusal of a bad request."""

    def __init__(self, failure: Failure, retries: int, refusal: str = "") -> None:
        super().__init__(failure.message)
        self.failure, self.retries, self.refusal = failure, retries, refusal


class HttpProvider:
    """One model at one endpoint; see `provider_for`. Do not share it between event loops."""

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        client: httpx.AsyncClient | None,
        sleep: Callable[[float], Awaitable[object]],
        chance: Callable[[], float],
    ) -> None:
        self._endpoint = endpoint
        self._dialect = http_dialect(endpoint.dialect)
        self._shared = client
        self._own: httpx.AsyncClient | None = None
        self._sleep, self._chance = sleep, chance
        self._refusals: list[str] = []  # messages of the server about unknown fields
        known = lookup(endpoint.model)
        self._window_tokens = known.window_tokens if known.known else None

    def __repr__(self) -> str:
        return f"HttpProvider({self._endpoint!r})"

    @property
    def name(self) -> str:
        """The endpoint's name."""
        return self._endpoint.name

    @property
    def dialect(self) -> str:
        """The dialect of its messages."""
        return self._endpoint.dialect

    @property
    def model(self) -> str:
        """The model's name in requests."""
        return self._endpoint.model

    @property
    def endpoint(self) -> str:
        """The base URL."""
        return self._endpoint.base_url

    async def stream(self, request: Request) -> AsyncIterator[Piece]:
        """Send a request. The last piece is the `Reply`. Raises ProviderError, and InvalidInput for invalid JSON."""
        # Retried only before the first piece: text that people have seen cannot be taken back.
        endpoint = self._endpoint
        if _is_prompt(request):  # our own prompt, full of tool output: nothing may act on it
            endpoint = replace(endpoint, extra=text_only(endpoint.extra))
        body = self._dialect.body(endpoint, request)
        for refusal in self._refusals:
            body = self._dialect.adapted(body, refusal) or body
        attempt = 0
        while True:
            begun, trouble = False, None
            try:
                async with aclosing(self._attempt(body, request)) as pieces:
                    async for piece in pieces:
                        begun = True
                        yield piece
                return
            except _Trouble as error:
                trouble = error
            # An adapted body is another request, not a retry: it neither waits nor counts as an attempt.
            if not begun and (adapted := self._adapted(body, trouble)) is not None:
                body = adapted
                continue
            attempt += 1
            wait = pause(attempt, trouble.failure, self._chance)
            if begun or attempt > trouble.retries or wait is None:
                raise ProviderError(trouble.failure) from trouble.__cause__
            yield Retrying(attempt, wait, _reason(trouble.failure))
            await self._sleep(wait)

    async def window_tokens(self) -> int | None:
        """Ask the server for its window, each time anew; None if it names none."""
        found = await fetch_window(self._endpoint, self._client())
        self._window_tokens = found or self._window_tokens
        return found

    async def aclose(self) -> None:
        """Close its own connections."""
        own, self._own = self._own, None
        if own is not None:
            await own.aclose()

    # --- attempts ----------------------------------------------------------------------------------------------------

    def _client(self) -> httpx.AsyncClient:
        if self._shared is not None:
            return self._shared
        if self._own is None:
            module = load_httpx()
            seconds = self._endpoint.timeout_seconds
            self._own = module.AsyncClient(
                timeout=module.Timeout(seconds, connect=min(_CONNECT_SECONDS, seconds)),
                follow_redirects=False,
                # A proxy from the environment cannot reach addresses of the local network.
                trust_env=not self._endpoint.is_local,
                # Loading certificates takes 0.2 s, for nothing without TLS.
                verify=self._endpoint.base_url.startswith("https:"),
            )
        return self._own

    def _adapted(self, body: Mapping[str, Json], trouble: _Trouble) -> dict[str, Json] | None:
        """Return the body without fields that the server refused as unknown, now and in future; None if it did not."""
        # A repeated refusal means that the adaptation did not help: trying it again would loop.
        if not trouble.refusal or trouble.refusal in self._refusals or len(self._refusals) >= _MAX_ADAPTATIONS:
            return None
        adapted = self._dialect.adapted(body, trouble.refusal)
        if adapted is not None:
            self._refusals.append(trouble.refusal)
        return adapted

    async def _attempt(self, body: dict[str, Json], request: Request) -> AsyncGenerator[Piece]:
        """Send a request once. Raises _Trouble."""
        httpx, assembler, start, first = load_httpx(), self._dialect.assembler(), monotonic(), 0.0
        path = self._dialect.path.replace("{model}", quote(self._endpoint.model.removeprefix("models/"), safe="/"))
        url = self._endpoint.request_url or self._endpoint.base_url + path
        headers = {**self._endpoint.request_headers, **_JSON_HEADERS}
        try:
            async with self._client().stream("POST", url, content=encode_body(body), headers=headers) as response:
                if not response.is_success:
                    raise await self._refused(response, request)
                async with aclosing(self._pieces(response, assembler)) as pieces:
                    async for piece in pieces:
                        first = first or monotonic() - start
                        yield piece
        except StreamedError as error:
            raise self._trouble(200, error.body, request) from None
        except InvalidInput as error:
            raise self._other(str(error)) from error
        except httpx.InvalidURL as error:
            raise self._other(f"is no address: {error}") from error
        except (httpx.HTTPError, OSError) as error:
            if assembler.result() is None:  # otherwise the reply was already complete
                raise self._fault(error) from error
        yield self._reply(assembler.result(), body, request.max_output_tokens, monotonic() - start, first)

    def _reply(
        self,
        outcome: AssembledReply | None,
        body: dict[str, Json],
        cap_tokens: int,
        seconds: float,
        first_seconds: float = 0.0,
    ) -> Reply:
        if outcome is None:
            raise self._other("the reply was cut off: it ended without its closing event", FAULT_RETRIES)
        try:
            read = [codec(self.dialect).read(wire) for wire in outcome.messages]
        except InvalidInput as error:
            raise self._other(f"the reply is none of {self.dialect}: {error}") from error
        reason = outcome.finish_reason
        if reason == "stop" and outcome.output_tokens >= cap_tokens:
            reason = "length"  # llama-server reports "completed" for a response that reached its cap
        return Reply(
            messages=outcome.messages,
            text="\n".join(message.text for message in read if message.text),
            calls=tuple(call for message in read for call in message.calls),
            finish_reason=reason,
            usage=outcome.usage,
            request_body=body,
            seconds=seconds,
            first_seconds=first_seconds,
            timings=outcome.timings,
        )

    async def _pieces(self, response: httpx.Response, assembler: Assembler) -> AsyncGenerator[Piece]:
        # Some servers ignore `stream` and answer in one piece. Any other type is read as a stream, because some servers
        # send events without naming their type.
        media = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        if media == "application/json":
            for piece in assembler.feed_body(json_object(await read_bytes(response, _MAX_REPLY_BYTES))):
                yield piece
            return
        if media == "text/html":
            raise self._other("the answer is a web page: is the address right?", status=response.status_code)
        reader = EventReader()
        async for chunk in response.aiter_bytes():
            for event in reader.feed(chunk):
                for piece in assembler.feed(event):
                    yield piece
                if assembler.finished:  # some servers leave the connection open
                    return
        for event in reader.finish():
            try:
                for piece in assembler.feed(event):
                    yield piece
            except BrokenEventError:  # half a line: the missing end of the reply reports the fault
                return

    async def _refused(self, response: httpx.Response, request: Request) -> _Trouble:
        """Return the trouble of an answer with an error status, without secrets."""
        status = response.status_code
        if response.is_redirect:
            to = self._clean(response.headers.get("location", "").partition("?")[0])
            return self._other(f"redirects to {to}, which is not followed: set that address", status=status)
        text = (await read_bytes(response, _MAX_ERROR_BYTES)).decode("utf-8", "replace")
        trouble = self._trouble(status, text, request)
        failure = trouble.failure
        requested = requested_pause(response.headers, datetime.now(UTC))
        if requested is not None:
            failure = replace(failure, retry_after_seconds=requested)
        if not failure.message:
            failure = replace(failure, message=f"{self._endpoint.base_url}: status {status} without a word")
        # Without a key "invalid key" would send people looking for a wrong one.
        if failure.kind == "auth" and not self._endpoint.api_key:
            failure = replace(failure, message=f"{failure.message} (no key was sent)")
        trouble.failure, trouble.retries = failure, retries(failure, advice=response.headers.get("x-should-retry"))
        return trouble

    def _trouble(self, status: int, body: Json, request: Request) -> _Trouble:
        text = self._clean(body if isinstance(body, str) else json.dumps(body, ensure_ascii=False, default=str))
        # Text of the conversation is no evidence for a kind of failure: it may be about this very error.
        sent = (request.messages, request.system, request.tools)
        failure = classify(status, text, estimate=request.tokens, window=self._window_tokens, request=sent)
        failure = replace(failure, message=failure.message or text[:200])
        bad = failure.status in _BAD_REQUEST and failure.kind in _MAY_BE_ADAPTED
        return _Trouble(failure, retries(failure), text[:4_000] if bad else "")

    def _fault(self, error: httpx.HTTPError | OSError) -> _Trouble:
        """Return the trouble of a failed connection, in words that name the address."""
        httpx, message = load_httpx(), self._clean(root_message(error))
        if isinstance(error, httpx.ReadTimeout):
            return self._other(f"nothing came for {self._endpoint.timeout_seconds:g} s", _SILENT_RETRIES)
        if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout | httpx.ProxyError):
            return self._other(f"cannot connect: {message}", CONNECT_RETRIES)
        if isinstance(error, httpx.RemoteProtocolError | httpx.ReadError | OSError):
            return self._other(f"the reply was cut off: {message}", FAULT_RETRIES)
        return self._other(message, FAULT_RETRIES)

    def _other(self, what: str, again: int = 0, *, status: int | None = None) -> _Trouble:
        return _Trouble(Failure("other", message=f"{self._endpoint.base_url}: {what}", status=status), again)

    def _clean(self, text: str) -> str:
        for secret in self._endpoint.secrets:
            text = text.replace(secret, "[redacted]")
        return text


def _reason(failure: Failure) -> str:
    return f"{failure.kind}: {failure.message}" if failure.kind != "other" else failure.message
