"""A long Markdown text as messages of bounded length: no code block, line, word or character torn that need not be.

A code block that goes on in the next message is closed, and opened there again with its language. What is measured is
what the platform counts of a line: Telegram, for instance, does not count the markup.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

__all__ = ["FENCE", "Fence", "Piece", "close_fence", "escape_markdown", "split_text", "utf16_units"]

FENCE: Final = re.compile(r"([ \t]*)(`{3,}|~{3,})([^\n]*)")
"""A line that may open or close a code block (CommonMark 0.31, section 4.5); any indentation, as models put it."""

# A longer line opens and closes nothing: it has to fit into each message that its block goes through.
_FENCE_CHARS: Final = 100

# What the rest of a line must not begin with where it begins a message: it would mean something there.
_SPECIAL: Final = re.compile(r"`{3}|~{3}|#{1,6} |[-*+>] |\\")

_MARK: Final = re.compile(r"[\\`*_~\[\]#]")
_END: Final = "\n"
_LEAST_UNITS: Final = 500
_MARKS: Final = {"`": "~~~", "~": "```"}
_LINE: Final = re.compile(r"[^\n]*\n|[^\n]+")
# Where more than these hang together, as in a text of marks alone, they are torn.
_LONGEST_CHARACTER: Final = 64
_JOINER, _KEYCAP, _TONES, _FLAGS = "\u200d", "\u20e3", ("\U0001f3fb", "\U0001f3ff"), ("\U0001f1e6", "\U0001f1ff")


def utf16_units(text: str) -> int:
    """The length of a text in UTF-16 code units. A lone surrogate is one. O(size)."""
    return len(text) + sum(char > "\uffff" for char in text)


@dataclass(frozen=True, slots=True)
class Fence:
    """What opens a code block: indentation, marks, and the words after them (the language)."""

    indent: str
    marks: str
    words: str

    @classmethod
    def opened_by(cls, line: str) -> Fence | None:
        """The fence of a line that opens a block; None for any other."""
        found = FENCE.fullmatch(line) if len(line) <= _FENCE_CHARS else None
        if found is None or (found[2][0] == "`" and "`" in found[3]):  # code within a line
            return None
        return cls(found[1], found[2], found[3])

    def closed_by(self, line: str) -> bool:
        """Whether a line closes this block."""
        found = FENCE.fullmatch(line) if len(line) <= _FENCE_CHARS else None
        return found is not None and found[2].startswith(self.marks) and not found[3].strip(" \t")

    @property
    def again(self) -> str:
        """The line that opens it once more."""
        return f"{self.indent}{self.marks}{self.words}\n"

    @property
    def closing(self) -> str:
        """The line that closes it, without its end."""
        return f"{self.indent}{self.marks}"

    @property
    def language(self) -> str:
        """The first word after the marks."""
        return next(iter(self.words.split()), "")


@dataclass(frozen=True, slots=True)
class Piece:
    """One message. All `body` together are the text; `opens` and `closes` were put around one to make it whole."""

    body: str
    opens: str = ""
    closes: str = ""

    @property
    def text(self) -> str:
        """What is sent."""
        return f"{self.opens}{self.body}{self.closes}"


def split_text(text: str, most_units: int, units: Callable[[str], int] = utf16_units) -> list[Piece]:
    """The text in pieces of at most `most_units` (500 or more) each; [] for none. O(size), and a call of `units` for
    each line outside of code.

    `units` says how much one line takes, its end not counted, and never more than `utf16_units`. Code is counted as it
    stands, with the lines around it.
    """
    if most_units < _LEAST_UNITS:
        raise ValueError(f"pieces have room for {_LEAST_UNITS} units at least, not {most_units}")
    filling = _Filling(most_units)
    for block in _blocks(text, most_units, units):
        close_fence = sum(atom.units for atom in block) + utf16_units(block[-1].closes)
        if close_fence <= most_units < filling.used + close_fence:
            filling.cut()
        for atom in block:
            filling.take(atom)
    filling.cut()
    return filling.made


@dataclass(slots=True)
class _Atom:
    """What stays together: a line, or a part of one that is too long.

    `opens` and `closes` are put around a piece that begins, or ends, with it. One that is `alone` is a piece.
    """

    text: str
    units: int
    opens: str = ""
    closes: str = ""
    begins: bool = False
    alone: bool = False


@dataclass(slots=True)
class _Filling:
    """The pieces so far, and the one that is being filled."""

    most_units: int
    made: list[Piece] = field(default_factory=list)
    used: int = 0
    _atoms: list[_Atom] = field(default_factory=list)

    def take(self, atom: _Atom) -> None:
        """Add it to the piece, or where it does not fit to the next one."""
        too_much = self.used + atom.units + utf16_units(atom.closes) > self.most_units
        if self._atoms and (atom.begins or atom.alone or self._atoms[0].alone or too_much):
            self.cut()
        if not self._atoms:
            self.used = utf16_units(atom.opens)
        self._atoms.append(atom)
        self.used += atom.units

    def cut(self) -> None:
        """End the piece that is being filled."""
        if self._atoms:
            body = "".join(atom.text for atom in self._atoms)
            self.made.append(Piece(body, self._atoms[0].opens, self._atoms[-1].closes))
        self._atoms, self.used = [], 0


def close_fence(text: str) -> str:
    """The text with a code block closed that was left open at its end. O(size)."""
    fence: Fence | None = None
    for line in text.split(_END):
        if fence is None:
            fence = Fence.opened_by(line)
        elif fence.closed_by(line):
            fence = None
    return text if fence is None else f"{text}{_closing(text, fence)}"


# --- from a text to what stays together -------------------------------------------------------------------------------


def _blocks(text: str, most_units: int, units: Callable[[str], int]) -> Iterator[list[_Atom]]:
    """Lines of prose, each alone, and code blocks."""
    code: list[_Atom] = []
    fence: Fence | None = None
    for line in _LINE.findall(text):
        bare = line.removesuffix(_END)
        if fence is not None:
            if fence.closed_by(bare):
                yield [*code, _Atom(line, utf16_units(line), opens=fence.again)]
                code, fence = [], None
            else:
                code += _code_line(line, fence, most_units)
        elif (fence := Fence.opened_by(bare)) is not None:
            code = [_Atom(line, utf16_units(line), closes=_closing(line, fence))]
        else:
            yield _prose_line(line, units(bare) + len(line) - len(bare), most_units)
    if code:
        yield code


def _prose_line(line: str, units: int, most_units: int) -> list[_Atom]:
    if units <= most_units:
        return [_Atom(line, units)]
    parts = _parts(line, most_units - 1)
    return [
        _Atom(part, utf16_units(part), opens="\\" if number and _SPECIAL.match(part) else "", begins=number > 0)
        for number, part in enumerate(parts)
    ]


def _code_line(line: str, fence: Fence, most_units: int) -> list[_Atom]:
    room = most_units - utf16_units(fence.again) - utf16_units(fence.closing) - 1
    if utf16_units(line) <= room:
        return [_Atom(line, utf16_units(line), fence.again, _closing(line, fence))]
    out: list[_Atom] = []
    for part in _parts(line, room):
        # A part that is all marks would be taken for the end of its block.
        ends = fence.closed_by(part.removesuffix(_END))
        own = Fence("", _MARKS[fence.marks[0]], "") if ends else fence
        out.append(_Atom(part, utf16_units(part), own.again, _closing(part, own), begins=bool(out), alone=ends))
    return out


def _closing(line: str, fence: Fence) -> str:
    return fence.closing if line.endswith(_END) else f"{_END}{fence.closing}"


def _parts(line: str, most_units: int) -> list[str]:
    """A line in parts: cut after a space in the last third, else between characters as people see them."""
    out = []
    while line:
        at = _index(line, most_units)
        if at < len(line):
            spaces = [place for place in range(2 * at // 3, at) if line[place] in " \t"]
            if line[at] not in " \t":
                at = spaces[-1] + 1 if spaces else _seam(line, at)
        out.append(line[:at])
        line = line[at:]
    return out


def _index(line: str, most_units: int) -> int:
    """How many characters of a line take at most so many units."""
    units = 0
    for at, char in enumerate(line):
        units += 2 if char > "\uffff" else 1
        if units > most_units:
            return at
    return len(line)


def _seam(line: str, at: int) -> int:
    """The next place before `at` that is within no character as people see it; `at` itself where there is none near.

    Marks, joined emoji, their colours, keycaps and flags stay whole (the cases of Unicode's annex 29 that are common).
    """
    for place in range(at, max(0, at - _LONGEST_CHARACTER), -1):
        if not _joined(line, place):
            return place
    return at


def _joined(line: str, at: int) -> bool:
    before, after = line[at - 1], line[at]
    if after in (_JOINER, _KEYCAP) or before == _JOINER or unicodedata.category(after) in ("Mn", "Me", "Mc"):
        return True
    if _TONES[0] <= after <= _TONES[1] or "\U000e0020" <= after <= "\U000e007f":
        return True
    if "\ud800" <= before <= "\udbff" and "\udc00" <= after <= "\udfff":
        return True
    if _is_flag(before) and _is_flag(after):
        flags = 0
        while at - flags > 0 and _is_flag(line[at - 1 - flags]):
            flags += 1
        return flags % 2 == 1
    return False


def _is_flag(char: str) -> bool:
    return _FLAGS[0] <= char <= _FLAGS[1]


def escape_markdown(text: str) -> str:
    """One line of text so that it reads as it stands, no sign of it a mark. O(size)."""
    return _MARK.sub(r"\\\g<0>", text)
