"""The application behind a real uvicorn, over a fake model behind another."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from tests.hosting.pools import session_pool
from tests.serving import Served, serve

from foldline.doors.http.app import app_of
from foldline.doors.http.guard import GuardRules
from foldline.doors.http.state import ServerLimits, ServerState
from foldline.hosting.session_actor import ActorLimits
from foldline.hosting.session_pool import SessionPool
from foldline.store.base import Store
from foldline.testing import FakeProvider
from foldline.testing.script import Scripts


class Behind:
    """An ASGI application that has its actors from the server's start to its end."""

    def __init__(self, pool: AbstractAsyncContextManager[SessionPool], rules: GuardRules, limits: ServerLimits) -> None:
        self._pool, self._rules, self._limits = pool, rules, limits
        self._app: Any = None
        self.state: ServerState

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "lifespan":
            await self._app(scope, receive, send)
            return
        await receive()
        async with self._pool as pool:
            self.state = ServerState(pool, version="0", limits=self._limits)
            self._app = app_of(self.state, self._rules)
            await send({"type": "lifespan.startup.complete"})
            await receive()
        await send({"type": "lifespan.shutdown.complete"})


@dataclass(frozen=True, slots=True)
class Api:
    """A client of the server, and what stands behind it."""

    client: httpx.Client
    fake: FakeProvider
    model: Served
    served: Served
    behind: Behind
    folder: Path

    @property
    def state(self) -> ServerState:
        return self.behind.state

    @property
    def url(self) -> str:
        return self.served.url

    def create_session(self, **given: Any) -> str:
        return str(self.post("", 201, **given)["id"])

    def post(self, rest: str, status: int = 200, **given: Any) -> Any:
        reply = self.client.post(f"/v1/sessions{rest}", json=given)
        assert reply.status_code == status, reply.text
        return reply.json()

    def get(self, rest: str, status: int = 200, **query: Any) -> Any:
        reply = self.client.get(f"/v1/sessions{rest}", params=query)
        assert reply.status_code == status, reply.text
        return reply.json()

    def say(self, session: str, text: str) -> Any:
        return self.post(f"/{session}/messages", text=text)


@contextmanager
def serving(
    folder: Path,
    script: Scripts = None,
    *,
    rules: GuardRules | None = None,
    limits: ServerLimits | None = None,
    actor_limits: ActorLimits | None = None,
    store: Store | None = None,
    repeat: bool = True,
    window_tokens: int = 128_000,
    yaml: str = "",
    **more: Any,
) -> Iterator[Api]:
    """The server until the block ends; `more` goes to `session_pool`."""
    fake = FakeProvider(script, repeat=repeat, window_tokens=window_tokens)
    with serve(fake) as model:
        more["yaml"] = yaml.replace("{url}", model.url)
        pool = session_pool(model.url, folder, store=store, limits=actor_limits, window=window_tokens, **more)
        behind = Behind(pool, rules or GuardRules(), limits or ServerLimits())
        with serve(behind) as served, httpx.Client(base_url=served.url, timeout=120) as client:
            yield Api(client, fake, model, served, behind, folder)


def events(reply: httpx.Response) -> Iterator[tuple[str, Any]]:
    """The server-sent events of a reply."""
    name = ""
    for line in reply.iter_lines():
        if line.startswith("event:"):
            name = line[6:].strip()
        elif line.startswith("data:"):
            yield name, json.loads(line[5:])
