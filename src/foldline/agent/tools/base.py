"""The protocol of a tool: its parameters, what it sees of a run, its outcome, and the permission of a person."""

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
    """A request to compact the conversation once the results of this turn are recorded (S4.10)."""

    instructions: str | None = None
    ranges: tuple[tuple[int, int], ...] = ()
    """Entries [start, stop) to fold in place of the whole."""
    topic: str = ""
    """Words: what mentions them is folded in place of the whole."""


@dataclass(frozen=True, slots=True)
class ToolOutcome:
    """The outcome of a call.

    `text` is data for the model and never acts on the loop: only the typed field `compact` does, which only tools of
    this package set. `is_error` marks a failed call.
    """

    text: str
    is_error: bool = False
    compact: CompactionRequest | None = None


@dataclass(frozen=True, slots=True)
class PermissionRequest:
    """A question to a person before a call runs: the tool, and what it would do in a line, with the change below."""

    tool: str
    what: str


class History(Protocol):
    """Read access of a tool to the session: entries by number, shown or folded (`Context` is one).

    It is used in another thread than the event loop's, while a turn waits for its calls.
    """

    def peek(
        self, seq: Seq, *, start_line: int = 1, start_char: int = 1, lines: int = 50, call_id: str | None = None
    ) -> str:
        """Return lines of an entry as it was recorded. Raises InvalidInput."""

    def grep(self, pattern: str, *, seq: Seq | None = None, work: Work | None = None) -> list[tuple[Seq, int, str]]:
        """Return (seq, line number, line) of each match, within a bound of work. Raises InvalidInput."""


@runtime_checkable
class OutputStore(Protocol):
    """A history with an archive of outputs too large for a session, by SHA-256 (`AgentSession` is one)."""

    def saved(self, name: str) -> str:
        """Return a whole output by the SHA-256 or path in its notice. Raises InvalidInput."""


# The default refuses: a door that forgets to ask must not be one that allows everything.
async def _nobody(request: PermissionRequest) -> bool:
    del request
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class CallScope:
    """What a call sees of its run.

    `room` returns the window and its current use (S4.07). `allowed` asks a person for permission, and returns False
    where there is nobody to ask.
    """

    # A function, not a value: results of the same turn have filled the window since the scope was built.
    room: Callable[[], Room]
    history: History | None = None
    allowed: Callable[[PermissionRequest], Awaitable[bool]] = field(default=_nobody)
    depth: int = 0

    @property
    def max_context_tokens(self) -> int:
        """The window of the calling model, in tokens."""
        return self.room().window_tokens

    @property
    def current_context_tokens(self) -> int:
        """The tokens in use."""
        return self.room().used_tokens


class Tool(Protocol):
    """A tool. `parameters` is the JSON Schema (an object) of its arguments, which are checked before `run`.

    `run` raises InvalidInput for what the model can correct (its text becomes an error result). Any other exception
    becomes an error result that names its type.
    """

    @property
    def name(self) -> str:
        """The name: at most 64 letters, digits, "_" and "-"."""

    @property
    def description(self) -> str:
        """A few sentences for the model."""

    @property
    def parameters(self) -> Mapping[str, Json]:
        """The JSON Schema of the arguments: {"type": "object", "properties": …, "required": …}."""

    async def run(self, arguments: Mapping[str, Json], scope: CallScope) -> ToolOutcome:
        """Run a call. A cancellation stops it, and whatever it started."""


async def is_allowed(scope: CallScope, tool: str, what: str) -> bool:
    """Ask the person for a call. `what`, text of a program or a model, says what it would do."""
    return await scope.allowed(PermissionRequest(tool, one_line(what)))


def one_line(text: str) -> str:
    """Return a text as one line, with line ends, control and direction marks escaped and nothing cut off.

    A terminal obeys such marks, so that a command could look like another one.
    """
    # Escaped, not dropped: what a person allows must be all that is run.
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in text)
