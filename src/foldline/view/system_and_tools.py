"""The system text and tools of a request, with system text that came among the messages and may not stand there.

Every piece is counted once, when it comes: a system text of many pages is sent with every request.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

from foldline.codecs.limits import tool_names
from foldline.messages import Message, Text, Wire
from foldline.tokens import Counter, system_tokens, tools_tokens, wire_bytes
from foldline.view.tool_sizes import ToolSize, tool_sizes
from foldline.view.transcript import Seq

__all__ = ["System", "SystemAndTools", "Tools"]

System: TypeAlias = str | Sequence[Mapping[str, Any]] | None
Tools: TypeAlias = Sequence[Mapping[str, Any]] | None

# A blank line, as templates set between paragraphs of system text: two texts must not read as one sentence.
_BETWEEN: Final = "\n\n"


class SystemAndTools:
    """System text and tools of a request.

    `tokens` is their size: the caller's text plus each text moved here, with the blank line before it (joined, they are
    a few tokens smaller). System messages that replace those at the start of the log count by the difference.
    """

    def __init__(self, system: System, tools: Tools, counter: Counter) -> None:
        self.tools = tools
        self._given, self._counter = system, counter
        self._moved: dict[Seq, tuple[str, ...]] = {}
        self._system: System = system
        self._size_bytes: int | None = None
        self._named: Tools = None
        self._tool_names: frozenset[str] = frozenset()
        self._sized: Tools = None
        self._sizes: tuple[ToolSize, ...] = ()
        self._current = True
        self._sent: System = system
        self._given_tokens = system_tokens(system, counter) + tools_tokens(tools, counter)
        self.tokens = self._given_tokens
        self.leading: Sequence[Wire] = ()
        self._led, self._more_tokens, self._more_bytes = False, 0, 0

    @property
    def system(self) -> System:
        """The text as sent: the caller's, then the texts moved here, in order. O(its size) once for each change."""
        if not self._current:
            self._system, self._current = self._joined(), True
        return self._system

    @property
    def size_bytes(self) -> int:
        """Bytes of a request body without messages. O(its size) once for each change."""
        # Serialising the tools is the expensive part, and they hardly ever change in a session.
        if self._size_bytes is None:
            self._size_bytes = wire_bytes({"system": self.system, "tools": self.tools, "messages": []})
        return self._size_bytes + self._more_bytes

    @property
    def tool_names(self) -> frozenset[str]:
        """The names of the tools, whatever the dialect. O(tools) once for each change."""
        if self._named is not self.tools:
            self._named, self._tool_names = self.tools, frozenset(tool_names(self.tools))
        return self._tool_names

    @property
    def tool_sizes(self) -> tuple[ToolSize, ...]:
        """The size of each tool definition. O(tools) once for each change."""
        if self._sized is not self.tools:
            self._sized, self._sizes = self.tools, tool_sizes(self.tools, self._counter)
        return self._sizes

    def update(self, system: System, tools: Tools) -> bool:
        """Replace the caller's system text and tools; returns whether they differ. O(size)."""
        # Clients send the same text and tools with every request: comparing them is cheaper than counting them.
        if system == self._given and tools == self.tools:
            return False
        self.tools, self._given = tools, system
        self._changed()
        self._given_tokens = system_tokens(system, self._counter) + tools_tokens(tools, self._counter)
        self._weigh()
        return True

    def set_leading(self, leading: Sequence[Wire], more_tokens: int, more_bytes: int) -> bool:
        """Send these system messages in place of those at the start of the log, which are smaller by `more_tokens`.

        Returns whether that changes the size. O(1).
        """
        # Replacing such messages changes the beginning of the prefix: `render` reports that once.
        self._led = self._led or bool(self.leading)
        same = (more_tokens, more_bytes) == (self._more_tokens, self._more_bytes)
        self.tokens += more_tokens - self._more_tokens
        self.leading, self._more_tokens, self._more_bytes = leading, more_tokens, more_bytes
        return not same

    def append_text(self, seq: Seq, message: Message) -> None:
        """Append the text of entry `seq` to the system text. O(size of the message)."""
        # Kept by entry, so that a fork takes back the texts of its branch, and only those.
        texts = tuple(part.text for part in message.parts if isinstance(part, Text))
        self._changed()
        self.tokens += self._weight(texts, first=not self._given and not any(self._moved.values()))
        self._moved[seq] = texts

    def drop_from(self, start: Seq) -> None:
        """Remove the texts moved here from entry `start` on. O(size of what stays)."""
        staying = {seq: texts for seq, texts in self._moved.items() if seq < start}
        if len(staying) == len(self._moved):
            return  # most forks leave no system text behind, and the cached text stays the same object
        self._changed()
        self._moved = staying
        self._weigh()

    def render(self) -> tuple[System, bool]:
        """The system text of the next request, and whether it equals that of the last one (or is the first)."""
        before, self._sent = self._sent, self.system
        led, self._led = self._led, False
        # By identity first: the text is often many kilobytes, and unchanged it is the same object.
        return self._sent, not led and (before is self._sent or before == self._sent)

    def _weight(self, texts: Sequence[str], *, first: bool) -> int:
        """Tokens that texts add to the system text; `first` when it is empty before them."""
        if not texts:
            return 0
        # Blocks of a list stand apart by themselves; only in one string is a blank line added.
        before = _BETWEEN if self._given is None or isinstance(self._given, str) else ""
        tokens = sum(self._counter.text(f"{before}{text}") for text in texts[1 if first else 0 :])
        return tokens + (system_tokens(texts[0], self._counter) if first else 0)

    def _weigh(self) -> None:
        """Count everything anew: the caller's text, the leading messages and the moved texts."""
        self.tokens, first = self._given_tokens + self._more_tokens, not self._given
        for texts in self._moved.values():
            self.tokens += self._weight(texts, first=first)
            first = first and not texts

    def _changed(self) -> None:
        self._current, self._size_bytes = False, None

    def _joined(self) -> System:
        texts = [text for moved in self._moved.values() for text in moved]
        if not texts:
            return self._given
        if self._given is None or isinstance(self._given, str):
            return _BETWEEN.join(([self._given] if self._given else []) + texts)
        return [*self._given, *({"type": "text", "text": text} for text in texts)]
