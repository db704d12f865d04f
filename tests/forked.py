"""The command `foldline` in processes of its own, forked from one that has loaded all of it.

To start Python and load the command takes more than a second of work, in hundreds of tests. What these processes do is
what `python -m foldline.cli.main` does from there on: its arguments, its environment, its folder, its standard
streams, its signals, its end. What is loaded when is not seen here; tests of that start Python anew.

As a program, the starter: forked.py SOCKET, a connection on which the orders come. It ends when that is closed.
"""

from __future__ import annotations

import atexit
import fcntl
import gc
import importlib
import json
import os
import pkgutil
import select
import signal
import socket
import ssl
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from subprocess import DEVNULL
from types import TracebackType
from typing import Any, Self

from foldline.catalog.models import lookup

__all__ = ["Forked", "run"]

ROOT = Path(__file__).parents[1]
LOADED = ("agent", "cli", "doors", "hosting", "providers", "reducers", "store")
"""Packages of foldline with all their modules, but for these, which take long and are seldom used here."""
LEFT_OUT = ("mcp", "pdf", "proxy")
USED = (
    *("anyio._backends._asyncio", "apscheduler.schedulers.asyncio", "apscheduler.triggers.cron", "httpcore"),
    *("markdown_it", "prompt_toolkit", "prompt_toolkit.formatted_text.ansi", "psycopg", "rich.markdown"),
    *("sqlalchemy.dialects.postgresql.psycopg", "sqlalchemy.dialects.sqlite", "telegram.ext", "uvicorn"),
    *("uvicorn.lifespan.off", "uvicorn.lifespan.on", "uvicorn.protocols.http.h11_impl"),
)
"""What those load only when they need it."""
NUMBER = struct.Struct("!i")
END_SECONDS = 120


# --- in the process of the test ---------------------------------------------------------------------------------------


class _Starter:
    """The process that forks the others."""

    def __init__(self) -> None:
        self._orders, theirs = socket.socketpair()
        self._lock = threading.Lock()
        # What it was started with is asked for in no other way: the streams of its children are theirs.
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.forked", str(theirs.fileno())],
            cwd=ROOT,
            env={**os.environ, "PYTHONUTF8": "1"},
            stdin=DEVNULL,
            stdout=DEVNULL,
            pass_fds=[theirs.fileno()],
        )
        theirs.close()
        atexit.register(self.end)

    def start(self, order: Mapping[str, Any], streams: Sequence[int]) -> tuple[int, socket.socket]:
        """A new process: its number, and where its end is told."""
        told, theirs = socket.socketpair()
        sent = json.dumps(order).encode()
        with theirs, self._lock:
            socket.send_fds(self._orders, [NUMBER.pack(len(sent))], [*streams, theirs.fileno()])
            self._orders.sendall(sent)
        return NUMBER.unpack(_whole(told, NUMBER.size))[0], told

    def end(self) -> None:
        self._orders.close()
        self._process.wait(END_SECONDS)


_starter = cache(_Starter)


class Forked:
    """A process that runs `foldline` with these arguments; of subprocess.Popen what tests need.

    Its standard streams are handles of files, DEVNULL for nothing. It is killed at the end of the block that it is used
    in. With `terminal` its standard input is the terminal that controls it.
    """

    def __init__(
        self,
        *arguments: str,
        cwd: Path,
        env: Mapping[str, str],
        stdin: int = DEVNULL,
        stdout: int = DEVNULL,
        stderr: int = DEVNULL,
        terminal: bool = False,
    ) -> None:
        order = {"arguments": arguments, "cwd": str(cwd), "env": dict(env), "terminal": terminal}
        with open(os.devnull, "r+b") as nothing:
            streams = [nothing.fileno() if one == DEVNULL else one for one in (stdin, stdout, stderr)]
            self.pid, self._told = _starter().start(order, streams)
        self.returncode: int | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.kill()
        self.wait()

    def poll(self) -> int | None:
        """Its exit code (minus the signal that ended it), or None while it runs."""
        if self.returncode is None and select.select([self._told], [], [], 0)[0]:
            self._hear()
        return self.returncode

    def wait(self, timeout: float = END_SECONDS) -> int:
        """Wait for its end; its exit code."""
        if self.returncode is None:
            if not select.select([self._told], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired("foldline", timeout)
            self._hear()
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send it a signal, if it still runs."""
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        """End it by SIGKILL, if it still runs."""
        self.send_signal(signal.SIGKILL)

    def _hear(self) -> None:
        self.returncode = os.waitstatus_to_exitcode(NUMBER.unpack(_whole(self._told, NUMBER.size))[0])
        self._told.close()


def run(
    *arguments: str, cwd: Path, env: Mapping[str, str], piped: str | None = None, stdout: int | None = None
) -> subprocess.CompletedProcess[str]:
    """Run `foldline` to its end: its exit code and what it wrote. `piped` is written to it, nothing unless given."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        stdin = DEVNULL
        if piped is not None:
            stdin, inlet = os.pipe()
            with open(inlet, "wb") as writing:
                sent = piped.encode()
                assert len(sent) <= select.PIPE_BUF * 16, "more than a pipe holds"
                writing.write(sent)
        try:
            to = out.fileno() if stdout is None else stdout
            with Forked(*arguments, cwd=cwd, env=env, stdin=stdin, stdout=to, stderr=err.fileno()) as process:
                code = process.wait(2 * END_SECONDS)
        finally:
            if piped is not None:
                os.close(stdin)
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read().decode())
        return subprocess.CompletedProcess(arguments, code, *texts)


def _whole(connection: socket.socket, size: int) -> bytes:
    read = b""
    while len(read) < size:
        piece = connection.recv(size - len(read))
        if not piece:
            raise EOFError
        read += piece
    return read


# --- the starter ------------------------------------------------------------------------------------------------------


def _load() -> None:
    for name in LOADED:
        package = importlib.import_module(f"foldline.{name}")
        for module in pkgutil.walk_packages(package.__path__, f"foldline.{name}."):
            if not any(part in module.name for part in LEFT_OUT):
                importlib.import_module(module.name)
    for name in USED:
        with suppress(ImportError):
            importlib.import_module(name)
    lookup("any")
    ssl.create_default_context(capath=str(ROOT / "tests"))
    assert threading.active_count() == 1, "a fork takes no threads along"
    gc.collect()
    gc.freeze()


def _ordered(orders: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    """Fork for each order. In the child, what it is to do; in this process None once there are no more orders."""
    ended, news = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    signal.set_wakeup_fd(news)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    telling: dict[int, socket.socket] = {}
    while True:
        ready, _, _ = select.select([orders.fileno(), ended], [], [])
        if ended in ready:
            os.read(ended, 4_096)
            while telling and (found := os.waitpid(-1, os.WNOHANG))[0]:
                with telling.pop(found[0]) as to, suppress(OSError):
                    to.sendall(NUMBER.pack(found[1]))
        if orders.fileno() in ready:
            head, handles, _, _ = socket.recv_fds(orders, NUMBER.size, 4)
            if not head:
                return None
            order = json.loads(_whole(orders, NUMBER.unpack(head)[0]))
            pid = os.fork()
            if pid == 0:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                signal.signal(signal.SIGINT, signal.default_int_handler)
                for to in telling.values():
                    to.detach()
                orders.detach()
                return order, handles
            telling[pid] = socket.socket(fileno=handles.pop())
            for handle in handles:
                os.close(handle)
            telling[pid].sendall(NUMBER.pack(pid))


def _become(order: Mapping[str, Any], handles: Sequence[int]) -> None:
    """Make this process the one that was ordered."""
    for number in range(3):
        os.dup2(handles[number], number)
    os.closerange(3, 1_024)
    if order["terminal"]:
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    os.chdir(order["cwd"])
    os.environ.clear()
    os.environ.update(order["env"])
    time.tzset()
    sys.argv = ["foldline", *order["arguments"]]
    sys.stdin = open(0, encoding="utf-8", errors="surrogateescape", closefd=False)  # noqa: SIM115 - as long as it runs
    sys.stdout = open(1, "w", encoding="utf-8", errors="surrogateescape", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", 1, encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115


def main() -> None:
    """Load the command, and run it in a process of its own for each order."""
    orders = socket.socket(fileno=int(sys.argv[1]))
    orders.set_inheritable(False)
    _load()
    ordered = _ordered(orders)
    if ordered is not None:
        _become(*ordered)
        from foldline.cli.main import main as foldline

        foldline()


if __name__ == "__main__":
    main()
