"""Scales, axes and labels of the larger charts, as pieces of SVG."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

__all__ = ["Frame", "Scale", "apart", "beside", "text", "ticks_to"]

_CHAR_WIDTH: Final = 6.2
"""Of a letter at 11 units, on average; enough to keep labels off each other."""

_LINE_HEIGHT: Final = 12.0

_Box: TypeAlias = tuple[float, float, float, float]
_Side: TypeAlias = tuple[float, float, str, _Box]


@dataclass(frozen=True, slots=True)
class Scale:
    """Where a value stands in a chart: evenly, or by its logarithm. What is beyond an end stands at it."""

    low: float
    high: float
    start: float
    stop: float
    log: bool = False

    def __call__(self, value: float) -> float:
        """The place of a value."""
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
        """Grid lines with their figures, and what the axes mean."""
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
    """A text, already escaped."""
    named = f' class="{kind}"' if kind else ""
    return f'<text{named} x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{words}</text>'


def ticks_to(high: float, *, most: int = 6) -> list[float]:
    """Round values from 0 up to `high`, at most so many."""
    raw = high / most
    size = 10.0 ** math.floor(math.log10(raw))
    step = next(size * times for times in (1, 2, 2.5, 5, 10) if size * times >= raw * 0.999)
    return [step * number for number in range(int(high / step * 1.0001) + 1)]


def apart(places: Sequence[float], *, gap: float, low: float, high: float) -> list[float]:
    """The places, moved as little as keeps them `gap` from each other, in their order, and inside. O(n log n).

    Where there is not room for all, they are closer.
    """
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


def beside(
    points: Sequence[tuple[float, float]], labels: Sequence[str], frame: Frame, *, taken: Sequence[tuple[float, float]]
) -> list[tuple[float, float, str]]:
    """(x, y, anchor) of each label beside its point, on the side that covers least: of other labels, points, the frame.

    `taken` are all points of the chart. O(labels x (labels + points)).
    """
    boxes: list[_Box] = [(x - 5, y - 5, x + 5, y + 5) for x, y in taken]
    out = []
    for (x, y), label in zip(points, labels, strict=True):
        found = min(_sides(x, y, len(label) * _CHAR_WIDTH), key=lambda side: _covered(side[3], boxes, frame))
        boxes.append(found[3])
        out.append(found[:3])
    return out


def _sides(x: float, y: float, width: float) -> list[_Side]:
    sides: list[_Side] = []
    for up in (4.0, -9.0, 17.0, -21.0, 29.0):
        right, left = x + 9, x - 9
        base = y + up
        sides.append((right, base, "start", (right, base - 9, right + width, base + 2)))
        sides.append((left, base, "end", (left - width, base - 9, left, base + 2)))
    return sides


def _covered(box: _Box, boxes: Iterable[_Box], frame: Frame) -> float:
    left, top, right, foot = box
    outside = max(0.0, frame.x.start - left) + max(0.0, right - frame.x.stop)
    outside += max(0.0, frame.y.stop - top) + max(0.0, foot - frame.y.start)
    shared = sum(
        max(0.0, min(right, other[2]) - max(left, other[0])) * max(0.0, min(foot, other[3]) - max(top, other[1]))
        for other in boxes
    )
    return shared + outside * _LINE_HEIGHT * 2
