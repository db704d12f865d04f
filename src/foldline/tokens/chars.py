"""Characters divided by four: the estimate of many agents, for users who want the same figures (S2.09)."""

from __future__ import annotations

from typing import Final, Protocol

from foldline.messages import Document, Image, Json, Message, Part, Reasoning, Text, ToolCall, ToolResult
from foldline.tokens.estimate import Counter

__all__ = ["CharsPerFour", "MessageCounter"]


class MessageCounter(Counter, Protocol):
    """A counter with its own rule for whole messages. No overhead is added to its counts."""

    def message(self, message: Message, /) -> int:
        """Count the tokens of one message. Never raises."""


class CharsPerFour:
    """ceil(characters / 4) of a message's text, thinking and tool-call arguments; an image is 1,200 tokens.

    These are the figures of the checkpoint system. Frames, roles and tool names are not counted, so short messages are
    underestimated. Reported usage replaces the counts that it covers, and does not scale the others.
    """

    # Not scaled: users of that system compare figures, and a ratio of ours would make them differ.
    scaled: Final = False
    name: Final = "characters / 4"
    CHARS_PER_TOKEN: Final = 4
    IMAGE_TOKENS: Final = 1_200

    def text(self, text: str, /) -> int:
        """ceil(characters / 4). O(1)."""
        return -(-len(text) // self.CHARS_PER_TOKEN)

    def message(self, message: Message, /) -> int:
        """ceil(characters of all parts / 4), rounded once for the whole message. O(parts)."""
        return -(-sum(map(self._chars, message.parts)) // self.CHARS_PER_TOKEN)

    def _chars(self, part: Part) -> int:
        match part:
            case Text(text=text) | Reasoning(text=text):
                return _length(text)
            case ToolCall(arguments=arguments):
                return _length(arguments)
            case Image():
                return self.IMAGE_TOKENS * self.CHARS_PER_TOKEN
            case ToolResult(parts=parts):
                return sum(map(self._chars, parts))
            case Document(text=text) if text:
                return _length(text)
            case _:
                return _length(part.raw)


def _length(value: Json) -> int:
    return len(value) if isinstance(value, str) else 0 if value is None else len(str(value))
