"""The client of the upstream: requests are sent unchanged, and responses come back unchanged, piece by piece."""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable
from dataclasses import dataclass
from io import BytesIO
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias
from urllib.parse import urlsplit

from foldline.doors.proxy.windows import url_at
from foldline.errors import FoldlineError, InvalidInput, MissingExtra
from foldline.providers.bodies import root_message
from foldline.providers.endpoint import Endpoint

if TYPE_CHECKING:
    import aiohttp

__all__ = ["FaultKind", "Header", "Upstream", "UpstreamFault", "UpstreamResponse", "send_early"]

FaultKind: TypeAlias = Literal["connect", "silence", "cut", "protocol"]
"""No connection; silence for too long; a response that broke off; no valid HTTP."""

Header: TypeAlias = tuple[bytes, bytes]

# Headers of one connection (RFC 9110, section 7.6.1; the last by RFC 2616, section 13.5.1).
_HOP: Final = frozenset(
    b"connection proxy-connection keep-alive te trailer transfer-encoding upgrade proxy-authenticate".split()
)

# Headers of a request that are dropped or rebuilt.
_NOT_FORWARDED: Final = _HOP | frozenset(b"host content-length expect proxy-authorization http2-settings".split())

# Headers that aiohttp would add of its own.
_NO_AUTO_HEADERS: Final = ("Accept", "Accept-Encoding", "Content-Type", "User-Agent")

_READABLE: Final = frozenset({b"gzip", b"deflate", b"identity"})
_WITH_BODY: Final = frozenset({"POST", "PUT", "PATCH"})
_TARGET: Final = re.compile(r"/[!-~\x80-\U0010ffff]*")
# Above twice this much nothing more is read from the upstream until the client has read what is there.
_READ_BUFFER_BYTES: Final = 65_536

# From this size on a body is written in pieces, so that the event loop does other work between them.
_LARGE_BYTES: Final = 2**20

_HEADER_BYTES: Final = 65_536  # as much as clients may send: gateways add long headers of their own
# How long an idle connection is kept. Cloud load balancers close theirs after 60 s or more.
_KEEPALIVE_SECONDS: Final = 55.0

# A kept connection that breaks so soon after a request began was being closed already.
_STALE_SECONDS: Final = 1.0


class UpstreamFault(FoldlineError):  # noqa: N818 - says what happened, like DoesNotFit
    """The upstream gave no complete response. `kind` says how; the message names no path, header or key."""

    def __init__(self, kind: FaultKind, message: str) -> None:
        super().__init__(message)
        self.kind: FaultKind = kind


class UpstreamResponse:
    """A response whose head has arrived and whose body is still to come. Close it; closing twice is harmless.

    `headers` are unchanged, without those of the connection.
    """

    __slots__ = ("_beyond", "_name", "_response", "headers", "reason", "status")

    def __init__(self, response: aiohttp.ClientResponse, name: str) -> None:
        self._response, self._name, self._beyond = response, name, b""
        self.status, self.reason = response.status, response.reason or ""
        raw = response.raw_headers
        left_out = _HOP | _named(value for key, value in raw if key.lower() == b"connection")
        if self.status in {204, 304}:
            left_out |= {b"content-length"}  # there is no body that it could be the length of
        self.headers: list[Header] = [header for header in raw if header[0].lower() not in left_out]

    async def piece(self) -> bytes:
        """The next bytes as they arrive, undecoded; b"" after the last. Raises UpstreamFault."""
        import aiohttp

        if self._beyond:
            data, self._beyond = self._beyond, b""
            return data
        try:
            return await self._response.content.readany()
        except (aiohttp.ClientError, OSError) as error:
            self._response.close()
            raise _fault(error, self._name) from error

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield the bytes as they arrive, no faster than they are consumed. Raises UpstreamFault."""
        while data := await self.piece():
            yield data

    async def read(self, most_bytes: int) -> bytes:
        """The body, or its first `most_bytes`; `piece` and `chunks` give what is beyond. Raises UpstreamFault."""
        read = bytearray()
        while len(read) < most_bytes and (data := await self.piece()):
            read += data
        self._beyond = bytes(read[most_bytes:])
        return bytes(read[:most_bytes])

    def abort(self) -> None:
        """Close the connection unless the body is complete; a reader gets an UpstreamFault."""
        self._response.close()

    async def close(self) -> None:
        """Release the connection. It carries another request only if the body was read to its end."""
        self._response.close()


class Upstream:
    """One upstream: an async context manager, for one event loop.

    Follows no redirects, decodes nothing, keeps no cookies, checks certificates. Uses the environment's proxy unless
    the upstream is on this machine or network. `connect_seconds` bounds connecting, and the wait for a free one of
    `connections`; `silence_seconds` bounds each wait for data. Raises InvalidInput for the address, and MissingExtra
    without the extra `proxy`.
    """

    def __init__(
        self,
        base_url: str,
        *,
        connect_seconds: float = 10.0,
        silence_seconds: float = 600.0,
        connections: int = 1_000,
    ) -> None:
        try:
            from yarl import URL
        except ImportError:
            raise MissingExtra("proxy", "the proxy") from None
        local = Endpoint(name="upstream", dialect="anthropic", base_url=base_url, model="").is_local  # checks it too
        parts = urlsplit(base_url.strip())
        self._url, self._base = URL, base_url
        self._is_secure = parts.scheme == "https"
        self._name = parts.netloc
        self._proxy = None if local else _proxy_for(parts.scheme, parts.hostname or "")
        self._connect_seconds, self._silence_seconds = connect_seconds, silence_seconds
        self._connections = connections
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Upstream:
        import aiohttp

        trusted: ssl.SSLContext | bool = True
        if self._is_secure:
            import httpx

            trusted = httpx.create_ssl_context()  # what the providers trust
        tracing = aiohttp.TraceConfig()
        tracing.on_connection_reuseconn.append(_note_reuse)
        tracing.on_request_chunk_sent.append(_note_sent)
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=self._connections, keepalive_timeout=_KEEPALIVE_SECONDS, ttl_dns_cache=60, ssl=trusted
            ),
            cookie_jar=aiohttp.DummyCookieJar(),  # a cookie of one client must not reach another
            timeout=aiohttp.ClientTimeout(total=None, connect=self._connect_seconds, sock_read=self._silence_seconds),
            auto_decompress=False,  # the client gets the bytes as they came
            skip_auto_headers=_NO_AUTO_HEADERS,
            read_bufsize=_READ_BUFFER_BYTES,
            max_line_size=_HEADER_BYTES,
            max_field_size=_HEADER_BYTES,
            trace_configs=[tracing],
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._session is not None:
            await self._session.close()

    async def send(
        self,
        method: str,
        target: str,
        headers: Iterable[Header],
        body: bytes | AsyncIterator[bytes] = b"",
        *,
        readable: bool = False,
        on_sent: Callable[[], None] | None = None,
    ) -> UpstreamResponse:
        """Send a request and wait for the head of its response. Raises UpstreamFault, and what `body` raises.

        `target` is path and query as the client sent them. `readable` narrows accept-encoding to what `response_watch`
        can read. `on_sent` is called as soon as the request goes out, and perhaps again.

        A request that meets a kept connection just as the upstream closes it is sent once more if it is `readable`:
        asking a model changes nothing. (aiohttp does so only where the method is idempotent.)
        """
        if not _TARGET.fullmatch(target):
            raise UpstreamFault("protocol", f"{self._name}: the target of the request is no path")
        sent, data = _prepared(method, list(headers), body, readable)
        url = self._url(url_at(self._base, target), encoded=True)
        loop, may_repeat = asyncio.get_running_loop(), readable and isinstance(body, bytes)
        while True:
            began, trace_context = loop.time(), _RequestTrace(on_sent)
            try:
                return await self._once(method, url, sent, data, trace_context)
            except UpstreamFault as fault:
                is_stale = fault.kind == "cut" and trace_context.reused and loop.time() - began < _STALE_SECONDS
                if not (may_repeat and is_stale):
                    raise
            may_repeat = False

    async def _once(
        self, method: str, url: Any, headers: list[tuple[str, str]], data: Any, trace_context: _RequestTrace
    ) -> UpstreamResponse:
        import aiohttp

        if self._session is None:
            raise RuntimeError("the upstream is used outside of its block")
        body = _Upload(data, self._silence_seconds) if isinstance(data, AsyncIterator) else None
        # aiohttp bounds the wait for a response, but not the time for a request to be accepted.
        most_seconds = self._connect_seconds + 2 * self._silence_seconds
        try:
            async with asyncio.timeout(most_seconds if body is None else None) as limit:
                if body is not None:
                    body.limit = limit
                response = await self._session.request(
                    method,
                    url,
                    headers=headers,
                    data=_written(data) if body is None else body.pieces(),
                    allow_redirects=False,  # the key must not follow to another host
                    proxy=self._proxy,
                    trace_request_ctx=trace_context,
                )
        except (aiohttp.ClientError, OSError, ValueError) as error:
            if body is not None and body.failure is not None:
                raise body.failure from None
            raise _fault(error, self._name) from error
        finally:
            if body is not None:
                body.limit = None
        if response.status > 599:  # no server can pass that on
            response.close()
            raise UpstreamFault("protocol", f"{self._name}: it answered no HTTP (a status above 599)")
        return UpstreamResponse(response, self._name)


async def send_early(
    send: Callable[[Callable[[], None]], Coroutine[Any, Any, UpstreamResponse]], work: Callable[[], Awaitable[None]]
) -> UpstreamResponse:
    """Send a request, do some `work` once it is out (or could not go out), and return the response.

    `send` gets a function to call once the request is out. Errors of both are raised; the response is closed then, and
    a pending request cancelled.
    """
    out = asyncio.Event()
    sending = asyncio.create_task(send(out.set))
    sending.add_done_callback(lambda _: out.set())
    try:
        await out.wait()
        await work()
        return await sending
    except BaseException:
        sending.add_done_callback(_abort)  # a callback, as a second cancellation could end a wait for it here
        sending.cancel()
        await asyncio.wait({sending})
        raise


def _abort(sending: asyncio.Task[UpstreamResponse]) -> None:
    if not sending.cancelled() and sending.exception() is None:
        sending.result().abort()


class _Upload:
    """A body that is forwarded while it arrives. The time limit runs only while the upstream accepts a piece."""

    def __init__(self, body: AsyncIterator[bytes], silence_seconds: float) -> None:
        self._body, self._silence_seconds = body, silence_seconds
        self.limit: asyncio.Timeout | None = None
        self.failure: BaseException | None = None

    async def pieces(self) -> AsyncIterator[bytes]:
        loop = asyncio.get_running_loop()
        try:
            async for data in self._body:
                if self.limit is not None:
                    self.limit.reschedule(loop.time() + self._silence_seconds)
                yield data
                if self.limit is not None:
                    self.limit.reschedule(None)
        except BaseException as error:
            self.failure = error
            raise


@dataclass(slots=True)
class _RequestTrace:
    """What aiohttp reports of a request while it is sent."""

    on_sent: Callable[[], None] | None
    reused: bool = False  # sent on a kept connection


async def _note_reuse(_: object, context: Any, __: object) -> None:
    context.trace_request_ctx.reused = True


async def _note_sent(_: object, context: Any, __: object) -> None:
    if context.trace_request_ctx.on_sent is not None:
        context.trace_request_ctx.on_sent()


def _written(data: bytes | None) -> bytes | BytesIO | None:
    return BytesIO(data) if data is not None and len(data) >= _LARGE_BYTES else data


def _prepared(
    method: str, headers: list[Header], body: bytes | AsyncIterator[bytes], readable: bool
) -> tuple[list[tuple[str, str]], bytes | AsyncIterator[bytes] | None]:
    """The headers to send, and the body; None for a request without one."""
    named = _named(value for name, value in headers if name == b"connection")
    length, is_chunked, sent = "", False, list[tuple[str, str]]()
    for name, value in headers:
        if name in _NOT_FORWARDED or name in named:
            if name == b"content-length":
                length = value.decode("ascii")
            elif name == b"transfer-encoding":
                is_chunked = True
            continue
        accepted = _readable(value) if readable and name == b"accept-encoding" else value
        sent.append((name.decode("latin-1"), _text(accepted)))
    if isinstance(body, bytes):
        return sent, body if body or length or method in _WITH_BODY else None
    if length:
        sent.append(("content-length", length))
    return sent, body if length or is_chunked or method in _WITH_BODY else None


def _text(value: bytes) -> str:
    """A header value as text for aiohttp, which writes UTF-8. Latin-1 arrives as the same text in UTF-8."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")


def _named(values: Iterable[bytes]) -> frozenset[bytes]:
    """The headers that Connection names."""
    return frozenset(name.strip().lower() for value in values for name in value.split(b","))


def _readable(accepted: bytes) -> bytes:
    """The accepted codings that can be undone here."""
    codings = [one.strip() for one in accepted.split(b",") if one.partition(b";")[0].strip().lower() in _READABLE]
    return b", ".join(codings) or b"identity"  # never empty: that would allow any coding (RFC 9110, 12.5.3)


def _proxy_for(scheme: str, host: str) -> str | None:
    """The environment's proxy for a host, with its login. Raises InvalidInput."""
    proxies = {} if urllib.request.proxy_bypass(host) else urllib.request.getproxies()
    address = proxies.get(scheme) or proxies.get("all")
    if not address:
        return None
    proxy = address if "://" in address else f"http://{address}"
    if urlsplit(proxy).scheme not in {"http", "https"}:
        raise InvalidInput("must be the address of an HTTP proxy", place=f"{scheme}_proxy in the environment")
    return proxy


def _fault(error: BaseException, name: str) -> UpstreamFault:
    """The fault for an error of aiohttp."""
    import aiohttp

    kind: FaultKind = "cut"
    match error:
        case aiohttp.ConnectionTimeoutError():
            return UpstreamFault("connect", f"{name}: no connection in time")
        case TimeoutError():
            return UpstreamFault("silence", f"{name}: nothing came for too long")
        case aiohttp.ClientConnectorCertificateError():
            return UpstreamFault("connect", f"{name}: its certificate is not trusted")
        case aiohttp.ClientConnectorError() | aiohttp.ClientHttpProxyError():
            kind = "connect"
        case aiohttp.ClientResponseError() | aiohttp.InvalidURL() | ValueError():
            return UpstreamFault("protocol", f"{name}: it answered no HTTP, or more than the length that it named")
        case aiohttp.ServerDisconnectedError():
            return UpstreamFault("cut", f"{name}: it closed the connection without an answer")
        case aiohttp.ClientPayloadError():
            return UpstreamFault("cut", f"{name}: it broke off its answer")
        case _:
            pass
    if isinstance(error, (socket.gaierror, aiohttp.ClientConnectorDNSError)):
        return UpstreamFault("connect", f"{name}: its name is not known")
    return UpstreamFault(kind, f"{name}: {root_message(error)}")
