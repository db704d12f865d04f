"""An agent as a user's `agents.yaml` gives it, over fake servers that enforce rules and window, with real files."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx

from foldline.agent.assemble import Parts, assemble
from foldline.agent.events import AgentEvent
from foldline.agent.loop import Agent
from foldline.agent.settings.file import load_settings
from foldline.agent.tools.base import PermissionRequest, Tool
from foldline.agent.tools.workspace import Workspace
from foldline.providers.base import Provider
from foldline.providers.endpoint import Endpoint
from foldline.providers.http import provider_for
from foldline.store.call_log import CallLog
from foldline.store.folders import FileStore
from foldline.testing import FakeProvider, FakeReply

DIALECTS = ("openai-chat", "openai-responses", "anthropic")


async def yes(ask: PermissionRequest) -> bool:
    """Whoever is asked says yes."""
    del ask
    return True


def call(tool: str, **arguments: Any) -> FakeReply:
    """A reply that calls one tool."""
    return FakeReply(calls=((tool, arguments),))


def calls(*names: str, tool: str = "look") -> FakeReply:
    """A reply that calls a tool of the test once for each name."""
    return FakeReply(calls=tuple((tool, {"what": name}) for name in names))


def sent(fake: FakeProvider, at: int = -1) -> str:
    """The messages of a request that the server took, as text with its line ends and signs as they are."""
    body = fake.requests[at].body
    return json.dumps(body.get("messages") or body.get("input"), ensure_ascii=False)


def results(body: Mapping[str, Any]) -> list[str]:
    """The texts of the tool results of a request, in their order, whatever its dialect."""
    found: list[str] = []
    for message in body.get("messages") or body["input"]:
        if message.get("role") == "tool":
            found.append(message["content"])
        elif message.get("type") == "function_call_output":
            found.append(message["output"])
        elif isinstance(message.get("content"), list):
            found += [block["content"] for block in message["content"] if block.get("type") == "tool_result"]
    return found


def _provider(fake: FakeProvider, dialect: str, model: str, client: httpx.AsyncClient) -> Provider:
    endpoint = Endpoint(name="fake", dialect=dialect, base_url="http://fake/v1", model=model, api_key="k")
    return provider_for(endpoint, client=client)


@asynccontextmanager
async def agent_of(
    settings: str,
    fake: FakeProvider,
    folder: Path,
    *,
    dialect: str = "openai-chat",
    window: int = 16_000,
    model: str = "fake-model",
    smaller: FakeProvider | None = None,
    heard: list[AgentEvent] | None = None,
    tools: Sequence[Tool] = (),
    logged: bool = False,
    resume: str | None = None,
) -> AsyncIterator[Agent]:
    """The agent that `settings` describe: it works in `folder`/work, its sessions and its log are in `folder`/home.

    `smaller` is the server of the `summariser`.
    """
    (folder / "work").mkdir(exist_ok=True)
    config = folder / "agents.yaml"
    config.write_text(settings, "utf-8")
    made = load_settings(None, config=config).settings
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(httpx.AsyncClient(transport=httpx.ASGITransport(app=fake)))
        summaries = None
        if smaller is not None:
            assert made.summariser is not None
            beside = await stack.enter_async_context(httpx.AsyncClient(transport=httpx.ASGITransport(app=smaller)))
            summaries = _provider(smaller, dialect, made.summariser.name or "", beside)
        log = stack.enter_context(CallLog(folder / "home" / "llm_calls.sqlite")) if logged else None
        store = FileStore(folder / "home" / "sessions", fsync=False)
        stored = store.open(resume) if resume else store.create(dialect=dialect, model=model)
        parts = Parts(
            settings=made,
            provider=_provider(fake, dialect, model, client),
            workspace=Workspace(folder / "work"),
            window_tokens=made.model.max_input_tokens or window,
            allowed=yes,
            summaries=summaries,
            more_tools=tools,
            calls=log,
        )
        agent = assemble(parts, tell=([] if heard is None else heard).append, stored=stored)
        try:
            yield agent
        finally:
            agent.session.close()
