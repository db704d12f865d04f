"""Assembles a proxy from its settings."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from secrets import token_bytes
from typing import Final

from starlette.applications import Starlette
from starlette.routing import Route
from starlette.types import ASGIApp

from foldline.conversations.compaction.seals import SealKey, read_key
from foldline.conversations.persistence import ConversationStore
from foldline.conversations.request_plan import ConversationSettings
from foldline.conversations.service import Conversations
from foldline.conversations.store_guard import WorkerThreads
from foldline.doors.proxy.ahead import SummariesAfterResponses
from foldline.doors.proxy.app import MAX_REQUEST_BYTES, Proxy
from foldline.doors.proxy.compaction.asked import CompactionParts
from foldline.doors.proxy.compaction.native import CompactionSetting
from foldline.doors.proxy.compaction.service import CompactionService
from foldline.doors.proxy.gate import Gate, GateRules
from foldline.doors.proxy.own_tools import tool_routes
from foldline.doors.proxy.page import ProxyMetrics, routes
from foldline.doors.proxy.served_request import Listener, Mode, ServedRequest
from foldline.doors.proxy.shared_services import ProxyServices
from foldline.doors.proxy.status import ProxyStatus
from foldline.doors.proxy.summaries import SummaryClient
from foldline.doors.proxy.upstream import Upstream
from foldline.doors.proxy.windows import ModelWindows, endpoint_of
from foldline.engine.policy import Policy
from foldline.engine.presets import policy as policy_of
from foldline.errors import InvalidInput
from foldline.store.addresses import is_address

__all__ = ["ProxySettings", "RunningProxy", "open_proxy"]

MEMORY_BYTES: Final = 256 * 1024 * 1024
"""Memory for conversations by default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxySettings:
    """Settings of a proxy. `store` is a folder or the address of a database, None for none.

    `window` overrides the window of every model, in tokens. With `ahead` the summary of the next fold is written after
    a response, with the key of its client. `summary_model` writes the summaries in place of the
    conversation's own model. `compaction` says who compacts where a client asks for it, and `compaction_key` is the
    file of the key that signs what is made here, by default one in the user's folder. `short_tools` is the size in
    tokens to which descriptions of tools are cut, None for no cut.
    """

    upstream: str
    mode: Mode = "normal"
    policy: str = "balanced"
    window: int | None = None
    summaries: bool = True
    ahead: bool = True
    summary_model: str | None = None
    compaction: CompactionSetting = "auto"
    compaction_key: str | None = None
    store: str | None = None
    memory_bytes: int = MEMORY_BYTES
    max_request_bytes: int = MAX_REQUEST_BYTES
    connect_seconds: float = 10.0
    silence_seconds: float = 600.0
    otel: bool = False
    short_tools: int | None = None


@dataclass(frozen=True, slots=True)
class RunningProxy:
    """A running proxy: its application, and what the server calls when it stops.

    `stopping` ends the streams of the page when a stop begins. `cutting` cancels the summaries that responses wait for
    when their time is over.
    """

    app: ASGIApp
    stopping: Callable[[], None]
    cutting: Callable[[], None]


@asynccontextmanager
async def open_proxy(
    settings: ProxySettings,
    rules: GateRules,
    environ: Mapping[str, str],
    *,
    notice: Callable[[str], None],
    listeners: Sequence[Listener] = (),
    owner: str | None = None,
) -> AsyncIterator[RunningProxy]:
    """Run a proxy until the end of the block. Raises InvalidInput and MissingExtra.

    `listeners` are called for each request that has ended, after the proxy's own. A store that cannot be reached yet
    does not prevent the start. Whoever shows the secret `owner` may look into all conversations (`own_tools.py`).
    """
    from foldline.store.learned_limits import ClientLimits
    from foldline.store.paths import learned_path

    # The stack closes in reverse: requests use all of it, so the connections to the upstream end last.
    async with AsyncExitStack() as stack:
        learned = ClientLimits(learned_path(environ))
        upstream = Upstream(
            settings.upstream, connect_seconds=settings.connect_seconds, silence_seconds=settings.silence_seconds
        )
        await stack.enter_async_context(upstream)
        windows = ModelWindows(settings.upstream, setting=settings.window, learned=learned)
        stack.push_async_callback(windows.aclose)
        policy = without_guard(policy_of(settings.policy))
        conversations = Conversations(
            ConversationSettings(policy=policy, endpoint=windows.endpoint, learned=learned),
            max_bytes=settings.memory_bytes,
            # In a thread: connecting to a database may take long.
            store=await asyncio.to_thread(_conversation_store, settings.store, notice),
            # A database is there to be shared; a folder could be, but then each request would read files of others.
            shared=settings.store is not None and is_address(settings.store),
            notice=notice,
        )
        stack.push_async_callback(conversations.aclose)
        summaries = SummaryClient(settings.upstream, model=settings.summary_model) if settings.summaries else None
        if summaries is not None:  # closed before the conversations, whose threads wait for summaries
            stack.push_async_callback(summaries.aclose)
        status, metrics = ProxyStatus(upstream=settings.upstream, mode=settings.mode), ProxyMetrics()
        services = ProxyServices(
            upstream=upstream,
            conversations=conversations,
            windows=windows,
            summaries=summaries,
            ahead=_ahead(settings, conversations, summaries, stack, notice),
            mode=settings.mode,
            emit=_emitter(settings, [status, metrics, *listeners], stack),
            notice=notice,
            short_tools=settings.short_tools,
        )
        tools = tool_routes(conversations, owner=owner, has_token=rules.token is not None)
        own_app = _own_app([*tools, *routes(status, metrics)])
        compaction = await asyncio.to_thread(_compaction, settings, policy, environ, notice)
        stack.callback(compaction.parts.threads.close)
        proxy = Proxy(services, own_app, ("/foldline", "/metrics"), settings.max_request_bytes, compaction)
        sources = {"conversations": lambda: len(conversations), "streams": lambda: proxy.pending}
        metrics.watch(**sources, store_up=lambda: conversations.store_up)
        yield RunningProxy(Gate(proxy, rules), status.stop, _nothing if summaries is None else summaries.cancel)


def _ahead(
    settings: ProxySettings,
    conversations: Conversations,
    summaries: SummaryClient | None,
    stack: AsyncExitStack,
    notice: Callable[[str], None],
) -> SummariesAfterResponses | None:
    """What writes summaries after responses; None where it is off, or requests are not changed."""
    if summaries is None or not settings.ahead or settings.mode != "normal":
        return None
    ahead = SummariesAfterResponses(conversations, summaries, notice)
    stack.push_async_callback(ahead.aclose)  # closed before the summaries, and those before the conversations
    return ahead


def _emitter(
    settings: ProxySettings, listeners: list[Listener], stack: AsyncExitStack
) -> Callable[[ServedRequest], None]:
    """A listener that calls all listeners."""
    if settings.otel:
        from foldline.doors.proxy.telemetry import Telemetry

        telemetry = Telemetry(settings.upstream)
        stack.push_async_callback(asyncio.to_thread, telemetry.close)  # it waits for the collector
        listeners.append(telemetry)

    def emit(served: ServedRequest) -> None:
        for listener in listeners:
            listener(served)

    return emit


def _compaction(
    settings: ProxySettings, policy: Policy, environ: Mapping[str, str], notice: Callable[[str], None]
) -> CompactionService:
    """The service of compaction, with the key of the user's folder or of a file of its own."""
    from foldline.store.paths import compaction_key_path

    named = settings.compaction_key
    try:
        key = read_key(compaction_key_path(environ) if named is None else Path(named).expanduser())
    except OSError as error:
        if named is not None:
            raise InvalidInput(f"cannot be used: {error.strerror or error}", place=named) from None
        notice(f"The key for compaction cannot be kept ({error}): what is compacted now holds until the proxy stops")
        key = SealKey(token_bytes(32))
    parts = CompactionParts(key, policy, WorkerThreads())
    return CompactionService(parts, settings.compaction, endpoint_of(settings.upstream, "openai-chat", "", ()).is_local)


def _own_app(own_routes: list[Route]) -> Starlette:
    """The application at the proxy's own paths."""
    app = Starlette(routes=own_routes)
    app.router.redirect_slashes = False  # its redirects name no prefix (`/~TOKEN`)
    return app


def _nothing() -> None:
    """No summaries are pending."""


def without_guard(policy: Policy) -> Policy:
    """The policy without its guard, which shortens large results on arrival: a request that fits passes unchanged."""
    return replace(policy, guard=())


def _conversation_store(place: str | None, notice: Callable[[str], None]) -> ConversationStore | None:
    """The persistence of conversations. A store that cannot be reached is tried again with the first request."""
    from foldline.store.addresses import open_store

    if place is None:
        return None
    opened = ConversationStore(lambda: open_store(place))
    try:
        opened.open()
    except OSError as error:
        notice(f"The store cannot be reached: {error}; until it can, requests pass")
    return opened
