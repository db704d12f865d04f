"""An agent over a fake server, for tests of the loop and of its surroundings."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from foldline.agent.events import AgentEvent
from foldline.agent.loop import Agent
from foldline.agent.session import AgentSession
from foldline.agent.session_context import RunSettings
from foldline.agent.tools.base import CallScope, Tool, ToolOutcome
from foldline.agent.tools.toolbox import Toolbox
from foldline.catalog.prices import CacheRule
from foldline.codecs.dialect import ROWS
from foldline.display import Room
from foldline.engine.policy import Policy
from foldline.engine.presets import policy
from foldline.messages import Json
from foldline.providers.base import Provider
from foldline.providers.endpoint import Endpoint
from foldline.providers.http import provider_for
from foldline.store.folders import FileStore
from foldline.store.session import FileSession
from foldline.testing import FakeProvider, FakeReply

DIALECTS = tuple(ROWS)


@dataclass(frozen=True, slots=True)
class Answers:
    """A tool that answers by a function of its arguments."""

    answer: Callable[[Mapping[str, Json]], str | ToolOutcome | Awaitable[ToolOutcome]]
    name: str = "look"
    description: str = "Looks something up."
    parameters: Mapping[str, Json] = None  # type: ignore[assignment]

    def __post_init__(self) -> None:
        schema = {"type": "object", "properties": {"what": {"type": "string"}}}
        object.__setattr__(self, "parameters", schema)

    async def run(self, arguments: Mapping[str, Json], scope: CallScope) -> ToolOutcome:
        """Return the answer in any of its forms."""
        answer = self.answer(arguments)
        if isinstance(answer, str):
            return ToolOutcome(answer)
        return answer if isinstance(answer, ToolOutcome) else await answer


def calls(*names: str) -> FakeReply:
    """A reply that calls the tool `look` once for each name."""
    return FakeReply(text="Let me look.", calls=tuple(("look", {"what": name}) for name in names))


@asynccontextmanager
async def agent_over(
    fake: FakeProvider,
    *tools: Tool,
    dialect: str = "openai-chat",
    chosen: str | Policy = "balanced",
    window: int = 8_000,
    max_output_tokens: int = 500,
    root: Path | None = None,
    resume: str | None = None,
    stored: FileSession | None = None,
    heard: list[AgentEvent] | None = None,
    model: str = "fake-model",
    cache_rule: CacheRule | None = None,
    **more: Any,
) -> AsyncIterator[Agent]:
    """An agent whose model is a fake; with `root` its session is on disk, or it is `stored` already."""
    events: list[AgentEvent] = [] if heard is None else heard
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=fake), base_url="http://fake") as client:
        endpoint = Endpoint(name="fake", dialect=dialect, base_url="http://fake/v1", model=model, api_key="k")
        provider: Provider = provider_for(endpoint, client=client)
        toolbox = Toolbox(tools)
        under = RunSettings(
            dialect=dialect,
            model=model,
            policy=policy(chosen),
            window=window,
            max_output_tokens=max_output_tokens,
            system="You are terse.",
            tools=toolbox.wires(dialect) or None,
            endpoint="http://fake/v1",
            cache_rule=cache_rule,
        )
        if root is not None:
            store = FileStore(root, fsync=False)
            stored = (
                store.open(resume) if resume else store.create(dialect=dialect, model=model, policy=policy(chosen).name)
            )
        session = AgentSession(under, stored=stored, listen=events.append)
        scope = CallScope(room=lambda: Room(window, session.context.view.tokens), history=session)
        try:
            yield Agent(session=session, provider=provider, toolbox=toolbox, scope=scope, emit=events.append, **more)
        finally:
            session.close()
            await provider.aclose()
