"""A model that reads a log, part after part, by whatever tool its client offers: the script of a FakeProvider."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from foldline.messages import Json
from foldline.testing import FakeReply, asks_for_summary

__all__ = ["DONE", "Reader"]

DONE: Final = "All parts were read, and nothing unusual was found."
COMMAND: Final = "seq -f 'part {part} line %g: request answered in time, nothing unusual' {lines}"


def by_description(command: str) -> dict[str, Json]:
    return {"command": command, "description": "Read a part of the log"}


def shell_of_gemini(command: str) -> dict[str, Json]:
    return {**by_description(command), "is_background": False}


# How the tools of the known clients are called; a command prints a part, the drivers' own tool knows what a part is.
SHELLS: Final[Mapping[str, Callable[[str], dict[str, Json]]]] = {
    "Bash": by_description,  # Claude Code
    "bash": by_description,  # opencode, mini-swe-agent, pi
    "exec_command": lambda command: {"cmd": command, "max_output_tokens": 9_000},  # Codex
    "run_shell_command": shell_of_gemini,  # Gemini CLI, Qwen Code
}
PART: Final = "read_part"


@dataclass
class Reader:
    """Asks for `parts` parts, `in_a_turn` of them (None: all) before it answers in words; `lines` of a shell's part.

    A request without a tool that it knows (a title), or for a summary, is answered with a few words. `last` is the
    command that ends a run where a client waits for one, in place of words.
    """

    parts: int
    lines: int = 200
    in_a_turn: int | None = None
    last: str = ""
    read: int = 0
    beside: int = 0
    _answered_at: int = field(default=-1)

    def __call__(self, body: Mapping[str, Any]) -> FakeReply:
        """The reply to a request."""
        offered = set(tool_names(body))
        name = next((name for name in (PART, *SHELLS) if name in offered), None)
        if name is None or asks_for_summary(body):
            self.beside += 1
            return FakeReply("The log was read, part after part. Nothing unusual so far.")
        pauses = self.in_a_turn is not None and self.read % self.in_a_turn == 0 and self._answered_at < self.read
        if self.read >= self.parts or (self.read and pauses):
            self._answered_at = self.read
            if self.last:
                return FakeReply(DONE, calls=[(name, SHELLS[name](self.last))])
            return FakeReply(DONE if self.read >= self.parts else f"Nothing unusual in the {self.read} parts so far.")
        self.read += 1
        command = COMMAND.format(part=self.read, lines=self.lines)
        arguments: dict[str, Json] = {"part": self.read} if name == PART else SHELLS[name](command)
        return FakeReply(f"Reading part {self.read}.", calls=[(name, arguments)])


def tool_names(body: Mapping[str, Any]) -> Iterator[str]:
    """The names of the tools of a request, in any dialect."""
    for tool in body.get("tools") or ():
        for one in tool.get("functionDeclarations", [tool]):
            yield str(one.get("function", one).get("name", ""))
