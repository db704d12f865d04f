"""The real command `foldline serve` as a process, and clients that never give up: for tests of crashes and of load."""

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
from pathlib import Path
from typing import Any

import httpx

START_SECONDS = 60


def free_port() -> int:
    """A port that nobody has at this moment."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@dataclass(slots=True)
class Door:
    """One server process: started, killed and started again on the same port, over the same store."""

    model_url: str
    folder: Path
    store: str
    options: tuple[str, ...] = ()
    environ: Mapping[str, str] = field(default_factory=dict)
    port: int = field(default_factory=free_port)
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start it, and wait until it answers."""
        command = [
            *(sys.executable, "-m", "foldline.interfaces.cli", "serve", "--port", str(self.port)),
            *("--base-url", f"{self.model_url}/v1", "--model", "fake-model", "--store", self.store),
            *("--workspace", str(self.folder), *self.options),
        ]
        environ = {**os.environ, "FOLDLINE_HOME": str(self.folder / "home"), **self.environ}
        with (self.folder / f"serve-{self.port}.log").open("ab") as log:
            self.process = subprocess.Popen(command, env=environ, cwd=self.folder, stdout=log, stderr=log)
        until = time.monotonic() + START_SECONDS
        while True:
            try:
                if httpx.get(f"{self.url}/health", timeout=2).status_code == 200:
                    return
            except httpx.HTTPError:
                pass
            if self.process.poll() is not None or time.monotonic() > until:
                self.kill()
                raise AssertionError((self.folder / f"serve-{self.port}.log").read_text()[-3_000:])
            time.sleep(0.02)

    def kill(self, number: int = signal.SIGKILL) -> int:
        """End it, and wait for its end; its exit code."""
        if self.process is None:
            return 0
        self.process.send_signal(number)
        code = self.process.wait(60)
        self.process = None
        return code

    def rss_mib(self) -> float:
        """Memory of the process."""
        assert self.process is not None
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        line = next(one for one in status.splitlines() if one.startswith("VmRSS"))
        return int(line.split()[1]) / 1024


@contextmanager
def door(model_url: str, folder: Path, store: str, *options: str, **environ: str) -> Iterator[Door]:
    """A server that runs; it is killed at the end."""
    made = Door(model_url, folder, store, options, environ)
    made.start()
    try:
        yield made
    finally:
        made.kill()


async def events_of(reply: httpx.Response) -> Any:
    """The server-sent events of a reply, as (name, data)."""
    name = ""
    async for line in reply.aiter_lines():
        if line.startswith("event:"):
            name = line[6:].strip()
        elif line.startswith("data:"):
            yield name, json.loads(line[5:])
