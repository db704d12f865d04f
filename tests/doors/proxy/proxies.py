"""A proxy in this process over any upstream, and upstreams that record the bytes of each request."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.serving import serve

from foldline.conversations.request_plan import ConversationSettings
from foldline.conversations.service import Conversations
from foldline.doors.proxy.ahead import SummariesAfterResponses
from foldline.doors.proxy.app import Proxy
from foldline.doors.proxy.exchange import ProxyServices
from foldline.doors.proxy.gate import GateRules
from foldline.doors.proxy.served_request import ServedRequest
from foldline.doors.proxy.startup import ProxySettings, open_proxy
from foldline.doors.proxy.summaries import SummaryClient
from foldline.doors.proxy.upstream import Upstream
from foldline.doors.proxy.windows import ModelWindows
from foldline.engine.presets import policy

ASGI = Callable[[Any, Any, Any], Awaitable[None]]

PATHS = {
    "openai-chat": "/v1/chat/completions",
    "openai-responses": "/v1/responses",
    "anthropic": "/v1/messages",
}
PROBES = ("/api/show",)
HEADERS = {"authorization": "Bearer sk-client-key", "x-api-key": "sk-client-key", "anthropic-version": "2023-06-01"}


@dataclass(slots=True)
class Recording:
    """An upstream that records bodies and headers; another application answers."""

    app: ASGI
    bodies: list[bytes] = field(default_factory=list)
    headers: list[list[tuple[bytes, bytes]]] = field(default_factory=list)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http" or scope["method"] != "POST" or scope["path"] in PROBES:
            await self.app(scope, receive, send)
            return
        body = b""
        while True:
            message = await receive()
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        self.bodies.append(body)
        self.headers.append(list(scope["headers"]))
        delivered = False

        async def again() -> Any:
            nonlocal delivered
            if delivered:
                return await receive()
            delivered = True
            return {"type": "http.request", "body": body, "more_body": False}

        await self.app(scope, again, send)


@dataclass(slots=True)
class Fixed:
    """An upstream that answers the same bytes to everything."""

    pieces: tuple[bytes, ...]
    headers: tuple[tuple[bytes, bytes], ...] = ((b"content-type", b"text/event-stream"),)
    status: int = 200

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        while (await receive()).get("more_body"):
            pass
        await send({"type": "http.response.start", "status": self.status, "headers": list(self.headers)})
        for piece in self.pieces:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


@dataclass(slots=True)
class ServedProxy:
    """The address of a proxy, and its notices."""

    url: str
    lines: list[str]


@contextmanager
def proxied(upstream: ASGI, home: Path, **settings: Any) -> Iterator[ServedProxy]:
    """Run a proxy over an upstream until the end of the block; without summaries unless `settings` has them."""
    with serve(upstream) as served, proxy_of(served.url, home, **settings) as running:
        yield running


@contextmanager
def proxy_of(
    url: str, home: Path, *, token: str | None = None, owner: str | None = None, **settings: Any
) -> Iterator[ServedProxy]:
    """A proxy over the upstream at an address."""
    lines: list[str] = []
    proxy_settings = ProxySettings(**{"upstream": url, "summaries": False, "ahead": False, **settings})

    async def opened(stack: AsyncExitStack) -> ASGI:
        environ = {"FOLDLINE_HOME": str(home)}
        opening = open_proxy(proxy_settings, GateRules(token=token), environ, notice=lines.append, owner=owner)
        running = await stack.enter_async_context(opening)
        return running.app

    with serve(_living(opened)) as served:
        yield ServedProxy(served.url, lines)


@contextmanager
def proxy_with(
    url: str,
    make: Callable[[ConversationSettings], Conversations],
    records: list[ServedRequest],
    *,
    window: int = 3_000,
    ahead: Callable[[Conversations, SummaryClient, Callable[[str], None]], SummariesAfterResponses] | None = None,
) -> Iterator[ServedProxy]:
    """A proxy over the upstream at an address, with the given conversations, and what `ahead` makes of them."""
    lines: list[str] = []

    async def opened(stack: AsyncExitStack) -> ASGI:
        windows = ModelWindows(url, setting=window, learned={})
        conversations = make(ConversationSettings(policy=policy("balanced"), learned={}))
        stack.push_async_callback(conversations.aclose)
        summaries = after = None
        if ahead is not None:
            summaries = SummaryClient(url, model=None)
            stack.push_async_callback(summaries.aclose)
            after = ahead(conversations, summaries, lines.append)
            stack.push_async_callback(after.aclose)
        services = ProxyServices(
            upstream=await stack.enter_async_context(Upstream(url)),
            conversations=conversations,
            windows=windows,
            summaries=summaries,
            ahead=after,
            mode="normal",
            emit=records.append,
            notice=lines.append,
        )
        return Proxy(services, nothing, ())

    with serve(_living(opened)) as served:
        yield ServedProxy(served.url, lines)


def _living(opened: Callable[[AsyncExitStack], Awaitable[ASGI]]) -> ASGI:
    """An application that is opened when its server starts; its stack is closed at the end."""
    stack, app = AsyncExitStack(), list[ASGI]()

    async def whole(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "lifespan":
            await app[0](scope, receive, send)
            return
        await receive()
        app.append(await opened(stack))
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await stack.aclose()
        await send({"type": "lifespan.shutdown.complete"})

    return whole


def request_of(dialect: str, messages: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    """The body of a request."""
    if dialect == "openai-responses":
        return {"model": "m", "input": messages, "max_output_tokens": 200, **more}
    return {"model": "m", "messages": messages, "max_tokens": 200, **more}


def messages_in(dialect: str, body: bytes) -> list[dict[str, Any]]:
    """The messages of a body."""
    found: list[dict[str, Any]] = json.loads(body)["input" if dialect == "openai-responses" else "messages"]
    return found


def before_newest(dialect: str, body: bytes) -> bytes:
    """The bytes of a body before its newest message."""
    newest = json.dumps(messages_in(dialect, body)[-1]).encode()
    for form in (newest, json.dumps(messages_in(dialect, body)[-1], separators=(",", ":")).encode()):
        if (at := body.rfind(form)) >= 0:
            return body[:at]
    raise AssertionError("the newest message is not in it as json writes it")


async def nothing(*_: object) -> None:
    """Does nothing, for a moment."""
    await asyncio.sleep(0)
