"""Puts a proxy together from its settings."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from typing import Final

from starlette.applications import Starlette
from starlette.types import ASGIApp

from foldline.conversations.persistence import ConversationStore
from foldline.conversations.planning import ConversationSettings
from foldline.conversations.service import Conversations
from foldline.doors.proxy.app import MAX_REQUEST_BYTES, Proxy
from foldline.doors.proxy.gate import Gate, GateRules
from foldline.doors.proxy.metrics import ProxyMetrics
from foldline.doors.proxy.page import routes
from foldline.doors.proxy.parts import Parts
from foldline.doors.proxy.status import Standing
from foldline.doors.proxy.summaries import Summaries
from foldline.doors.proxy.upstream import Upstream
from foldline.doors.proxy.values import Listener, Mode, Served
from foldline.doors.proxy.windows import Windows
from foldline.engine.policy import Policy
from foldline.engine.presets import policy as policy_of
from foldline.store.addresses import is_address

__all__ = ["Opened", "ProxySettings", "proxying"]

MEMORY_BYTES: Final = 256 * 1024 * 1024
"""What conversations may take of memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxySettings:
    """How a proxy works. `store` is a folder or the address of a database, None for none.

    `window` is the window of every model in tokens, where the user knows better than the upstream. `summary_model`
    writes the summaries in place of the model that is asked.
    """

    upstream: str
    mode: Mode = "normal"
    policy: str = "balanced"
    window: int | None = None
    summaries: bool = True
    summary_model: str | None = None
    store: str | None = None
    memory_bytes: int = MEMORY_BYTES
    max_request_bytes: int = MAX_REQUEST_BYTES
    connect_seconds: float = 10.0
    silence_seconds: float = 600.0
    otel: bool = False


@dataclass(frozen=True, slots=True)
class Opened:
    """A proxy at work: the application that leads to it, and what its server calls when it stops.

    `stopping`, when a stop begins, ends the streams of the page. `cutting`, when no answer has any more time, gives up
    the summaries that answers wait for.
    """

    app: ASGIApp
    stopping: Callable[[], None]
    cutting: Callable[[], None]


@asynccontextmanager
async def proxying(
    settings: ProxySettings, rules: GateRules, environ: Mapping[str, str], *, notice: Callable[[str], None]
) -> AsyncIterator[Opened]:
    """A proxy at work, until the end of the block.

    A store that cannot be reached is waited for. Raises InvalidInput and MissingExtra.
    """
    from foldline.store.learned_limits import ClientLimits
    from foldline.store.paths import learned_path

    async with AsyncExitStack() as stack:
        learned = ClientLimits(learned_path(environ))
        upstream = Upstream(
            settings.upstream, connect_seconds=settings.connect_seconds, silence_seconds=settings.silence_seconds
        )
        await stack.enter_async_context(upstream)
        windows = Windows(settings.upstream, setting=settings.window, learned=learned)
        stack.push_async_callback(windows.aclose)
        conversations = Conversations(
            ConversationSettings(
                policy=passing(policy_of(settings.policy)), endpoint=windows.endpoint, learned=learned
            ),
            max_bytes=settings.memory_bytes,
            store=await asyncio.to_thread(_keeping, settings.store, notice),  # a database may be far away
            shared=settings.store is not None and is_address(settings.store),
            notice=notice,
        )
        stack.push_async_callback(conversations.aclose)
        summaries = Summaries(settings.upstream, model=settings.summary_model) if settings.summaries else None
        if summaries is not None:  # closed before the conversations that wait for them
            stack.push_async_callback(summaries.aclose)
        standing, metrics = Standing(upstream=settings.upstream, mode=settings.mode), ProxyMetrics()
        parts = Parts(
            upstream=upstream,
            conversations=conversations,
            windows=windows,
            summaries=summaries,
            mode=settings.mode,
            tell=_telling(settings, standing, metrics, stack),
            notice=notice,
        )
        looks = Starlette(routes=routes(standing, metrics))
        looks.router.redirect_slashes = False  # its redirects name no prefix (`/~TOKEN`)
        proxy = Proxy(parts, looks, ("/foldline", "/metrics"), settings.max_request_bytes)
        metrics.watch(
            conversations=lambda: len(conversations),
            streams=lambda: proxy.under_way,
            store_up=lambda: conversations.store_up,
        )
        yield Opened(Gate(proxy, rules), standing.stop, _nothing if summaries is None else summaries.give_up)


def _telling(
    settings: ProxySettings, standing: Standing, metrics: ProxyMetrics, stack: AsyncExitStack
) -> Callable[[Served], None]:
    """What tells everybody who listens."""
    listeners: list[Listener] = [standing, metrics]
    if settings.otel:
        from foldline.doors.proxy.telemetry import Telemetry

        telemetry = Telemetry(settings.upstream)
        stack.push_async_callback(asyncio.to_thread, telemetry.close)  # it waits for a collector
        listeners.append(telemetry)

    def tell(served: Served) -> None:
        for listener in listeners:
            listener(served)

    return tell


def _nothing() -> None:
    """Where no summaries are asked for."""


def passing(policy: Policy) -> Policy:
    """A policy without what it does on arrival: a request that fits passes as it came."""
    return replace(policy, guard=())


def _keeping(place: str | None, notice: Callable[[str], None]) -> ConversationStore | None:
    """The conversations of a store; one that cannot be reached yet is tried again with the first request."""
    from foldline.store.addresses import open_store

    if place is None:
        return None
    keeping = ConversationStore(lambda: open_store(place))
    try:
        keeping.open()
    except OSError as error:
        notice(f"The store cannot be reached: {error}; until it can, requests pass")
    return keeping
