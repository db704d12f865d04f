"""The pieces of a text that are looked at when it is shortened: lines, short ones together, long ones in parts.

Each piece costs more than its characters, so of a text of megabytes only some sections are: its ends, samples between
them at even distances, and each place that says what went wrong or has a name that was used most.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterator, Mapping
from itertools import islice
from typing import Final

from foldline.text.identifiers import ALARM

__all__ = ["LOOKED_AT", "pieces"]

LOOKED_AT: Final = 400_000
"""Characters of a text up to which all of it is looked at: five to ten times what is shown of one in any window."""

_END, _SAMPLE = 100_000, 2_000
"""Characters of each end of a longer text, and of each sample between them. Samples hold neighbouring lines."""

_WIDE = 400
"""Longer lines are looked at in pieces of this size: one line of JSON may hold a whole result."""

_MANY = 10_000
"""Of a text with more lines short ones are looked at together, as many as make up a wide one. Those stay by themselves
that say what went wrong, or have a name that was used most."""

_SEARCHED = 32_000_000
"""Characters that are searched for names in all: in megabytes they are looked for one by one in fewer places."""

_NAMES, _PLACES, _ALARMS = 100, 20, 500
"""Names that are looked for so, the places of each (what is everywhere tells none apart), and alarms."""

_ALARM_WORDS: Final = (
    "error", "exception", "traceback", "failed", "failure", "fatal", "panic", "denied", "not found", "undefined",
    "cannot", "assert", "warning",
)  # fmt: skip
"""What any match of ALARM begins with. A search for each in turn takes a tenth of that for the pattern."""


def pieces(text: str, wanted: Mapping[str, int], kept: Collection[str]) -> list[tuple[int, str]]:
    """(number, text) of the pieces that are looked at, in order; a gap in the numbers is one in the text.

    Names that were used most (`wanted`) and lines in `kept` are found wherever they stand. O(size) for the searches,
    which run at the speed of C, and O(`LOOKED_AT`) for all else.
    """
    long = len(text) > LOOKED_AT
    many = text.count("\n") >= _MANY
    alone = _notable(text, wanted, kept) if long or many else []
    out: list[tuple[int, str]] = []
    number = 0
    for start, stop in _sections(text, alone) if long else [(0, len(text))]:
        for piece in _lines(text, start, stop, alone if many else None):
            out.append((number, piece))
            number += 1
        number += 1  # what stands between two sections is not looked at
    return out


def _notable(text: str, wanted: Mapping[str, int], kept: Collection[str]) -> list[int]:
    """Places in lines that stay by themselves, in order. O(size x names looked for), in the search of texts."""
    places = _alarms(text)
    most = min(_NAMES, max(1, _SEARCHED // max(1, len(text))))
    for name in sorted(wanted, key=lambda name: (-wanted[name], name))[:most]:
        places += islice(_places(text, name), _PLACES)
    for line in kept:
        places += (at for at in islice(_places(text, line), _PLACES) if _is_line(text, at, at + len(line)))
    return sorted(set(places))


def _alarms(text: str) -> list[int]:
    """Where it says what went wrong. Of more places than `_ALARMS` of one word the last ones are not among them."""
    small = text.lower()
    if len(small) != len(text):  # a few letters become two: places in it are others
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
    """[start, stop) of what is looked at, in order; no two of them touch."""
    size, between = len(text), LOOKED_AT - 2 * _END
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
    """Where the line begins that `at` stands in, or a part of it."""
    found = text.rfind("\n", max(0, at - _WIDE), at)
    return found + 1 if found >= 0 else max(0, at - _WIDE)


def _line_stop(text: str, at: int) -> int:
    found = text.find("\n", at, at + _WIDE)
    return found if found >= 0 else min(len(text), at + _WIDE)


def _lines(text: str, start: int, stop: int, alone: list[int] | None) -> Iterator[str]:
    """The pieces of a section; with `alone` short lines together, but for those with these places."""
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
    """Neighbouring lines as one, up to `_WIDE` characters; those with a place in `alone` stay by themselves."""
    held: list[str] = []
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
        if held and (notable or chars + size >= _WIDE):
            yield "\n".join(held)
            held, chars = [], 0
        if notable or size >= _WIDE:
            yield line
        else:
            held.append(line)
            chars += size + 1
    if held:
        yield "\n".join(held)
