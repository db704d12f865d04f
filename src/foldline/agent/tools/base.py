"""What a tool is, what it may see, and what it may answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol, runtime_checkable

from foldline.display import Room
from foldline.messages import Json
from foldline.text.safe_regex import Work
from foldline.view.transcript import Seq

__all__ = [
    "CONSENT_NEEDED",
    "CallScope",
    "CompactionRequest",
    "History",
    "OutputStore",
    "PermissionRequest",
    "Tool",
    "ToolOutcome",
    "is_allowed",
    "one_line",
]

CONSENT_NEEDED: Final = "The user did not allow this call."


@dataclass(frozen=True, slots=True)
class CompactionRequest:
    """The wish that the conversation be compacted once the results of this turn are recorded (S4.10)."""

    instructions: str | None = None


@dataclass(frozen=True, slots=True)
class ToolOutcome:
    """What a call brought.

    `text` is data for the model, whatever stands in it: only the typed field beside it can make the loop do something,
    and only tools of this package set it. `is_error` marks a call that failed.
    """

    text: str
    is_error: bool = False
    compact: CompactionRequest | None = None


@dataclass(frozen=True, slots=True)
class PermissionRequest:
    """What a person is asked before a call runs: the tool, and what it would do: a line, and below it the change."""

    tool: str
    what: str


class History(Protocol):
    """The session as a tool may look into it: entries by number, shown or folded (`Context` is one).

    It is looked into in another thread than that of the loop, while a turn waits for its calls.
    """

    def peek(
        self, seq: Seq, *, start_line: int = 1, start_char: int = 1, lines: int = 50, call_id: str | None = None
    ) -> str:
        """Lines of an entry as it came in. Raises InvalidInput."""

    def grep(self, pattern: str, *, seq: Seq | None = None, work: Work | None = None) -> list[tuple[Seq, int, str]]:
        """(seq, line number, line) of the lines that match, for no more than this work. Raises InvalidInput."""


@runtime_checkable
class OutputStore(Protocol):
    """A history that keeps outputs too large for a session, each by its SHA-256 (`AgentSession` is one)."""

    def saved(self, name: str) -> str:
        """The whole of such an output, by what its notice names: the SHA-256, or the path. Raises InvalidInput."""


async def _nobody(ask: PermissionRequest) -> bool:
    del ask
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class CallScope:
    """What a call may see of the run that it is part of.

    `room` gives the window and what is used of it at this moment (S4.07). `allowed` asks the person for one call; where
    nobody can be asked it is False.
    """

    room: Callable[[], Room]
    history: History | None = None
    allowed: Callable[[PermissionRequest], Awaitable[bool]] = field(default=_nobody)
    depth: int = 0

    @property
    def max_context_tokens(self) -> int:
        """The window of the model that called."""
        return self.room().window_tokens

    @property
    def current_context_tokens(self) -> int:
        """What is used of it."""
        return self.room().used_tokens


class Tool(Protocol):
    """One tool. `parameters` is the JSON Schema (an object) of its arguments, which are checked before it runs.

    `run` returns a ToolOutcome. It raises InvalidInput for arguments or circumstances that the model can do something
    about (its text becomes an error result); any other exception becomes an error result that names its type.
    """

    @property
    def name(self) -> str:
        """Its name: letters, digits, "_" and "-", at most 64."""

    @property
    def description(self) -> str:
        """What it does, for the model: a few sentences."""

    @property
    def parameters(self) -> Mapping[str, Json]:
        """JSON Schema of the arguments: {"type": "object", "properties": …, "required": …}."""

    async def run(self, arguments: Mapping[str, Json], scope: CallScope) -> ToolOutcome:
        """Do it. A cancellation stops it, and what it started."""


async def is_allowed(scope: CallScope, tool: str, what: str) -> bool:
    """Whether the person allows this call; `what` says in the text of a program or a model what it would do."""
    return await scope.allowed(PermissionRequest(tool, one_line(what)))


def one_line(text: str) -> str:
    """A text as one line: line ends, control and direction marks are written as escapes, and nothing is cut off.

    A terminal obeys such marks, and a command could show as another one than it is.
    """
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in text)
