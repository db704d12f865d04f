"""What of the past a recorded reply makes use of.

A fact is a string that stands for one thing: a path, a name out of code, a hash, a number, a ticket, a Chinese or
Japanese word. A reply refers to it when it names one that occurred before; the reference is met when the request that
is sent in the replay still shows it. The reply itself is the recorded one, so nothing has to be generated.

That a string is there says that a model could use it, not that it does: read the shares as upper bounds.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from foldline.codecs import Codec
from foldline.messages import Document, Image, Message, Opaque, Part, Reasoning, Text, ToolCall, ToolResult, Wire
from foldline.replay.turns import DISTANCES
from foldline.tokens import Counter, message_tokens

__all__ = ["FAR_MESSAGES", "FAR_TOKENS", "Lens", "Reference", "Seen", "facts", "references"]

FAR_TOKENS: Final = DISTANCES[1]
FAR_MESSAGES: Final = 4
"""A reference is far when its fact last stood so many tokens and so many messages back.

Both, for one result alone can be larger than 8,000 tokens. Nearer ones say little: every method keeps the last few
messages, and most references are to these.
"""

_SHORTEST: Final = 5
_KINDS: Final = {
    # A path begins where a run of its characters begins: without that, a long run without a slash takes time squared.
    "path": r"(?<![\w.~-])(?:[\w.~-]+/)+[\w.-]+",
    "dotted name": r"\b[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+\b",
    "snake_case": r"\b[A-Za-z]+(?:_[A-Za-z0-9]+)+\b",
    "camelCase": r"\b[a-z]+(?:[A-Z][a-z0-9]+)+\b",
    "PascalCase": r"\b(?:[A-Z][a-z0-9]+){2,}\b",
    "hash": r"\b[0-9a-f]{7,40}\b",
    "number": r"\b\d{4,}\b",
    "ticket": r"\b[A-Z0-9]{2,}-\d+\b",
    "reservation": r"\b[A-Z0-9]{6}\b",
}
_FACT: Final = re.compile("|".join(_KINDS.values()))
_EAST_ASIAN: Final = re.compile(r"[\u3400-\u9fff\u3040-\u30ff]{2,6}")


def facts(text: str) -> frozenset[str]:
    """The facts that a text names. O(size)."""
    found = {match.strip("-./") for match in _FACT.findall(text)}
    return frozenset(fact for fact in found if len(fact) >= _SHORTEST).union(_EAST_ASIAN.findall(text))


@dataclass(slots=True)
class Seen:
    """One wire message as a model sees it: its text with calls and results, and what was said outside of results."""

    wire: Wire
    role: str
    text: str
    spoken: str
    tokens: int
    _facts: frozenset[str] | None = None
    _lines: frozenset[str] | None = None

    @property
    def facts(self) -> frozenset[str]:
        """The facts in it; found once. O(size)."""
        if self._facts is None:
            self._facts = facts(self.text)
        return self._facts

    @property
    def lines(self) -> frozenset[str]:
        """Its lines without the blanks around them; split once. O(size)."""
        if self._lines is None:
            self._lines = frozenset(line.strip() for line in self.text.splitlines())
        return self._lines


class Lens:
    """Reads each wire message once, told apart by identity: what a policy leaves alone costs nothing again."""

    def __init__(self, codec: Codec, counter: Counter) -> None:
        self.codec = codec
        self.counter = counter
        self._seen: dict[int, Seen] = {}

    def look(self, wire: Wire) -> Seen:
        """What is in this message. O(size) the first time, then O(1)."""
        found = self._seen.get(id(wire))
        if found is None:  # `Seen` holds the message, so that its identity is not given to another one
            message = self.codec.read(wire)
            text, spoken = _flat(message.parts), _flat(p for p in message.parts if not isinstance(p, ToolResult))
            tokens = message_tokens(message, self.counter)
            found = self._seen[id(wire)] = Seen(wire, _role(message), text, spoken, tokens)
        return found

    def branch(self) -> Lens:
        """A lens that knows what this one knows; what it learns stays its own."""
        other = Lens(self.codec, self.counter)
        other._seen = dict(self._seen)
        return other


def _role(message: Message) -> str:
    only_results = bool(message.parts) and all(isinstance(part, ToolResult) for part in message.parts)
    return "tool" if only_results else message.role


def _flat(parts: Iterable[Part]) -> str:
    return "\n".join(map(_words, parts))


def _words(part: Part) -> str:
    match part:
        case Text(text) | Reasoning(text) | Document(_, _, text):
            return text
        case ToolCall(_, name, arguments):
            return f"{name} {arguments}"
        case ToolResult(_, inner):
            return _flat(inner)
        case Image():
            return "<image>"
        case Opaque(kind):
            return part.text or f"<{kind}>"


@dataclass(frozen=True, slots=True)
class Reference:
    """A fact that a recorded reply names and that occurred before.

    `back_tokens` is how far back it last stood, 0 less than four messages back. `line` is the whole line in which it
    did, known for far ones. `results_only`: it never stood outside of tool results, so that a summary of the talk
    cannot have it.
    """

    fact: str
    back_tokens: int
    line: str
    results_only: bool

    @property
    def far(self) -> bool:
        """Whether it last stood far back, in tokens and in messages."""
        return self.back_tokens >= FAR_TOKENS


def references(history: Sequence[Seen], replies: Sequence[range]) -> tuple[tuple[Reference, ...], ...]:
    """For each reply (the places of its messages) the references in it. O(size of the history)."""
    last: dict[str, tuple[int, int]] = {}
    spoken: set[str] = set()
    starts = {reply.start: reply for reply in replies}
    found: dict[int, tuple[Reference, ...]] = {}
    position = 0
    for place, seen in enumerate(history):
        reply = starts.get(place)
        if reply is not None:
            named = frozenset().union(*(history[index].facts for index in reply))
            met = sorted(fact for fact in named if fact in last)
            found[place] = tuple(_reference(f, last[f], (position, place), f in spoken, history) for f in met)
        position += seen.tokens
        for fact in seen.facts:
            last[fact] = (position, place)
        spoken |= seen.facts if seen.spoken == seen.text else facts(seen.spoken)
    return tuple(found[reply.start] for reply in replies)


def _reference(
    fact: str, last: tuple[int, int], now: tuple[int, int], spoken: bool, history: Sequence[Seen]
) -> Reference:
    back_tokens = now[0] - last[0] if now[1] - last[1] >= FAR_MESSAGES else 0
    far = back_tokens >= FAR_TOKENS
    lines = (line.strip() for line in history[last[1]].text.splitlines() if fact in line) if far else iter(())
    return Reference(fact, back_tokens, next(lines, ""), not spoken)
