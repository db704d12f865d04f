"""What was found in the texts of one session, kept while it may be needed again."""

from __future__ import annotations

from collections.abc import Iterable

from foldline.messages import Message
from foldline.text.identifiers import names
from foldline.text.recent import RecentValues
from foldline.text.sampling import Passages, alarms, passages_of
from foldline.tokens import Counter, lone_text

__all__ = ["TextMemory"]

# Messages whose lines are remembered: more than stand in the tail in which repeated lines are looked for.
_MOST_MESSAGES = 512

# Calls whose results may still come, and results that a second read may bring again: the newest are remembered. A
# shorter result is never cut.
_MOST_CALLS, _MOST_READS, _LONG_READ = 256, 8_192, 400


class TextMemory:
    """What was found in the texts of one session, kept while it may be needed again.

    A result is looked at several times: as it comes, and in each fold until it is gone. Texts of up to `most_chars`
    characters in all are remembered, twice as many at times.
    """

    def __init__(self, counter: Counter, most_chars: int = 262_144) -> None:
        self._counter = counter
        self._passages: RecentValues[Passages] = RecentValues(most_chars)
        self._names: RecentValues[frozenset[str]] = RecentValues(most_chars)
        self._alarms: RecentValues[bool] = RecentValues(most_chars)
        self._tokens: RecentValues[int] = RecentValues(most_chars)
        self._lines: dict[int, tuple[Message, frozenset[str]]] = {}
        self._calls: dict[str, int] = {}
        self._reads: dict[int, list[int]] = {}

    def note_reads(self, seq: int, message: Message, tokens: int) -> None:
        """Note the calls of a message of so many tokens, and the long results that it brings. O(size)."""
        for call in message.calls:
            if len(self._calls) >= _MOST_CALLS:
                del self._calls[next(iter(self._calls))]
            # A call without arguments ("next_page") brings something else each time.
            bare = call.arguments.strip() in ("", "{}")
            self._calls[call.id] = 0 if bare else hash((call.name, call.arguments))
        if message.results and (counted := lone_text(message, tokens, self._counter)) is not None:
            self._tokens.keep(*counted)
        for result in message.results:
            text, called = result.text, self._calls.get(result.call_id, 0)
            if called and len(text) >= _LONG_READ:
                if len(self._reads) >= _MOST_READS:
                    del self._reads[next(iter(self._reads))]
                self._reads.setdefault(hash((called, text)), []).append(seq)

    def earlier_reads(self, seq: int, call: str, arguments: str, text: str) -> int:
        """Return how often the same call had brought the same long text before message `seq`."""
        # By hash, not by the entries: folded ones may have been released, and no request may depend on that.
        reads = self._reads.get(hash((hash((call, arguments)), text)), ())
        return sum(earlier < seq for earlier in reads)

    def lines_of_each(self, messages: Iterable[Message]) -> list[frozenset[str]]:
        """Return the lines of the results of each message, without blanks around them. O(size) once for each."""
        out: list[frozenset[str]] = []
        for message in messages:
            # By identity: a message is a value that never changes, and to hash one would read all of it.
            found = self._lines.get(id(message))
            if found is None or found[0] is not message:
                if len(self._lines) >= _MOST_MESSAGES:
                    self._lines = dict(list(self._lines.items())[_MOST_MESSAGES // 2 :])
                texts = [result.text for result in message.results]
                found = self._lines[id(message)] = message, frozenset(map(str.strip, "\n".join(texts).splitlines()))
            out.append(found[1])
        return out

    def lines(self, message: Message) -> frozenset[str]:
        """Return the lines of the results of a message. O(size) once."""
        return self.lines_of_each((message,))[0]

    def passages(self, text: str) -> Passages:
        """Return the passages of a text that is scored as a whole. O(size) once."""
        found = self._passages.get(text)
        if found is None:
            found = self._passages.keep(text, passages_of(text))
        return found

    def names(self, text: str) -> frozenset[str]:
        """Return the names in a text. O(size) once."""
        found = self._names.get(text)
        if found is None:
            found = self._names.keep(text, names(text))
        return found

    def alarms(self, text: str) -> bool:
        """Whether an error message stands in a text. O(size) once."""
        found = self._alarms.get(text)
        if found is None:
            found = self._alarms.keep(text, alarms(text))
        return found

    def tokens(self, text: str) -> int:
        """Return the tokens of a text. O(size) once."""
        found = self._tokens.get(text)
        if found is None:
            found = self._tokens.keep(text, self._counter.text(text))
        return found
