"""An ASGI application on a free loopback port, by uvicorn in a thread: for tests that want a real connection."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

START_SECONDS = 120
GRACE_SECONDS = 1


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
    """Says when it is up; keeps its loop, for what tests set in it. Stops without uvicorn's pauses of 0.1 seconds.

    Those would be a quarter of a second for each of the thousands of servers of the tests.
    """

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.up = threading.Event()
        self.loop: asyncio.AbstractEventLoop | None = None
        self._end = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.loop = asyncio.get_running_loop()
        self.up.set()

    def stop(self) -> None:
        """Let it end, from the thread of the test."""
        self.should_exit = True  # also where it has not come up
        if self.loop is not None:
            self.loop.call_soon_threadsafe(self._end.set)

    async def main_loop(self) -> None:
        """Wait for the end."""
        await self.on_tick(0)  # sets the headers that each reply gets
        await self._end.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Close what idles, let replies end for GRACE_SECONDS, break off the others, and end the application."""
        for server in self.servers:
            server.close()
        for listening in sockets or ():
            listening.close()
        state = self.server_state
        for connection in list(state.connections):
            connection.shutdown()
        until = time.monotonic() + GRACE_SECONDS
        while (state.connections or state.tasks) and time.monotonic() < until:
            await asyncio.sleep(0.005)
        for task in state.tasks:
            task.cancel()
        await self.lifespan.shutdown()


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
        config = uvicorn.Config(app, http=http, ws="none", log_level="critical")
        server = Announcing(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        try:
            assert server.up.wait(START_SECONDS), "the server did not start"
            assert server.loop is not None
            yield Served(f"http://127.0.0.1:{listening.getsockname()[1]}", server.loop)
        finally:
            server.stop()
            thread.join(START_SECONDS)
