"""A program in the terminal of this process: signals, job control, exit code."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, Final

from foldline.hosting.process import signal_handlers

__all__ = ["run_in_terminal"]

# What a terminal sends to all processes in front of it, so that the program has it already.
_BY_TERMINAL: Final = ("SIGINT", "SIGQUIT")
_FORWARDED: Final = ("SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2")

# A shell reports a process that a signal ended as 128 plus the signal's number.
_SIGNALLED: Final = 128


async def run_in_terminal(command: Sequence[str], environ: Mapping[str, str]) -> int:
    """Run a program with this process's own terminal, and return its exit code: 128 + N after signal N.

    It stays in this process group. So the terminal sends it Ctrl-C, Ctrl-Z and changes of size itself; here Ctrl-C is
    ignored meanwhile. Signals that were sent to this process alone are passed on. Raises OSError if it does not start.
    """
    started: list[subprocess.Popen[bytes]] = []
    # Before the program starts: a Ctrl-C in between would end this process, and leave that one alone.
    with _terminal_kept(), signal_handlers({number: partial(_pass_on, number, started) for number in _signals()}):
        started.append(subprocess.Popen(command, env=dict(environ)))
        # In a thread: it waits for hours, and the proxy of the program is on this loop.
        return await asyncio.to_thread(_wait, started[0])


def _signals() -> Iterator[signal.Signals]:
    for name in (*_BY_TERMINAL, *_FORWARDED):
        if hasattr(signal, name):  # Windows has few of them
            yield signal.Signals[name]


def _pass_on(number: signal.Signals, started: Sequence[subprocess.Popen[bytes]]) -> None:
    if started and not (number.name in _BY_TERMINAL and _is_in_front()):
        with suppress(ProcessLookupError):
            started[0].send_signal(number)


def _is_in_front() -> bool:
    """Whether this process group has the terminal, which then sends Ctrl-C to all of it."""
    if sys.platform == "win32":
        return True
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)


def _wait(process: subprocess.Popen[bytes]) -> int:
    if sys.platform == "win32":
        return process.wait()
    while True:
        _, status = os.waitpid(process.pid, os.WUNTRACED)
        if not os.WIFSTOPPED(status):
            break
        # A program that reads keys itself stops only itself at Ctrl-Z. The shell waits for this process: it stops too,
        # and the shell continues both.
        if _is_in_front():
            os.kill(os.getpid(), signal.SIGSTOP)
    code = os.waitstatus_to_exitcode(status)
    process.returncode = code  # it is reaped: Popen must not look for it
    return _SIGNALLED - code if code < 0 else code


@contextmanager
def _terminal_kept() -> Iterator[None]:
    """Restore the modes of the terminal afterwards: a program that was killed leaves them as it had set them."""
    if sys.platform == "win32" or not sys.stdin.isatty():
        yield
        return
    import termios

    modes: list[Any] = termios.tcgetattr(sys.stdin)
    try:
        yield
    finally:
        if _is_in_front():  # from the background, setting them would stop this process
            with suppress(termios.error):
                termios.tcsetattr(sys.stdin, termios.TCSADRAIN, modes)
