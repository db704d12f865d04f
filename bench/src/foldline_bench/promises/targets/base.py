"""What every kind of target looks like to the suite."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from foldline.engine.one_shot import count
from foldline.messages import Json, Wire

__all__ = ["ABILITIES", "Ability", "DeclinedError", "Opening", "SentRequest", "SessionUnderTest", "Target", "sized"]

Ability: TypeAlias = Literal["system", "pins", "refused", "original", "work", "given", "http"]

ABILITIES: Final[dict[Ability, str]] = {
    "system": "it is given the system text, in dialects that have it outside the messages",
    "pins": "messages can be pinned",
    "refused": "it can be told that the provider refused its request",
    "original": "it keeps the originals and gives them back",
    "work": "it keeps the session, so that its work for what is new can be counted",
    "given": "it works on the caller's own objects",
    "http": "it is a proxy",
}
"""What a target may have beside its requests; promises about what it has not are not applicable."""


class DeclinedError(Exception):
    """The tool made no request: it raised an error, or answered with one.

    `broken` is the rule for which the provider refused what a proxy sent, "" where no rule was broken.
    """

    def __init__(self, words: str, broken: str = "") -> None:
        super().__init__(words)
        self.broken = broken


@dataclass(frozen=True, slots=True)
class Opening:
    """What a session begins with."""

    dialect: str
    window_tokens: int
    system: str = ""
    pinned: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class SentRequest:
    """A request as the provider gets it; `attempts` is how often one was sent until it was taken."""

    messages: tuple[Wire, ...]
    system: Json
    tokens: int
    attempts: int = 1


class SessionUnderTest(ABC):
    """One session of a target. Every method raises DeclinedError where the tool makes no request."""

    @abstractmethod
    def send(self, new: Sequence[Wire]) -> SentRequest:
        """The request after these messages have come."""

    @abstractmethod
    def again(self) -> SentRequest:
        """The request once more, with nothing new: for a function, of its own result."""

    def refused(self, words: str) -> SentRequest:
        """The request after the provider has refused the last one in these words. Ability: `refused`."""
        raise DeclinedError(f"cannot be told of a refusal ({words})")

    def original(self, index: int) -> Wire:
        """A message as it was given. Ability: `original`."""
        raise DeclinedError(f"cannot give message {index} back")

    def changed(self) -> int | None:
        """The index of a given message that the tool has changed; None for none. Ability: `given`."""
        return None

    def work(self, new: Sequence[Wire]) -> int:
        """`send`, and how many steps of the interpreter it took. Ability: `work`."""
        raise DeclinedError(f"cannot count its work for {len(new)} messages")

    def close(self) -> None:
        """End it."""
        return


class Target(ABC):
    """A tool under test."""

    name: str
    kind: str
    dialects: tuple[str, ...]
    abilities: frozenset[Ability]
    counts_alike: bool = False
    """Whether it counts by the suite's counter, so that its requests may not exceed the window by a token."""

    @abstractmethod
    def open(self, opening: Opening) -> SessionUnderTest:
        """A fresh session. Raises DeclinedError."""

    def ready(self) -> None:
        """Get ready for a session, which is not part of its time: a process that was ended is started again."""
        return

    def close(self) -> None:
        """End it: processes and servers that it has."""
        return


def sized(messages: Sequence[Wire], system: Json, dialect: str) -> SentRequest:
    """A request with its size by the suite's counter, which is `foldline.count`. Raises InvalidInput."""
    taken = tuple(messages)
    return SentRequest(taken, system, count(taken, dialect=dialect, system=system or None))
