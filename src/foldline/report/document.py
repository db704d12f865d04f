"""The frame and the style of every page: one self-contained file, in light and dark.

Colours: Okabe and Ito's palette (Color Universal Design, 2008), one set per scheme. A scrolling box has a shadow at
each edge with more behind it, because phones show no scroll bar.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

__all__ = [
    "STYLE",
    "document",
]


def document(title: str, body: Sequence[str], *, style: str = "") -> str:
    """A whole page as text, to be saved as UTF-8. `body` is HTML, the title plain text; `style` extends the style."""
    # The policy forbids scripts and anything from elsewhere: strangers wrote the texts of a session.
    return "\n".join(
        (_HEAD.format(title=title, style=STYLE + style), "<main>", *body, "</main>", "</body>", "</html>", "")
    )


# The policy is in the page because files opened from a disk have no headers. `viewport` keeps phones from shrinking it.
_HEAD = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>{title}</title>
<style>{style}</style>
</head>
<body>"""


# In the page itself, with system fonts: a page must open from a mail or without a network, and load nothing that tells
# another server that it was read. `tabular-nums` keeps the digits of a column below each other.
STYLE: Final = """
:root { color-scheme: light dark; --paper: #fff; --ink: #1a1a1a; --faint: #5f6368; --rule: #d7d9dc;
  --sent: #0072b2; --fold: #b34b00; --recorded: #8a8d91; --bar: #0072b222;
  --shade: #0000004d; }
@media (prefers-color-scheme: dark) { :root { --paper: #15181c; --ink: #e8eaed; --faint: #a5abb3; --rule: #3a3f46;
  --sent: #56b4e9; --fold: #e69f00; --recorded: #7d848c; --bar: #56b4e938;
  --shade: #ffffff59; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1.25rem; max-width: 80rem; background: var(--paper); color: var(--ink);
  font: 1rem/1.5 system-ui, sans-serif; }
h1 { font-size: 1.5rem; line-height: 1.2; margin: 0 0 .25rem; }
h2 { font-size: 1.15rem; line-height: 1.3; margin: 2.5rem 0 .25rem; overflow-wrap: anywhere; }
h3 { font-size: 1rem; margin: 0; }
p { margin: .25rem 0 .75rem; max-width: 45rem; }
.faint, caption, dd { color: var(--faint); }
.scroll { overflow-x: auto; margin: .5rem 0 1rem; background: no-repeat local var(--paper);
  background-image: linear-gradient(90deg, var(--paper) 40%, transparent),
    linear-gradient(270deg, var(--paper) 40%, transparent),
    linear-gradient(90deg, var(--shade), transparent), linear-gradient(270deg, var(--shade), transparent);
  background-position: 0 0, 100% 0, 0 0, 100% 0; background-attachment: local, local, scroll, scroll;
  background-size: 2.5rem 100%, 2.5rem 100%, .9rem 100%, .9rem 100%; }
.scroll:focus-visible, summary:focus-visible, a:focus-visible { outline: 2px solid var(--sent); outline-offset: 2px; }
table { border-collapse: collapse; font-size: .875rem; font-variant-numeric: tabular-nums; }
caption { text-align: start; padding-bottom: .25rem; }
th, td { padding: .25rem .55rem; text-align: end; white-space: nowrap; border-bottom: 1px solid var(--rule); }
thead th { vertical-align: bottom; font-weight: 600; white-space: normal; line-height: 1.2; }
th:first-child, th.text, td.text { text-align: start; }
td.text { white-space: normal; min-width: 12rem; overflow-wrap: anywhere; }
tbody th { font-weight: 600; position: sticky; inset-inline-start: 0; background: var(--paper); }
td.bar { background: linear-gradient(var(--bar), var(--bar)) no-repeat 0 50% / calc(var(--share) * 100%) 70%; }
td.bad { color: var(--fold); font-weight: 700; }
.charts { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 20rem), 1fr)); gap: 1.25rem 1.5rem; }
figure { margin: 0; }
figcaption span { display: block; font-size: .8125rem; color: var(--faint); }
svg { display: block; width: 100%; height: auto; }
svg text { font: 11px system-ui, sans-serif; fill: var(--faint); }
.axis { stroke: var(--rule); }
.limit { stroke: var(--ink); stroke-width: 1; stroke-dasharray: 4 3; }
polyline { fill: none; stroke-linejoin: round; }
polyline.recorded { stroke: var(--recorded); stroke-width: 1; }
polyline.sent { stroke: var(--sent); stroke-width: 2; }
circle.recorded { fill: var(--recorded); }
circle.sent { fill: var(--sent); }
.fold path { fill: var(--fold); stroke: var(--paper); stroke-width: .75; }
.fold circle { fill: transparent; }
.fold:hover path { stroke: var(--ink); }
.refused path { stroke: var(--ink); stroke-width: 1.75; fill: none; }
.key { display: flex; flex-wrap: wrap; gap: .25rem 1.25rem; list-style: none; padding: 0; margin: .5rem 0 1rem;
  font-size: .875rem; }
.key svg { display: inline-block; width: 1.75rem; height: .75rem; margin-inline-end: .4rem; vertical-align: baseline; }
details .scroll { max-height: 20rem; overflow-y: auto; }
details td { vertical-align: top; }
details { font-size: .875rem; margin: .25rem 0; }
li, summary { overflow-wrap: anywhere; }
summary { cursor: pointer; color: var(--faint); }
dt { font-weight: 600; } dd { margin: 0 0 .4rem; max-width: 45rem; }
@media print { .charts { grid-template-columns: 1fr 1fr; } figure { break-inside: avoid; } }
"""
