"""The server process: connections that are not waited for without end, and a stop in good order."""

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

from foldline.doors.http.state import Door
from foldline.errors import InvalidInput
from foldline.hosting.process import signal_handlers

__all__ = ["Connection", "Ending", "Patient", "Stop", "is_loopback", "listening", "run"]

HEAD_SECONDS: Final = 20.0
"""How long the head of a request may take to come."""

STALL_SECONDS: Final = 60.0
"""How long a client may read nothing of what is sent to it."""

_LAST_SECONDS: Final = 5
"""What answers may take that are under way when all turns have ended."""

Stop = Callable[[float], Awaitable[None]]
"""Ends what is under way within so many seconds; called again with 0 it cuts it off."""


class Patient(asyncio.Protocol):
    """A protocol of uvicorn that waits for the head of a request, and for whoever reads an answer, but not for ever."""

    loop: asyncio.AbstractEventLoop
    transport: Any
    cycle: Any

    head_seconds = HEAD_SECONDS
    stall_seconds = STALL_SECONDS

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._unread_bytes = 0

    def connection_made(self, transport: Any) -> None:
        """Begin to wait for a request."""
        super().connection_made(transport)
        self._wait()

    def pause_writing(self) -> None:
        """What was sent is not read: wait some time."""
        super().pause_writing()
        self._unread_bytes = self.transport.get_write_buffer_size()
        self._set("stall", self.stall_seconds, self._look_at_stall)

    def resume_writing(self) -> None:
        """It is read again."""
        super().resume_writing()
        self._drop("stall")

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing is waited for any more."""
        super().connection_lost(exc)
        for name in list(self._timers):
            self._drop(name)

    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _came(self) -> None:
        """Something came: wait for the rest of a head, or no longer if it is whole."""
        if self._is_answering():
            self._drop("head")
        else:
            self._wait()

    def _wait(self) -> None:
        if "head" not in self._timers:
            self._set("head", self.head_seconds, self._late)

    def _late(self) -> None:
        if not self._is_answering():
            self.transport.abort()

    def _look_at_stall(self) -> None:
        unread_bytes = self.transport.get_write_buffer_size()
        if unread_bytes >= self._unread_bytes:
            self.transport.abort()
        else:  # slow, but it reads
            self._unread_bytes = unread_bytes
            self._set("stall", self.stall_seconds, self._look_at_stall)

    def _set(self, name: str, seconds: float, look: Callable[[], None]) -> None:
        def rings() -> None:
            self._timers.pop(name, None)
            look()

        self._drop(name)
        self._timers[name] = self.loop.call_later(seconds, rings)

    def _drop(self, name: str) -> None:
        timer = self._timers.pop(name, None)
        if timer is not None:
            timer.cancel()


class Connection(Patient, H11Protocol):
    """A connection that is cut off when its request does not come, or when nobody reads what is sent."""

    def data_received(self, data: bytes) -> None:
        """Take what came; a request that is only half there is waited for, however slowly it comes."""
        super().data_received(data)
        self._came()


class Ending(uvicorn.Server):
    """A server that the first signal stops in order; `at_once` is set by the next."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.at_once = asyncio.Event()

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Signals, while the server runs. They are not raised again at its end: the stop was in order."""
        numbers = (signal.SIGINT, signal.SIGTERM)
        with signal_handlers({number: partial(self.handle_exit, number, None) for number in numbers}):
            yield

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """The first signal stops in order, the next at once."""
        if self.should_exit:
            self.at_once.set()
        self.should_exit = True


class _Server(Ending):
    """A server that lets turns end before it lets go of its connections. A second signal ends it at once."""

    def __init__(
        self,
        config: uvicorn.Config,
        door: Door,
        beside: Sequence[Stop],
        grace_seconds: float,
        notice: Callable[[str], None],
    ) -> None:
        super().__init__(config)
        self._door, self._grace_seconds, self._notice = door, grace_seconds, notice
        self._stops = (door.stop, *beside)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Take no more connections, let turns end or pause, end the streams, then the connections."""
        self._door.stopping = True
        for server in self.servers:
            server.close()
        running = sum(actor.running for actor in self._door.actors.known.values())
        if running:
            self._notice(f"Stopping; {running} running, at most {self._grace_seconds:g} s more (again: at once)")
        stop = asyncio.create_task(self._stop(self._grace_seconds))
        second = asyncio.create_task(self.at_once.wait())
        await asyncio.wait({stop, second}, return_when=asyncio.FIRST_COMPLETED)
        second.cancel()
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
    """Whether only this machine can reach what listens there."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def listening(host: str, port: int) -> socket.socket:
    """A socket at an address, before anything else is begun. Raises InvalidInput when it cannot be had."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except OSError as error:
        raise InvalidInput(f"is no address to listen at: {error.strerror or error}", place=f"--host {host}") from None
    taken = socket.socket(family, kind, protocol)
    try:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(address)
    except OSError as error:
        taken.close()
        raise InvalidInput(f"cannot be listened at: {error.strerror or error}", place=f"--port {port}") from None
    return taken


async def run(
    app: ASGIApp,
    door: Door,
    at: socket.socket,
    *,
    beside: Sequence[Stop] = (),
    grace_seconds: float,
    notice: Callable[[str], None],
) -> None:
    """Serve until a signal says to stop, and stop in order, with what runs `beside`; at a second signal at once."""
    config = uvicorn.Config(
        app,
        http=Connection,
        ws="none",
        lifespan="off",
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,  # who can reach this could claim any address
        timeout_keep_alive=60,
        timeout_graceful_shutdown=_LAST_SECONDS,
    )
    await _Server(config, door, beside, grace_seconds, notice).serve(sockets=[at])
