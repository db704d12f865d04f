"""The facts of a recorded session, and which earlier ones each reply refers to.

A fact is a string that stands for one thing: a path, a name from code, a hash, a number, a ticket, a Chinese or
Japanese word. A reply refers to a fact when it names one that occurred before; a request meets the reference when it
still shows that fact. The reply is the recorded one, so nothing has to be generated.

What a request does not show, the agent has to read again. So each reference knows its source: the message that held the
fact last, and the line there.

A fact in a request shows that a model could use it, not that it does: read the shares as upper bounds.
"""

from __future__ import annotations

import re
from collections import Counter as Tally
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

from foldline.codecs import Codec, codec
from foldline.errors import InvalidInput
from foldline.messages import Document, Image, Message, Opaque, Part, Reasoning, Text, ToolCall, ToolResult, Wire
from foldline.recorded.sessions import Session
from foldline.replay.results import DISTANCES, HitCount, RecallCounts, Rereads
from foldline.tokens import ESTIMATE, Counter, message_tokens, system_tokens, tools_tokens

__all__ = [
    "FAR_MESSAGES",
    "FAR_TOKENS",
    "MeasuredMessage",
    "MeasuredSession",
    "MessageReader",
    "Reference",
    "facts",
    "met_references",
    "most_near_lines",
    "references",
]

FAR_TOKENS: Final = DISTANCES[1]
FAR_MESSAGES: Final = 4
"""A reference is far when its fact last occurred at least this many tokens and messages back.

Both, because one result alone can exceed 8,000 tokens. Nearer references say little: every method keeps the last few
messages, and most references are to these.
"""

_SYSTEM: Final = frozenset({"system", "developer"})

# Of three messages with nothing in them: a user's, a call and its result. No request has less.
_LEAST_TOKENS: Final = 12

_MIN_CHARS: Final = 5  # shorter strings recur by chance
_KINDS: Final = {
    # The lookbehind lets a path begin only where a run of its characters begins: else a long run without a slash
    # takes quadratic time.
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
# Chinese and Japanese have no spaces between words. Runs of two to six characters stand for words: a single character
# occurs everywhere, and a longer run is a sentence that nobody repeats.
_EAST_ASIAN: Final = re.compile(r"[\u3400-\u9fff\u3040-\u30ff]{2,6}")


def facts(text: str) -> frozenset[str]:
    """The facts that a text names. O(size)."""
    # Punctuation at the ends belongs to the sentence: "see a/b.py." and "a/b.py" name one file.
    found = {match.strip("-./") for match in _FACT.findall(text)}
    return frozenset(fact for fact in found if len(fact) >= _MIN_CHARS).union(_EAST_ASIAN.findall(text))


@dataclass(slots=True)
class MeasuredMessage:
    """One wire message as a model reads it: `text` with calls and results, `spoken` without results."""

    wire: Wire
    role: str
    text: str
    spoken: str
    tokens: int
    _facts: frozenset[str] | None = None
    _lines: frozenset[str] | None = None

    @property
    def facts(self) -> frozenset[str]:
        """The facts in the text, computed once. O(size)."""
        if self._facts is None:
            self._facts = facts(self.text)
        return self._facts

    @property
    def lines(self) -> frozenset[str]:
        """The stripped lines of the text, computed once. O(size)."""
        if self._lines is None:
            self._lines = frozenset(line.strip() for line in self.text.splitlines())
        return self._lines


class MessageReader:
    """Measures each wire message once, by identity: messages that a policy leaves alone cost nothing again."""

    def __init__(self, codec: Codec, counter: Counter) -> None:
        self.codec = codec
        self.counter = counter
        self._measured: dict[int, MeasuredMessage] = {}

    def read(self, wire: Wire) -> MeasuredMessage:
        """The measures of a message. O(size) the first time, then O(1)."""
        found = self._measured.get(id(wire))
        if found is None:  # the entry keeps the message alive, so no other object can get its id
            message = self.codec.read(wire)
            text, spoken = _flat(message.parts), _flat(p for p in message.parts if not isinstance(p, ToolResult))
            tokens = message_tokens(message, self.counter)
            found = self._measured[id(wire)] = MeasuredMessage(wire, _role(message), text, spoken, tokens)
        return found

    def copy(self) -> MessageReader:
        """A reader that starts with what this one has measured and shares nothing afterwards. O(messages)."""
        other = MessageReader(self.codec, self.counter)
        other._measured = dict(self._measured)
        return other


def _role(message: Message) -> str:
    # Anthropic and Gemini send results as messages of the user, which say nothing of what a user said.
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

    `source` is the place of the message with its last occurrence, and `line` the line there. `back_tokens` is the
    distance to it, 0 within four messages. `results_only`: the fact never occurred outside tool results, so a summary
    of the dialogue cannot contain it.
    """

    fact: str
    back_tokens: int
    line: str
    results_only: bool
    source: int

    @property
    def far(self) -> bool:
        """Whether the last occurrence is far back, in tokens and in messages."""
        return self.back_tokens >= FAR_TOKENS


def references(history: Sequence[MeasuredMessage], replies: Sequence[range]) -> tuple[tuple[Reference, ...], ...]:
    """The references of each reply, given as the range of its messages. O(size of the history)."""
    # The last occurrence, not the first: what was repeated lately is near, wherever it was said first.
    last: dict[str, tuple[int, int]] = {}
    spoken: set[str] = set()
    starts = {reply.start: reply for reply in replies}
    found: dict[int, tuple[Reference, ...]] = {}
    position = 0
    # One pass in order: a reply is compared with the facts before it, and adds its own only afterwards.
    for place, message in enumerate(history):
        reply = starts.get(place)
        if reply is not None:
            named = frozenset().union(*(history[index].facts for index in reply))
            met = sorted(fact for fact in named if fact in last)
            found[place] = tuple(_reference(f, last[f], (position, place), f in spoken, history) for f in met)
        position += message.tokens
        for fact in message.facts:
            last[fact] = (position, place)
        # Without results both texts are equal, and one search is enough.
        spoken |= message.facts if message.spoken == message.text else facts(message.spoken)
    return tuple(found[reply.start] for reply in replies)


def _reference(
    fact: str, last: tuple[int, int], now: tuple[int, int], spoken: bool, history: Sequence[MeasuredMessage]
) -> Reference:
    # Within the last few messages the distance in tokens says nothing: one large result moves everything before it far
    # back.
    back_tokens = now[0] - last[0] if now[1] - last[1] >= FAR_MESSAGES else 0
    return Reference(fact, back_tokens, _line_of(fact, history[last[1]].text), not spoken, last[1])


def _line_of(fact: str, text: str) -> str:
    """The first line with the fact, without the blanks around it. O(size)."""
    # Only the neighbourhood is split into lines: a result may have thousands, and each reference asks for one.
    at = text.find(fact)
    stop = text.find("\n", at)
    near = text[text.rfind("\n", 0, at) + 1 : len(text) if stop < 0 else stop]
    return next((line.strip() for line in near.splitlines() if fact in line), "")


def most_near_lines(
    references: Iterable[Reference], history: Sequence[MeasuredMessage], room_tokens: int, counter: Counter
) -> int:
    """The most near references whose whole lines a valid request could show. O(references · log references).

    `room_tokens` is what the limit leaves beside the system text and the tools. Lines of system messages are there
    anyway. Of the rest, less three empty messages, the request holds each line once, those that serve the most
    references per token first; of the line that no longer fits it holds a part. This is the linear bound of the
    knapsack problem, so no request shows more. It may be out of reach: what a provider or a user wants in a request
    beside these lines is not subtracted.
    """
    served: Tally[str] = Tally()
    free = 0
    for ref in references:
        if ref.far:
            continue
        if history[ref.source].role in _SYSTEM:
            free += 1
        else:
            served[ref.line] += 1
    # One token less for each line: alone it may count one more than inside a text.
    sizes = {line: max(0, counter.text(line) - 1) for line in served}
    left, held = float(max(0, room_tokens - _LEAST_TOKENS)), float(free)
    for line in sorted(served, key=lambda line: (sizes[line] / served[line], line)):
        if sizes[line] > left:
            held += served[line] * left / sizes[line]
            break
        left -= sizes[line]
        held += served[line]
    return int(held)


def met_references(
    references: Sequence[Reference],
    view: Sequence[MeasuredMessage],
    *,
    feasible: int,
    sizes_tokens: Callable[[int], int],
) -> tuple[RecallCounts, Rereads]:
    """How many of the references of a reply the request showed, and what has to be read again for the others.

    `feasible` is the result of `most_near_lines`, `sizes_tokens` the size of the message at a place.
    O(references · messages).
    """
    # From the newest message back: most references are to it. A fact counts as shown wherever the request has it, also
    # in a digest or a summary: that is what those are for.
    newest = view[::-1]
    shown = {ref.fact for ref in references if any(ref.fact in message.facts for message in newest)}
    whole = {ref.fact for ref in references if any(ref.line in message.lines for message in newest)}
    far = [ref for ref in references if ref.far]
    near = [ref for ref in references if not ref.far]
    near_lines = _kept(near, whole)
    counts = RecallCounts(
        all=_kept(references, shown),
        near=_kept(near, shown),
        near_line=near_lines,
        # A request over the limit may show more than is feasible. That is no merit.
        near_feasible=HitCount(min(near_lines.kept, feasible), feasible),
        far=_kept(far, shown),
        line=_kept(far, whole),
        far_tool=_kept([ref for ref in far if ref.results_only], shown),
        beyond=tuple(_kept([ref for ref in references if ref.back_tokens >= back], shown) for back in DISTANCES),
    )

    def lacking(there: Set[str]) -> tuple[int, ...]:
        return tuple(
            sizes_tokens(place) for place in sorted({ref.source for ref in references if ref.fact not in there})
        )

    return counts, Rereads(low=lacking(shown), high=lacking(whole))


def _kept(references: Sequence[Reference], shown: Set[str]) -> HitCount:
    return HitCount(sum(ref.fact in shown for ref in references), len(references))


class MeasuredSession:
    """A session, read and measured once for any number of replays. O(size of the session).

    `counter` counts every size. No policy can choose another, so that all policies are compared by one measure.
    """

    def __init__(self, session: Session, counter: Counter = ESTIMATE) -> None:
        self.session = session
        self.counter = counter
        self.codec = codec(session.dialect)
        self.reader = MessageReader(self.codec, counter)
        self.history = [self._measure(index) for index in range(len(session.messages))]
        self.replies = tuple(_replies(self.codec, self.history))
        self.references = references(self.history, self.replies)
        self.tools_tokens = tools_tokens(session.tools, counter)
        self._feasible: dict[int, tuple[int, ...]] = {}
        # System text and tools are part of every request, so they are part of the recorded size too.
        sizes = [message.tokens for message in self.history]
        self.tokens = sum(sizes) + self.tools_tokens + system_tokens(session.system, counter)

    def feasible_near_lines(self, limit_tokens: int) -> tuple[int, ...]:
        """`most_near_lines` of each reply, for requests of at most `limit_tokens`. O(references), once for a limit."""
        found = self._feasible.get(limit_tokens)
        if found is None:
            beside = self.tokens - sum(message.tokens for message in self.history)
            system = [message.tokens if message.role in _SYSTEM else 0 for message in self.history]
            spoken = list(accumulate(system, initial=beside))
            found = self._feasible[limit_tokens] = tuple(
                most_near_lines(refs, self.history, limit_tokens - spoken[reply.start], self.counter)
                for refs, reply in zip(self.references, self.replies, strict=True)
            )
        return found

    def _measure(self, index: int) -> MeasuredMessage:
        try:
            return self.reader.read(self.session.messages[index])
        except InvalidInput as error:
            inner = f": {error.place}" if error.place else ""
            raise InvalidInput(error.reason, place=f"message {index}{inner}") from error


def _replies(dialect: Codec, history: Sequence[MeasuredMessage]) -> Iterator[range]:
    """The ranges of the model's replies: each assistant message, or each run of items.

    Messages at the very beginning of a session answer nothing and are no reply.
    """
    # In itemised dialects (Responses) one reply is several items: text, reasoning and calls in a row. In the others
    # each assistant message answered a request of its own.
    start: int | None = None
    for index, message in enumerate(history):
        if message.role != "assistant":
            start = None
            continue
        if start is None or not dialect.itemised:
            start = index
            stop = index + 1
            while dialect.itemised and stop < len(history) and history[stop].role == "assistant":
                stop += 1
            if index:
                yield range(index, stop)
