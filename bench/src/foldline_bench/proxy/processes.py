"""Starts and ends the processes of a measurement, on loopback, and reads their processor time and memory."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

__all__ = ["NotUpError", "ServerProcess", "free_port", "running", "upstream_running"]

# For a process to answer first: LiteLLM takes half a minute on a slow machine.
_UP_SECONDS: Final = 120.0

_PROC: Final = Path("/proc")


class NotUpError(RuntimeError):
    """A process of the measurement did not start; the message has the end of its output."""


@dataclass(frozen=True, slots=True)
class ServerProcess:
    """A process that is up. Its figures are those of Linux; elsewhere they are None."""

    url: str
    pid: int

    def cpu_seconds(self) -> float | None:
        """Return the processor time so far, with that of its children."""
        ticks = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 0
        found = [_stat(pid) for pid in _tree(self.pid)]
        return sum(found) / ticks if found and ticks else None

    def peak_rss_bytes(self) -> int | None:
        """Return its peak memory so far, with that of its children."""
        found = [_peak(pid) for pid in _tree(self.pid)]
        return sum(found) if found else None


def _tree(pid: int) -> list[int]:
    """The process and its descendants, as far as the system lists them."""
    try:
        below = [
            int(each) for task in (_PROC / f"{pid}/task").iterdir() for each in (task / "children").read_text().split()
        ]
    except OSError:
        return []
    return [pid, *(one for child in below for one in _tree(child))]


def _stat(pid: int) -> int:
    """Return the clock ticks in user and system mode."""
    # proc(5): the name of the process may hold blanks and brackets, so fields are counted from the last bracket.
    fields = (_PROC / f"{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def _peak(pid: int) -> int:
    lines = (_PROC / f"{pid}/status").read_text().splitlines()
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:")), 0)


def free_port() -> int:
    """Return a port of loopback that nothing listens on now."""
    # Proxies are told their port, as not all of them report one that they chose. Another process may take it meanwhile:
    # then the start fails with a message.
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


@contextmanager
def upstream_running(words: int) -> Iterator[ServerProcess]:
    """The upstream, in a process of its own."""
    command = [sys.executable, "-m", "foldline_bench.proxy.upstream"]
    command += ["--words", str(words)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            port = process.stdout.readline().strip()
            if not port:
                raise NotUpError("the upstream ended before it listened")
            yield ServerProcess(f"http://127.0.0.1:{port}", process.pid)
        finally:
            process.kill()


@contextmanager
def running(
    command: Sequence[str], port: int, *, ready: str, folder: Path, environment: Mapping[str, str]
) -> Iterator[ServerProcess]:
    """A proxy, once `ready` (a path) answers with 200. Its output goes to a file in `folder`. Raises NotUpError."""
    log = folder / f"{Path(command[0]).name}-{port}.log"
    url = f"http://127.0.0.1:{port}"
    with log.open("wb") as out:
        process = subprocess.Popen(
            list(command),
            stdout=out,
            stderr=subprocess.STDOUT,
            cwd=folder,
            env=dict(environment),
            start_new_session=True,
        )
    try:
        _wait(process, f"{url}{ready}", log)
        yield ServerProcess(url, process.pid)
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _wait(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    until = time.monotonic() + _UP_SECONDS
    # Without the proxy of the environment, which loopback is not behind.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    while time.monotonic() < until:
        if process.poll() is not None:
            break
        try:
            with opener.open(url, timeout=5) as answer:
                if answer.status == 200:
                    return
        except (urllib.error.URLError, OSError):
            time.sleep(0.2)
    raise NotUpError(f"not up at {url}:\n{log.read_text('utf-8', 'replace')[-2_000:]}")
