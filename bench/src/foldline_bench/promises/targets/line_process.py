"""A process that answers each line of JSON with one line of JSON."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from typing import IO, Any, Final

from foldline.errors import InvalidInput

__all__ = ["LineProcess"]

_LAST_LINE_CHARS: Final = 300


class LineProcess:
    """It is started when it is first asked, and again after it has ended. It gets Ctrl-C from here alone."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self._command, self._environment = list(command), dict(environment)
        self._process: subprocess.Popen[bytes] | None = None
        self._errors: IO[bytes] | None = None

    @property
    def runs(self) -> bool:
        """Whether it is there: after an error it is not, and what it knew is gone."""
        return self._process is not None

    def ask(self, question: Mapping[str, Any]) -> dict[str, Any]:
        """Its answer. Raises InvalidInput where there is none: it ended, or wrote something else.

        Whatever else is raised meanwhile (a limit of time, Ctrl-C) ends the process, which may be amid its answer.
        """
        process = self._started()
        try:
            return self._answer(process, question)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Kill it."""
        process, self._process = self._process, None
        if process is None:
            return
        if process.poll() is None:
            if os.name == "posix":
                os.killpg(process.pid, signal.SIGKILL)
            else:
                process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout, self._errors):
            if pipe is not None:
                _close(pipe)

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
            try:
                self._process = subprocess.Popen(
                    self._command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=self._errors,
                    env=self._environment,
                    start_new_session=True,
                )
            except OSError as error:
                _close(self._errors)
                raise InvalidInput(f"cannot be started: {error.strerror or error}", place=self._command[0]) from None
        return self._process

    def _answer(self, process: subprocess.Popen[bytes], question: Mapping[str, Any]) -> dict[str, Any]:
        if process.stdin is None or process.stdout is None:
            raise InvalidInput("has no pipes", place=self._command[0])
        try:
            process.stdin.write(json.dumps(question).encode() + b"\n")
            process.stdin.flush()
            line = process.stdout.readline()
        except BrokenPipeError:
            line = b""
        if not line:
            raise InvalidInput(self._last_words(process), place=self._command[0])
        try:
            answer = json.loads(line)
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            text = line.decode("utf-8", "replace").strip()[:_LAST_LINE_CHARS]
            raise InvalidInput(f"answered with what is no JSON object: {text}", place=self._command[0])
        return answer

    def _last_words(self, process: subprocess.Popen[bytes]) -> str:
        code = process.wait()
        lines: list[str] = []
        if self._errors is not None:
            self._errors.seek(0)
            written = self._errors.read().decode("utf-8", "replace").splitlines()
            lines = [line.strip() for line in written if line.strip()]
        said = f": {lines[-1][:_LAST_LINE_CHARS]}" if lines else ""
        return f"ended with code {code} and no answer{said}"


def _close(pipe: IO[bytes]) -> None:
    try:
        pipe.close()
    except BrokenPipeError:
        # What was still to be written has no reader any more.
        if not pipe.closed:
            sys.stderr.flush()
