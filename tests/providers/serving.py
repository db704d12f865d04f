"""A real server on a loopback port that plays a script, byte by byte; and what tests ask of a provider."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from foldline.engine.context import Request
from foldline.providers.base import Piece, Provider, Reply
from foldline.providers.endpoint import Endpoint
from foldline.providers.http import provider_for

EVENTS = "text/event-stream; charset=utf-8"


@dataclass(frozen=True)
class Answer:
    """One answer; with `cut` the connection is closed before its end."""

    chunks: Sequence[bytes] = ()
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    media: str = EVENTS
    cut: bool = False


@dataclass(frozen=True)
class Asked:
    """One request as the server saw it."""

    method: str
    path: str
    headers: dict[str, str]
    content: bytes

    @property
    def body(self) -> Any:
        return json.loads(self.content)


@dataclass
class Server:
    url: str
    asked: list[Asked] = field(default_factory=list)


def as_json(value: Any, status: int = 200, **headers: str) -> Answer:
    named = {name.replace("_", "-"): text for name, text in headers.items()}
    return Answer([json.dumps(value).encode()], status, named, "application/json")


def events(*objects: Any) -> bytes:
    """Server-sent events, as each of the three dialects writes them."""
    out = []
    for value in objects:
        name = f"event: {value['type']}\n" if isinstance(value, dict) and "type" in value else ""
        out.append(f"{name}data: {value if isinstance(value, str) else json.dumps(value)}\n\n")
    return "".join(out).encode()


def chat(*deltas: dict[str, Any], reason: str | None = "stop", usage: dict[str, Any] | None = None) -> Answer:
    """A Chat stream."""
    chunks = [{"choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas]
    last = [{"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]}]
    counted = [{"choices": [], "usage": usage}] if usage else []
    return Answer([events(*chunks, *last, *counted, "[DONE]")])


@asynccontextmanager
async def serving(*answers: Answer, routes: Mapping[str, Answer] | None = None) -> AsyncIterator[Server]:
    """A server that gives these answers in turn, or those of `routes` by path (404 for any other)."""
    script = list(answers)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        method, path, _ = head[0].split(" ", 2)
        headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in head[1:] if line)}
        content = await reader.readexactly(int(headers.get("content-length", "0")))
        server.asked.append(Asked(method, path, headers, content))
        answer = script.pop(0) if routes is None else routes.get(path, as_json({"error": "no such route"}, 404))
        lines = [f"HTTP/1.1 {answer.status} X", f"content-type: {answer.media}", "transfer-encoding: chunked"]
        lines += [f"{name}: {value}" for name, value in answer.headers.items()]
        writer.write("\r\n".join([*lines, "connection: close", "", ""]).encode())
        with suppress(ConnectionError):
            for chunk in answer.chunks:
                writer.write(f"{len(chunk):x}\r\n".encode() + chunk + b"\r\n")
                await writer.drain()
            if not answer.cut:
                writer.write(b"0\r\n\r\n")
                await writer.drain()
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()

    listener = await asyncio.start_server(serve, "127.0.0.1", 0)
    server = Server(f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}")
    async with listener:
        yield server


def request(*messages: dict[str, Any], **fields: Any) -> Request:
    settings = {
        "messages": list(messages) or [{"role": "user", "content": "hi"}],
        "system": None,
        "tools": None,
        "tokens": 10,
        "max_output_tokens": 100,
        "stable_until": 0,
        "folds": (),
        "repairs": (),
    }
    return Request(**{**settings, **fields})


def endpoint(url: str = "http://127.0.0.1:1", dialect: str = "openai-chat", **fields: Any) -> Endpoint:
    return Endpoint(**{"name": "test", "dialect": dialect, "base_url": url, "model": "m", **fields})


@dataclass
class Pauses:
    """Stands for the sleep between two attempts: keeps the seconds, waits for none."""

    seconds: list[float] = field(default_factory=list)

    async def __call__(self, seconds: float) -> None:
        self.seconds.append(seconds)


async def pieces_of(provider: Provider, sent: Request) -> list[Piece]:
    try:
        return [piece async for piece in provider.stream(sent)]
    finally:
        await provider.aclose()


async def talk(server: Server, dialect: str = "openai-chat", sent: Request | None = None, **fields: Any) -> list[Piece]:
    """The pieces of one request, without pauses between attempts."""
    provider = provider_for(endpoint(server.url, dialect, **fields), sleep=Pauses(), chance=lambda: 0.0)
    return await pieces_of(provider, sent or request())


def reply_of(pieces: Sequence[Piece]) -> Reply:
    reply = pieces[-1]
    assert isinstance(reply, Reply)
    return reply
