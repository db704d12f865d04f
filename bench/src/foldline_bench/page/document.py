"""The page of a bench: cost, recall, faults and times of each system, budget by budget."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from foldline.replay import NONE
from foldline.report.document import document
from foldline.text.formatting import foreign, plural
from foldline_bench.measure.intervals import FEWEST, is_conclusive
from foldline_bench.page.charts import ChartLine, Dot, Spot, cost_dots, lines_chart, pareto
from foldline_bench.page.tables import key, listed, state, systems, tables
from foldline_bench.prices import FRONT_RULE
from foldline_bench.values import BenchResult, BudgetResult, Interval, MetReferences

__all__ = ["BENCH_STYLE", "bench_page"]


_OWN_COUNTER: Final = ", budgets by each system's own counter"

# Lines with a colour of their own: more cannot be distinguished.
_COLOURS: Final = 7


def bench_page(result: BenchResult) -> str:
    """The whole page as text, to be saved as UTF-8: the JSON of `foldline bench`, drawn. O(systems² x budgets)."""
    budgets = result["budgets"]
    own = frozenset(system["name"] for system in result["systems"] if system["peer"] is None)
    links = "".join(
        f'<li><a href="#b{number}">{budget["budget_tokens"]:,} tokens</a></li>' for number, budget in enumerate(budgets)
    )
    body = [
        "<h1>Foldline bench</h1>",
        f'<p class="faint">{_setting(result)}</p>',
        '<p class="bad">Stopped before it was done: systems or budgets are missing.</p>' if result["partial"] else "",
        _left_out(result),
        _absent(result),
        f'<ul class="links" aria-label="Budgets">{links}</ul>' if len(budgets) > 1 else "",
        *(_budget(budget, number, own, result) for number, budget in enumerate(budgets)),
        systems(result),
    ]
    return document("Foldline bench", [part for part in body if part], style=BENCH_STYLE)


def _setting(result: BenchResult) -> str:
    made, drawn = result["made"], result["intervals"]
    words = [
        f"{plural(len(result['sessions']), 'recorded session')}, {plural(len(result['systems']), 'system')}",
        f"sizes by {foreign(result['counter'])}{_OWN_COUNTER if result['own_counter'] else ''}",
        f"intervals (of {FEWEST} sessions or more) hold {drawn['share']:.0%} of {drawn['resamples']:,} resamplings",
        f"measured {foreign(made['date'][:16].replace('T', ' '))} UTC",
        f"Foldline {foreign(made['foldline'])}, Python {foreign(made['python'])}, {plural(made['cores'], 'core')}",
    ]
    return "; ".join(words) + "."


def _left_out(result: BenchResult) -> str:
    """Files that could not be read, and sessions that are too small for any budget or for some."""
    small = [
        f"{foreign(name)}: too small for {budget['budget_tokens']:,} tokens"
        for budget in result["budgets"]
        for name in budget["too_small"]
    ]
    entries = [f"{foreign(one['file'], 300)}: {foreign(one['reason'], 300)}" for one in result["left_out"]] + small
    rows = "".join(f"<li>{one}</li>" for one in entries)
    return (
        f"<details><summary>Sessions left out ({len(entries):,})</summary><ul>{rows}</ul></details>" if entries else ""
    )


def _absent(result: BenchResult) -> str:
    if not result["absent"]:
        return ""
    rows = "".join(f"<li>{foreign(one['peer'])}: {foreign(one['reason'], 300)}</li>" for one in result["absent"])
    return (
        f"<details><summary>{plural(len(result['absent']), 'peer')} could not be run</summary><ul>{rows}</ul></details>"
    )


# --- one budget -------------------------------------------------------------------------------------------------------


def _budget(budget: BudgetResult, number: int, own: frozenset[str], result: BenchResult) -> str:
    spots = list(_spots(budget, own))
    colours = _colours(spots, budget, own)
    distances = result["distances"]
    charts = (
        (
            "Recall over distance",
            "The share still sent of what replies name, by how far back it last stood: means over sessions.",
            lines_chart(
                _over_distance(budget, colours, distances),
                identifier=f"b{number}d",
                title="Recall over distance",
                x_name="tokens back, at least",
                y_name="recall",
            ),
        ),
        (
            "CPU time over length",
            "Of one request in one long session; the line is the median, up to the time that 95 % stay within.",
            lines_chart(
                _over_length(budget, colours),
                identifier=f"b{number}l",
                title="CPU time of a request over the length of the session",
                x_name="messages",
                y_name="ms, log",
                seconds=True,
            ),
        ),
        (
            "Warm and cold caches",
            f"Filled: each request finds the one before cached. Hollow: every {result['cold_every']}th finds none.",
            cost_dots(list(_dots(budget, own)), identifier=f"b{number}c"),
        ),
    )
    figures = "".join(
        f'<figure><figcaption><h3>{name}</h3><span>{words}</span></figcaption><div class="scroll" role="region" '
        f'tabindex="0" aria-label="{name}">{drawn}</div></figure>'
        for name, words, drawn in charts
        if drawn
    )
    return "\n".join(
        (
            f'<section aria-labelledby="b{number}">',
            f'<h2 id="b{number}">Budget {budget["budget_tokens"]:,} tokens</h2>',
            f'<p class="faint">{_compared(budget)}</p>',
            '<div class="pair"><figure>',
            '<div class="scroll" role="region" tabindex="0" aria-label="Cost against recall">',
            pareto(spots, identifier=f"b{number}p"),
            f"</div></figure>{key(spots, budget)}</div>",
            f'<div class="charts">{figures}</div>',
            tables(budget),
            "</section>",
        )
    )


def _compared(budget: BudgetResult) -> str:
    words = f"{plural(len(budget['sessions']), 'session')} large enough for it"
    if len(budget["common"]) != len(budget["sessions"]):
        words += f"; compared over the {len(budget['common']):,} that were finished by all that are compared"
    return words + "."


def _spots(budget: BudgetResult, own: frozenset[str]) -> Iterator[Spot]:
    """The systems with both figures. Their numbers are those of the list beside the chart."""
    for number, run in enumerate(listed(budget), 1):
        figures = run["figures"]
        cost = None if figures is None else _shown(figures["cost"][FRONT_RULE]["warm"]["ratio"])
        far = None if figures is None else _interval(figures["recall"]["beyond"][1])
        if figures is not None and cost is not None and far is not None and not run["apart"]:
            name = run["system"]
            yield Spot(
                number=number, name=name, ours=name in own and name != NONE, state=state(figures), cost=cost, far=far
            )


def _shown(found: Interval | None) -> Interval | None:
    """The figure without its interval where there are too few sessions for one."""
    if found is None or is_conclusive(found):
        return found
    return {**found, "low": found["value"], "high": found["value"]}


def _interval(kept: MetReferences) -> Interval | None:
    """A recall with its interval; the pooled one, without, where no session makes enough references."""
    if kept["per_session"] is not None or kept["pooled"] is None:
        return _shown(kept["per_session"])
    return {"value": kept["pooled"], "low": kept["pooled"], "high": kept["pooled"], "sessions": 0}


def _colours(spots: Sequence[Spot], budget: BudgetResult, own: frozenset[str]) -> Mapping[str, int]:
    """The systems with a colour of their own: ours and those on the front, as far as the colours go."""
    wanted = [spot.name for spot in spots if spot.ours] + [spot.name for spot in spots if spot.state == "front"]
    wanted += [run["system"] for run in budget["runs"] if run["system"] in own and run["system"] != NONE]
    return {name: number for number, name in enumerate(list(dict.fromkeys(wanted))[:_COLOURS])}


def _over_distance(budget: BudgetResult, colours: Mapping[str, int], distances: Sequence[int]) -> list[ChartLine]:
    out = []
    for run in budget["runs"]:
        if run["figures"] is None or run["apart"]:
            continue
        found = zip(distances, run["figures"]["recall"]["beyond"], strict=True)
        points = tuple(
            (float(distance), kept["value"], kept["low"], kept["high"])
            for distance, each in found
            if (kept := _interval(each)) is not None
        )
        if points:
            out.append(ChartLine(name=run["system"], colour=colours.get(run["system"]), points=points))
    return out


def _over_length(budget: BudgetResult, colours: Mapping[str, int]) -> list[ChartLine]:
    out = []
    for run in budget["runs"]:
        lengths = run["stress"]["lengths"] if run["stress"] is not None else []
        points = tuple(
            (float(one["messages"]), one["p50_seconds"], one["p50_seconds"], one["p95_seconds"]) for one in lengths
        )
        if points:
            out.append(ChartLine(name=run["system"], colour=colours.get(run["system"]), points=points))
    return out


def _dots(budget: BudgetResult, own: frozenset[str]) -> Iterator[Dot]:
    for run in budget["runs"]:
        if run["figures"] is None or run["apart"] or run["system"] == NONE:
            continue
        prices = run["figures"]["cost"][FRONT_RULE]
        if (warm := _shown(prices["warm"]["ratio"])) is not None:
            yield Dot(name=run["system"], ours=run["system"] in own, warm=warm, cold=prices["cold"]["ratio"])


# Added to the style of all pages. Each scheme has one set of colours, with a contrast of 3:1 on its background.
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
