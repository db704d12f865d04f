"""The conversations in memory: found by the chain of their messages, the longest unused let go of first."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from foldline.conversations.conversation import Conversation
from foldline.conversations.persistence import LateArchive

__all__ = ["Held", "Known", "Match", "common"]

_LINKS_BYTES: Final = 500
"""What the links of one message take: two of them, two places in a table, and who is found by them."""


@dataclass(slots=True, eq=False, weakref_slot=True)
class Held:
    """A conversation in memory, with what it is found by.

    `beside` is a hash of model, system text and tools of its first request, `beside_newest` of its last one, and
    `sight_newest` of them alone, without the model. `name` is
    what its client called it, and `keys` are those by which the store leads to it, as far as is known here; `kept` says
    whether it belongs there at all.
    Whoever works on it has its `lock`.
    """

    conversation: Conversation
    archive: LateArchive
    beside: bytes
    beside_newest: bytes = b""
    sight_newest: bytes = b""
    name: str = ""
    keys: set[str] = field(default_factory=set)
    kept: bool = False
    exact: list[bytes] = field(default_factory=list)
    tolerant: list[bytes] = field(default_factory=list)
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    weight_bytes: int = 0
    """What it weighed when it was last used."""
    owes: bool = False
    """Whether something of it could not be written down: it is tried again with the next request."""
    truncated: str = ""
    """Why the upstream is thought to have cut its last prompt, until its client was told."""
    doubted: bool = False
    """Whether what was reported for its last request cannot be true."""


@dataclass(frozen=True, slots=True)
class Match:
    """A conversation that shares the first `depth` messages with a request."""

    held: Held
    depth: int

    @property
    def goes_on(self) -> bool:
        """Whether the request begins with all of it."""
        return self.depth == len(self.held.exact)


class Known:
    """Conversations by the links of their chains, at most `most_bytes` of them (and one, however large).

    Each is reached by what only it has, and by what it shares with others as long as it is there.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._all: OrderedDict[int, Held] = OrderedDict()
        self._by_link: dict[bytes, list[Held]] = {}
        self.bytes = 0
        """What those in memory weighed when they were last used."""

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[Held]:
        return iter(list(self._all.values()))

    def __contains__(self, held: Held) -> bool:
        return id(held) in self._all

    def match(
        self,
        exact: Sequence[bytes],
        tolerant: Callable[[], Sequence[bytes]],
        beside: bytes = b"",
        *,
        model: str | None = None,
    ) -> Match | None:
        """The conversation with the longest beginning in common, or None. O(messages) of look-ups.

        Of several with the same one, it is that with the same `beside` if there is one, then the newest; and one with
        the same `beside` that the request begins with all of comes before longer ones with another: those may be side
        questions to another model. (Where they are with the same `model` they are not: clients offer other tools from
        turn to turn.) The tolerant chain is made only when the exact one leads to the end of none.
        """
        first = self._longest(exact, beside)
        if first is not None and first.held.beside != beside and first.held.conversation.model != model:
            own = self._own(exact, beside)
            if own is not None:
                return own
        if first is not None and first.goes_on:
            return first
        second = self._longest(tolerant(), beside)
        return second if first is None or (second is not None and second.depth > first.depth) else first

    def put(self, held: Held, exact: Sequence[bytes], tolerant: Sequence[bytes]) -> list[Held]:
        """Have a conversation be found by these chains from now on; returns those that had to go for it. O(new)."""
        if held not in self:
            held.exact, held.tolerant = [], []
        self._follow(held, held.exact, exact)
        self._follow(held, held.tolerant, tolerant)
        before = held.weight_bytes if held in self else 0
        held.weight_bytes = held.conversation.weight_bytes + _LINKS_BYTES * len(exact)
        self.bytes += held.weight_bytes - before
        self._all[id(held)] = held
        self._all.move_to_end(id(held))
        gone = []
        while self.bytes > self._most_bytes and len(self._all) > 1:
            oldest = next(iter(self._all.values()))
            self.drop(oldest)
            gone.append(oldest)
        return gone

    def drop(self, held: Held) -> None:
        """Forget a conversation. O(its messages)."""
        if self._all.pop(id(held), None) is None:
            return
        self.bytes -= held.weight_bytes
        self._forget(held, held.exact)
        self._forget(held, held.tolerant)

    # --- inside ------------------------------------------------------------------------------------------------------

    def _longest(self, links: Sequence[bytes], beside: bytes) -> Match | None:
        for depth in range(len(links), 0, -1):
            found = self._by_link.get(links[depth - 1])
            if found:
                ends = next((held for held in reversed(found) if len(held.exact) == depth), found[-1])
                return Match(next((held for held in reversed(found) if held.beside == beside), ends), depth)
        return None

    def _own(self, links: Sequence[bytes], beside: bytes) -> Match | None:
        """The longest conversation with the same `beside` that a request begins with all of."""
        for depth in range(len(links), 0, -1):
            for held in reversed(self._by_link.get(links[depth - 1], ())):
                if held.beside == beside and len(held.exact) == depth:
                    return Match(held, depth)
        return None

    def _follow(self, held: Held, old: list[bytes], new: Sequence[bytes]) -> None:
        """Change the links of a conversation from the first that differs on: one link holds all before it."""
        same = common(old, new)
        self._forget(held, old[same:])
        del old[same:]
        for link in new[same:]:
            self._by_link.setdefault(link, []).append(held)
            old.append(link)

    def _forget(self, held: Held, links: Sequence[bytes]) -> None:
        for link in links:
            found = self._by_link[link]
            found.remove(held)
            if not found:
                del self._by_link[link]


def common(one: Sequence[bytes], other: Sequence[bytes]) -> int:
    """How many leading links two chains have in common. O(log): a link holds all before it."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[middle - 1] == other[middle - 1]:
            low = middle
        else:
            high = middle - 1
    return low
