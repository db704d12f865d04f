"""A history: what is said in a session, step by step, with a request after each step."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from foldline.codecs import codec
from foldline.engine.one_shot import count
from foldline.errors import InvalidInput
from foldline.messages import Image, Json, Message, Text, ToolResult, Wire

__all__ = ["ShapedHistory", "UserWords", "read_messages"]


@dataclass(frozen=True, slots=True)
class UserWords:
    """What a message of the user says: its texts and how many images it has."""

    texts: tuple[str, ...]
    images: tuple[Json, ...]


@dataclass(frozen=True)
class ShapedHistory:
    """A session. `steps` are the messages between two requests, each ending with the user or with results.

    `feasible` is False where the newest words of the user alone are larger than the window. `faulty` marks a history
    that a provider would refuse as it is. `pinned` are indexes of messages that a user would pin.
    """

    shape: str
    dialect: str
    window_tokens: int
    steps: tuple[tuple[Wire, ...], ...]
    system: str = ""
    feasible: bool = True
    faulty: bool = False
    pinned: frozenset[int] = frozenset()

    @property
    def name(self) -> str:
        """The name by which `--case` finds it."""
        return f"{self.shape}/{self.dialect}/{self.window_tokens}"

    @cached_property
    def messages(self) -> tuple[Wire, ...]:
        """All messages."""
        return tuple(wire for step in self.steps for wire in step)

    @cached_property
    def read(self) -> tuple[Message | None, ...]:
        """All messages as the codec of the dialect reads them; None for one that it cannot read."""
        return tuple(read_messages(self.messages, self.dialect))

    def until(self, step: int) -> int:
        """How many messages there are after a step."""
        return sum(map(len, self.steps[: step + 1]))

    def words_until(self, stop: int) -> UserWords | None:
        """The newest words of the user among the first `stop` messages; None while there are none."""
        for message in reversed(self.read[:stop]):
            if message is not None and message.role == "user":
                texts = tuple(part.text for part in message.parts if isinstance(part, Text) and part.text.strip())
                images = tuple(part.raw for part in message.parts if isinstance(part, Image))
                if texts or images:
                    return UserWords(texts, images)
        return None

    def newest_results(self, step: int) -> tuple[ToolResult, ...]:
        """The results that a step brings."""
        stop = self.until(step)
        found = self.read[stop - len(self.steps[step]) : stop]
        return tuple(part for message in found if message for part in message.parts if isinstance(part, ToolResult))

    def tokens(self, stop: int) -> int:
        """The size of a request with the first `stop` messages as they are."""
        return count(self.messages[:stop], dialect=self.dialect, system=self.system or None)


def read_messages(wires: tuple[Wire, ...], dialect: str) -> Iterator[Message | None]:
    """Each message as the codec of the dialect reads it; None for one that it cannot read."""
    reader = codec(dialect)
    for wire in wires:
        try:
            yield reader.read(wire)
        except InvalidInput:
            yield None
