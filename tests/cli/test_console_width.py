"""The width of the console that commands print on."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

if sys.platform == "win32":
    pytest.skip("pseudo-terminals of POSIX", allow_module_level=True)

import fcntl
import pty
import struct
import termios

WIDTH = "from foldline.cli.console import terminal; print(terminal().width, terminal(to_stderr=True).width)"


@pytest.mark.parametrize(("term", "columns"), [("dumb", 60), ("unknown", 120), ("xterm", 60)])
def test_the_console_is_as_wide_as_the_terminal(term: str, columns: int) -> None:
    handle, side = pty.openpty()
    try:
        fcntl.ioctl(side, termios.TIOCSWINSZ, struct.pack("HHHH", 30, columns, 0, 0))
        environ = {name: each for name, each in os.environ.items() if name not in ("COLUMNS", "LINES", "FORCE_COLOR")}
        command = [sys.executable, "-c", WIDTH]
        subprocess.run(command, stdin=side, stdout=side, stderr=side, env={**environ, "TERM": term}, check=True)
        assert os.read(handle, 100).decode().split() == [str(columns), str(columns)]
    finally:
        os.close(handle)
        os.close(side)
