"""What a dialect must know: reading, writing and the shapes its provider accepts."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

from foldline.messages import Message, Opaque, Part, ToolCall, Wire

__all__ = ["Codec", "Sanitized", "Violation"]


@dataclass(frozen=True, slots=True)
class Violation:
    """One reason for which a provider would refuse the request; `index` is the message, None for the whole."""

    index: int | None
    rule: str
    detail: str
    source: str

    def __str__(self) -> str:
        where = "request" if self.index is None else f"message {self.index}"
        return f"{where}: {self.detail} [{self.rule}; {self.source}]"


@dataclass(frozen=True, slots=True)
class Sanitized:
    """A message as its provider takes it, taken by itself; None when nothing of it can be sent.

    `faults` names what was repaired, one short sentence each; empty when the message is the very one given.
    """

    message: Message | None
    faults: tuple[str, ...] = ()


class Codec(Protocol):
    """Reads and writes one dialect. Pure; every cost is O(size of the message)."""

    @property
    def dialect(self) -> str:
        """Its name, as the user gives it: "openai-chat", "openai-responses", "anthropic" or "gemini"."""

    @property
    def user_first(self) -> bool:
        """Whether the first message must be from the user (Anthropic)."""

    @property
    def system_inside(self) -> bool:
        """Whether system text may stand among the messages."""

    @property
    def itemised(self) -> bool:
        """Whether one model turn arrives as several items (Responses), so that neighbours form one group."""

    @property
    def unique_calls(self) -> bool:
        """Whether a call id may be used only once in a whole request (Anthropic; Responses: a call has one output)."""

    @property
    def one_turn(self) -> bool:
        """Whether a call of the model may not follow words of the model: both have to be one message (Gemini)."""

    def read(self, wire: Wire) -> Message:
        """The message that this JSON object stands for; `message.wire is wire`. Raises InvalidInput."""

    def write(self, message: Message) -> Wire:
        """The JSON object of a message: its own wire where it has one, else made from its parts."""

    def revise(self, message: Message, parts: Sequence[Part]) -> Message:
        """The same message with other parts: fields this package does not know, and the JSON of parts that are
        still among `parts` (same object), stay as they are. No parts at all gives the dialect's emptiest legal form."""

    def sanitize(self, message: Message, known: Collection[str] = ()) -> Sanitized:
        """What the provider would take of this message, seen alone (no pairing).

        A call may have a name of `known`, the tools beside the request, whatever that is.
        """

    def note(self, text: str, *, role: str = "user", kind: str = "notice") -> Message:
        """A message of our own: role "user", "assistant" or "system" (user where system may not stand inside)."""

    def answer(self, call: ToolCall, text: str) -> Message:
        """A message with one result of ours for a call that has none."""

    def stand_in(self, opened: Opaque, text: str) -> Message | None:
        """A message with a result of ours for a call that the provider ran and whose result never came; None where
        the call may stand without one."""

    def merge(self, messages: Sequence[Message]) -> Message | None:
        """One message out of several that carry results, where the dialect wants all results of a turn in one
        message (Anthropic), results first; None where each result stands alone."""

    def apart(self, results: Sequence[Message]) -> tuple[list[Message], Message | None]:
        """The messages with the results of a turn, and one of ours with what may not stand in them (None: nothing).

        Where results hold only text (Chat Completions) the images of all of them are shown to the model in a user
        message behind them.
        """
