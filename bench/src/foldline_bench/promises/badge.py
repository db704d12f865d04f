"""A badge of a report: a file for shields.io's endpoint, and an SVG that needs nobody."""

from __future__ import annotations

import json
from collections.abc import Mapping
from html import escape
from typing import Final

from foldline.errors import InvalidInput
from foldline_bench.promises.suite import ConformanceReport

__all__ = ["badge_files", "badge_json", "badge_svg"]

LABEL: Final = "foldline conformance"
_COLOURS: Final[Mapping[str, str]] = {
    "brightgreen": "#4c1",
    "yellow": "#dfb317",
    "red": "#e05d44",
    "lightgrey": "#9f9f9f",
}
# Verdana at 11 px, the face of such badges: its letters are 7 px wide on average, as are its figures.
_CHAR_PX: Final = 7
_PAD_PX: Final = 10


def _message(report: ConformanceReport) -> str:
    stopped = " (stopped)" if report.partial else ""
    return f"{report.passed} of {report.applicable} promises{stopped}"


def _colour(report: ConformanceReport) -> str:
    if report.partial or not report.applicable:
        return "lightgrey"
    share = report.passed / report.applicable
    return "brightgreen" if share == 1 else "yellow" if share >= 0.75 else "red"


def badge_json(report: ConformanceReport) -> str:
    """The JSON of a shields.io endpoint (its documentation, "Endpoint Badge": schemaVersion 1)."""
    badge = {"schemaVersion": 1, "label": LABEL, "message": _message(report), "color": _colour(report)}
    return json.dumps(badge, indent=2) + "\n"


def badge_svg(report: ConformanceReport) -> str:
    """A picture of the same words."""
    label, message = LABEL, _message(report)
    left, right = (_PAD_PX + _CHAR_PX * len(text) for text in (label, message))
    words = escape(f"{label}: {message}")
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + right}" height="20" role="img" aria-label="{words}">\n'
        f"  <title>{words}</title>\n"
        f'  <rect width="{left}" height="20" fill="#444"/>\n'
        f'  <rect x="{left}" width="{right}" height="20" fill="{_COLOURS[_colour(report)]}"/>\n'
        '  <g fill="#fff" font-family="Verdana, DejaVu Sans, sans-serif" font-size="11" text-anchor="middle">\n'
        f'    <text x="{left / 2:g}" y="14">{escape(label)}</text>\n'
        f'    <text x="{left + right / 2:g}" y="14">{escape(message)}</text>\n'
        "  </g>\n"
        "</svg>\n"
    )


def badge_files(path: str) -> tuple[str, ...]:
    """The files of a badge: NAME.json or NAME.svg by itself, both for a name without an ending."""
    if path.endswith((".json", ".svg")):
        return (path,)
    name = path.replace("\\", "/").rpartition("/")[2]
    if not name or "." in name:
        raise InvalidInput("ends in .json or .svg, or in neither for both", place="--badge")
    return (f"{path}.json", f"{path}.svg")
