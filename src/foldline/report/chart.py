"""Charts of context size over the requests of a session, as inline SVG: one per policy, all at one scale.

The marks differ in form as well as in colour: a thin line for the recorded size, a thick one for the sent size,
triangles or ticks for folds, a dashed line for the limit. The colours (`document`) suit any colour vision.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby, takewhile
from typing import Final

from foldline.replay import Mark, Replay, Turn
from foldline.text.formatting import compact, escaped, plural

__all__ = ["chart", "fold_text"]

# In units of the viewBox; the page scales the drawing. 360 is the width of a narrow phone, where one unit is a pixel.
_WIDTH: Final = 360
_HEIGHT: Final = 172
_LEFT: Final = 40
_RIGHT: Final = 352
_TOP: Final = 14
_BOTTOM: Final = 150

# The scale ends at this multiple of the limit. Larger requests leave the chart: else the limit would be at its foot.
_HEADROOM: Final = 1.35

# Browsers show a title as plain text in a small box; the list below the chart has all folds.
_NAMED_FOLDS: Final = 4

_CROWDED: Final = 60  # requests with folds; more triangles would hide the line
_MAX_POINTS: Final = 1_000  # of a line; beyond that several share a pixel


def chart(replay: Replay, *, identifier: str, whole: str = "recorded") -> str:
    """The chart of one replay. `identifier` is unique in the page; `whole` names the thin line. O(turns)."""
    # SVG as text and no plotting library: a page without scripts, and no dependency for a few lines. The order of the
    # parts is the order of drawing, so marks lie above lines.
    plot = _Plot(replay, whole)
    label = f"{identifier}-title {identifier}-desc"
    return "\n".join(
        (
            f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-labelledby="{label}">',
            f'<title id="{identifier}-title">Context size under {escaped(replay.policy)}</title>',
            f'<desc id="{identifier}-desc">{_described(replay)}</desc>',
            *plot.axes(),
            *plot.recorded(),
            *plot.sent(),
            *plot.folds(),
            *plot.refused(),
            "</svg>",
        )
    )


def _described(replay: Replay) -> str:
    # The description in words for screen readers, with the figures that the drawing shows.
    sent = [turn.tokens for turn in replay.turns if not turn.refused]
    ends = f"from {sent[0]:,} to {sent[-1]:,} tokens, at most {max(sent):,}" if sent else "nothing was sent"
    return (
        f"{plural(replay.requests, 'request')}: {ends}; limit {replay.limit_tokens:,}. "
        f"{plural(replay.folds, 'fold')}, {plural(replay.prefix_breaks, 'prefix break')}, "
        f"{replay.over_budget:,} over the limit, {replay.refused:,} refused."
    )


def fold_text(mark: Mark) -> str:
    """One fold as a line of text."""
    span = f"message {mark.start}" if mark.stop - mark.start == 1 else f"messages {mark.start} to {mark.stop - 1}"
    return f"{mark.reducer}, {span}: {mark.before_tokens:,} → {mark.tokens:,} tokens ({mark.reason})"


class _Plot:
    """The elements of one chart, at the scale of its session."""

    def __init__(self, replay: Replay, whole: str) -> None:
        self._replay, self._whole = replay, whole
        recorded = max((turn.recorded_tokens for turn in replay.turns), default=1)
        largest = max(recorded, replay.peak_tokens, 1)
        # Sessions far below the limit get their own scale: else they would be a line at the foot.
        self._top_tokens = min(replay.limit_tokens * _HEADROOM, largest * 1.1)
        self._steps = max(replay.requests - 1, 1)

    def _x(self, index: int) -> float:
        return _LEFT + (_RIGHT - _LEFT) * index / self._steps

    def _y(self, tokens: float) -> float:
        return _BOTTOM - (_BOTTOM - _TOP) * tokens / self._top_tokens

    def axes(self) -> Iterable[str]:
        """The base line, the limit, and the labels of the scale."""
        limit, requests = self._replay.limit_tokens, self._replay.requests
        yield f'<line class="axis" x1="{_LEFT}" y1="{_BOTTOM}" x2="{_RIGHT}" y2="{_BOTTOM}"/>'
        yield _text(_LEFT - 4, _BOTTOM + 4, "0", "end")
        yield _text(_LEFT, _BOTTOM + 16, "1", "start")
        yield _text(_RIGHT, _BOTTOM + 16, plural(requests, "request"), "end")
        if limit <= self._top_tokens:
            y = self._y(limit)
            yield f'<line class="limit" x1="{_LEFT}" y1="{y:.1f}" x2="{_RIGHT}" y2="{y:.1f}"/>'
            yield _text(_LEFT - 4, y + 4, compact(limit), "end")
        else:
            yield _text(_LEFT - 4, self._y(self._top_tokens / 1.1) + 4, compact(self._top_tokens / 1.1), "end")
            yield _text(_RIGHT, _TOP - 4, f"limit {compact(limit)}, above", "end")

    def recorded(self) -> Iterable[str]:
        """The size without management, cut where it leaves the chart and labelled there with its last value."""
        turns = self._replay.turns
        points = [(self._x(turn.index), turn.recorded_tokens) for turn in turns]
        inside = list(takewhile(lambda point: point[1] <= self._top_tokens, points))
        if len(inside) < len(points):
            x, size = points[len(inside)]
            before = inside[-1] if inside else (float(_LEFT), 0)
            # Interpolated, so that the line leaves the chart at its slope and not at the last point inside.
            part = (self._top_tokens - before[1]) / max(size - before[1], 1)
            inside.append((before[0] + (x - before[0]) * part, int(self._top_tokens)))
            room = inside[-1][0] < _RIGHT - 90  # about the width of the label
            anchor, shift = ("start", 4) if room else ("end", -4)
            grows = f"{self._whole}, to {compact(points[-1][1])}"
            yield _text(inside[-1][0] + shift, _TOP + 2, grows, anchor)
        yield self._line("recorded", inside)

    def sent(self) -> Iterable[str]:
        """The size of each request; the line breaks at refused ones."""
        # A line through a refused request would show a size that was never sent.
        run: list[tuple[float, float]] = []
        for turn in self._replay.turns:
            if turn.refused:
                yield from [self._line("sent", run)] if run else []
                run = []
            else:
                run.append((self._x(turn.index), min(turn.tokens, self._top_tokens)))
        if run:
            yield self._line("sent", run)

    def folds(self) -> Iterable[str]:
        """A triangle at each request preceded by folds, or ticks at the foot when there are too many.

        The title element shows the folds on hover.
        """
        # A policy that folds before every request would draw one triangle over the next, and the line would vanish.
        folding = [turn for turn in self._replay.turns if turn.folds]
        if len(folding) > _CROWDED:
            for _, near in groupby(folding, lambda turn: round(self._x(turn.index))):
                turns = list(near)
                x = self._x(turns[0].index)
                tick = f'<path d="M{x - 0.75:.1f} {_BOTTOM}v-7h1.5v7z"/>'
                yield f'<g class="fold"><title>{escaped(_folds_title(turns))}</title>{tick}</g>'
            return
        for turn in folding:
            x, y = self._x(turn.index), self._y(min(turn.tokens, self._top_tokens))
            # The invisible circle makes the target of a pointer larger than the triangle.
            mark = f'<circle cx="{x:.1f}" cy="{y - 5:.1f}" r="8"/><path d="M{x:.1f} {y - 1.5:.1f}l-3.2 -6h6.4z"/>'
            yield f'<g class="fold"><title>{escaped(_fold_title(turn))}</title>{mark}</g>'

    def refused(self) -> Iterable[str]:
        """A cross at each refused request, with the parts that were too large."""
        for turn in self._replay.turns:
            if turn.refused:
                x, parts = self._x(turn.index), "; ".join(map(str, turn.refused))
                title = escaped(f"Request {turn.index + 1} does not fit: {parts}")
                yield f'<g class="refused"><title>{title}</title>{_cross(x, self._y(0) - 5)}</g>'

    def _line(self, kind: str, points: Sequence[tuple[float, float]]) -> str:
        # A line of one point draws nothing.
        if len(points) == 1:
            return f'<circle class="{kind} point" cx="{points[0][0]:.1f}" cy="{self._y(points[0][1]):.1f}" r="2"/>'
        drawn = " ".join(f"{x:.1f},{self._y(size):.1f}" for x, size in _thinned(points))
        return f'<polyline class="{kind}" points="{drawn}"/>'


def _thinned(points: Sequence[tuple[float, float]]) -> Sequence[tuple[float, float]]:
    """At most four points per pixel: the first, the lowest, the highest and the last."""
    # Extremes and ends of each pixel draw the same picture as all points. A mean would hide the peak that did not fit.
    if len(points) <= _MAX_POINTS:
        return points
    out: list[tuple[float, float]] = []
    for _, near in groupby(points, lambda point: round(point[0])):
        column = list(near)
        ends = {0, len(column) - 1}
        ends.add(min(range(len(column)), key=lambda at: column[at][1]))
        ends.add(max(range(len(column)), key=lambda at: column[at][1]))
        out += [column[at] for at in sorted(ends)]
    return out


def _fold_title(turn: Turn) -> str:
    named = [fold_text(mark) for mark in turn.folds[:_NAMED_FOLDS]]
    more = len(turn.folds) - len(named)
    head = f"Before request {turn.index + 1}, {plural(len(turn.folds), 'fold')}:"
    return "\n".join((head, *named, *([f"and {more:,} more"] if more else [])))


def _folds_title(turns: Sequence[Turn]) -> str:
    """The title of a tick: the folds before one request, or the number before several."""
    if len(turns) == 1:
        return _fold_title(turns[0])
    folds = sum(len(turn.folds) for turn in turns)
    return f"Before requests {turns[0].index + 1} to {turns[-1].index + 1}, {plural(folds, 'fold')}"


def _cross(x: float, y: float) -> str:
    return f'<path d="M{x - 3:.1f} {y - 3:.1f}l6 6m0 -6l-6 6"/>'


def _text(x: float, y: float, words: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{words}</text>'
