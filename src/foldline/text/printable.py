"""Foreign text as a terminal may get it: nothing in it moves the cursor, sets the clipboard or turns the reading order.

What a model or a tool says is data. Terminals obey ECMA-48 sequences (ESC, and the one-byte forms from U+0080 on), some
of them OSC 52 (the clipboard) and OSC 8 (links); marks of direction let a text read as another one than it is.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Final

__all__ = ["plain", "plain_line"]

_KEPT: Final = frozenset("\n\t\u200c\u200d")  # joiners belong to Persian, to Indic scripts and to emoji
_SUSPECT: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u0600-\u0605\u061c\u180e\u200b-\u200f\u2028-\u202e"
    "\u2060-\u206f\ud800-\udfff\ufeff\ufff9-\ufffb\U000e0000-\U000e007f]"
)


def plain(text: str) -> str:
    """The text with every control and direction mark written out; line ends and tabs stay. O(size)."""
    return _SUSPECT.sub(_written, text)


def plain_line(text: str, most_chars: int | None = None) -> str:
    """The text as one line, cut to a number of characters with a mark where there are more. O(size shown)."""
    if most_chars is not None and len(text) > 4 * most_chars:
        text = text[: 4 * most_chars]
    line = " ".join(plain(text).split())
    return line if most_chars is None or len(line) <= most_chars else f"{line[: most_chars - 1]}…"


def _written(found: re.Match[str]) -> str:
    char = found[0]
    if char in _KEPT:
        return char
    code = ord(char)
    if char == "\r":
        return ""  # of a line end of Windows; alone it would let a line be written over
    if code < 0x20:
        return chr(0x2400 + code)  # the picture of the control character
    if code == 0x7F:
        return "\u2421"
    if unicodedata.category(char) == "Cs":
        return "\ufffd"
    return f"<U+{code:04X}>"
