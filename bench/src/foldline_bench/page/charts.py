"""The charts of a bench: cost against recall, lines over distance and length, warm and cold prices. Inline SVG.

What is told apart by colour differs in form too: filled, hollow, crossed out; solid and dashed lines.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from foldline.replay import NONE
from foldline.text.formatting import DASH, escaped, milliseconds, share
from foldline_bench.page.axes import Frame, LabelPlace, Scale, apart, label_place, text, ticks_to
from foldline_bench.values import Interval

__all__ = ["ChartLine", "Dot", "Spot", "cost_dots", "lines_chart", "pareto"]

_WIDTH: Final = 560
# Up to so many points each has its name; in fuller charts most have a number only.
_NAMED: Final = 10

# Higher costs are drawn at the edge: one of twenty times as much would press all others into a corner.
_DEAREST: Final = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Spot:
    """One system in the chart of cost against recall; `state` is on the front, off it, or not sound."""

    number: int
    name: str
    ours: bool
    state: Literal["front", "sound", "wrong"]
    cost: Interval
    far: Interval


@dataclass(frozen=True, slots=True, kw_only=True)
class ChartLine:
    """One system over a few values: (x, value, low, high). `colour` is its number among the coloured, None if grey."""

    name: str
    colour: int | None
    points: tuple[tuple[float, float, float, float], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Dot:
    """One system's cost with warm caches and with cold ones now and then."""

    name: str
    ours: bool
    warm: Interval
    cold: Interval | None


# --- cost against recall ----------------------------------------------------------------------------------------------


def pareto(spots: Sequence[Spot], *, identifier: str) -> str:
    """Cost against far recall with their intervals; a stair joins those on the front. O(n²)."""
    dearest = min(max([1.1, *(spot.cost["value"] for spot in spots)]) * 1.05, _DEAREST)
    frame = Frame(Scale(0, dearest, 48, 548, log=False), Scale(0, 1, 330, 26))
    points = [(frame.x(spot.cost["value"]), frame.y(spot.far["value"])) for spot in spots]
    named = [len(spots) <= _NAMED or spot.ours or spot.state == "front" or spot.name == NONE for spot in spots]
    labels = [spot.name if full else str(spot.number) for spot, full in zip(spots, named, strict=True)]
    order = sorted(
        range(len(spots)), key=lambda at: (spots[at].state != "front", not named[at], spots[at].state == "wrong")
    )
    places = label_place(
        [points[at] for at in order],
        [labels[at] for at in order],
        frame,
        taken=points,
        bold=[spots[at].ours for at in order],
    )
    drawn = [
        *frame.lines(
            [(value, f"{value:.2g}") for value in ticks_to(dearest)],
            [(value / 5, f"{value / 5:.1f}") for value in range(6)],
            x_name="cost, by that of no management: cheaper to the left",
            y_name="far recall",
        ),
        *_stair(frame, [spot for spot in spots if spot.state == "front"]),
        *(_whiskers(frame, spot) for spot in spots),
        *(_lead(*points[at], place) for at, place in zip(order, places, strict=True) if place.led),
        *(_spot(*points[at], spots[at]) for at in reversed(order)),  # the front last: it is covered by none
        *(
            text(place.x, place.y, escaped(labels[at]), place.anchor, kind=_label(spots[at]))
            for at, place in zip(order, places, strict=True)
        ),
    ]
    return _svg(identifier, "Cost against far recall, each system one point", 366, drawn)


def _lead(x: float, y: float, place: LabelPlace) -> str:
    end_x, end_y = place.lead_end
    return f'<path class="lead" d="M{x:.1f} {y:.1f}L{end_x:.1f} {end_y:.1f}"/>'


def _label(spot: Spot) -> str:
    return "own" if spot.ours else spot.state


def _stair(frame: Frame, front: Sequence[Spot]) -> Iterator[str]:
    ranked = sorted(front, key=lambda spot: spot.cost["value"])
    if len(ranked) > 1:
        first, *rest = ranked
        steps = "".join(f"H{frame.x(spot.cost['value']):.1f}V{frame.y(spot.far['value']):.1f}" for spot in rest)
        start = f"M{frame.x(first.cost['value']):.1f} {frame.y(first.far['value']):.1f}"
        yield f'<path class="stair" d="{start}{steps}"/>'


def _whiskers(frame: Frame, spot: Spot) -> str:
    x, y = frame.x(spot.cost["value"]), frame.y(spot.far["value"])
    across = f"M{frame.x(spot.cost['low']):.1f} {y:.1f}H{frame.x(spot.cost['high']):.1f}"
    up = f"M{x:.1f} {frame.y(spot.far['low']):.1f}V{frame.y(spot.far['high']):.1f}"
    return f'<path class="whisker {_label(spot)}" d="{across}{up}"/>'


def _spot(x: float, y: float, spot: Spot) -> str:
    title = f"{spot.number}. {spot.name}: cost {_words(spot.cost)}, far recall {_words(spot.far)}"
    if spot.state == "wrong":
        mark = f'<path d="M{x - 4:.1f} {y - 4:.1f}l8 8m0 -8l-8 8"/>'
    elif spot.ours:
        mark = f'<path d="M{x:.1f} {y - 7:.1f}l7 7l-7 7l-7 -7z"/>'
    else:
        mark = f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5"/>'
    own = " own" if spot.ours else ""
    return f'<g class="spot {spot.state}{own}"><title>{escaped(title)}</title>{mark}</g>'


def _words(found: Interval) -> str:
    if found["low"] == found["high"]:
        return share(found["value"])
    return f"{share(found['value'])} ({share(found['low'])} to {share(found['high'])})"


# --- lines ------------------------------------------------------------------------------------------------------------


def lines_chart(
    lines: Sequence[ChartLine],
    *,
    identifier: str,
    title: str,
    x_name: str,
    y_name: str,
    seconds: bool = False,
) -> str:
    """Lines over a few values on a logarithmic axis, intervals at each; names at the right end where it is coloured.

    With `seconds` the other axis is a logarithm too and its figures are milliseconds, else it goes from 0 to 1.
    """
    places = sorted({x for line in lines for x, *_ in line.points})
    if not places:
        return ""
    first, last = places[0], max(places[-1], places[0] * 1.01)
    scale = _times(lines) if seconds else Scale(0, 1, 270, 26)
    frame = Frame(Scale(first, last, 48, 392, log=True), scale)
    drawn = frame.lines(
        [(place, _short(place)) for place in places],
        [(value, f"{milliseconds(value)}") for value in _decades(scale)]
        if seconds
        else [(value / 5, f"{value / 5:.1f}") for value in range(6)],
        x_name=x_name,
        y_name=y_name,
    )
    grey = [line for line in lines if line.colour is None]
    coloured = [line for line in lines if line.colour is not None]
    for line in (*grey, *coloured):
        drawn += _line(frame, line)
    ends = [frame.y(line.points[-1][1]) for line in coloured]
    spread = apart(ends, gap=13, low=30, high=268)
    for line, end, place in zip(coloured, ends, spread, strict=True):
        right = frame.x(line.points[-1][0])
        drawn.append(f'<path class="lead" d="M{right + 5:.1f} {end:.1f}L{frame.x.stop + 14} {place:.1f}"/>')
        drawn.append(text(frame.x.stop + 17, place + 4, escaped(_cut(line.name)), "start", kind=f"c{line.colour}"))
    return _svg(identifier, title, 306, drawn)


def _cut(name: str) -> str:
    return name if len(name) <= 20 else f"{name[:19]}…"


def _short(value: float) -> str:
    return f"{value / 1_000:g}k" if value >= 1_000 else f"{value:g}"


def _times(lines: Iterable[ChartLine]) -> Scale:
    values = [
        value for line in lines for _, middle, low, high in line.points for value in (middle, low, high) if value > 0
    ]
    low, high = min(values, default=1e-4), max(values, default=1e-2)
    return Scale(low / 1.3, high * 1.3, 270, 26, log=True)


def _decades(scale: Scale) -> list[float]:
    return [value for power in range(-7, 4) if scale.low <= (value := 10.0**power) <= scale.high]


def _line(frame: Frame, line: ChartLine) -> Iterator[str]:
    kind = "grey" if line.colour is None else f"c{line.colour}"
    points = [(frame.x(x), frame.y(value)) for x, value, _, _ in line.points]
    aside = 0.0 if line.colour is None else 2.5 * (line.colour - 2)  # so that none covers another
    whiskers = "".join(
        f"M{frame.x(x) + aside:.1f} {frame.y(low):.1f}V{frame.y(high):.1f}" for x, _, low, high in line.points
    )
    drawn = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    dots = "" if line.colour is None else "".join(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3"/>' for x, y in points)
    dash = f" d{line.colour % 3}" if line.colour else ""
    yield (
        f'<g class="line {kind}{dash}"><title>{escaped(line.name)}</title>'
        f'<path class="whisker" d="{whiskers}"/><polyline points="{drawn}"/>{dots}</g>'
    )


# --- warm and cold ----------------------------------------------------------------------------------------------------


def cost_dots(dots: Sequence[Dot], *, identifier: str) -> str:
    """One row per system, cheapest first: the cost with warm caches and its interval, and that with cold ones."""
    if not dots:
        return ""
    ranked = sorted(dots, key=lambda dot: dot.warm["value"])
    foot = 34 + 19 * len(ranked)
    values = [dot.warm["value"] for dot in ranked] + [dot.cold["value"] for dot in ranked if dot.cold is not None]
    dearest = min(max([1.1, *values]) * 1.05, _DEAREST)
    frame = Frame(Scale(0, dearest, 200, 540), Scale(0, 1, foot, 22))
    drawn = frame.lines(
        [(value, f"{value:.2g}") for value in ticks_to(dearest)], (), x_name="cost, by that of no management", y_name=""
    )
    drawn.append(f'<path class="limit" d="M{frame.x(1):.1f} 22V{foot}"/>')
    for row, dot in enumerate(ranked):
        y = 32 + 19 * row
        x, low, high = (frame.x(value) for value in (dot.warm["value"], dot.warm["low"], dot.warm["high"]))
        kind = "own" if dot.ours else "other"
        cold = (
            "" if dot.cold is None else f'<circle class="cold" cx="{frame.x(dot.cold["value"]):.1f}" cy="{y}" r="4"/>'
        )
        title = f"{dot.name}: warm {_words(dot.warm)}, cold {_words(dot.cold) if dot.cold is not None else DASH}"
        name = dot.name if len(dot.name) <= 30 else f"{dot.name[:29]}…"
        drawn.append(text(192, y + 4, escaped(name), "end", kind=kind))
        drawn.append(
            f'<g class="dot {kind}"><title>{escaped(title)}</title>'
            f'<path class="whisker" d="M{low:.1f} {y}H{high:.1f}"/>{cold}<circle cx="{x:.1f}" cy="{y}" r="4"/></g>'
        )
    return _svg(identifier, "Cost with warm caches and with cold ones now and then", foot + 36, drawn)


def _svg(identifier: str, title: str, height: int, drawn: Iterable[str]) -> str:
    return "\n".join(
        (
            f'<svg viewBox="0 0 {_WIDTH} {height}" role="img" aria-labelledby="{identifier}">',
            f'<title id="{identifier}">{escaped(title)}</title>',
            *drawn,
            "</svg>",
        )
    )
