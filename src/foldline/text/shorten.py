"""Shorten texts: never inside a code point, always with a line that says what is missing.

`keep` cuts by lines, characters, bytes or tokens. `extract` picks the lines with the most useful names. Both are pure.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from heapq import nsmallest
from math import fsum, sqrt
from types import MappingProxyType
from typing import Literal, TypeAlias

from foldline.text.identifiers import names
from foldline.text.memory import TextMemory
from foldline.text.sampling import FULLY_SCORED_CHARS, LEAST_WEIGHT, Passages, passages_of, scored_whole
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


USE_WORTH, MAX_USE_WORTH = 3, 9
"""The worth that each use of a name by the user or the agent adds to its base of 1, up to MAX_USE_WORTH."""

# A name that a text repeats is used more than one that it has once, up to so many pieces.
_MOST_REPEATS = 8

# The least that an end of a text gets.
_LEAST_END = 8

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
    named: float | None = None,
    total: int | None = None,
    memory: TextMemory | None = None,
) -> str:
    """Return about `limit` tokens of a text: its beginning and end, and the lines between with the most useful names.

    `edge` is the share of beginning and end. Lines keep their order; "…" stands for each gap. A name counts more the
    more often the user or the agent has used it (`name_counts`), and less the more lines here have it, because a name
    in every line distinguishes none. Definitions and error messages count more. Names in `seen` are shown elsewhere
    already. Lines in `pinned` come first, as far as they fit whole.

    `named` is the share of the other room in which names from left-out lines stand behind the "…" of their gap; they
    also get what no line fits in. With None no name stands alone. `total` is the number of tokens of the text, if
    known.

    A very long text is scored in sections only (see `pieces`). O(size), at the speed of C for most of it, or O(names)
    for a text that `memory` knows.
    """
    # The weights are measured: of 1,065 lines of results that later replies of recorded sessions referred to, a quarter
    # more stay in the same size than with equal weights.
    count = counter.text if memory is None else memory.tokens
    total = count(text) if total is None else total
    if total <= limit:
        return text
    pinned = frozenset(pinned)
    whole = memory is not None and scored_whole(text)
    lines = memory.passages(text) if memory is not None and whole else passages_of(text, name_counts, pinned)
    share = 1.0 if len(text) <= FULLY_SCORED_CHARS else sum(len(line) + 1 for line in lines.texts) / len(text)
    # Lines are weighed by their characters, scaled to the size of the whole; `within` counts what was picked.
    scale = total * share / max(1, lines.total_weight)
    room = limit / max(scale, 0.1)
    kept = [place for place, line in enumerate(lines.texts) if line in pinned] if pinned else []
    picked = _Picked(lines, dict.fromkeys(kept, _KEPT))
    room -= sum(lines.pieces[place].weight for place in kept)
    room -= picked.add_edges(room * edge)
    seen = seen if isinstance(seen, Set) else frozenset(seen)  # not copied: a digest has shown many names
    apart = room * (named or 0.0)
    left = room - apart
    if picked.may_add(left):
        left = picked.add_best(_scores(picked, name_counts, seen), seen, left)
    if named is not None:
        picked.add_names(name_counts, seen, left + apart)
    return picked.within(limit, count) or "".join(clip_tokens(text, limit, counter))


@dataclass(slots=True)
class _Picked:
    """The lines of a text that stay, by their places."""

    lines: Passages
    scores: dict[int, float]
    cut: dict[int, str] = field(default_factory=dict)
    """The texts of those that were cut."""
    alone: dict[str, int] = field(default_factory=dict)
    """Names shown without their lines, the best first, with the place of the first line that has each."""

    def names(self) -> list[frozenset[str]]:
        """Return the names of each."""
        pieces, cut = self.lines.pieces, self.cut
        return [names(cut[place]) if place in cut else pieces[place].names for place in self.scores]

    def add_edges(self, room: float) -> int:
        """Add the first lines in three fifths of `room` and the last in two fifths, and return their size.

        Only the first and the last line of all are cut: what a cut line behind whole ones takes, other lines need.
        """
        added = 0
        if int(room * 0.6) < _LEAST_END:
            return added
        lines, kept = self.lines, frozenset(self.scores)
        for places, share, end in ((range(len(lines.texts)), 0.6, False), (_from_the_end(lines.texts), 0.4, True)):
            left = most = int(room * share)
            for place in places:
                # What an earlier extract put for a gap is no end of a text.
                if place in kept or lines.texts[place].startswith("…"):
                    continue
                if place in self.scores or left < _LEAST_END:
                    break
                tokens, text = lines.pieces[place].weight, lines.texts[place]
                if tokens > left and left < most:
                    break
                if tokens > left:
                    self.cut[place] = f"…{text[-4 * left + 8 :]}" if end else f"{text[: 4 * left - 8]}…"
                    tokens = left
                left -= tokens
                added += tokens
                self.scores[place] = _EDGE - (len(self.scores) - len(kept))
        return added

    def may_add(self, room: float) -> bool:
        """Whether the smallest line that says something fits. A text of one line that is cut has none. O(lines)."""
        pieces, scores = self.lines.pieces, self.scores
        weights = [pieces[place].weight for place in self.lines.worthy if place not in scores]
        return bool(weights) and min(weights) <= room

    def add_best(self, scores: Mapping[int, float], seen: Set[str], room: float) -> float:
        """Add the lines with the best scores, and return the room left. Those whose names are all shown already, or
        `seen`, come last.
        """
        lines, numbers = self.lines, self.lines.numbers
        shown = set[str]().union(*self.names())
        again: list[int] = []
        # A stable sort: of two with the same score the first comes first.
        for place in sorted(scores, key=scores.__getitem__, reverse=True):
            if room < LEAST_WEIGHT:
                return room
            # Two tokens for the "…" of a new gap: a line next to a picked one comes without.
            joins = place - 1 in self.scores and numbers[place - 1] == numbers[place] - 1
            piece = lines.pieces[place]
            cost = piece.weight + (0 if joins else 2)
            if cost > room:
                continue
            if piece.names.difference(shown) <= seen:
                again.append(place)
                continue
            shown |= piece.names
            self.scores[place] = scores[place]
            room -= cost
        for place in again:
            if (cost := lines.pieces[place].weight + 2) <= room:
                self.scores[place] = scores[place]
                room -= cost
        return room

    def add_names(self, name_counts: Mapping[str, int], seen: Set[str], room: float) -> None:
        """Add names alone that are neither shown nor `seen`, first those worth most for their size. O(names)."""
        lines, spread, known = self.lines, self.lines.spread, set[str]().union(*self.names())
        first: dict[str, int] = {}
        for place in lines.worthy:
            if new := () if place in self.scores else lines.pieces[place].names - known - seen:
                known |= new
                first.update(dict.fromkeys(new, place))

        # The place and the name break ties: the order of a set differs between processes.
        def rank(name: str) -> tuple[float, int, str]:
            worth = sqrt(min(spread[name], _MOST_REPEATS)) + min(USE_WORTH * name_counts.get(name, 0), MAX_USE_WORTH)
            return -worth / _name_weight(name), first[name], name

        # No name is shorter than five characters of ASCII, or two of a wide script.
        for name in nsmallest(int(room) + 1, first, key=rank):
            if (cost := _name_weight(name)) <= room:
                self.alone[name] = first[name]
                room -= cost

    def within(self, limit: int, count: Callable[[str], int]) -> str:
        """Return the lines, or as many of the best as fit `limit` tokens; "" if not even one fits."""

        def best(names: int, lines: int) -> str:
            return self._joined(ranked[:lines], alone[:names])

        alone, ranked = list(self.alone), sorted(self.scores, key=lambda place: (-self.scores[place], place))
        text = best(len(alone), len(ranked))
        size = count(text)
        if size <= limit:
            return text
        # Names go first: the room of lines was counted without them.
        if alone and (least := count(best(0, len(ranked)))) <= limit:
            guess = len(alone) * (limit - least) // max(1, size - least)
            most = largest(0, len(alone), lambda n: count(best(n, len(ranked))) <= limit, guess=guess)
            return best(most, len(ranked))
        guess = len(ranked) * limit // max(1, size)
        most = largest(0, len(ranked), lambda n: count(best(0, n)) <= limit, guess=guess)
        return best(0, most) if most else ""

    def _joined(self, places: Iterable[int], alone: Iterable[str]) -> str:
        lines, whole = self.lines, set(places)
        named: dict[int, list[str]] = {}
        for name in alone:
            named.setdefault(self.alone[name], []).append(name)
        out: list[str] = []
        gap: list[str] = []
        at = 0
        for place in sorted(whole | named.keys()):
            if place not in whole:
                gap += sorted(named[place], key=lines.texts[place].find)
                continue
            number = lines.numbers[place]
            if number > at:
                out.append(" ".join(("…", *gap)))
            gap = []
            out.append(self.cut[place] if place in self.cut else lines.texts[place])
            at = number + 1
        if at <= lines.numbers[-1]:
            out.append(" ".join(("…", *gap)))
        return "\n".join(out)


def _name_weight(name: str) -> float:
    """About the tokens of a name with the blank before it: names have fewer characters to the token than lines."""
    return len(name) / 3.6 + 1.2


def _from_the_end(texts: Sequence[str]) -> range:
    return range(len(texts) - 1, -1, -1)


def _scores(picked: _Picked, name_counts: Mapping[str, int], seen: Collection[str]) -> dict[int, float]:
    """Return the score of each line that is not picked yet and has one, by its place. O(names), mostly at C speed."""
    lines, pieces, done = picked.lines, picked.lines.pieces, picked.scores
    spread = dict(lines.spread)
    for place in done:
        for name in lines.pieces[place].names:
            spread[name] -= 1
    worths = {name: 1 / lines_with for name, lines_with in spread.items() if lines_with}
    for name in worths.keys() & name_counts.keys():
        worths[name] = (1 + min(USE_WORTH * name_counts[name], MAX_USE_WORTH)) / spread[name]
    worths.update(dict.fromkeys(worths.keys() & seen, 0.0))
    worth_of = worths.__getitem__
    out: dict[int, float] = {}
    for place in lines.worthy:
        if place in done:
            continue
        # `fsum` rounds once. The order of a set differs between processes, and a sum rounded at each step with it.
        piece = pieces[place]
        worth = fsum(map(worth_of, piece.names)) + piece.worth
        if worth > 0:
            out[place] = worth / piece.lines / piece.divisor
    return out
