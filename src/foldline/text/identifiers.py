"""The names in a text: paths, identifiers, numbers, error names. They are what a later step needs to find again.

Used to decide which lines of a long text stay when it is shortened: lines that bring names, most of all names that the
user or the agent used themselves.
"""

from __future__ import annotations

import re
from collections import Counter
from functools import lru_cache

from foldline.messages import Message, Opaque

__all__ = ["ALARM", "SpokenNames", "names"]

MOST_NAMES = 16_384
"""Names that are remembered, a few MiB of them: a session of months uses ever new ones."""

# Each kind begins only where a run of its characters begins, so that a run is looked at once: without that a line of
# data (base64, minified code) costs the square of its length.
_NAME = re.compile(
    r"(?<![\w.~@/-])(?:[\w.~@-]*+/)+[\w.@-]+"  # paths and URLs without their scheme
    r"|(?<!\w)[A-Za-z_]\w*+(?:\.\w++)+"  # dotted names, file.ext
    r"|(?<![A-Za-z0-9])[A-Za-z0-9]++(?:[_-][A-Za-z0-9]++)+"  # snake_case, kebab-case, ticket ids
    r"|\b[0-9a-f]{7,40}\b|\b\d{4,}\b|\b[A-Z0-9]{6}\b"  # hashes, numbers, codes
    r"|(?<![a-z])[a-z]++(?:[A-Z][a-z0-9]*+)+|(?:[A-Z][a-z0-9]++){2,}"  # camelCase, ErrorNames
    r"|[\u3040-\u30ff\u3400-\u9fff]{2,6}"  # words of scripts without blanks, roughly
)
_RUN = re.compile(r"[\w.~@/\u3040-\u30ff\u3400-\u9fff-]{2,}+")
"""Characters that names are made of: no name reaches over the end of such a run, nor looks behind its beginning."""

_LONG = 64
"""Characters of a run up to which its names are remembered; a longer one is data, or a path that stands there once."""

_MOST = 20_000
"""Characters looked at in one text: a line longer than this is data, not names."""

ALARM = re.compile(
    r"\b(?=[etfpdnucaw])(?:error|errors|exception|traceback|failed|failure|fatal|panic|denied|not found|undefined"
    r"|cannot|assert\w*|warning)\b",
    re.IGNORECASE,
)
"""Words of lines that say what went wrong. Looking at the first letter alone before the words halves its time."""


_REMEMBERED = 400
"""Characters of a text up to which its names are remembered, and the text with them. Longer ones are whole results:
they are not to outlive their session, and most of their runs are known anyway.
"""


def names(text: str) -> frozenset[str]:
    """The names in a text, without edge punctuation, of five characters or more (two for CJK). O(size)."""
    return _of_line(text) if len(text) <= _REMEMBERED else _of_text(text)


def _of_text(text: str) -> frozenset[str]:
    runs = set(_RUN.findall(text[:_MOST]))  # most words of a text stand in it, or in the ones before, many times
    return frozenset[str]().union(*(_of_run(run) if len(run) <= _LONG else _found(run) for run in runs))


def _found(run: str) -> frozenset[str]:
    return frozenset(
        name for found in _NAME.findall(run) if len(name := found.strip(".-/")) >= 5 or (name and name[0] > "\u3000")
    )


_of_line = lru_cache(maxsize=8_192)(_of_text)  # lines of a digest are looked at again at every fold
_of_run = lru_cache(maxsize=16_384)(_found)


class SpokenNames:
    """How often the messages of a session use each name.

    Messages are counted when the counts are read: most requests fold nothing. The rarest names are forgotten once there
    are more than `MOST_NAMES`.
    """

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._waiting: list[Message] = []

    def add(self, message: Message) -> None:
        """Have a message counted at the next reading. O(1)."""
        self._waiting.append(message)

    @property
    def counts(self) -> Counter[str]:
        """The count of each name. O(messages added since the last reading)."""
        self.count()
        return self._counts

    def count(self) -> None:
        """Count the messages that wait, and let go of them."""
        for message in self._waiting:
            self._counts.update(names(message.text))
            for call in message.calls:
                self._counts.update(names(call.arguments))
            for part in message.parts:
                if isinstance(part, Opaque):
                    self._counts.update(names(part.saying.arguments))
            if len(self._counts) > MOST_NAMES:
                self._counts = Counter(dict(self._counts.most_common(MOST_NAMES // 2)))
        self._waiting.clear()
