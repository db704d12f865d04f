"""Stands between a client and what it talks to: passes everything on as it is, and keeps what went by."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import httpx

from foldline.testing.asgi import Receive, Scope, Send, read_body
from foldline.testing.token_counts import count_body

__all__ = ["Passed", "Relay"]

DIALECT_PATHS: Final = ("/v1/chat/completions", "/v1/responses", "/v1/messages")
HOP_BY_HOP: Final = frozenset({b"connection", b"host", b"keep-alive", b"transfer-encoding", b"content-length"})


@dataclass(frozen=True, slots=True)
class Passed:
    """One request that went by. `tokens` is its size as FakeProvider counts; `error` the answer's body from 400 on."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: Mapping[str, Any]
    tokens: int
    status: int
    answered: Mapping[str, str]
    error: str

    @property
    def asks(self) -> bool:
        """Whether it asks a model for an answer."""
        return self.method == "POST" and self.path in DIALECT_PATHS


class Relay:
    """An ASGI application in front of `target` (its URL). `passed` is all that went by, in the order of its answers."""

    def __init__(self, target: str) -> None:
        self.passed: list[Passed] = []
        self._target = target
        self._client: httpx.AsyncClient | None = None

    @property
    def asked(self) -> list[Passed]:
        """The requests for an answer of the model."""
        return [one for one in self.passed if one.asks]

    @property
    def largest_tokens(self) -> int:
        """The size of the largest request that the client sent."""
        return max((one.tokens for one in self.asked), default=0)

    @property
    def paths(self) -> Counter[str]:
        """How often each method and path was called."""
        return Counter(f"{one.method} {one.path}" for one in self.passed)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request, or the life of the server: the connections to the target are closed at its end."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
            return
        assert self._client is not None
        data = await read_body(receive, None)
        assert data is not None
        query = scope["query_string"].decode("latin-1")
        url = self._target + scope["raw_path"].decode("latin-1") + (f"?{query}" if query else "")
        headers = [(name, value) for name, value in scope["headers"] if name.lower() not in HOP_BY_HOP]
        error = b""
        async with self._client.stream(scope["method"], url, headers=headers, content=data) as answer:
            kept = [(name, value) for name, value in answer.headers.raw if name.lower() not in HOP_BY_HOP]
            await send({"type": "http.response.start", "status": answer.status_code, "headers": kept})
            async for chunk in answer.aiter_raw():
                if answer.status_code >= 400:
                    error += chunk
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
            await self._keep(scope, data, answer, error)  # before the client can act on the end of it
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _keep(self, scope: Scope, data: bytes, answer: httpx.Response, error: bytes) -> None:
        try:
            body = json.loads(data) if data else {}
        except ValueError:
            body = {}
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        self.passed.append(
            Passed(
                method=scope["method"],
                path=scope["path"],
                headers=headers,
                body=body if isinstance(body, dict) else {"": body},
                tokens=count_body(body) if isinstance(body, dict) else 0,
                status=answer.status_code,
                answered=dict(answer.headers),
                error=error.decode("utf-8", "replace"),
            )
        )

    async def _live(self, receive: Receive, send: Send) -> None:
        async with httpx.AsyncClient(timeout=120, trust_env=False) as self._client:
            await receive()
            await send({"type": "lifespan.startup.complete"})
            await receive()
        await send({"type": "lifespan.shutdown.complete"})
