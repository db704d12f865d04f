"""An ASGI application on a free loopback port, by uvicorn in a thread: for tests that want a real connection."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

START_SECONDS = 20


class Breaking(H11Protocol):
    """Breaks the connection, as a dying server does, where the application raises ConnectionResetError."""

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        application = self.app

        async def breaking(scope: Any, receive: Any, send: Any) -> None:
            try:
                await application(scope, receive, send)
            except ConnectionResetError:
                self.transport.close()  # what was sent arrives, nothing ends it
                while (await receive())["type"] != "http.disconnect":
                    pass

        self.app = breaking


class Announcing(uvicorn.Server):
    """Says when it is up; keeps its loop, for what tests set in it."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.up = threading.Event()
        self.loop: asyncio.AbstractEventLoop | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.loop = asyncio.get_running_loop()
        self.up.set()


@dataclass(frozen=True, slots=True)
class Served:
    """Where it listens ("http://127.0.0.1:port"), and the loop that it runs in."""

    url: str
    loop: asyncio.AbstractEventLoop

    def set(self, event: asyncio.Event) -> None:
        """Set an event that the application waits for, from the thread of the test."""
        self.loop.call_soon_threadsafe(event.set)


@contextmanager
def serve(app: Any, http: type[H11Protocol] = Breaking) -> Iterator[Served]:
    """Run `app` until the block ends. Its replies that still wait are ended with it. `http` makes its connections."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        config = uvicorn.Config(app, http=http, ws="none", log_level="critical", timeout_graceful_shutdown=1)
        server = Announcing(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        try:
            assert server.up.wait(START_SECONDS), "the server did not start"
            assert server.loop is not None
            yield Served(f"http://127.0.0.1:{listening.getsockname()[1]}", server.loop)
        finally:
            server.should_exit = True
            thread.join(START_SECONDS)
