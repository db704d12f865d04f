"""What the adapters of several peers share: a counter of texts, an event loop, and the recorded messages by content."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar
from weakref import finalize

from foldline.messages import Wire
from foldline_bench.systems import Count

__all__ = ["Loop", "OriginalMessages", "fingerprint", "text_counter"]


def text_counter(count: Count) -> Callable[[str], int]:
    """Return a counter of texts, without the overhead of a message, for packages that count those.

    O(size), then O(1).
    """
    # Cached by content here: the counter of messages caches by identity, and a text has none that lasts.
    counted: dict[str, int] = {}
    around = count({"role": "user", "content": ""})

    def tokens(text: str) -> int:
        found = counted.get(text)
        if found is None:
            found = counted[text] = max(0, count({"role": "user", "content": text}) - around)
        return found

    return tokens


_T = TypeVar("_T")


class Loop:
    """The event loop in which a synchronous system calls an asynchronous package. It is closed with the system."""

    def __init__(self) -> None:
        # One loop for all calls, as packages keep objects that belong to the loop of the first one.
        self._loop = asyncio.new_event_loop()
        finalize(self, self._loop.close)

    def run(self, call: Coroutine[Any, Any, _T]) -> _T:
        """Run a coroutine to its end; its errors are raised."""
        return self._loop.run_until_complete(call)


def fingerprint(wire: Wire) -> str:
    """Return a text that is equal for equal messages. O(size)."""
    return json.dumps(wire, sort_keys=True, ensure_ascii=False)


class OriginalMessages:
    """The recorded messages by content. Of equal messages, the first stands for all."""

    # A request is judged by the recorded messages themselves: what a package passes on unchanged must come back as the
    # same object, also where the package works on copies.

    def __init__(self) -> None:
        self._read = 0
        self._by_content: dict[str, Wire] = {}

    def learn(self, history: Sequence[Wire]) -> None:
        """Add the messages that the history, which grows by appending, has gained. O(size of the new ones)."""
        for wire in history[self._read :]:
            self._by_content.setdefault(fingerprint(wire), wire)
        self._read = len(history)

    def of(self, wire: Wire) -> Wire:
        """Return the recorded message that equals this one, else this one. O(size)."""
        return self._by_content.get(fingerprint(wire), wire)
