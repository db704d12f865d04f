"""The real command `foldline serve` as a process, and persistent clients: for tests of crashes and of load."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any

import httpx
from tests.forked import Forked

START_SECONDS = 120


def held_port() -> socket.socket:
    """Reserve a port of 127.0.0.1: no other process gets it, and a server with SO_REUSEADDR can listen there."""
    held = socket.socket()
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held.bind(("127.0.0.1", 0))
    return held


def free_port() -> int:
    """A port that is free at this moment."""
    with held_port() as found:
        return int(found.getsockname()[1])


@dataclass(slots=True)
class Door:
    """One server process: started, killed and started again on the same port, over the same store.

    It is forked from one that has loaded the command, or, with `anew`, a Python of its own.
    """

    model_url: str
    folder: Path
    store: str
    options: tuple[str, ...] = ()
    environ: Mapping[str, str] = field(default_factory=dict)
    anew: bool = False
    process: Forked | subprocess.Popen[bytes] | None = None
    port: int = field(init=False)
    _held: socket.socket = field(default_factory=held_port)

    def __post_init__(self) -> None:
        self.port = int(self._held.getsockname()[1])

    @property
    def url(self) -> str:
        """The address of the server."""
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start it, and wait until it answers."""
        command = (
            *("serve", "--port", str(self.port)),
            *("--base-url", f"{self.model_url}/v1", "--model", "fake-model", "--store", self.store),
            *("--workspace", str(self.folder), *self.options),
        )
        environ = {**os.environ, "FOLDLINE_HOME": str(self.folder / "home"), **self.environ}
        with (self.folder / f"serve-{self.port}.log").open("ab") as log:
            to = log.fileno()
            if self.anew:
                python = [sys.executable, "-m", "foldline.cli.main"]
                self.process = subprocess.Popen([*python, *command], env=environ, cwd=self.folder, stdout=to, stderr=to)
            else:
                self.process = Forked(*command, env=environ, cwd=self.folder, stdout=to, stderr=to)
        until = time.monotonic() + START_SECONDS
        while not self._answers():
            if self.process.poll() is not None or time.monotonic() > until:
                self.kill()
                raise AssertionError((self.folder / f"serve-{self.port}.log").read_text()[-3_000:])
            time.sleep(0.02)

    def _answers(self) -> bool:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=START_SECONDS)
        try:
            connection.request("GET", "/health")
            return connection.getresponse().status == 200
        except (OSError, HTTPException):
            return False
        finally:
            connection.close()

    def kill(self, number: int = signal.SIGKILL) -> int:
        """End the process, and return its exit code."""
        if self.process is None:
            return 0
        self.process.send_signal(number)
        code = self.process.wait(60)
        self.process = None
        return code

    def close(self) -> None:
        """End the process, and release its port."""
        self.kill()
        self._held.close()

    def rss_mib(self) -> float:
        """Memory of the process."""
        assert self.process is not None
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        line = next(one for one in status.splitlines() if one.startswith("VmRSS"))
        return int(line.split()[1]) / 1024


@contextmanager
def door(model_url: str, folder: Path, store: str, *options: str, **environ: str) -> Iterator[Door]:
    """Run a server until the end of the block, and kill it."""
    door = Door(model_url, folder, store, options, environ)
    door.start()
    try:
        yield door
    finally:
        door.close()


async def events_of(reply: httpx.Response) -> Any:
    """The server-sent events of a reply, as (name, data)."""
    name = ""
    async for line in reply.aiter_lines():
        if line.startswith("event:"):
            name = line[6:].strip()
        elif line.startswith("data:"):
            yield name, json.loads(line[5:])
