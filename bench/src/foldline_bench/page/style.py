"""Styles of the bench's page, beside those of all pages. One set of colours a scheme, each 3:1 on its paper."""

from __future__ import annotations

from typing import Final

__all__ = ["BENCH_STYLE"]

BENCH_STYLE: Final = """
:root { --c0: #0072b2; --c1: #b34b00; --c2: #00785a; --c3: #a2457f; --c4: #6b5f00; --c5: #5b4bc4; --c6: #3f474f; }
@media (prefers-color-scheme: dark) { :root { --c0: #56b4e9; --c1: #e69f00; --c2: #2fc79b; --c3: #e58fc0;
  --c4: #d8cf5a; --c5: #a9a2ff; --c6: #c4cad0; } }
a { color: var(--sent); }
.links { display: flex; flex-wrap: wrap; gap: .25rem 1.25rem; list-style: none; padding: 0; }
.pair { display: grid; grid-template-columns: minmax(0, 1fr) minmax(0, 1fr); gap: 1rem 1.5rem; align-items: start; }
.charts { grid-template-columns: repeat(auto-fill, minmax(min(100%, 30rem), 1fr)); margin: 1rem 0; }
.charts svg, .pair svg { min-width: 27rem; }
svg text { paint-order: stroke; stroke: var(--paper); stroke-width: 3px; stroke-linejoin: round; }
pre { white-space: pre-wrap; font: .8125rem/1.5 ui-monospace, monospace; color: var(--faint); }
.list { max-height: 26rem; overflow-y: auto; }
.list th { white-space: normal; text-align: start; } .list table { width: 100%; }
.list td.text { min-width: 10rem; } .list :is(td, th) { padding-inline: .35rem; vertical-align: top; }
svg text { fill: var(--ink); } svg text.name, svg text.sound, svg text.wrong { fill: var(--faint); }
svg text.own { font-weight: 700; fill: var(--sent); }
.stair { fill: none; stroke: var(--sent); stroke-width: 1.5; stroke-dasharray: 5 3; }
.whisker { fill: none; stroke: var(--recorded); stroke-width: 1; opacity: .6; }
.whisker.own, .dot.own .whisker { stroke: var(--sent); opacity: 1; }
.spot circle, .spot path { stroke: var(--ink); stroke-width: 1.5; fill: var(--ink); }
.spot.sound circle { fill: var(--paper); } .spot.own path { fill: var(--sent); stroke: var(--sent); }
.spot.own.sound path { fill: var(--paper); } .spot.wrong path { stroke: var(--recorded); fill: none; }
.spot.wrong circle { fill: none; stroke: var(--recorded); }
.line polyline { stroke: var(--recorded); stroke-width: 1; opacity: .55; }
.line.grey .whisker { display: none; } .line.grey:hover polyline { stroke: var(--ink); opacity: 1; stroke-width: 2; }
.lead { stroke: var(--rule); fill: none; } .pair .lead { stroke: var(--faint); stroke-width: .75; }
.dot circle { fill: var(--ink); stroke: var(--ink); } .dot.own circle { fill: var(--sent); stroke: var(--sent); }
.dot .whisker { stroke: var(--ink); stroke-width: 1.5; opacity: .5; }
.dot circle.cold { fill: var(--paper); }
tr.own th { color: var(--sent); } tr:is(.wrong, .out) :is(td, th) { color: var(--faint); font-weight: 400; }
tr.front th::after { content: " *"; }
.d1 polyline { stroke-dasharray: 7 3; } .d2 polyline { stroke-dasharray: 2 3; }
@media (min-width: 62rem) { .pair svg text { font-size: 10px; } }
@media (max-width: 61.99rem) { .pair { grid-template-columns: minmax(0, 1fr); } }
@media (max-width: 47.99rem) { body { padding: 1rem .75rem; } tbody th { max-width: 45vw; overflow: hidden;
  text-overflow: ellipsis; font-size: .75rem; } }
@media print { body { max-width: none; } table { font-size: 5.5pt; } th, td { padding: .05rem .15rem; }
  .scroll, .list { overflow: visible; max-height: none; }
  .pair svg { min-width: 0; }  details::details-content { content-visibility: visible; display: block; } }
""" + "".join(
    f".line.c{number} polyline {{ stroke: var(--c{number}); stroke-width: 2; opacity: 1; }} "
    f".line.c{number} circle {{ fill: var(--c{number}); }} .line.c{number} .whisker {{ stroke: var(--c{number}); }} "
    f"svg text.c{number} {{ fill: var(--c{number}); font-weight: 600; }}\n"
    for number in range(7)
)
