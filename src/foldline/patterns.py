"""Regular expressions that cannot hang: matched in one pass over the text, whatever the pattern and the text are.

The patterns come from a model and the texts from the web; a pair of them can keep a backtracking matcher busy for
years. Here a pattern is a set of places that are followed side by side (K. Thompson, "Regular Expression Search
Algorithm", 1968), so that each character is looked at once. What needs memory of earlier matches cannot be had so.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, NamedTuple, TypeAlias

from foldline.errors import InvalidInput

__all__ = ["Pattern"]

MOST_CHARS: Final = 1_000
MOST_STEPS: Final = 2_000
"""Bounds of a pattern, counted repeats written out: each character of a text costs at most so many steps."""
MOST_REMEMBERED: Final = 50_000
"""Steps that are remembered before all are forgotten and found again."""

_ATOM = re.compile(
    r"\\(?:x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|N\{[^}]*\}|0[0-7]{0,2}|[^0-9])"  # an escape
    r"|\[\^?\]?(?:\\.|[^\]\\])*\]"  # a class
    r"|[^\\\[]",  # any other character
    re.DOTALL,
)
_REPEAT = re.compile(r"[*+?]|\{(\d*)(,?)(\d*)\}")
_FLAGS = re.compile(r"\(\?([ims]+)\)")
_GROUP = re.compile(r"\((?:\?:|\?P<\w+>)?(?!\?)")
_ANCHORS: Final = {"^": "start", "\\A": "start", "$": "end", "\\Z": "end", "\\b": "edge", "\\B": "inside"}

Test: TypeAlias = Callable[[str], object]


class _Step(NamedTuple):
    """One place in a pattern: a test of a character, an anchor, or neither; and the places that may follow."""

    then: tuple[int, ...]
    test: Test | None = None
    anchor: str = ""


class Pattern:
    """A pattern to search lines for, in the syntax of `re` without look-around, back-references and possessive repeats.

    Raises InvalidInput for one that does not compile, or that cannot be matched in one pass.
    """

    def __init__(self, pattern: str) -> None:
        if len(pattern) > MOST_CHARS:
            raise InvalidInput(f"has {len(pattern):,} characters, more than {MOST_CHARS:,}", place="pattern")
        try:
            re.compile(pattern)
            self._steps, self._first = _Parser(pattern).steps()
        except (re.error, OverflowError, RecursionError) as error:
            raise InvalidInput(f"is not a regular expression: {error}", place="pattern") from None
        self._ids: dict[tuple[frozenset[int], str], int] = {}
        self._states: list[tuple[frozenset[int], str]] = []
        self._next: list[dict[str, int]] = []
        self._remembered = 0

    def search(self, line: str) -> int | None:
        """Where the match that ends first does; None if there is none.

        O(characters x steps) at worst, O(characters) once the steps are remembered.
        """
        state = self._id(frozenset(), "")
        for place, char in enumerate(line):
            following = self._next[state].get(char)
            if following is None:
                following = self._advance(state, char)
            if following < 0:
                return place
            state = following
        places, before = self._states[state]
        return len(line) if 0 in self._reached(places, before, "") else None

    def _advance(self, state: int, char: str) -> int:
        """The state after one more character; -1 when a match ends before it."""
        places, before = self._states[state]
        reached = self._reached(places, before, char)
        if 0 in reached:
            after = -1
        else:
            passed = (step for place in reached if (step := self._steps[place]).test is not None and step.test(char))
            after = self._id(frozenset(place for step in passed for place in step.then), char)
        if self._remembered > MOST_REMEMBERED:
            kept = None if after < 0 else self._states[after]
            self._ids.clear()
            self._states.clear()
            self._next.clear()
            self._remembered = 0
            return -1 if kept is None else self._id(*kept)
        self._next[state][char] = after
        self._remembered += 1
        return after

    def _reached(self, places: frozenset[int], before: str, char: str) -> set[int]:
        """All places that can be reached between two characters without reading one; a match may begin anywhere."""
        edge = _in_word(before) != _in_word(char)
        inside = not edge and bool(before or char)  # `re` finds no inside in a text of no characters
        holds = {"start": not before, "end": not char, "edge": edge, "inside": inside, "": True}
        seen: set[int] = set()
        waiting = [self._first, *places]
        while waiting:
            place = waiting.pop()
            if place in seen:
                continue
            seen.add(place)
            step = self._steps[place]
            if step.test is None and holds[step.anchor]:
                waiting += step.then
        return seen

    def _id(self, places: frozenset[int], before: str) -> int:
        # Of the character before only what an anchor asks matters: is there one, and is it of a word.
        key = (places, before and ("a" if _in_word(before) else " "))
        found = self._ids.get(key)
        if found is None:
            found = self._ids[key] = len(self._states)
            self._states.append(key)
            self._next.append({})
            self._remembered += 1
        return found


def _in_word(char: str) -> bool:
    return char == "_" or char.isalnum()


class _Parser:
    """Reads a pattern that `re` has accepted. A piece is built once it is known what follows; step 0 is the match."""

    def __init__(self, pattern: str) -> None:
        flags = _FLAGS.match(pattern)
        self._flags = 0
        for letter in flags[1] if flags else "":
            self._flags |= re.RegexFlag[letter.upper()]
        self._text = pattern
        self._at = flags.end() if flags else 0
        self._steps = [_Step(())]

    def steps(self) -> tuple[list[_Step], int]:
        """The steps, and the first of them."""
        first = self._choice()(0)
        return self._steps, first

    def _add(self, step: _Step) -> int:
        if len(self._steps) >= MOST_STEPS:
            raise InvalidInput("is too large with its repeats written out", place="pattern")
        self._steps.append(step)
        return len(self._steps) - 1

    def _choice(self) -> _Piece:
        """Alternatives, up to the end or the closing bracket."""
        options = [self._sequence()]
        while self._text[self._at : self._at + 1] == "|":
            self._at += 1
            options.append(self._sequence())
        if len(options) == 1:
            return options[0]
        return lambda then: self._add(_Step(tuple(option(then) for option in options)))

    def _sequence(self) -> _Piece:
        pieces: list[_Piece] = []
        while self._at < len(self._text) and self._text[self._at] not in "|)":
            pieces.append(self._repeated(self._one()))

        def build(then: int) -> int:
            for piece in reversed(pieces):
                then = piece(then)
            return then

        return build

    def _one(self) -> _Piece:
        text, at = self._text, self._at
        if text[at] == "(":
            group = _GROUP.match(text, at)
            if group is None:
                raise InvalidInput(f"has {text[at : at + 3]!r}, which one pass cannot match", place="pattern")
            self._at = group.end()
            inner = self._choice()
            self._at += 1
            return inner
        atom = _ATOM.match(text, at)
        if atom is None:
            raise InvalidInput(f"has {text[at : at + 2]!r}, which one pass cannot match", place="pattern")
        self._at = atom.end()
        if (anchor := _ANCHORS.get(atom[0])) is not None:
            return lambda then: self._add(_Step((then,), anchor=anchor))
        test = re.compile(atom[0], self._flags).fullmatch
        return lambda then: self._add(_Step((then,), test))

    def _repeated(self, piece: _Piece) -> _Piece:
        """A piece with its repeat, if it has one. Whether it is greedy does not matter for whether it matches."""
        found = _REPEAT.match(self._text, self._at)
        if found is None or found[0] == "{}":
            return piece
        self._at = found.end()
        mark = self._text[self._at : self._at + 1]
        if mark == "+":
            raise InvalidInput("has a possessive repeat, which one pass cannot match", place="pattern")
        self._at += mark == "?"
        least, most = _bounds(found)

        def build(then: int) -> int:
            first = then
            if most is None:
                first = self._add(_Step(()))
                self._steps[first] = _Step((piece(first), then))
            for _ in range(0 if most is None else most - least):
                first = self._add(_Step((piece(first), then)))
            for _ in range(least):
                first = piece(self._add(_Step((first,))))
            return first

        return build


def _bounds(repeat: re.Match[str]) -> tuple[int, int | None]:
    """How often a piece stands at least and at most; None for any number."""
    sign = repeat[0]
    if sign[0] != "{":
        return int(sign == "+"), 1 if sign == "?" else None
    least = int(repeat[1] or 0)
    if not repeat[2]:
        return least, least
    return least, int(repeat[3]) if repeat[3] else None


_Piece: TypeAlias = Callable[[int], int]
"""What builds the steps of a piece of a pattern, given the step that follows it; returns its first step."""
