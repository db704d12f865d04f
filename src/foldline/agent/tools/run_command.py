"""The tool that runs shell commands: allowed one by one, bounded in time and output, ended with their children.

A program can write without end. The first and last bytes of its output are kept, since errors are at the ends.
"""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import os
import re
import shutil
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from foldline.agent.tools.base import CONSENT_NEEDED, CallScope, ToolOutcome, is_allowed
from foldline.errors import InvalidInput
from foldline.messages import Json

__all__ = ["OUTPUT_BYTES", "ProcessOutput", "RunCommand", "environment_of", "reading"]

# Default time limit: long enough for a test suite, short enough for a person who waits.
TIMEOUT_SECONDS: Final = 120.0
MAX_SECONDS: Final = 3_600.0
# Between SIGTERM and SIGKILL, as in MCP's client.
GRACE_SECONDS: Final = 2.0
# How long processes that the shell left running may hold the output open after its end.
DRAIN_SECONDS: Final = 1.0
# For output of killed processes that is already in the pipe.
LAST_SECONDS: Final = 0.5
POLL_SECONDS: Final = 0.02

_SECRET_NAME: Final = re.compile(
    r"(?i)api_?key|access_?key|private_?key|secret|tokens?(_|$)|passw(or)?d|passphrase|credential|(^|_)(key|pat|pass)$|_pwd$"
)
_SECRET_VALUE: Final = re.compile(r"://[^/\s:@]*:[^/\s@]+@")  # an address that carries a password


def environment_of(environment: Mapping[str, str], passed: frozenset[str] = frozenset()) -> dict[str, str]:
    """Return an environment without secrets: by name, or a URL with a password. Names in `passed` stay."""
    return {
        name: value
        for name, value in environment.items()
        if name in passed or not (_SECRET_NAME.search(name) or _SECRET_VALUE.search(value))
    }


def _schema() -> dict[str, Json]:
    return {
        "type": "object",
        "properties": {
            "command": {"type": "string", "minLength": 1, "description": "What the shell is to run."},
            "timeout_seconds": {
                "type": "number",
                "exclusiveMinimum": 0,
                "maximum": MAX_SECONDS,
                "description": "It is ended after this time; 120 seconds if not given.",
            },
            "cwd": {
                "type": "string",
                "description": "A folder of the workspace to run it in; its top if not given.",
            },
        },
        "required": ["command"],
        "additionalProperties": False,
    }


@dataclass(frozen=True, slots=True)
class RunCommand:
    """Runs commands in `folder`, by bash where there is one, else sh; a person allows each.

    A command is not confined: it has the rights of the user who allowed it. It gets no input, no terminal and no
    variable that looks like a secret, except those named in `passed`. Processes that it leaves running in its group end
    with it. Raises InvalidInput where there are no process groups (Windows).
    """

    folder: Path
    timeout_seconds: float = TIMEOUT_SECONDS
    passed: frozenset[str] = frozenset()
    grace_seconds: float = GRACE_SECONDS
    name: str = "run_command"
    description: str = (
        "Runs a command of the shell in the workspace and tells what it wrote (output and errors as they came) and its "
        "exit code. It gets no input. The user is asked before each."
    )
    parameters: Mapping[str, Json] = field(default_factory=_schema)

    def __post_init__(self) -> None:
        if os.name != "posix":
            raise InvalidInput("needs a system with process groups (Linux, macOS)", place=self.name)

    async def run(self, arguments: Mapping[str, Json], scope: CallScope) -> ToolOutcome:
        """Ask, run, and report. A time-out or a cancellation ends the command and all it started."""
        command = arguments["command"]
        if "\0" in command:
            raise InvalidInput("must not hold a NUL character", place="command")
        folder = self._inside(arguments.get("cwd"))
        seconds = float(arguments.get("timeout_seconds", self.timeout_seconds))
        where = f"in {arguments['cwd']}: " if arguments.get("cwd") else ""
        if not await is_allowed(scope, self.name, f"{where}{command}"):
            return ToolOutcome(CONSENT_NEEDED, is_error=True)
        output = ProcessOutput()
        # One pipe for both streams: two would lose which line came first.
        async with reading(output) as write_end:
            code, left_running = None, False
            async with _shell(command, folder, write_end, self) as shell:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(seconds):
                        code = await shell.wait()
                # A child in the background may hold the pipe open for ever.
                if code is not None:
                    await _drain(output, DRAIN_SECONDS)
                    left_running = _signal_group(shell.pid, 0)
            await _drain(output, LAST_SECONDS)
        return _outcome(output, code, seconds, left_running)

    def _inside(self, cwd: str | None) -> Path:
        """Return the folder to run in. It guides the model, and confines nothing."""
        # Checked all the same: a model that names a folder outside has made a mistake, and can correct it.
        top = self.folder.resolve()
        if not cwd:
            return top
        try:
            found = (top / cwd).resolve()
        except (OSError, ValueError) as error:
            raise InvalidInput(f"{cwd!r} is no folder: {error}", place="cwd") from None
        if not found.is_relative_to(top):
            raise InvalidInput(f"{cwd!r} is outside the workspace", place="cwd")
        if not found.is_dir():
            raise InvalidInput(f"{cwd!r} is no folder", place="cwd")
        return found


async def _drain(output: ProcessOutput, seconds: float) -> None:
    """Wait, up to some seconds, until nobody can write any more."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await output.ended.wait()


def _outcome(output: ProcessOutput, code: int | None, seconds: float, left_running: bool) -> ToolOutcome:
    text = output.text
    ended = " What it left running was ended." if left_running else ""
    # The exit code is last: of a long output the ends survive every later cut.
    gap = "" if not text or text.endswith("\n") else "\n"
    if code is None:
        how = f"[timed out after {seconds:g} seconds; the command and what it started were ended]"
    elif code < 0:
        how = f"[ended by {_signal_name(-code)}]{ended}"
    else:
        how = f"[exit code {code}]{ended}"
    return ToolOutcome(f"{text}{gap}{how}", is_error=code != 0)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # real-time signals have no name
        return f"signal {number}"


@asynccontextmanager
async def _shell(
    command: str, folder: Path, write_end: int, tool: RunCommand
) -> AsyncIterator[asyncio.subprocess.Process]:
    """Start the shell in its own session and process group; at the end of the block the group is gone.

    Its own session has no terminal, so that no program can ask the person for a password.
    """
    try:
        shell = await asyncio.create_subprocess_exec(
            shutil.which("bash") or "/bin/sh",
            "-c",
            command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=write_end,
            stderr=write_end,
            cwd=folder,
            env=environment_of(os.environ, tool.passed),
            start_new_session=True,
        )
    finally:
        # The shell has its own copy; with ours open, the pipe would never report its end.
        os.close(write_end)
    try:
        yield shell
    finally:
        await _end(shell, tool.grace_seconds)


async def _end(shell: asyncio.subprocess.Process, grace_seconds: float) -> None:
    """End the process group: SIGTERM, then SIGKILL after `grace_seconds` or on a cancellation."""
    try:
        if _signal_group(shell.pid, signal.SIGTERM):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(grace_seconds):
                    while _signal_group(shell.pid, 0):
                        await asyncio.sleep(POLL_SECONDS)
    finally:
        if sys.platform != "win32":
            _signal_group(shell.pid, signal.SIGKILL)
    await shell.wait()


def _signal_group(group: int, number: int) -> bool:
    """Send a signal to a group (0: none). Returns whether the group has processes."""
    if sys.platform == "win32":  # no tool is made there
        return False
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        return False
    except PermissionError:  # macOS says so of a group of zombies
        return False
    return True


# Bytes kept of an output, half of them its beginning: more than any window takes, and little in memory.
OUTPUT_BYTES: Final = 1024 * 1024


class ProcessOutput(asyncio.Protocol):
    """The bounded output of one program, and the protocol of its pipe."""

    def __init__(self, max_bytes: int = OUTPUT_BYTES) -> None:
        self._most = max(1, max_bytes // 2)
        self._head = bytearray()
        self._tail = bytearray()
        self.total_bytes = 0
        self.ended = asyncio.Event()  # set when nobody can write any more

    def data_received(self, data: bytes) -> None:
        """Append data. O(its size)."""
        self.total_bytes += len(data)
        room = self._most - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        self._tail += data
        if len(self._tail) > 2 * self._most:  # only now and then: a cut per piece would be quadratic
            del self._tail[: -self._most]

    def connection_lost(self, exc: Exception | None) -> None:
        """Record the end of the output."""
        del exc
        self.ended.set()

    @property
    def text(self) -> str:
        """The output as text, with a note on omitted bytes. Invalid UTF-8 and NUL become U+FFFD."""
        tail = bytes(self._tail[-self._most :])
        left_out = self.total_bytes - len(self._head) - len(tail)
        if not left_out:
            return _text(bytes(self._head) + tail)
        # An incremental decoder drops a character that is cut off at the end.
        head = codecs.getincrementaldecoder("utf-8")("replace").decode(bytes(self._head)).replace("\0", "\ufffd")
        start = next((at for at, byte in enumerate(tail[:4]) if byte & 0xC0 != 0x80), 0)
        note = f"[… {left_out:,} of {self.total_bytes:,} bytes are left out here …]"
        return f"{head}\n{note}\n{_text(tail[start:])}"


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace").replace("\0", "\ufffd")


@asynccontextmanager
async def reading(output: ProcessOutput) -> AsyncIterator[int]:
    """Connect a pipe to `output` during the block. Yields the write end, which the caller closes."""
    read_end, write_end = os.pipe()
    source = os.fdopen(read_end, "rb", 0)
    try:
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(lambda: output, source)
    except BaseException:
        source.close()
        os.close(write_end)
        raise
    try:
        yield write_end
    finally:
        transport.close()
