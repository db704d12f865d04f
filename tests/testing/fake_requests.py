"""Requests to a FakeProvider, in this process and over HTTP, and what comes back."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import httpx

from foldline.codecs import dialect_named
from foldline.testing import FakeProvider

PATHS = {
    "openai-chat": "/v1/chat/completions",
    "openai-responses": "/v1/responses",
    "anthropic": "/v1/messages",
    "gemini": "/v1beta/models/m:generateContent",
}
DIALECTS = tuple(name for name in PATHS if name != "gemini")
"""Those whose requests differ in little: Gemini names model and stream in the path (`test_gemini`)."""
HEADERS = {"anthropic-version": "2023-06-01"}


def body(dialect: str, messages: Any = "Hello", **more: Any) -> dict[str, Any]:
    """A request for these messages, or for one text of the user."""
    if isinstance(messages, str):
        content = {"parts": [{"text": messages}]} if dialect == "gemini" else {"content": messages}
        messages = [{"role": "user", **content}]
    name = dialect_named(dialect).body.messages
    fields = {"model": "m", name: messages} | ({"max_tokens": 64} if dialect == "anthropic" else {})
    return {name: value for name, value in (fields | more).items() if value is not ...}


def ask(
    app: FakeProvider,
    path: str,
    given: Any = None,
    *,
    method: str = "POST",
    headers: Mapping[str, str] = HEADERS,
    content: bytes | None = None,
) -> httpx.Response:
    """One request, handed over without a network."""

    async def run() -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://fake") as client:
            data = content if content is not None else None if given is None else json.dumps(given).encode()
            return await client.request(method, path, content=data, headers=dict(headers))

    return asyncio.run(run())


def ask_for(app: FakeProvider, dialect: str, messages: Any = "Hello", **more: Any) -> httpx.Response:
    """A request in a dialect."""
    return ask(app, PATHS[dialect], body(dialect, messages, **more))


def events(text: str) -> list[Any]:
    """The data of the events of a stream; the names must be those in the data."""
    found: list[Any] = []
    for frame in text.split("\n\n"):
        lines = dict(line.split(": ", 1) for line in frame.splitlines())
        if lines.get("data") == "[DONE]":
            found.append("[DONE]")
        elif "data" in lines:
            found.append(json.loads(lines["data"]))
            assert lines.get("event") in {None, found[-1].get("type")}
    return found
