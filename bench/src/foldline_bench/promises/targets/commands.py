"""Targets in processes of their own: a command that speaks JSON lines, and a target in another Python."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any

from foldline.errors import InvalidInput
from foldline.messages import Wire
from foldline_bench.promises.targets.base import (
    DeclinedError,
    Opening,
    SentRequest,
    SessionUnderTest,
    Target,
    sized,
)
from foldline_bench.promises.targets.callables import target_of
from foldline_bench.promises.targets.line_process import LineProcess
from foldline_bench.promises.wire_forms import FORMS
from foldline_bench.workers.processes import worker_environment, worker_folder

__all__ = ["CommandTarget", "PythonTarget"]


class CommandTarget(Target):
    """A command in any language: each line it reads is a history, each line it writes a request.

    It reads {"messages", "window", "dialect", "system"} and writes {"messages"}, or {"error": words} where it cannot.
    """

    kind = "command"

    def __init__(self, command: str, dialects: tuple[str, ...]) -> None:
        words = shlex.split(command)
        if not words:
            raise InvalidInput("names no command", place="run:")
        self.name = f"run:{command}"
        self._process = LineProcess(words, worker_environment())

        def call(messages: list[Wire], window: int, *, dialect: str, system: Any) -> Any:
            answer = self._process.ask({"messages": messages, "window": window, "dialect": dialect, "system": system})
            if "messages" not in answer:
                raise DeclinedError(str(answer.get("error", "an answer without messages")))
            return answer["messages"]

        self._function = target_of(self.name, call, dialects)
        self.dialects = self._function.dialects
        # The command has copies: that it leaves the caller's messages alone says nothing.
        self.abilities = self._function.abilities - {"given"}
        # A command that answers nothing is a bad target, not a tool that fails.
        hello = FORMS[self.dialects[0]].user("Are you there?")
        try:
            self._process.ask({"messages": hello, "window": 1_000, "dialect": self.dialects[0], "system": None})
        except BaseException:
            self._process.close()
            raise

    def open(self, opening: Opening) -> SessionUnderTest:
        """A session; the process is the same for all of them."""
        return self._function.open(opening)

    def close(self) -> None:
        """End the process."""
        self._process.close()


class PythonTarget(Target):
    """A target that is loaded by another interpreter, where its own packages are installed."""

    def __init__(self, python: str, spec: str, dialects: Sequence[str]) -> None:
        self._stack = ExitStack()
        folder = self._stack.enter_context(worker_folder())
        self._process = LineProcess(
            [python, "-P", "-m", "foldline_bench.promises.targets.worker", spec, *dialects],
            folder.environment(),  # the working folder is added for `module:name` alone: it may hold anything
        )
        self._stack.callback(self._process.close)
        try:
            about = self._process.ask({"do": "about"})
            if "fault" in about:
                raise InvalidInput(about["fault"])
        except BaseException:
            self._stack.close()
            raise
        self.name, self.kind = spec, about["kind"]
        self.dialects, self.abilities = tuple(about["dialects"]), frozenset(about["abilities"])
        self.counts_alike = about["counts_alike"]

    def open(self, opening: Opening) -> SessionUnderTest:
        """A session in that process, which has one at a time."""
        session = _RemoteSession(self._process, opening)
        session.ask(
            "open",
            dialect=opening.dialect,
            window=opening.window_tokens,
            system=opening.system,
            pinned=sorted(opening.pinned),
        )
        return session

    def ready(self) -> None:
        """Start the process again, with the imports of the target."""
        if not self._process.runs:
            self._process.ask({"do": "about"})

    def close(self) -> None:
        """End the process."""
        self._stack.close()


class _RemoteSession(SessionUnderTest):
    def __init__(self, process: LineProcess, opening: Opening) -> None:
        self._process, self._opening = process, opening

    def ask(self, do: str, **given: Any) -> Mapping[str, Any]:
        if do != "open" and not self._process.runs:
            raise DeclinedError("its process has ended")
        try:
            answer = self._process.ask({"do": do, **given})
        except InvalidInput as error:
            raise DeclinedError(str(error)) from None
        if "declined" in answer:
            raise DeclinedError(answer["declined"])
        return answer

    def send(self, new: Sequence[Wire]) -> SentRequest:
        return self._sent(self.ask("send", new=list(new)))

    def again(self) -> SentRequest:
        return self._sent(self.ask("again"))

    def refused(self, words: str) -> SentRequest:
        return self._sent(self.ask("refused", words=words))

    def original(self, index: int) -> Wire:
        found: Wire = self.ask("original", index=index)["message"]
        return found

    def changed(self) -> int | None:
        found: int | None = self.ask("changed")["index"]
        return found

    def work(self, new: Sequence[Wire]) -> int:
        return int(self.ask("work", new=list(new))["steps"])

    def close(self) -> None:
        if self._process.runs:
            self.ask("close")

    def _sent(self, answer: Mapping[str, Any]) -> SentRequest:
        return sized(answer["messages"], answer["system"], self._opening.dialect)
