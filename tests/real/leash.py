"""Servers that end with whoever started them, however that ends: a kill -9 of pytest leaves no process and no folder.

`held` starts this file as a program of its own, the keeper. The keeper starts the server and waits for its standard
input to close, which the death of the holder does as well. Then it stops the server by the signal it was told, by
SIGKILL when that takes too long, and removes the folder.

As a program: leash.py USER FOLDER SIGNAL COMMAND…; "-" for no USER. Its output is the server's.
"""

from __future__ import annotations

import os
import pwd
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

__all__ = ["Server", "held"]

START_SECONDS = 120
STOP_SECONDS = 20


class Server:
    """What a server has printed so far; reading it all the time keeps the server from waiting on a full pipe."""

    def __init__(self, output: IO[str]) -> None:
        self.lines: list[str] = []
        self.ended = False
        self._output = output
        self._news = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        for line in self._output:
            with self._news:
                self.lines.append(line.rstrip("\n"))
                self._news.notify_all()
        with self._news:
            self.ended = True
            self._news.notify_all()

    def said(self, pattern: str) -> re.Match[str]:
        """The first match in what it prints, waited for; AssertionError with its output when it ends without one."""

        def found() -> re.Match[str] | None:
            return next((match for line in self.lines if (match := re.search(pattern, line))), None)

        with self._news:
            self._news.wait_for(lambda: found() is not None or self.ended, START_SECONDS)
            match = found()
            assert match is not None, "the server did not start:\n" + "\n".join(self.lines)
            return match

    def finish(self) -> None:
        """Wait until it has printed its last."""
        self._reader.join()


@contextmanager
def held(command: Sequence[str], folder: Path, *, stop: signal.Signals, user: str | None = None) -> Iterator[Server]:
    """Run `command` in `folder` as `user` (the current one unless given) until the block ends; remove the folder."""
    with subprocess.Popen(
        [sys.executable, "-I", __file__, user or "-", str(folder), str(int(stop)), *command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,  # Ctrl-C in the terminal must not reach the server before the tests have ended
    ) as keeper:
        assert keeper.stdin is not None
        assert keeper.stdout is not None
        server = Server(keeper.stdout)
        try:
            yield server
        finally:
            keeper.stdin.close()
            server.finish()


def keep(command: Sequence[str], folder: str, stop: int, user: str | None) -> int:
    """Run the command until standard input closes or it ends by itself; what it returned."""
    as_user = {"user": user, "group": pwd.getpwnam(user).pw_gid, "extra_groups": []} if user else {}
    try:
        server = subprocess.Popen(  # type: ignore[call-overload]
            command, stdin=subprocess.DEVNULL, cwd=folder, start_new_session=True, **as_user
        )

        def end_with_holder() -> None:
            os.read(sys.stdin.fileno(), 1)
            with suppress(ProcessLookupError):  # it has ended by itself
                os.killpg(server.pid, stop)
            try:
                server.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                os.killpg(server.pid, signal.SIGKILL)

        threading.Thread(target=end_with_holder, daemon=True).start()
        code: int = server.wait()
        return code
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: None)  # not SIG_IGN, which the server would inherit
    sys.exit(keep(sys.argv[4:], sys.argv[2], int(sys.argv[3]), None if sys.argv[1] == "-" else sys.argv[1]))
