"""Connections that send no request or read no answer are cut off; addresses where a server may listen."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from tests.doors.socket_server import (
    CHUNK,
    SocketServer,
    closed,
    dribbled_heads_are_given_up,
    slow_readers_get_all,
    socket_server,
    unread_answers_are_given_up,
)

from foldline.doors import http as serving
from foldline.doors.http.server import H11Connection, is_loopback, listen
from foldline.doors.http.state import ServerLimits
from foldline.errors import InvalidInput


class Quick(H11Connection):
    head_seconds = 0.2
    stall_seconds = 2.0  # a reader that is starved by other processes must not count as gone


async def app(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    for _ in range(30 if scope["path"] == "/large" else 1):
        await send({"type": "http.response.body", "body": CHUNK, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


@pytest.fixture(scope="module")
def served() -> Iterator[SocketServer]:
    with socket_server(app, Quick, loop_factory=asyncio.new_event_loop, timeout_keep_alive=30) as made:
        yield made


@pytest.mark.parametrize("sent", [b"", b"GET / HT", b"GET / HTTP/1.1\r\nHost: a\r\n"])
def test_a_request_that_does_not_come_is_given_up(served: SocketServer, sent: bytes) -> None:
    with served.connection() as connection:
        connection.sendall(sent)
        assert closed(connection)


def test_a_head_that_comes_a_byte_at_a_time_is_given_up(served: SocketServer) -> None:
    dribbled_heads_are_given_up(served)


def test_a_second_request_that_does_not_come_is_given_up(served: SocketServer) -> None:
    with served.connection() as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        read = b""
        while not read.endswith(b"0\r\n\r\n"):
            read += connection.recv(65_536)
        connection.sendall(b"GET / HT")
        assert closed(connection)


def test_an_answer_that_is_not_read_is_given_up(served: SocketServer) -> None:
    unread_answers_are_given_up(served)


def test_an_answer_that_is_read_slowly_comes_whole(served: SocketServer) -> None:
    slow_readers_get_all(served)


def test_loopback_is_told_from_what_others_reach() -> None:
    local = ["127.0.0.1", "127.8.8.8", "::1", "localhost"]
    others = ["0.0.0.0", "::", "192.168.1.2", "10.0.0.1", "example.org", "", "localhost.example.org"]
    assert [is_loopback(host) for host in (*local, *others)] == [True] * 4 + [False] * 7


def test_a_port_that_is_taken_and_an_address_that_is_none_are_named() -> None:
    with listen("127.0.0.1", 0) as at:
        at.listen()
        port = at.getsockname()[1]
        with pytest.raises(InvalidInput, match=f"--port {port}: "):
            listen("127.0.0.1", port)
    with pytest.raises(InvalidInput, match=r"--host 256\.1\.1\.1: "):
        listen("256.1.1.1", 0)


def test_every_limit_of_a_server_is_kept_somewhere() -> None:
    code = "".join(path.read_text("utf-8") for path in Path(next(iter(serving.__path__))).glob("*.py"))
    unread = [one.name for one in fields(ServerLimits) if f"limits.{one.name}" not in code]
    assert unread == []
