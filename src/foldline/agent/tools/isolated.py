"""Reads hostile files, PDFs and web pages, in a process of their own.

Such a file can make its reader run for very long or take all memory, and a thread cannot be ended from outside. A
process has limits of time and memory, ends with the call, and sees no secrets of its parent.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Final

from foldline.agent.workers import StopSignal

__all__ = ["ProcessTimedOut", "read_isolated"]

_POLL_SECONDS: Final = 0.1
_CONFINED: Final = Path(__file__).with_name("confined.py")
# Variables that a Python needs to start. None is a key.
_PASSED: Final = ("PATH", "PYTHONPATH", "PYTHONHOME", "LD_LIBRARY_PATH", "SYSTEMROOT", "TEMP", "TMPDIR")


class ProcessTimedOut(Exception):  # noqa: N818 - says what happened; it does not leave the readers
    """A reader was killed at its time limit."""


def read_isolated(
    script: Path, file: IO[bytes], stop: StopSignal, *, max_seconds: float, arguments: Sequence[str] = ()
) -> dict[str, object]:
    """Run a script with a file as its standard input. Returns the JSON object that it prints, or {"error": reason}.

    Raises ProcessTimedOut and WorkCancelled; the process is then gone.
    """
    file.flush()
    # The child shares the offset of the descriptor, which Python's buffer has moved.
    os.lseek(file.fileno(), 0, os.SEEK_SET)
    environment = {name: os.environ[name] for name in _PASSED if name in os.environ}
    # -P: no module of the working directory may take the place of one of Python's own.
    command = [sys.executable, "-P", str(_CONFINED), str(script), *arguments]
    ends = time.monotonic() + max_seconds
    with subprocess.Popen(
        command, stdin=file, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
    ) as process:
        try:
            return _answer(*_wait(process, stop, ends))
        finally:
            if process.poll() is None:
                process.kill()


def _wait(process: subprocess.Popen[bytes], stop: StopSignal, ends: float) -> tuple[bytes, bytes]:
    while True:
        try:
            return process.communicate(timeout=_POLL_SECONDS)
        except subprocess.TimeoutExpired:
            stop.poll()
            if time.monotonic() > ends:
                raise ProcessTimedOut from None


def _answer(out: bytes, errors: bytes) -> dict[str, object]:
    """Parse the output of the process; of a failed one return the last line of stderr, which names the exception."""
    try:
        found = json.loads(out)
    except ValueError:
        message = errors.decode("utf-8", "replace").strip().rpartition("\n")[2]
        return {"error": message or "its reader was ended, by the limit of its memory or of its time"}
    return found if isinstance(found, dict) else {}
