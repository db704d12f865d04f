"""Split a long Markdown text into messages: no code block, line, word or character is torn without need.

A code block that continues in the next message is closed, and reopened there with its language. Sizes are what the
platform counts of a line: Telegram, for instance, does not count markup.
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

# A longer line opens and closes nothing: it has to fit into every message of its block.
_FENCE_CHARS: Final = 100

# What the rest of a line must not begin with at the start of a message: it would become markup there.
_SPECIAL: Final = re.compile(r"`{3}|~{3}|#{1,6} |[-*+>] |\\")

# The marks that can begin markup in the middle of a line.
_MARK: Final = re.compile(r"[\\`*_~\[\]#]")
_END: Final = "\n"
# Below it, the fences that are repeated in each piece of a code block would take a part that matters.
_LEAST_UNITS: Final = 500
_MARKS: Final = {"`": "~~~", "~": "```"}
_LINE: Final = re.compile(r"[^\n]*\n|[^\n]+")
# Longer runs of joined characters, as in a text of marks alone, are torn.
_LONGEST_CHARACTER: Final = 64
_JOINER, _KEYCAP, _TONES, _FLAGS = "\u200d", "\u20e3", ("\U0001f3fb", "\U0001f3ff"), ("\U0001f1e6", "\U0001f1ff")


def utf16_units(text: str) -> int:
    """The length of a text in UTF-16 code units. A lone surrogate counts one. O(size)."""
    return len(text) + sum(char > "\uffff" for char in text)


@dataclass(frozen=True, slots=True)
class Fence:
    """The opening of a code block: indentation, marks, and the info string (the language)."""

    indent: str
    marks: str
    info: str

    @classmethod
    def opened_by(cls, line: str) -> Fence | None:
        """The fence that a line opens; None for any other line."""
        found = FENCE.fullmatch(line) if len(line) <= _FENCE_CHARS else None
        if found is None or (found[2][0] == "`" and "`" in found[3]):  # code within a line
            return None
        return cls(found[1], found[2], found[3])

    def closed_by(self, line: str) -> bool:
        """Whether a line closes this block."""
        found = FENCE.fullmatch(line) if len(line) <= _FENCE_CHARS else None
        return found is not None and found[2].startswith(self.marks) and not found[3].strip(" \t")

    @property
    def reopening(self) -> str:
        """The line that reopens the block."""
        return f"{self.indent}{self.marks}{self.info}\n"

    @property
    def closing(self) -> str:
        """The line that closes the block, without its line end."""
        return f"{self.indent}{self.marks}"

    @property
    def language(self) -> str:
        """The first word of the info string."""
        return next(iter(self.info.split()), "")


@dataclass(frozen=True, slots=True)
class Piece:
    """One message. All `body` parts together are the text; `opens` and `closes` were added to make one whole."""

    body: str
    opens: str = ""
    closes: str = ""

    @property
    def text(self) -> str:
        """The text to send."""
        return f"{self.opens}{self.body}{self.closes}"


def split_text(text: str, max_units: int, units: Callable[[str], int] = utf16_units) -> list[Piece]:
    """Split a text into pieces of at most `max_units` (500 or more); [] for an empty one.

    O(size), with a call of `units` for each line outside of code. `units` is the size of one line without its end, and
    never more than `utf16_units`. Code is counted as it stands, with the lines around it.
    """
    if max_units < _LEAST_UNITS:
        raise ValueError(f"pieces have room for {_LEAST_UNITS} units at least, not {max_units}")
    filler = _Filler(max_units)
    for block in _blocks(text, max_units, units):
        block_units = sum(atom.units for atom in block) + utf16_units(block[-1].closes)
        # A block that fits into one message begins a new one rather than being torn.
        if block_units <= max_units < filler.used + block_units:
            filler.cut()
        for atom in block:
            filler.add(atom)
    filler.cut()
    return filler.pieces


@dataclass(slots=True)
class _Atom:
    """A unit that is never split: a line, or a part of a line that is too long.

    `opens` and `closes` are put around a piece that begins, or ends, with it. One that is `alone` is a piece of its
    own.
    """

    text: str
    units: int
    opens: str = ""
    closes: str = ""
    begins: bool = False
    alone: bool = False


@dataclass(slots=True)
class _Filler:
    """The finished pieces, and the one being filled."""

    max_units: int
    pieces: list[Piece] = field(default_factory=list)
    used: int = 0
    _atoms: list[_Atom] = field(default_factory=list)

    def add(self, atom: _Atom) -> None:
        """Add an atom to the piece, or to the next one if it does not fit."""
        too_much = self.used + atom.units + utf16_units(atom.closes) > self.max_units
        if self._atoms and (atom.begins or atom.alone or self._atoms[0].alone or too_much):
            self.cut()
        if not self._atoms:
            self.used = utf16_units(atom.opens)
        self._atoms.append(atom)
        self.used += atom.units

    def cut(self) -> None:
        """Finish the current piece."""
        if self._atoms:
            body = "".join(atom.text for atom in self._atoms)
            self.pieces.append(Piece(body, self._atoms[0].opens, self._atoms[-1].closes))
        self._atoms, self.used = [], 0


def close_fence(text: str) -> str:
    """Close a code block that is open at the end of a text. O(size)."""
    fence: Fence | None = None
    for line in text.split(_END):
        if fence is None:
            fence = Fence.opened_by(line)
        elif fence.closed_by(line):
            fence = None
    return text if fence is None else f"{text}{_closing(text, fence)}"


# --- from a text to what stays together -------------------------------------------------------------------------------


def _blocks(text: str, max_units: int, units: Callable[[str], int]) -> Iterator[list[_Atom]]:
    """Yield each line of prose alone, and whole code blocks."""
    code: list[_Atom] = []
    fence: Fence | None = None
    for line in _LINE.findall(text):
        bare = line.removesuffix(_END)
        if fence is not None:
            if fence.closed_by(bare):
                yield [*code, _Atom(line, utf16_units(line), opens=fence.reopening)]
                code, fence = [], None
            else:
                code += _code_line(line, fence, max_units)
        elif (fence := Fence.opened_by(bare)) is not None:
            code = [_Atom(line, utf16_units(line), closes=_closing(line, fence))]
        else:
            yield _prose_line(line, units(bare) + len(line) - len(bare), max_units)
    if code:
        yield code


def _prose_line(line: str, units: int, max_units: int) -> list[_Atom]:
    if units <= max_units:
        return [_Atom(line, units)]
    # One unit is kept free for a backslash in front of the part.
    parts = _parts(line, max_units - 1)
    return [
        _Atom(part, utf16_units(part), opens="\\" if number and _SPECIAL.match(part) else "", begins=number > 0)
        for number, part in enumerate(parts)
    ]


def _code_line(line: str, fence: Fence, max_units: int) -> list[_Atom]:
    # A long line of code may stand in a message of its own, with both fences and a line end around it.
    room = max_units - utf16_units(fence.reopening) - utf16_units(fence.closing) - 1
    if utf16_units(line) <= room:
        return [_Atom(line, utf16_units(line), fence.reopening, _closing(line, fence))]
    out: list[_Atom] = []
    for part in _parts(line, room):
        # A part of marks alone would close its own block, so it gets a fence of the other kind.
        ends = fence.closed_by(part.removesuffix(_END))
        own = Fence("", _MARKS[fence.marks[0]], "") if ends else fence
        out.append(_Atom(part, utf16_units(part), own.reopening, _closing(part, own), begins=bool(out), alone=ends))
    return out


def _closing(line: str, fence: Fence) -> str:
    return fence.closing if line.endswith(_END) else f"{_END}{fence.closing}"


def _parts(line: str, max_units: int) -> list[str]:
    """Split a line: after a space in the last third, else between characters as people see them."""
    out = []
    while line:
        at = _index(line, max_units)
        if at < len(line):
            spaces = [place for place in range(2 * at // 3, at) if line[place] in " \t"]
            if line[at] not in " \t":
                at = spaces[-1] + 1 if spaces else _seam(line, at)
        out.append(line[:at])
        line = line[at:]
    return out


def _index(line: str, max_units: int) -> int:
    """The number of characters of a line that take at most `max_units`."""
    units = 0
    for at, char in enumerate(line):
        units += 2 if char > "\uffff" else 1
        if units > max_units:
            return at
    return len(line)


def _seam(line: str, at: int) -> int:
    """The next boundary before `at` between characters as people see them; `at` itself if none is near.

    Marks, joined emoji, their colours, keycaps and flags stay whole (the common cases of Unicode's annex 29).
    """
    # Backwards only: a boundary after `at` would make the part too long.
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
    # Lone halves that JSON left apart belong together all the same.
    if "\ud800" <= before <= "\udbff" and "\udc00" <= after <= "\udfff":
        return True
    if _is_flag(before) and _is_flag(after):
        # Flags are pairs of letters without a separator: only the count from the start of the run tells where a pair
        # ends.
        flags = 0
        while at - flags > 0 and _is_flag(line[at - 1 - flags]):
            flags += 1
        return flags % 2 == 1
    return False


def _is_flag(char: str) -> bool:
    return _FLAGS[0] <= char <= _FLAGS[1]


def escape_markdown(text: str) -> str:
    """Escape one line of text so that it reads as it stands. O(size)."""
    return _MARK.sub(r"\\\g<0>", text)
