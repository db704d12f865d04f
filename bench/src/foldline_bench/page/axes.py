"""Scales, axes and labels of the larger charts, as SVG fragments."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

__all__ = ["Frame", "LabelPlace", "Scale", "apart", "label_place", "text", "ticks_to"]

# The average width of a letter at a size of 11: exact enough to keep labels apart.
_CHAR_WIDTH: Final = 6.2

# The same in bold.
_BOLD_WIDTH: Final = 7.2

_LINE_HEIGHT: Final = 12.0

# Horizontal offsets of a label from its point.
_ASIDE: Final = (9.0, 22.0, 40.0, 65.0, 95.0, 130.0)

# Vertical offsets.
_UP: Final = tuple(6.5 * half_line for half_line in range(-18, 19))

# The penalty of a unit of distance, in square units of covered area: covering a sliver is better than a long line.
_FAR: Final = 0.15

_Box: TypeAlias = tuple[float, float, float, float]


@dataclass(frozen=True, slots=True)
class Scale:
    """The position of a value in a chart, linear or logarithmic. Values beyond an end are drawn at it."""

    low: float
    high: float
    start: float
    stop: float
    log: bool = False

    def __call__(self, value: float) -> float:
        """Return the position of a value."""
        value = min(max(value, self.low), self.high)
        if self.log:
            part = math.log(value / self.low) / math.log(self.high / self.low)
        else:
            part = (value - self.low) / (self.high - self.low)
        return self.start + part * (self.stop - self.start)


@dataclass(frozen=True, slots=True)
class Frame:
    """The box that a chart is drawn in: its scales from left to right and from the foot up."""

    x: Scale
    y: Scale

    def lines(
        self,
        x_ticks: Iterable[tuple[float, str]],
        y_ticks: Iterable[tuple[float, str]],
        *,
        x_name: str,
        y_name: str,
    ) -> list[str]:
        """Grid lines with their figures, and the titles of the axes."""
        left, right, foot, top = self.x.start, self.x.stop, self.y.start, self.y.stop
        out = []
        for value, words in y_ticks:
            y = self.y(value)
            out += [f'<path class="axis" d="M{left} {y:.1f}H{right}"/>', text(left - 5, y + 4, words, "end")]
        for value, words in x_ticks:
            x = self.x(value)
            out += [f'<path class="axis" d="M{x:.1f} {foot}v4"/>', text(x, foot + 16, words, "middle")]
        out.append(text(right, foot + 31, x_name, "end", kind="name"))
        out.append(text(left - 34, top - 10, y_name, "start", kind="name"))
        return out


def text(x: float, y: float, words: str, anchor: str, *, kind: str = "") -> str:
    """Return an SVG text; `words` are escaped already."""
    named = f' class="{kind}"' if kind else ""
    return f'<text{named} x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{words}</text>'


def ticks_to(high: float, *, most: int = 6) -> list[float]:
    """Return round values from 0 up to `high`, at most `most` steps."""
    raw = high / most
    size = 10.0 ** math.floor(math.log10(raw))
    step = next(size * times for times in (1, 2, 2.5, 5, 10) if size * times >= raw * 0.999)
    return [step * number for number in range(int(high / step * 1.0001) + 1)]


def apart(places: Sequence[float], *, gap: float, low: float, high: float) -> list[float]:
    """Move places so that they are `gap` apart, in their order, and within the ends. O(n log n).

    If there is no room for that, they are closer.
    """
    # One pass pushes down, a second one pushes back up from the end. It does not minimise the movement, which labels of
    # lines do not need.
    order = sorted(range(len(places)), key=lambda at: places[at])
    gap = min(gap, (high - low) / max(len(places) - 1, 1))
    moved = [min(max(places[at], low), high) for at in order]
    for at in range(1, len(moved)):
        moved[at] = max(moved[at], moved[at - 1] + gap)
    if moved and moved[-1] > high:
        moved[-1] = high
        for at in range(len(moved) - 2, -1, -1):
            moved[at] = min(moved[at], moved[at + 1] - gap)
    out = [0.0] * len(places)
    for at, place in zip(order, moved, strict=True):
        out[at] = place
    return out


@dataclass(frozen=True, slots=True)
class LabelPlace:
    """Where a label stands, and whether so far from its point that a line has to lead there."""

    x: float
    y: float
    anchor: str
    led: bool
    box: _Box

    @property
    def lead_end(self) -> tuple[float, float]:
        """Where such a line ends."""
        return self.x + (-2 if self.anchor == "start" else 2), self.y - 4


def label_place(
    points: Sequence[tuple[float, float]],
    labels: Sequence[str],
    frame: Frame,
    *,
    taken: Sequence[tuple[float, float]],
    bold: Sequence[bool] = (),
) -> list[LabelPlace]:
    """Place each label near its point, where it covers little of earlier labels, points and lines.

    `taken` are all points of the chart; `bold` says which labels are wider. O(labels x (labels + points)).
    """
    # Greedy, in the order given: the best layout of all labels is NP-hard, and the page has the same layout each time.
    marks: list[_Box] = [(x - 5, y - 5, x + 5, y + 5) for x, y in taken]
    filled, written = list(marks), list[_Box]()
    out = []
    for number, ((x, y), label) in enumerate(zip(points, labels, strict=True)):
        width = len(label) * (_BOLD_WIDTH if bold and bold[number] else _CHAR_WIDTH)
        best, least = None, math.inf
        for place in _places(x, y, width):
            against = _FAR * math.dist((x, y), place.lead_end)
            if against >= least:
                # All others are farther away, and cost more by the distance alone.
                break
            against += _covered(place.box, filled, frame)
            if place.led:
                line = _along((x, y), place.lead_end)
                against += _LINE_HEIGHT * sum(any(map(_inside(at), written)) for at in line)
                against += sum(any(map(_inside(at), marks)) for at in line)
            if against < least:
                best, least = place, against
        if best is not None:
            out.append(best)
            written.append(best.box)
            filled.append(best.box)
            if best.led:
                filled += [(px - 1, py - 1, px + 1, py + 1) for px, py in _along((x, y), best.lead_end)]
    return out


def _places(x: float, y: float, width: float) -> list[LabelPlace]:
    """Return all candidates, the nearest first."""
    found = []
    for aside in _ASIDE:
        for up in _UP:
            led = aside > _ASIDE[0] or abs(up) > _LINE_HEIGHT + 1
            base, right, left = y + 4 + up, x + aside, x - aside
            found.append(LabelPlace(right, base, "start", led, (right, base - 9, right + width, base + 2)))
            found.append(LabelPlace(left, base, "end", led, (left - width, base - 9, left, base + 2)))
    return sorted(found, key=lambda place: math.dist((x, y), place.lead_end))


def _along(start: tuple[float, float], end: tuple[float, float]) -> list[tuple[float, float]]:
    """Points on a line, without the part that its own point covers."""
    count = max(2, int(math.dist(start, end) / 4))
    parts = [at / count for at in range(count + 1)]
    line = [(start[0] + part * (end[0] - start[0]), start[1] + part * (end[1] - start[1])) for part in parts]
    return [at for at in line if math.dist(at, start) > 7]


def _inside(at: tuple[float, float]) -> Callable[[_Box], bool]:
    return lambda box: box[0] <= at[0] <= box[2] and box[1] <= at[1] <= box[3]


def _covered(box: _Box, boxes: Iterable[_Box], frame: Frame) -> float:
    left, top, right, foot = box
    outside = max(0.0, frame.x.start - left) + max(0.0, right - frame.x.stop)
    outside += max(0.0, frame.y.stop - top) + max(0.0, foot - frame.y.start)
    shared = sum(
        (min(right, other[2]) - max(left, other[0])) * (min(foot, other[3]) - max(top, other[1]))
        for other in boxes
        if other[0] < right and left < other[2] and other[1] < foot and top < other[3]  # of many, hardly any
    )
    return shared + outside * _LINE_HEIGHT * 2
