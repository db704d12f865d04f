"""Targets that each break one promise: contexts of Foldline with one fault."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import Any

from foldline.messages import Wire
from foldline_bench.promises.targets.foldline_itself import FoldlineContext

CHAT = ("openai-chat",)
MASKED = "[gone]"


class Sound(FoldlineContext):
    """No fault."""

    dialects: tuple[str, ...] = CHAT

    def prepare(self) -> Any:
        return self.edited([dict(wire) for wire in super().prepare().messages])

    def edited(self, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """The request with the fault."""
        return messages


class TooLarge(Sound):
    """Never folds."""

    def __init__(self, *, window: int, dialect: str, system: Any = None) -> None:
        super().__init__(window=100 * window, dialect=dialect, system=system)


class SaysNothing(Sound):
    """Sends something even where the user's words alone are too large."""

    def prepare(self) -> Any:
        try:
            return super().prepare()
        except Exception:  # noqa: BLE001 - the fault of this target
            return [{"role": "user", "content": "?"}]


class GivesUp(Sound):
    """Says that nothing fits as soon as there is something to fold."""

    def edited(self, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
        if len(messages) > 20:
            raise MemoryError("too much")
        return messages


class Invalid(Sound):
    """Loses the first result, and leaves its call."""

    def edited(self, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
        at = next((place for place, wire in enumerate(messages) if wire["role"] == "tool"), None)
        return messages if at is None else messages[:at] + messages[at + 1 :]


class ShortWords(Sound):
    """Cuts what the user says."""

    def edited(self, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [
            {**wire, "content": wire["content"][:20]}
            if wire["role"] == "user" and isinstance(wire["content"], str)
            else wire
            for wire in messages
        ]


class NoSystem(Sound):
    """Leaves the system text out."""

    def edited(self, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [wire for wire in messages if wire["role"] != "system"]


class NoPins(Sound):
    """Takes pins and forgets them."""

    def pin(self, index: int) -> None:
        del index


class Restless(Sound):
    """Numbers its requests in the first message."""

    count = 0

    def edited(self, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
        self.count += 1
        return [{**messages[0], "content": f"{messages[0]['content']} ({self.count})"}, *messages[1:]]


class Sliding(Sound):
    """Drops one message from the front with each request once there are many."""

    def __init__(self, *, window: int, dialect: str, system: Any = None) -> None:
        super().__init__(window=window, dialect=dialect, system=system)
        self.history: list[Wire] = []
        self.most = window // 200

    def append(self, message: Wire) -> None:
        super().append(message)
        self.history.append(message)

    def prepare(self) -> Any:
        return self.history[:2] + self.history[2:][-self.most :]


class Mutating(Sound):
    """Shortens the caller's own messages."""

    def append(self, message: Wire) -> None:
        super().append(dict(message))
        if message["role"] == "tool" and isinstance(message, dict):
            message["content"] = MASKED


class Forgetting(Sound):
    """Gives back something else."""

    def original(self, index: int) -> Wire:
        return {**super().original(index), "content": MASKED} if index == 7 else super().original(index)


class HalfParallel(Sound):
    """Masks every second result."""

    def edited(self, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
        tools = [wire for wire in messages if wire["role"] == "tool"]
        gone = {id(wire) for wire in tools[1::2]}
        return [{**wire, "content": MASKED} if id(wire) in gone else wire for wire in messages]


class NoErrors(Sound):
    """Tells the model that all is well."""

    def edited(self, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [
            {**wire, "content": "fine"} if wire["role"] == "tool" and "Error" in str(wire["content"]) else wire
            for wire in messages
        ]


class Unmarked(Sound):
    """Loses the mark of an error, and keeps its words."""

    dialects = ("anthropic",)

    def edited(self, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return json.loads(json.dumps(messages).replace(', "is_error": true', ""))  # type: ignore[no-any-return]


class NoImages(Sound):
    """Sends texts alone."""

    def edited(self, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [
            {**wire, "content": [block for block in wire["content"] if block["type"] == "text"]}
            if isinstance(wire.get("content"), list)
            else wire
            for wire in messages
        ]


class NoHuge(Sound):
    """Puts a line in place of every large result."""

    def append(self, message: Wire) -> None:
        large = message["role"] == "tool" and len(message["content"]) > 20_000
        super().append({**message, "content": MASKED} if large else message)


class HalfCharacters(Sound):
    """Cuts results in the bytes, as if each character had one."""

    def edited(self, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
        def cut(text: str) -> str:
            return text.encode()[:61].decode("utf-8", "replace")

        return [{**wire, "content": cut(wire["content"])} if wire["role"] == "tool" else wire for wire in messages]


class Surrogates(Sound):
    """Cuts results between the two halves of a pair of UTF-16."""

    def edited(self, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [
            {**wire, "content": f"{wire['content']}\ud83d"} if wire["role"] == "tool" else wire for wire in messages
        ]


class Raw(Sound):
    """Passes on what came, as long as it is small: no repair of anything."""

    def __init__(self, *, window: int, dialect: str, system: Any = None) -> None:
        super().__init__(window=window, dialect=dialect, system=system)
        self.history: list[Wire] = []

    def append(self, message: Wire) -> None:
        self.history.append(message)

    def pin(self, index: int) -> None:
        del index

    def prepare(self) -> Any:
        return list(self.history)


class Rereading(Sound):
    """Looks at the whole history for each request."""

    def __init__(self, *, window: int, dialect: str, system: Any = None) -> None:
        super().__init__(window=window, dialect=dialect, system=system)
        self.history: list[Wire] = []
        self.size = 0

    def append(self, message: Wire) -> None:
        super().append(message)
        self.history.append(message)

    def edited(self, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
        self.size = sum(sum(len(str(value)) for value in wire.values()) * 3 // 2 for wire in self.history * 20)
        return messages


class Deaf(Sound):
    """Does not listen to a refusal."""

    def refused(self, words: str) -> None:
        del words


class Fragile(Sound):
    """Gives up at the first refusal."""

    def refused(self, words: str) -> None:
        raise RuntimeError(words)


class Shrinking(Sound):
    """Folds again with each call, though nothing has come."""

    asked = 0
    known = 0

    def append(self, message: Wire) -> None:
        super().append(message)
        self.asked = 0

    def edited(self, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
        self.asked += 1
        return messages if self.asked == 1 else messages[:1] + messages[-2:]


class Hanging(Sound):
    """Never comes back once there is much."""

    def edited(self, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
        while len(messages) > 12:
            time.sleep(0.01)
        return messages


def dropping(messages: Sequence[Wire], window: int) -> list[Wire]:
    """A function that makes its own result smaller each time."""
    del window
    return list(messages[:1]) + list(messages[2:]) if len(messages) > 3 else list(messages)


def emptied(messages: list[Wire], window: int) -> list[Wire]:
    """A function that works in the caller's list."""
    del window
    kept = list(messages)
    del messages[1:]
    return kept


def texts(messages: Sequence[Wire], window: int) -> Any:
    """A function that returns no messages."""
    del window
    return "\n".join(str(message) for message in messages)


def one(messages: Sequence[Wire]) -> Sequence[Wire]:
    """A function without a window."""
    return messages


class Unprepared:
    """A class without `prepare`."""

    def __init__(self, window: int) -> None:
        self.window = window

    def append(self, message: Wire) -> None:
        """Take it."""


NUMBER = 7
