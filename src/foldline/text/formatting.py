"""Figures, and text of others, formatted for people: in HTML and on a terminal.

What a model or a tool writes is data. Terminals obey ECMA-48 sequences (ESC, and the one-byte forms from U+0080 on),
among them OSC 52 (the clipboard) and OSC 8 (links), and direction marks make a text read as another one. So nothing
that comes from outside may move the cursor, set the clipboard or turn the reading order.
"""

from __future__ import annotations

import html
import re
import unicodedata
from typing import Final

__all__ = ["DASH", "compact", "escaped", "foreign", "milliseconds", "money", "plain", "plain_line", "plural", "share"]

DASH: Final = "–"
"""Shown where there is no figure."""

# Controls, and marks that change the reading order of all text behind them. Marks for single letters may stay.
_UNSEEN: Final = dict.fromkeys(
    (*range(9), 11, 12, *range(14, 32), *range(127, 160), *range(0x202A, 0x202F), *range(0x2066, 0x206A)), "\ufffd"
)


def escaped(text: str) -> str:
    """Return text that is safe in HTML: markup escaped, controls and lone surrogates replaced."""
    return html.escape(text.encode("utf-8", "replace").decode().translate(_UNSEEN))


def foreign(text: str, most_chars: int = 200) -> str:
    """Return text of others as one shortened line of HTML, isolated from the reading order of its neighbours."""
    line = " ".join(text[: 4 * most_chars].split())
    return f"<bdi>{escaped(line if len(line) <= most_chars else f'{line[: most_chars - 1]}…')}</bdi>"


def money(usd: float) -> str:
    """Format US dollars with significant digits: $0.0012, $0.123, $1.23, $1,234."""
    digits = 0 if usd >= 999.5 else 2 if usd >= 0.9995 else 3 if usd >= 0.09995 else 4
    return f"${usd:,.{digits}f}"


def compact(tokens: float) -> str:
    """Format a count in at most five characters: 950, 16k, 12.3k, 145k, 3.98M."""
    for size, unit in ((1e6, "M"), (1e3, "k")):
        scaled = tokens / size
        if scaled >= 0.9995:
            digits = 2 if scaled < 9.995 and unit == "M" else 1 if scaled < 99.95 else 0
            return f"{scaled:.{digits}f}".removesuffix(".0") + unit
    return f"{tokens:.0f}"


def share(value: float | None) -> str:
    """Format a ratio with two decimals, or a dash."""
    return DASH if value is None else f"{value:.2f}"


def milliseconds(seconds: float) -> str:
    """Format a time in milliseconds, with significant digits."""
    value = seconds * 1e3
    return f"{value:.0f}" if value >= 99.5 else f"{value:.1f}" if value >= 9.95 else f"{value:.2f}"


def plural(count: int, noun: str) -> str:
    """Format a count with its noun: 1 fold, 2,000 folds."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


_KEPT: Final = frozenset("\n\t\u200c\u200d")  # joiners belong to Persian, to Indic scripts and to emoji
_SUSPECT: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u0600-\u0605\u061c\u180e\u200b-\u200f\u2028-\u202e"
    "\u2060-\u206f\ud800-\udfff\ufeff\ufff9-\ufffb\U000e0000-\U000e007f]"
)


def plain(text: str) -> str:
    """Return the text with controls and direction marks made visible. Line ends and tabs stay. O(size)."""
    # Made visible, not removed: whoever looks for the reason of a strange answer has to see what was in it.
    return _SUSPECT.sub(_written, text)


def plain_line(text: str, most_chars: int | None = None) -> str:
    """Return the text as one line, cut to a number of characters with an ellipsis. O(size shown)."""
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
        return ""  # part of a line end of Windows; alone it would overwrite the line
    if code < 0x20:
        return chr(0x2400 + code)  # the symbol for the control character
    if code == 0x7F:
        return "\u2421"
    if unicodedata.category(char) == "Cs":
        return "\ufffd"
    return f"<U+{code:04X}>"
