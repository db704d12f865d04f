"""Reading hostile files by processes of their own: PDFs, and pages of the web.

Such files can keep a reader busy for very long or have it take all memory, and no thread can be ended from outside. A
process has limits of time and memory, ends with the call, and sees no secrets of this one.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO, Final

from foldline.agent.workers import StopSignal

__all__ = ["ProcessTimedOut", "read_isolated"]

_LOOK_SECONDS: Final = 0.1
_CONFINED: Final = Path(__file__).with_name("confined.py")
# What of the environment a Python needs to start: no keys are among it.
_KEPT: Final = ("PATH", "PYTHONPATH", "PYTHONHOME", "LD_LIBRARY_PATH", "SYSTEMROOT", "TEMP", "TMPDIR")


class ProcessTimedOut(Exception):  # noqa: N818 - says what happened; it does not leave the readers
    """A reader was ended for its time."""


def read_isolated(
    script: Path, file: BinaryIO, stop: StopSignal, *, max_seconds: float, given: Sequence[str] = ()
) -> dict[str, object]:
    """The JSON object that a script writes of a file, which is its standard input from its beginning on.

    {"error": reason} where it breaks. Raises TookTooLong, and Cancelled; then nothing of it is left.
    """
    file.flush()
    os.lseek(file.fileno(), 0, os.SEEK_SET)
    environment = {name: os.environ[name] for name in _KEPT if name in os.environ}
    command = [sys.executable, "-P", str(_CONFINED), str(script), *given]
    ends = time.monotonic() + max_seconds
    with subprocess.Popen(
        command, stdin=file, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
    ) as process:
        try:
            return _answer(*_waited(process, stop, ends))
        finally:
            if process.poll() is None:
                process.kill()


def _waited(process: subprocess.Popen[bytes], stop: StopSignal, ends: float) -> tuple[bytes, bytes]:
    while True:
        try:
            return process.communicate(timeout=_LOOK_SECONDS)
        except subprocess.TimeoutExpired:
            stop.poll()
            if time.monotonic() > ends:
                raise ProcessTimedOut from None


def _answer(out: bytes, errors: bytes) -> dict[str, object]:
    """What the process wrote; where it broke, the last line of its errors, which names the exception."""
    try:
        found = json.loads(out)
    except ValueError:
        said = errors.decode("utf-8", "replace").strip().rpartition("\n")[2]
        return {"error": said or "its reader was ended, by the limit of its memory or of its time"}
    return found if isinstance(found, dict) else {}
