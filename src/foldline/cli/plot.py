"""A bar plot of character cells, for terminals of any width."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from foldline.text.formatting import compact

__all__ = ["plot"]

_EIGHTHS: Final = " ▁▂▃▄▅▆▇█"
_WIDEST_BAR: Final = 4
_FEWEST_COLUMNS: Final = 8


class _Column(NamedTuple):
    low: float
    high: float
    marked: bool


def plot(values: Sequence[float], marked: Sequence[bool], *, width: int, height: int, ascii_only: bool) -> list[str]:
    """Lines of text, each at most `width` characters (8 columns are drawn on the narrowest terminals too).

    Bars stand on 0. Where there are more values than columns, a column is solid up to the least of its values and
    shaded up to the greatest, so that falls stay visible. A mark stands below its column. O(values).
    """
    top = max(values, default=0) or 1
    labels = _labels(top, height)
    margin = max(map(len, labels)) + 2
    columns = _columns(values, marked, max(width - margin, _FEWEST_COLUMNS))
    lines = []
    for row in range(height):
        floor = height - 1 - row
        cells = "".join(_cell(column, top / height, floor, ascii_only) for column in columns)
        edge = ("|" if ascii_only else "│") if not labels[row] else "+" if ascii_only else "┤"
        lines.append(f"{labels[row]:>{margin - 2}} {edge}{cells}".rstrip())
    corner, line, mark = ("+", "-", "v") if ascii_only else ("┼", "─", "▼")
    lines.append(f"{'0':>{margin - 2}} {corner}{line * len(columns)}")
    if any(column.marked for column in columns):
        lines.append((" " * margin + "".join(mark if column.marked else " " for column in columns)).rstrip())
    return lines


def _labels(top: float, height: int) -> list[str]:
    """The scale: the greatest value beside the top row, half of it beside the middle one."""
    labels = [""] * height
    labels[0] = compact(top)
    if height >= 4 and height % 2 == 0:
        labels[height // 2] = compact(top / 2)
    return labels


def _columns(values: Sequence[float], marked: Sequence[bool], room: int) -> list[_Column]:
    count = len(values)
    if count <= room:
        wide = min(room // max(count, 1), _WIDEST_BAR)
        return [
            _Column(value, value, mark and not place)
            for value, mark in zip(values, marked, strict=True)
            for place in range(wide)
        ]
    bounds = [at * count // room for at in range(room + 1)]
    spans = [slice(start, stop) for start, stop in pairwise(bounds)]
    return [_Column(min(values[span]), max(values[span]), any(marked[span])) for span in spans]


def _cell(column: _Column, step: float, floor: int, ascii_only: bool) -> str:
    """One cell: `step` is what a row stands for, `floor` the rows below it."""
    solid = min(max(column.low / step - floor, 0.0), 1.0)
    reached = column.high / step - floor
    if ascii_only:
        return "#" if solid >= 0.5 else ":" if reached >= 0.5 else " "
    eighths = round(solid * 8)
    if floor == 0 and column.high > 0:
        eighths = max(eighths, 1)  # what is small is not nothing
    if eighths:
        return _EIGHTHS[eighths]
    return "░" if reached >= 0.5 else " "
