"""A server that ends with whoever started it, however that ends: kill -9 of pytest leaves no process and no folder.

`held` starts this file as a program of its own. It starts the server and waits for its standard input to close, which
the death of the holder does too. Then it stops the server with the signal it was told, and with SIGKILL when that takes
too long, and removes the folder.

As a program: leash.py USER FOLDER SIGNAL COMMAND…; USER and FOLDER may be "-". Its output is the server's.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

__all__ = ["STOP_SECONDS", "held"]

STOP_SECONDS = 20


@contextmanager
def held(
    command: Sequence[str], *, folder: Path | None = None, user: str | None = None, stop: signal.Signals
) -> Iterator[subprocess.Popen[str]]:
    """Run `command` as `user` (the current one unless given) until the block ends; remove `folder` afterwards.

    What is yielded is the keeper; its `stdout` has the server's lines, errors among them.
    """
    keeper = subprocess.Popen(
        [sys.executable, "-I", __file__, user or "-", str(folder or "-"), str(int(stop)), *command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,  # Ctrl-C in the terminal must not reach the server before the tests have ended
    )
    assert keeper.stdin is not None
    assert keeper.stdout is not None
    try:
        yield keeper
    finally:
        keeper.stdin.close()
        for _ in keeper.stdout:  # a full pipe would hold it up
            pass
        keeper.wait()
        keeper.stdout.close()


def keep(user: str, folder: str, stop: int, command: Sequence[str]) -> int:
    """Run the command until standard input closes or it ends by itself; what it returned."""
    groups: list[str] | None = None if user == "-" else []
    named = None if user == "-" else user
    try:
        server = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, user=named, group=named, extra_groups=groups, cwd="/"
        )

        def end() -> None:
            sys.stdin.buffer.read()
            server.send_signal(stop)
            try:
                server.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                server.kill()

        threading.Thread(target=end, daemon=True).start()
        return server.wait()
    finally:
        if folder != "-":
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    sys.exit(keep(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4:]))
