"""A uvicorn server in a thread, its clients on bare sockets, and the rules of every server for clients that stall."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
import uvicorn

__all__ = [
    "CHUNK",
    "LONG_SECONDS",
    "SocketServer",
    "closed",
    "dribbled_heads_are_given_up",
    "slow_readers_get_all",
    "socket_server",
    "unread_answers_are_given_up",
]

CHUNK = b"x" * 1_000_000
LONG_SECONDS = 120


@dataclass
class SocketServer:
    """A server and its port."""

    port: int
    server: uvicorn.Server

    @contextmanager
    def connection(self) -> Iterator[socket.socket]:
        """A connection with a small receive buffer: unread, it soon accepts nothing more."""
        with socket.socket() as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            connection.settimeout(LONG_SECONDS)
            connection.connect(("127.0.0.1", self.port))
            yield connection

    def answer(self, *sent: bytes) -> bytes:
        """Send pieces; return all bytes until the server closes."""
        with self.connection() as connection:
            for piece in sent:
                connection.sendall(piece)
            read = b""
            while piece := connection.recv(65_536):
                read += piece
            return read

    def until(self, done: Callable[[], bool]) -> None:
        """Wait until a condition holds."""
        for _ in range(2_000):
            if done():
                return
            threading.Event().wait(0.01)
        raise AssertionError("it did not come")


@contextmanager
def socket_server(
    app: Any, http: type[asyncio.Protocol], *, loop_factory: Callable[[], asyncio.AbstractEventLoop], **config: Any
) -> Iterator[SocketServer]:
    """Serve an application by a protocol, until the end of the block."""
    with socket.socket() as at:
        at.bind(("127.0.0.1", 0))
        server = uvicorn.Server(
            uvicorn.Config(app, http=http, ws="none", lifespan="off", log_level="critical", **config)
        )

        def work() -> None:
            with asyncio.Runner(loop_factory=loop_factory) as runner:
                runner.run(server.serve(sockets=[at]))

        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        served = SocketServer(at.getsockname()[1], server)
        served.until(lambda: server.started)
        yield served
        server.should_exit = True
        thread.join(LONG_SECONDS)


def closed(connection: socket.socket) -> bool:
    """Whether the server has closed the connection, and everything is read."""
    try:
        return connection.recv(65_536) == b""
    except ConnectionResetError:
        return True


def dribbled_heads_are_given_up(served: SocketServer) -> None:
    """A head that arrives a byte at a time is cut off."""

    def dribble() -> None:
        for _ in range(2_000):
            connection.sendall(b"G")
            threading.Event().wait(0.01)

    with served.connection() as connection, pytest.raises(OSError, match=r"reset|[Pp]ipe|abort"):
        dribble()


def unread_answers_are_given_up(served: SocketServer) -> None:
    """A large answer (at /large) that nobody reads ends, and its connection."""
    with served.connection() as connection:
        connection.sendall(b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n")
        assert connection.recv(10)
        served.until(lambda: not served.server.server_state.connections)
        served.until(lambda: not served.server.server_state.tasks)


def slow_readers_get_all(served: SocketServer) -> None:
    """A large answer (30 MB, at /large) comes whole, however small the client's buffer."""
    with served.connection() as connection:
        connection.sendall(b"GET /large HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        size = 0
        while piece := connection.recv(1_000_000):
            size += len(piece)
        assert size > 30_000_000
