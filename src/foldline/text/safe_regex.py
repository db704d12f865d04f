"""Regular expressions that cannot hang: any pattern is matched in one pass over any text.

Patterns come from a model and texts from the web, and a bad pair keeps a backtracking matcher busy for years. Here a
pattern is a set of positions that advance in parallel (K. Thompson, "Regular Expression Search Algorithm", 1968), kept
as the bits of one number (V. M. Glushkov, "The Abstract Theory of Automata", 1961), so that each character is read
once. Features that depend on earlier matches are impossible in this way, and are refused.

One pass over a long text still takes time. So its steps are counted and bounded (`Work`), and the caller can end the
search between them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

from foldline.errors import InvalidInput

__all__ = ["OutOfSteps", "Pattern", "Work"]

# A pattern is a line that a model wrote: longer ones are generated, and "{1000}" of a group multiplies its positions.
MOST_CHARS: Final = 1_000
MOST_STEPS: Final = 2_000
"""Bounds of a pattern with its counted repeats expanded: the most steps that a character of the text can cost."""
MOST_REMEMBERED: Final = 50_000
"""Cached transitions, after which the cache is cleared."""
MOST_WORK: Final = 50_000_000
"""Steps of one search, or of all that share a `Work`: a few seconds, or 50 million characters with a simple pattern."""
LOOK_STEPS: Final = 10_000
"""Steps between two checks for cancellation: a millisecond."""

# Characters that are searched before their steps are counted.
_PIECE_CHARS: Final = 16_384

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

_INSTEAD: Final = "write it without look-around and back-references, and choose among the lines that it finds"

Test: TypeAlias = Callable[[str], object]


class OutOfSteps(InvalidInput):
    """A search has used all its steps."""


class Work:
    """A budget of steps for one or more searches.

    After `most_steps` a search raises OutOfSteps. `check` is called between steps and may raise to end the search. A
    step reads one character, or advances a few positions of the pattern by one character.
    """

    __slots__ = ("_check", "_look_at", "_most_steps", "steps")

    def __init__(self, most_steps: int = MOST_WORK, check: Callable[[], None] = lambda: None) -> None:
        self._most_steps, self._check = most_steps, check
        self._look_at = LOOK_STEPS
        self.steps = 0

    @property
    def ended(self) -> bool:
        """Whether all steps are used."""
        return self.steps > self._most_steps

    def spend(self, steps: int) -> None:
        """Count steps. Raises OutOfSteps and what `check` raises."""
        self.steps += steps
        if self.steps > self._most_steps:
            reason = f"takes more than {self._most_steps:,} steps on this text: repeat less in it ({{m,n}} above all), "
            raise OutOfSteps(f"{reason}begin it with plain letters, or search less", place="pattern")
        if self.steps >= self._look_at:
            self._look_at = self.steps + LOOK_STEPS
            self._check()


class _Step(NamedTuple):
    """One position in a pattern: a character test, an anchor or neither, and the positions that may follow."""

    then: tuple[int, ...]
    test: Test | None = None
    anchor: str = ""


@dataclass(slots=True)
class _Follow:
    """The positions reached between two characters of given kinds, from the start and from each matched position.

    A set of positions is a number with one bit for each position that tests a character. The lowest bit is the end of
    the pattern. `holds` are the anchors that hold there. `of_eight` caches the successors of eight positions at once,
    by the byte of the matched ones.
    """

    holds: frozenset[str]
    first: int = 0
    of_place: dict[int, int] = field(default_factory=dict)
    of_eight: list[dict[int, int]] = field(default_factory=list)


class Pattern:
    """A compiled pattern in the syntax of `re`, without look-around, back-references and possessive repeats.

    Raises InvalidInput for a pattern that does not compile or cannot be matched in one pass.
    """

    def __init__(self, pattern: str) -> None:
        if len(pattern) > MOST_CHARS:
            raise InvalidInput(f"has {len(pattern):,} characters, more than {MOST_CHARS:,}", place="pattern")
        # `re` judges the syntax, so that the parser here needs no errors of its own: it reads valid patterns only.
        try:
            re.compile(pattern)
            self._steps, self._first = _Parser(pattern).steps()
        except (re.error, OverflowError, RecursionError) as error:
            raise InvalidInput(f"is not a regular expression: {error}", place="pattern") from None
        testing = [number for number, step in enumerate(self._steps) if step.test is not None]
        self._bits = {number: bit for bit, number in enumerate([0, *testing])}
        self._places = [0, *testing]
        self._size_bytes = len(self._places) // 8 + 1
        self._anchored = any(step.anchor for step in self._steps)
        self._tests: dict[Test, int] = {}
        for bit, number in enumerate(testing, 1):
            if (test := self._steps[number].test) is not None:
                self._tests[test] = self._tests.get(test, 0) | 1 << bit
        self._follows: dict[tuple[str, str], _Follow] = {}
        self._forget()

    def search(self, line: str, work: Work | None = None) -> int | None:
        """Return the end of the match that ends first, or None.

        O(characters x steps / 8) at worst, O(characters) once transitions are cached. Raises OutOfSteps and what `work`
        raises.
        """
        work = Work() if work is None else work
        state = self._id(0, "")
        for start in range(0, len(line), _PIECE_CHARS):
            piece = line[start : start + _PIECE_CHARS]
            work.spend(len(piece))
            for place, char in enumerate(piece, start):
                following = self._next[state].get(char)
                if following is None:
                    following = self._advance(state, char, work)
                if following < 0:
                    return place
                state = following
        places, before = self._states[state]
        work.spend(1)
        return len(line) if self._reached(places, before, "", work) & 1 else None

    def _advance(self, state: int, char: str, work: Work) -> int:
        """Return the state after one more character, or -1 if a match ends before it."""
        # A state and the character after it have one successor, so each pair is worked out once. The cache is cleared
        # as a whole when it is full: to drop single states would cost a count of their uses at every character.
        places, before = self._states[state]
        kind = self._kind(char)
        reached = self._reached(places, before, kind, work)
        after = -1 if reached & 1 else self._id(reached & self._passing(char, work), kind)
        if self._remembered > MOST_REMEMBERED:
            current = None if after < 0 else self._states[after]
            self._forget()
            return -1 if current is None else self._id(*current)
        self._next[state][char] = after
        self._remembered += 1
        return after

    def _forget(self) -> None:
        self._ids: dict[tuple[int, str], int] = {}
        self._states: list[tuple[int, str]] = []
        self._next: list[dict[str, int]] = []
        self._passed: dict[str, int] = {}
        for follow in self._follows.values():
            follow.of_eight = [{} for _ in range(self._size_bytes)]
        self._remembered = 0

    def _kind(self, char: str) -> str:
        """Return what an anchor asks of a character: whether there is one, and whether it belongs to a word."""
        if not self._anchored:
            return ""
        return char and ("a" if char == "_" or char.isalnum() else " ")

    def _passing(self, char: str, work: Work) -> int:
        """Return the positions whose test a character passes."""
        found = self._passed.get(char)
        if found is None:
            work.spend(len(self._tests))
            found = 0
            for test, places in self._tests.items():
                if test(char):
                    found |= places
            self._passed[char] = found
            self._remembered += 1
        return found

    def _reached(self, places: int, before: str, after: str, work: Work) -> int:
        """Return all positions reached between two characters. A match may start anywhere."""
        follow = self._follows.get((before, after))
        if follow is None:
            follow = _Follow(_holding(before, after))
            follow.first = self._closed((self._first,), follow.holds, work)
            follow.of_eight = [{} for _ in range(self._size_bytes)]
            self._follows[before, after] = follow
        reached = follow.first
        if places:
            work.spend(self._size_bytes)
            for at, byte in enumerate(places.to_bytes(self._size_bytes, "little")):
                if byte:
                    cached = follow.of_eight[at].get(byte)
                    reached |= self._after(follow, at, byte, work) if cached is None else cached
        return reached

    def _after(self, follow: _Follow, at: int, byte: int, work: Work) -> int:
        """Return the positions that follow up to eight positions."""
        reached = 0
        for bit in _set_bits(byte):
            place = 8 * at + bit
            if place not in follow.of_place:
                then = self._steps[self._places[place]].then
                follow.of_place[place] = self._closed(then, follow.holds, work)
            reached |= follow.of_place[place]
        follow.of_eight[at][byte] = reached
        self._remembered += 1
        return reached

    def _closed(self, then: tuple[int, ...], holds: frozenset[str], work: Work) -> int:
        """Return these positions and all that follow without reading a character."""
        reached = 0
        seen: set[int] = set()
        pending = list(then)
        while pending:
            number = pending.pop()
            if number in seen:
                continue
            seen.add(number)
            if (bit := self._bits.get(number)) is not None:
                reached |= 1 << bit
            elif (step := self._steps[number]).anchor in holds:
                pending += step.then
        work.spend(len(seen))
        return reached

    def _id(self, places: int, before: str) -> int:
        key = (places, before)
        found = self._ids.get(key)
        if found is None:
            found = self._ids[key] = len(self._states)
            self._states.append(key)
            self._next.append({})
            self._remembered += 1
        return found


def _holding(before: str, after: str) -> frozenset[str]:
    """Return the anchors that hold between characters of two kinds ("": no character)."""
    edge = (before == "a") != (after == "a")
    inside = not edge and bool(before or after)  # `re` finds no \B in an empty text
    holds = {"": True, "start": not before, "end": not after, "edge": edge, "inside": inside}
    return frozenset(anchor for anchor, is_so in holds.items() if is_so)


def _set_bits(byte: int) -> Iterator[int]:
    return (bit for bit in range(8) if byte >> bit & 1)


class _Parser:
    """Parses a pattern that `re` has accepted. A piece is built once its successor is known; step 0 is the match."""

    def __init__(self, pattern: str) -> None:
        flags = _FLAGS.match(pattern)
        self._flags = 0
        for letter in flags[1] if flags else "":
            self._flags |= re.RegexFlag[letter.upper()]
        self._text = pattern
        self._at = flags.end() if flags else 0
        self._steps = [_Step(())]
        self._tests: dict[str, Test] = {}

    def steps(self) -> tuple[list[_Step], int]:
        """Return the steps and the number of the first one."""
        first = self._choice()(0)
        return self._steps, first

    def _add(self, step: _Step) -> int:
        if len(self._steps) >= MOST_STEPS:
            reason = (
                f"is too large with its repeats written out (over {MOST_STEPS:,} places): use *, + or smaller counts"
            )
            raise InvalidInput(reason, place="pattern")
        self._steps.append(step)
        return len(self._steps) - 1

    def _choice(self) -> _Piece:
        """Parse alternatives, up to the end or the closing bracket."""
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
                raise InvalidInput(
                    f"has {text[at : at + 3]!r}, which one pass cannot match: {_INSTEAD}", place="pattern"
                )
            self._at = group.end()
            inner = self._choice()
            self._at += 1
            return inner
        atom = _ATOM.match(text, at)
        if atom is None:
            raise InvalidInput(f"has {text[at : at + 2]!r}, which one pass cannot match: {_INSTEAD}", place="pattern")
        self._at = atom.end()
        if (anchor := _ANCHORS.get(atom[0])) is not None:
            return lambda then: self._add(_Step((then,), anchor=anchor))
        test = self._tests.setdefault(atom[0], re.compile(atom[0], self._flags).fullmatch)
        return lambda then: self._add(_Step((then,), test))

    def _repeated(self, piece: _Piece) -> _Piece:
        """Return a piece with its repeat, if any. Greediness does not affect whether a pattern matches."""
        found = _REPEAT.match(self._text, self._at)
        if found is None or found[0] == "{}":
            return piece
        self._at = found.end()
        mark = self._text[self._at : self._at + 1]
        if mark == "+":
            reason = (
                "has a possessive repeat, which one pass cannot match: without its second + it finds the same or more"
            )
            raise InvalidInput(reason, place="pattern")
        self._at += mark == "?"
        least, most = _bounds(found)

        # Counted repeats are written out, each copy once: a counter in the state would make the states of one pass as
        # many as its values.
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
    """Return the smallest and the largest number of repeats; None for no upper bound."""
    sign = repeat[0]
    if sign[0] != "{":
        return int(sign == "+"), 1 if sign == "?" else None
    least = int(repeat[1] or 0)
    if not repeat[2]:
        return least, least
    return least, int(repeat[3]) if repeat[3] else None


# Builds the steps of a piece of a pattern in front of a given step, and returns the first of them.
_Piece: TypeAlias = Callable[[int], int]
