"""Shorten texts: never inside a code point, always with a line that says what is missing.

`keep` cuts by lines, characters, bytes or tokens. `extract` picks the lines with the most useful names. Both are pure.
"""

from __future__ import annotations

import re
from collections import Counter as Spread
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import fsum
from types import MappingProxyType
from typing import Literal, TypeAlias

from foldline.text.identifiers import ALARM, names
from foldline.text.sampling import FULLY_SCORED_CHARS, pieces
from foldline.tokens import Counter

__all__ = [
    "Mode",
    "clip_bytes",
    "clip_tokens",
    "extract",
    "first_line",
    "head_and_tail",
    "largest",
    "text_exceeding",
]

Mode: TypeAlias = Literal["head", "tail", "both"]


def clip_bytes(text: str, limit: int, *, end: bool = False) -> str:
    """Return the first (or last) `limit` bytes of a text in UTF-8, whole characters only."""
    data = text.encode("utf-8", "surrogatepass")
    if len(data) <= limit:
        return text
    piece = data[len(data) - limit :] if end else data[:limit]
    return piece.decode("utf-8", "ignore")


def head_and_tail(text: str, head: int, tail: int) -> tuple[str, str]:
    """Return the first `head` and the last `tail` characters, without overlap."""
    head = min(head, len(text))
    tail = min(tail, len(text) - head)
    return text[:head], text[len(text) - tail :] if tail else ""


def largest(low: int, high: int, fits: Callable[[int], bool], *, guess: int | None = None) -> int:
    """Return the largest n in [low, high] with `fits(n)`, or `low`. Calls `fits` about log2(high - low) times."""
    # A good guess saves most of the calls: `fits` counts the tokens of a text that may be megabytes.
    if guess is not None and low < guess < high:
        if fits(guess):
            low = guess
            if (near := min(high, guess + guess // 16 + 1)) < high and not fits(near):
                high = near - 1
        else:
            high = guess - 1
    while low < high:
        middle = (low + high + 1) // 2
        if fits(middle):
            low = middle
        else:
            high = middle - 1
    return low


def clip_tokens(text: str, limit: int, counter: Counter, mode: Mode = "head") -> tuple[str, str]:
    """Return the start and the end of a text that together have at most `limit` tokens; `mode` selects which."""
    total = counter.text(text)
    if total <= limit:
        return text, ""
    share = {"head": (1.0, 0.0), "tail": (0.0, 1.0), "both": (0.5, 0.5)}[mode]

    def halves(chars: int) -> tuple[str, str]:
        return head_and_tail(text, int(chars * share[0]), int(chars * share[1]))

    def fits(chars: int) -> bool:
        return sum(map(counter.text, halves(chars))) <= limit

    return halves(largest(0, len(text), fits, guess=len(text) * limit // max(1, total)))


def text_exceeding(text: str, start: int, limit: int, counter: Counter) -> str:
    """Return just enough of the text from `start` on to exceed `limit` tokens, or all of it. O(size of the result)."""
    # Four characters are more than a token of code and less than one of prose: two tries are enough for most texts.
    chars = 4 * limit + 16
    while start + chars < len(text) and counter.text(text[start : start + chars]) <= limit:
        chars *= 2
    return text[start : start + chars]


def first_line(text: str, most: int = 200) -> str:
    """Return the first line that is not blank, at most `most` characters."""
    for line in text[: 20 * most].splitlines():
        if line.strip():
            return line.strip()[:most]
    return ""


@dataclass(slots=True)
class _Line:
    number: int
    text: str
    tokens: int
    names: frozenset[str]
    score: float = 0.0


USE_WORTH, MAX_USE_WORTH = 3, 9
"""The worth that each use of a name by the user or the agent adds to its base of 1, up to MAX_USE_WORTH."""

ALARMING, DEFINING = 4, 4
"""Additional worth of a line with an error message, and of one with a definition."""

# A definition in code, behind the line number of a listing.
_DEFINES = re.compile(
    r"^[\s\d:|]*(?:async\s+|export\s+|public\s+|private\s+|static\s+)*"
    r"(?:def|class|function|func|fn|interface|struct|enum|type|const|create|CREATE)\b"
)

# Scores of edges and of pinned lines, above any score by names.
_EDGE, _KEPT = 1e6, 2e6


def extract(
    text: str,
    limit: int,
    counter: Counter,
    name_counts: Mapping[str, int] = MappingProxyType({}),
    *,
    edge: float = 0.5,
    seen: Collection[str] = (),
    pinned: Collection[str] = (),
    total: int | None = None,
) -> str:
    """Return about `limit` tokens of a text: its beginning and end, and the lines between with the most useful names.

    `edge` is the share of beginning and end. Lines keep their order; "…" stands for each gap. A name counts more the
    more often the user or the agent has used it (`name_counts`), and less the more lines here have it, because a name
    in every line distinguishes none. Definitions and error messages count more. Names in `seen` are shown elsewhere
    already. Lines in `pinned` come first, as far as they fit whole. `total` is the number of tokens of the text, if
    known. A very long text is scored in sections only (see `pieces`). O(size), at the speed of C for most of it.
    """
    # The weights are measured: of 1,065 lines of results that later replies of recorded sessions referred to, a quarter
    # more stay in the same size than with equal weights.
    total = counter.text(text) if total is None else total
    if total <= limit:
        return text
    pinned = frozenset(pinned)
    found = pieces(text, name_counts, pinned)
    # Lines are weighed by their characters, scaled to the size of the whole: to count each one would cost far more, and
    # `_within` counts what was picked.
    lines = [_Line(number, line, len(line) // 4 + 2, frozenset()) for number, line in found]
    share = 1.0 if len(text) <= FULLY_SCORED_CHARS else sum(len(line.text) + 1 for line in lines) / len(text)
    scale = total * share / max(1, sum(line.tokens for line in lines))
    room = limit / max(scale, 0.1)
    picked = {line.number: line for line in lines if line.text in pinned}
    for line in picked.values():
        line.score = _KEPT
    left = room - sum(line.tokens for line in picked.values())
    picked |= _edges([line for line in lines if line.number not in picked], left * edge)
    middle = [line for line in lines if line.number not in picked and line.text.strip()]
    shown = set(seen).union(*(names(line.text) for line in picked.values()))
    spread: Spread[str] = Spread()
    for line in middle:
        line.names = names(line.text).difference(seen)
        spread.update(line.names)
    for line in middle:
        # `fsum` rounds once. The order of a set differs between processes, and a sum rounded at each step with it.
        worth = fsum(
            (1 + min(USE_WORTH * name_counts.get(name, 0), MAX_USE_WORTH)) / spread[name] for name in line.names
        )
        defining, alarming = _signs(line.text)
        worth += defining
        worth += alarming
        each = line.text.count("\n") + 1  # joined lines count as one of them
        line.score = worth / each / (line.tokens / each + 2) ** 0.8
    _pick(middle, picked, shown, room - sum(line.tokens for line in picked.values()))
    return _within(picked, lines[-1].number + 1, limit, counter) or "".join(clip_tokens(text, limit, counter))


@lru_cache(maxsize=8_192)  # results repeat lines of earlier ones
def _signs(line: str) -> tuple[int, int]:
    """Return the worth of a line as a definition and as an error message."""
    return DEFINING if _DEFINES.match(line) else 0, ALARMING if ALARM.search(line) else 0


def _pick(middle: list[_Line], picked: dict[int, _Line], shown: set[str], room: float) -> None:
    """Add the best lines to the picked ones. Lines whose names are all shown already come last."""
    again: list[_Line] = []
    for line in sorted(middle, key=lambda x: (-x.score, x.number)):
        # Two tokens for the "…" of a new gap: a line next to a picked one comes without.
        cost = line.tokens + (0 if line.number - 1 in picked else 2)
        if line.score <= 0 or cost > room:
            continue
        if line.names <= shown:
            again.append(line)
            continue
        shown |= line.names
        picked[line.number] = line
        room -= cost
    for line in again:
        if line.tokens + 2 <= room:
            picked[line.number] = line
            room -= line.tokens + 2


def _within(picked: dict[int, _Line], total: int, limit: int, counter: Counter) -> str:
    """Return the picked lines, or as many of the best as fit `limit` tokens; "" if not even one fits."""
    ranked = sorted(picked, key=lambda number: (-picked[number].score, number))

    def best(most: int) -> str:
        return _joined([picked[number] for number in sorted(ranked[:most])], total)

    size = counter.text(best(len(ranked)))
    if size <= limit:
        return best(len(ranked))
    guess = len(ranked) * limit // max(1, size)
    most = largest(0, len(ranked), lambda n: counter.text(best(n)) <= limit, guess=guess)
    return best(most) if most else ""


def _edges(lines: list[_Line], room: float) -> dict[int, _Line]:
    """Return the first lines in three fifths of `room` and the last in two fifths. A long line is cut."""
    picked: dict[int, _Line] = {}
    for order, share, end in ((lines, 0.6, False), (lines[::-1], 0.4, True)):
        left = int(room * share)
        for whole in order:
            if whole.number in picked or left < 8:
                break
            line = whole
            if line.tokens > left:
                piece = line.text[-4 * left + 8 :] if end else line.text[: 4 * left - 8]
                line = _Line(line.number, f"…{piece}" if end else f"{piece}…", left, frozenset())
            left -= line.tokens
            line.score = _EDGE - len(picked)
            picked[line.number] = line
    return picked


def _joined(lines: list[_Line], total: int) -> str:
    out: list[str] = []
    at = 0
    for line in lines:
        if line.number > at:
            out.append("…")
        out.append(line.text)
        at = line.number + 1
    if at < total:
        out.append("…")
    return "\n".join(out)
