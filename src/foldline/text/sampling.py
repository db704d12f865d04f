"""The pieces of a text that shortening scores: lines, with short lines joined and long lines split.

A piece costs more than its characters. So only some sections of a text of megabytes are scored: its ends, samples at
even distances between them, and each position of an error message or of a frequently used name.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import Counter as Spread
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, chain, islice
from types import MappingProxyType
from typing import Final, NamedTuple

from foldline.text.identifiers import ALARM, names, names_of_each
from foldline.text.recent import RecentValues

__all__ = [
    "FULLY_SCORED_CHARS",
    "LEAST_WEIGHT",
    "Passages",
    "alarms",
    "passages_of",
    "pieces",
    "scored_whole",
]

FULLY_SCORED_CHARS: Final = 400_000
"""Characters of a text up to which all of it is scored: five to ten times what any window shows of one text."""

LEAST_WEIGHT: Final = 2
"""The weight of an empty piece."""

ALARMING, DEFINING = 4, 4
"""The additional worth of a piece with an error message, and of one with a definition."""

# A definition in code, behind the line number of a listing.
_DEFINES = re.compile(
    r"^[\s\d:|]*(?:async\s+|export\s+|public\s+|private\s+|static\s+)*"
    r"(?:def|class|function|func|fn|interface|struct|enum|type|const|create|CREATE)\b"
)

# Characters of each end of a longer text, and of each sample between them. A sample has neighbouring lines.
_END, _SAMPLE = 100_000, 2_000

# Longer lines are split into pieces of this size: one line of JSON may hold a whole result.
_WIDE = 400

# In a text with more lines, short lines are joined up to the size of a wide one. Lines with an error message or a
# frequently used name stay separate.
_MANY = 10_000

# Characters searched for names in total: the larger the text, the fewer names are searched for.
_SEARCHED = 32_000_000

# Names searched for, positions of each (a name that is everywhere distinguishes no line), and positions of alarms.
_NAMES, _PLACES, _ALARMS = 100, 20, 500

# The words with which a match of ALARM starts. Searching for each in turn takes a tenth of the time of the pattern.
_ALARM_WORDS: Final = (
    "error", "exception", "traceback", "failed", "failure", "fatal", "panic", "denied", "not found", "undefined",
    "cannot", "assert", "warning",
)  # fmt: skip


def scored_whole(text: str) -> bool:
    """Whether the pieces of a text depend on nothing but the text. O(size) at the speed of C."""
    return len(text) <= FULLY_SCORED_CHARS and text.count("\n") < _MANY


def pieces(text: str, name_counts: Mapping[str, int], pinned: Collection[str]) -> list[tuple[int, str]]:
    """Return (number, text) of the scored pieces, in order. A gap in the numbers is a gap in the text.

    Frequently used names (`name_counts`) and lines in `pinned` are found anywhere. O(size) for the searches, which run
    at the speed of C, and O(`FULLY_SCORED_CHARS`) for the rest.
    """
    long = len(text) > FULLY_SCORED_CHARS
    many = text.count("\n") >= _MANY
    alone = _notable(text, name_counts, pinned) if long or many else []
    out: list[tuple[int, str]] = []
    number = 0
    for start, stop in _sections(text, alone) if long else [(0, len(text))]:
        for piece in _lines(text, start, stop, alone if many else None):
            out.append((number, piece))
            number += 1
        number += 1  # the text between two sections is skipped
    return out


class ScoredPiece(NamedTuple):
    """What scoring needs of a piece, except what depends on its text and the session."""

    names: frozenset[str]
    worth: int
    """That of an error message and of a definition."""
    weight: int
    """About its tokens: to count each one would cost far more."""
    lines: int
    divisor: float
    """What the worth of each line is divided by: a short line is better than a long one with the same names."""


class Passages(NamedTuple):
    """The pieces of a text, numbered as `pieces` does."""

    numbers: Sequence[int]
    texts: Sequence[str]
    pieces: Sequence[ScoredPiece]
    total_weight: int
    worthy: Sequence[int]
    """The places of the pieces with a name, an error message or a definition."""
    spread: Mapping[str, int]
    """Of each name, how many pieces have it."""


def passages_of(
    text: str, name_counts: Mapping[str, int] = MappingProxyType({}), pinned: Collection[str] = ()
) -> Passages:
    """Return the scored pieces of a text. O(size)."""
    if len(text) <= _WIDE and "\n" not in text:
        return _of_one_line(text)
    numbers: Sequence[int]
    if scored_whole(text) and len(max(texts := text.split("\n"), key=len)) <= _WIDE:
        numbers = range(len(texts))
    else:
        found = pieces(text, name_counts, pinned)
        numbers, texts = [number for number, _ in found], [piece for _, piece in found]
    lines = list(map(_KNOWN.get, texts))
    if None in lines:
        unknown = list(dict.fromkeys([text for text, line in zip(texts, lines, strict=True) if line is None]))
        new = dict(zip(unknown, _read(unknown), strict=True))
        for line, piece in new.items():
            _KNOWN.keep(line, piece)
        lines = [new[text] if line is None else line for text, line in zip(texts, lines, strict=True)]
    read = [line for line in lines if line is not None]
    worthy = [place for place, piece in enumerate(read) if piece.names or piece.worth]
    spread = Spread(chain.from_iterable([read[place].names for place in worthy]))
    return Passages(numbers, texts, read, sum([piece.weight for piece in read]), worthy, spread)


def _of_one_line(text: str) -> Passages:
    """The passages of a text that is one piece: arguments of calls, and many items of a digest."""
    piece = _KNOWN.get(text)
    if piece is None:
        piece = _KNOWN.keep(text, next(iter(_read((text,)))))
    worthy = (0,) if piece.names or piece.worth else ()
    return Passages(range(1), (text,), (piece,), piece.weight, worthy, dict.fromkeys(piece.names, 1))


def _read(texts: Sequence[str]) -> Iterator[ScoredPiece]:
    """Yield what there is to know of each piece. O(size)."""
    signs = _signs(texts)
    found = names_of_each(texts) if len(texts) > 1 else map(names, texts)
    for place, (text, names_here) in enumerate(zip(texts, found, strict=True)):
        weight, lines = len(text) // 4 + LEAST_WEIGHT, text.count("\n") + 1  # joined lines count as one of them
        yield ScoredPiece(names_here, signs.get(place, 0), weight, lines, (weight / lines + 2) ** 0.8)


# Results repeat lines of earlier ones, also of another session.
_KNOWN: Final[RecentValues[ScoredPiece]] = RecentValues(524_288)


def _signs(texts: Sequence[str]) -> dict[int, int]:
    """Return the worth of error messages and definitions, by the place of their piece. O(size), mostly at C speed."""
    text = "\n".join(texts)
    found: dict[int, int] = {}
    small = text.lower()
    likely: Iterable[int] = ()
    if len(small) != len(text):  # a few letters become two in lower case, which shifts positions
        likely = range(len(texts))
    elif words := [word for word in _ALARM_WORDS if word in small]:
        starts = list(accumulate((len(piece) + 1 for piece in texts), initial=0))
        at = sorted({at for word in words for at in _places(small, word)})
        likely = dict.fromkeys(bisect_right(starts, each) - 1 for each in at)
    for place in likely:
        if ALARM.search(texts[place]):
            found[place] = ALARMING
    defines = _DEFINES.match
    for place, piece in enumerate(texts):
        if defines(piece):
            found[place] = found.get(place, 0) + DEFINING
    return found


def _notable(text: str, name_counts: Mapping[str, int], pinned: Collection[str]) -> list[int]:
    """Return positions in lines that stay separate, in order. O(size x names searched for), at the speed of C."""
    places = _alarms(text)
    most = min(_NAMES, max(1, _SEARCHED // max(1, len(text))))
    for name in sorted(name_counts, key=lambda name: (-name_counts[name], name))[:most]:
        places += islice(_places(text, name), _PLACES)
    for line in pinned:
        places += (at for at in islice(_places(text, line), _PLACES) if _is_line(text, at, at + len(line)))
    return sorted(set(places))


def alarms(text: str) -> bool:
    """Whether an error message stands in a text. O(size), at the speed of C for a text without one."""
    small = text.lower()
    likely = len(small) != len(text) or any(map(small.__contains__, _ALARM_WORDS))
    return likely and ALARM.search(text) is not None


def _alarms(text: str) -> list[int]:
    """Return the positions of error messages, the first `_ALARMS` of each word."""
    small = text.lower()
    if len(small) != len(text):  # a few letters become two in lower case, which shifts positions
        return [found.start() for found in islice(ALARM.finditer(text), _ALARMS)]
    found = (at for word in _ALARM_WORDS for at in islice(_places(small, word), _ALARMS))
    return [at for at in found if ALARM.match(text, at)]


def _places(text: str, what: str) -> Iterator[int]:
    at = text.find(what) if what else -1
    while at >= 0:
        yield at
        at = text.find(what, at + len(what))


def _is_line(text: str, start: int, stop: int) -> bool:
    return text[start - 1 : start] in ("", "\n") and text[stop : stop + 1] in ("", "\n")


def _sections(text: str, notable: Collection[int]) -> list[tuple[int, int]]:
    """Return [start, stop) of the scored sections, in order. No two of them touch."""
    size, between = len(text), FULLY_SCORED_CHARS - 2 * _END
    step = max(_SAMPLE, (size - 2 * _END) * _SAMPLE // between)
    wishes = [(0, _END), (size - _END, size), *((at, at + _SAMPLE) for at in range(_END, size - _END, step))]
    wishes += [(at, at + 1) for at in notable]
    out: list[tuple[int, int]] = []
    for first, last in sorted(wishes):
        start, stop = _line_start(text, first), _line_stop(text, min(last, size))
        if out and start <= out[-1][1] + 1:
            out[-1] = (out[-1][0], max(stop, out[-1][1]))
        else:
            out.append((start, stop))
    return out


def _line_start(text: str, at: int) -> int:
    """Return the start of the line around `at`, or of a part of a long line."""
    found = text.rfind("\n", max(0, at - _WIDE), at)
    return found + 1 if found >= 0 else max(0, at - _WIDE)


def _line_stop(text: str, at: int) -> int:
    found = text.find("\n", at, at + _WIDE)
    return found if found >= 0 else min(len(text), at + _WIDE)


def _lines(text: str, start: int, stop: int, alone: list[int] | None) -> Iterator[str]:
    """Yield the pieces of a section. With `alone`, short lines are joined, except lines with these positions."""
    lines = text[start:stop].split("\n")
    for line in lines if alone is None else _together(lines, start, alone):
        if len(line) <= _WIDE:
            yield line
            continue
        at = 0
        while at < len(line):
            end = min(len(line), at + _WIDE)
            if end < len(line):
                mark = max(line.rfind(mark, at + _WIDE // 2, end) for mark in (", ", ",", " ", "}"))
                end = mark + 1 if mark > at else end
            yield line[at:end]
            at = end


def _together(lines: list[str], at: int, alone: list[int]) -> Iterator[str]:
    """Join neighbouring lines up to `_WIDE` characters. Lines with a position in `alone` stay separate."""
    joined: list[str] = []
    chars = 0
    following = bisect_left(alone, at)
    nearest = alone[following] if following < len(alone) else -1
    for line in lines:
        size = len(line)
        at += size + 1
        notable = 0 <= nearest < at
        while 0 <= nearest < at:
            following += 1
            nearest = alone[following] if following < len(alone) else -1
        if joined and (notable or chars + size >= _WIDE):
            yield "\n".join(joined)
            joined, chars = [], 0
        if notable or size >= _WIDE:
            yield line
        else:
            joined.append(line)
            chars += size + 1
    if joined:
        yield "\n".join(joined)
