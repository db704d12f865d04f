"""The program in a pseudo-terminal, driven as a person would drive it."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.forked import Forked

PATIENCE_SECONDS = 60
WHERE = "\x1b[6n"
"""The question where the cursor is, which terminals answer as if it had been typed."""
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Terminal:
    """One run of `foldline chat`. `text` is all that it wrote. With `cursor` it is told where the cursor is."""

    def __init__(self, process: Forked, handle: int, side: int, modes: list[Any], *, cursor: bool = False) -> None:
        self.process, self._handle, self._side = process, handle, side
        self._modes, self._cursor = modes, cursor
        self._seen = 0
        self.text = ""

    @property
    def words(self) -> str:
        """What it wrote, without what only moves and colours."""
        return ESCAPES.sub("", self.text)

    def expect(self, words: str) -> None:
        """Wait until it has written this, after what was expected before."""
        until = time.monotonic() + PATIENCE_SECONDS
        while (at := ESCAPES.sub("", self.text).find(words, self._seen)) < 0:
            left = until - time.monotonic()
            if left <= 0 or not self._read(left):
                raise AssertionError(f"{words!r} did not come; it wrote {self.words[self._seen :]!r}")
        self._seen = at + len(words)

    def send(self, keys: str) -> None:
        """Press keys."""
        os.write(self._handle, keys.encode())

    def leave(self) -> int:
        """Press Ctrl-D at the prompt; the exit code."""
        self.expect("›")
        self.send("\x04")
        return self.ended()

    def line(self, text: str) -> None:
        """Type a line."""
        self.send(f"{text}\r")

    def ended(self) -> int:
        """Wait for its end; the exit code (128 + the signal that ended it)."""
        while self._read(PATIENCE_SECONDS):
            pass
        code = self.process.poll()
        if code is None:
            raise AssertionError(f"it did not end; it wrote {self.words[self._seen :]!r}")
        return code if code >= 0 else 128 - code

    @property
    def is_as_before(self) -> bool:
        """Whether every mode of the terminal is what it was before the run, and the cursor is shown."""
        hidden, shown = self.text.rfind("\x1b[?25l"), self.text.rfind("\x1b[?25h")
        pasting, typing = self.text.rfind("\x1b[?2004h"), self.text.rfind("\x1b[?2004l")
        return termios.tcgetattr(self._side) == self._modes and hidden <= shown and pasting <= typing

    def _read(self, seconds: float) -> bool:
        # The other side is held open here, so that its settings can be looked at: the end of the program is no end of
        # the file.
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            ready, _, _ = select.select([self._handle], [], [], 0.05)
            if ready:
                came = os.read(self._handle, 65_536).decode("utf-8", "replace")
                self.text += came
                if self._cursor and WHERE in came:
                    self.send("\x1b[1;1R")
                return True
            if self.process.poll() is not None:
                return bool(select.select([self._handle], [], [], 0)[0])
        return False


@contextmanager
def terminal(
    folder: Path, *arguments: str, width: int = 100, cursor: bool = False, **environ: str
) -> Iterator[Terminal]:
    """`foldline chat` with these arguments, in `folder`/work."""
    work = folder / "work"
    work.mkdir(exist_ok=True)
    handle, side = pty.openpty()
    fcntl.ioctl(side, termios.TIOCSWINSZ, struct.pack("HHHH", 30, width, 0, 0))
    modes = termios.tcgetattr(side)
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "LC_ALL") if name in os.environ}
    variables = {
        **kept,
        "PYTHONUTF8": "1",
        "TERM": "xterm-256color",
        "FOLDLINE_HOME": str(folder / "home"),
        **({} if cursor else {"PROMPT_TOOLKIT_NO_CPR": "1"}),
        **environ,
    }
    try:
        given = ("chat", *arguments)
        with Forked(*given, cwd=work, env=variables, stdin=side, stdout=side, stderr=side, terminal=True) as process:
            yield Terminal(process, handle, side, modes, cursor=cursor)
    finally:
        os.close(handle)
        os.close(side)
