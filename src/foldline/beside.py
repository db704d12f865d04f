"""What is sent beside the messages: system text, tool schemas, and system text that came where none may stand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from foldline.messages import Message, Text
from foldline.tokens import Counter, system_tokens, tools_tokens, wire_bytes
from foldline.transcript import Seq

__all__ = ["Beside", "System", "Tools"]

System: TypeAlias = str | Sequence[Mapping[str, Any]] | None
Tools: TypeAlias = Sequence[Mapping[str, Any]] | None


class Beside:
    """System text and tools of a request, weighed once for each change.

    `tokens` is their size, `size_bytes` that of a request body without messages. `system` is the text as it is sent:
    that of the caller, then what was moved here, in the order in which it came.
    """

    def __init__(self, system: System, tools: Tools, counter: Counter) -> None:
        self.tools = tools
        self._given, self._counter = system, counter
        self._moved: dict[Seq, Message] = {}
        self._weigh()

    def move(self, seq: Seq, message: Message) -> None:
        """Send the text of entry `seq` as system text. O(size of all of it)."""
        self._moved[seq] = message
        self._weigh()

    def leave(self, start: Seq) -> None:
        """Send no longer what was moved here from entry `start` on."""
        self._moved = {seq: message for seq, message in self._moved.items() if seq < start}
        self._weigh()

    def _weigh(self) -> None:
        self.system = self._joined()
        self.tokens = system_tokens(self.system, self._counter) + tools_tokens(self.tools, self._counter)
        self.size_bytes = wire_bytes({"system": self.system, "tools": self.tools, "messages": []})

    def _joined(self) -> System:
        texts = [part.text for message in self._moved.values() for part in message.parts if isinstance(part, Text)]
        if not texts:
            return self._given
        if self._given is None or isinstance(self._given, str):
            return "\n\n".join(([self._given] if self._given else []) + texts)
        return [*self._given, *({"type": "text", "text": text} for text in texts)]
