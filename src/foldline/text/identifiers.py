"""The names in a text: paths, identifiers, numbers, error names. A later step needs them to find things again.

Shortening keeps the lines of a long text that contain names, above all names that the user or the agent has used.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from functools import cache, lru_cache
from typing import Final

from foldline.messages import Message, Opaque

__all__ = ["ALARM", "NameCounts", "names", "names_of_each"]

MOST_NAMES = 16_384
"""Names counted per session, a few MiB: a session of months uses ever new ones."""

# Each kind starts only where a run of its characters starts, so that a run is scanned once. Otherwise a line of data
# (base64, minified code) costs the square of its length.
_NAME: Final = (
    r"(?<![\w.~@/-])(?:[\w.~@-]*+/)+[\w.@-]+"  # paths and URLs without their scheme
    r"|(?<!\w)[A-Za-z_]\w*+(?:\.\w++)+"  # dotted names, file.ext
    r"|(?<![A-Za-z0-9])[A-Za-z0-9]++(?:[_-][A-Za-z0-9]++)+"  # snake_case, kebab-case, ticket ids
    r"|\b[0-9a-f]{7,40}\b|\b\d{4,}\b|\b[A-Z0-9]{6}\b"  # hashes, numbers, codes
    r"|(?<![a-z])[a-z]++(?:[A-Z][a-z0-9]*+)+|(?:[A-Z][a-z0-9]++){2,}"  # camelCase, ErrorNames
    r"|[\u3040-\u30ff\u3400-\u9fff]{2,6}"  # words of scripts without spaces, roughly
)

# A blank for each ASCII character that is in no name, except line ends. What stands between blanks is a run. No name
# crosses the ends of a run, so runs can be cached one by one.
_BLANKS: Final = bytes(
    code if code >= 0x80 or chr(code) == "\n" or chr(code).isalnum() or chr(code) in "_.~@/-" else ord(" ")
    for code in range(256)
)


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    # At first use: the wide classes take a millisecond each to compile, and most processes that import this never fold.
    return re.compile(pattern)


# Characters of a run up to which its names are cached. A longer run is data, or a path that occurs once.
_LONG = 64

# Characters scanned in one text: a line longer than this is data without names.
_MOST = 20_000

ALARM = re.compile(
    r"\b(?=[etfpdnucaw])(?:error|errors|exception|traceback|failed|failure|fatal|panic|denied|not found|undefined"
    r"|cannot|assert\w*|warning)\b",
    re.IGNORECASE,
)
"""Words of error messages. The look-ahead at the first letter halves the time of the search."""


# Characters of a text up to which it is cached with its names. A longer text is a whole result: the process-wide cache
# must not keep it after its session, and most of its runs are cached anyway.
_CACHED_CHARS = 400


def names(text: str) -> frozenset[str]:
    """Return the names in a text, without edge punctuation, of five characters or more (two for CJK). O(size)."""
    return _of_line(text) if len(text) <= _CACHED_CHARS else _of_text(text)


def names_of_each(lines: Iterable[str]) -> list[frozenset[str]]:
    """Return the names in each line, at a tenth of the time that `names` takes for one after the other. O(size)."""
    lines = list(lines)
    apart = _runs_apart("\n".join(lines))
    of_run = _OF_RUN.__getitem__
    named = {run: found for run in set(apart.split()) if (found := of_run(run))}
    runs, each, out, at = named.keys(), named.__getitem__, [], 0
    for line in lines:
        here = runs & apart[at : at + len(line)].split()
        at += len(line) + 1
        out.append((_NO_NAMES.union(*map(each, here)) if len(here) > 1 else each(here.pop())) if here else _NO_NAMES)
    return out


_NO_NAMES: Final = frozenset[str]()


def _of_text(text: str) -> frozenset[str]:
    runs = set(_runs_apart(text[:_MOST]).split())  # a set, because most words of a text occur many times
    return _NO_NAMES.union(*map(_OF_RUN.__getitem__, runs))


def _runs_apart(text: str) -> str:
    """Return a text with a blank in place of each ASCII character that is in no name. O(size), at the speed of C."""
    return text.encode("utf-8", "surrogatepass").translate(_BLANKS).decode("utf-8", "surrogatepass")


def _found(run: str) -> frozenset[str]:
    return frozenset(
        name
        for found in _compiled(_NAME).findall(run)
        if len(name := found.strip(".-/")) >= 5 or (name and name[0] > "\u3000")
    )


_of_line = lru_cache(maxsize=8_192)(_of_text)  # each fold scans the lines of a digest again


class _NamesOfRuns(dict[str, frozenset[str]]):
    """The names of the runs seen lately, which `__getitem__` finds for a new one. Twice `_RUNS` are kept at most."""

    def __init__(self) -> None:
        self._old: dict[str, frozenset[str]] = {}

    def __missing__(self, run: str) -> frozenset[str]:
        found = self._old.get(run)
        if found is None:
            # Most runs are words in small letters, which need no search.
            plain = run.isascii() and (len(run) < 5 or (run.islower() and run.isalpha()))
            found = _NO_NAMES if plain else _found(run) or _NO_NAMES
        if len(run) <= _LONG:
            if len(self) >= _RUNS:
                self._old = dict(self)
                self.clear()
            self[run] = found
        return found


_RUNS: Final = 16_384
_OF_RUN: Final = _NamesOfRuns()


class NameCounts:
    """Counts how often the messages of a session use each name.

    Messages are counted when the counts are read, because most requests fold nothing. With more than `MOST_NAMES`
    names, the rarest are forgotten.
    """

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._pending: list[Message] = []

    def add(self, message: Message) -> None:
        """Add a message, to be counted at the next reading. O(1)."""
        self._pending.append(message)

    @property
    def counts(self) -> Counter[str]:
        """The count of each name. O(messages added since the last reading)."""
        if self._pending:
            self.count()
        return self._counts

    def count(self) -> None:
        """Count the pending messages and release them."""
        for message in self._pending:
            self._counts.update(names(message.text))
            for call in message.calls:
                self._counts.update(names(call.arguments))
            for part in message.parts:
                if isinstance(part, Opaque):
                    self._counts.update(names(part.words.arguments))
            if len(self._counts) > MOST_NAMES:
                self._counts = Counter(dict(self._counts.most_common(MOST_NAMES // 2)))
        self._pending.clear()
