"""The server process: connections with time limits, and a graceful stop."""

from __future__ import annotations

import asyncio
import ipaddress
import signal
import socket
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import contextmanager
from functools import partial
from types import FrameType
from typing import Any, Final

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from foldline.doors.http.state import ServerState
from foldline.errors import InvalidInput
from foldline.hosting.process import signal_handlers

__all__ = ["GracefulServer", "H11Connection", "Stop", "TimedConnection", "is_loopback", "listen", "run"]

HEAD_SECONDS: Final = 20.0
"""The time for the head of a request to arrive."""

STALL_SECONDS: Final = 60.0
"""The longest time in which a client reads nothing of a response."""

# For responses still under way when all turns have ended.
_LAST_SECONDS: Final = 5

Stop = Callable[[float], Awaitable[None]]
"""Ends pending work within so many seconds; a second call with 0 cuts it off."""


class TimedConnection(asyncio.Protocol):
    """A mixin for uvicorn's protocols that closes a connection whose request or whose reader does not come.

    uvicorn itself waits for ever in both cases, so a few idle connections could use up all there may be.
    """

    loop: asyncio.AbstractEventLoop
    transport: Any
    cycle: Any

    head_seconds = HEAD_SECONDS
    stall_seconds = STALL_SECONDS

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._unread_bytes = 0

    def connection_made(self, transport: Any) -> None:
        """Start waiting for a request."""
        super().connection_made(transport)
        self._wait_for_head()

    def pause_writing(self) -> None:
        """Start waiting for the client to read."""
        super().pause_writing()
        # uvicorn pauses above a high-water mark. A slow reader may stay above it for long, so what counts is progress:
        # the buffer has to shrink from one check to the next.
        self._unread_bytes = self.transport.get_write_buffer_size()
        self._start_timer("stall", self.stall_seconds, self._check_stall)

    def resume_writing(self) -> None:
        """The client reads again."""
        super().resume_writing()
        self._cancel_timer("stall")

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel all timers."""
        super().connection_lost(exc)
        for name in list(self._timers):
            self._cancel_timer(name)

    def _is_responding(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _on_data(self) -> None:
        """Wait for the rest of a head, or no longer if it is complete."""
        if self._is_responding():
            self._cancel_timer("head")
        else:
            self._wait_for_head()

    def _wait_for_head(self) -> None:
        # Not restarted by more data: a head that trickles in byte by byte (Slowloris) must end too.
        if "head" not in self._timers:
            self._start_timer("head", self.head_seconds, self._close_if_idle)

    def _close_if_idle(self) -> None:
        # `abort`, not `close`: closing waits until the peer has read everything, which this one may never do.
        if not self._is_responding():
            self.transport.abort()

    def _check_stall(self) -> None:
        unread_bytes = self.transport.get_write_buffer_size()
        if unread_bytes >= self._unread_bytes:
            self.transport.abort()
        else:  # slow, but it does read
            self._unread_bytes = unread_bytes
            self._start_timer("stall", self.stall_seconds, self._check_stall)

    def _start_timer(self, name: str, seconds: float, on_time: Callable[[], None]) -> None:
        def fire() -> None:
            self._timers.pop(name, None)
            on_time()

        self._cancel_timer(name)
        self._timers[name] = self.loop.call_later(seconds, fire)

    def _cancel_timer(self, name: str) -> None:
        timer = self._timers.pop(name, None)
        if timer is not None:
            timer.cancel()


class H11Connection(TimedConnection, H11Protocol):
    """A connection over h11, with time limits."""

    def data_received(self, data: bytes) -> None:
        """Parse data. The time limit is for the whole head: slow clients get no extension for each byte."""
        super().data_received(data)
        self._on_data()


class GracefulServer(uvicorn.Server):
    """A server that the first signal stops gracefully; the next one sets `at_once`.

    With `until` that event stops it, and signals are left to others.
    """

    def __init__(self, config: uvicorn.Config, until: asyncio.Event | None = None) -> None:
        super().__init__(config)
        self.at_once = asyncio.Event()
        self._until = until

    async def main_loop(self) -> None:
        """Wait for the end."""
        if self._until is None:
            await super().main_loop()
            return
        await self.on_tick(0)  # sets the headers that each response gets
        await self._until.wait()

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Handle signals while the server runs. Unlike uvicorn, do not raise them again after a graceful stop."""
        if self._until is not None:
            yield
            return
        numbers = (signal.SIGINT, signal.SIGTERM)
        with signal_handlers({number: partial(self.handle_exit, number, None) for number in numbers}):
            yield

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Stop gracefully at the first signal, at once at the next."""
        if self.should_exit:
            self.at_once.set()
        self.should_exit = True


class _SessionServer(GracefulServer):
    """A server that lets turns end before it closes connections. A second signal ends it at once."""

    def __init__(
        self,
        config: uvicorn.Config,
        state: ServerState,
        stops: Sequence[Stop],
        grace_seconds: float,
        notice: Callable[[str], None],
    ) -> None:
        super().__init__(config)
        self._state, self._grace_seconds, self._notice = state, grace_seconds, notice
        self._stops = (state.stop, *stops)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept no more connections, let turns end or pause, then end streams and connections."""
        self._state.stopping = True  # first: a request on an open connection could still begin a turn
        for server in self.servers:
            server.close()  # before the wait: a load balancer sends new requests elsewhere at once
        running = sum(actor.running for actor in self._state.pool.actors.values())
        if running:
            self._notice(f"Stopping; {running} running, at most {self._grace_seconds:g} s more (again: at once)")
        # uvicorn's own shutdown waits for responses, and event streams never end by themselves: they are ended first.
        stop = asyncio.create_task(self._stop(self._grace_seconds))
        second = asyncio.create_task(self.at_once.wait())
        await asyncio.wait({stop, second}, return_when=asyncio.FIRST_COMPLETED)
        second.cancel()
        # A second signal: the graceful stop is cancelled, and the same work cut off, so that all ends are recorded.
        if not stop.done():
            stop.cancel()
            await asyncio.gather(stop, return_exceptions=True)
            await self._stop(0.0)
        else:
            stop.result()
        await super().shutdown(sockets)

    async def _stop(self, grace_seconds: float) -> None:
        await asyncio.gather(*(stop(grace_seconds) for stop in self._stops))


def is_loopback(host: str) -> bool:
    """Whether a listener at `host` can be reached from this machine only."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def listen(host: str, port: int) -> socket.socket:
    """Bind a socket to an address, before anything else starts. Raises InvalidInput when that is not possible."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]  # one socket: the user has named one address
    except OSError as error:
        raise InvalidInput(f"is no address to listen at: {error.strerror or error}", place=f"--host {host}") from None
    bound = socket.socket(family, kind, protocol)
    try:
        # A restarted server gets its port at once, though old connections linger in TIME_WAIT.
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
    except OSError as error:
        bound.close()
        raise InvalidInput(f"cannot be listened at: {error.strerror or error}", place=f"--port {port}") from None
    return bound


async def run(
    app: ASGIApp,
    state: ServerState,
    bound: socket.socket,
    *,
    stops: Sequence[Stop] = (),
    grace_seconds: float,
    notice: Callable[[str], None],
) -> None:
    """Serve until a signal, then stop gracefully, with further `stops`; a second signal stops at once."""
    config = uvicorn.Config(
        app,
        http=H11Connection,
        ws="none",
        lifespan="off",
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,  # any client could claim any address by them
        timeout_keep_alive=60,
        timeout_graceful_shutdown=_LAST_SECONDS,
    )
    await _SessionServer(config, state, stops, grace_seconds, notice).serve(sockets=[bound])
