"""A result as tables of texts, for a terminal or a page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from foldline.replay import NONE
from foldline.replay.results import ENOUGH
from foldline.text.formatting import DASH, compact, milliseconds, plain_line, plural, share
from foldline_bench.measure.comparison import recall_of
from foldline_bench.measure.intervals import is_conclusive
from foldline_bench.measure.speed import SIZES
from foldline_bench.prices import FRONT_RULE, LONG_RULE
from foldline_bench.values import (
    BudgetResult,
    Interval,
    MetReferences,
    SessionFigures,
    SessionRow,
    SystemFigures,
    SystemRun,
)

__all__ = [
    "LEGEND",
    "Table",
    "by_group",
    "main_table",
    "notes",
    "parts_table",
    "stress_table",
    "week_lines",
    "weeks_table",
    "widths",
]

LEGEND: Final = """\
cost    input price with prompt caching (Anthropic's ratios), against none: median session, and its 95 % interval
bill    cost with all that the agent has to read again: one more request for each earlier message that held a name
        (low), or a line with it (high), which a reply uses and its request lacks; reads: such messages by requests
cold    cost with cold caches at every 20th request: policies of ours are replayed once more and told of the
        pauses, other systems know no clock and are priced anew; openai, no cache: under other prices; long: those of
        a model whose prices double over 200,000 tokens
by best cost by that of the cheapest folds in hindsight: the median session, policies of ours alone; by needs: by the
        least at the same far recall for one who knows what all replies will refer to, which nobody can; by stages:
        bill high by the least if each fold left whole what is used again; by alone: if each message was shortened
        at its own best time
far     of what replies name and last stood 8,000 tokens and 4 messages back, the share still sent; line: the whole line
        is; tool: only results had it; 2k, 32k: other distances; near line: whole lines of what stood nearer, by the
        most that any request in the budget can show (means over sessions with 3 or more such references)
hard    requests that every provider refuses (what a system left unsent too); any: also by the rules of foldline.check
over    requests over the budget, and the largest by the budget; ms: CPU of one request; errors: inside the system
95 %    the interval, of 5 sessions or more
from    pays from: the size of a week from which on the bill high stays below that of none
*       on the Pareto front: no other one is as cheap and keeps as much, among those with no hard and no over"""


@dataclass(frozen=True, slots=True)
class Table:
    """Heads and rows of cells; the first column is text, the others are figures."""

    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def _percent(value: float) -> str:
    return "0" if value == 0 else f"{100 * value:.1f}"


def _between(found: Interval | None) -> str:
    return DASH if found is None or not is_conclusive(found) else f"{found['low']:.2f}–{found['high']:.2f}"


def _median(found: Interval | None) -> str:
    return DASH if found is None else share(found["value"])


def _ratio(figures: SystemFigures, rule: str = FRONT_RULE, kind: str = "warm") -> str:
    return _median(figures["cost"][rule][kind]["ratio"])


def _recall_cell(kept: MetReferences) -> str:
    return share(recall_of(kept))


_COLUMNS: Final[tuple[tuple[str, Callable[[SystemFigures], str]], ...]] = (
    ("cost", _ratio),
    ("95 %", lambda one: _between(one["cost"][FRONT_RULE]["warm"]["ratio"])),
    ("bill\nlow", lambda one: _median(one["rereads"]["low"]["ratio"])),
    ("bill\nhigh", lambda one: _median(one["rereads"]["high"]["ratio"])),
    ("95 %", lambda one: _between(one["rereads"]["high"]["ratio"])),
    ("cold", lambda one: _ratio(one, kind="cold")),
    ("openai", lambda one: _ratio(one, "openai")),
    ("no\ncache", lambda one: _ratio(one, "nocache")),
    ("long", lambda one: _ratio(one, LONG_RULE)),
    ("by\nbest", lambda one: _median(one["bound"])),
    ("by\nneeds", lambda one: _median(one["needs_bound"])),
    ("by\nstages", lambda one: _median(one["stages_bound"])),
    ("by\nalone", lambda one: _median(one["alone_bound"])),
    ("near\nline", lambda one: _recall_cell(one["recall"]["near_feasible"])),
    ("95 %", lambda one: _between(one["recall"]["near_feasible"]["per_session"])),
    ("far", lambda one: _recall_cell(one["recall"]["beyond"][1])),
    ("95 %", lambda one: _between(one["recall"]["beyond"][1]["per_session"])),
    ("far\nline", lambda one: _recall_cell(one["recall"]["line"])),
    ("tool", lambda one: _recall_cell(one["recall"]["far_tool"])),
    ("2k", lambda one: _recall_cell(one["recall"]["beyond"][0])),
    ("32k", lambda one: _recall_cell(one["recall"]["beyond"][2])),
    ("reads\nlow %", lambda one: f"{100 * one['rereads']['low_share']:.0f}"),
    ("reads\nhigh %", lambda one: f"{100 * one['rereads']['high_share']:.0f}"),
    ("hard\n%", lambda one: _percent(one["hard_share"])),
    ("any\n%", lambda one: _percent(one["invalid_share"])),
    ("over\n%", lambda one: _percent(one["over_share"])),
    ("worst", lambda one: f"{one['worst_ratio']:.2f}"),
    ("hit\n%", lambda one: f"{100 * one['hit_share']:.0f}"),
    ("tokens", lambda one: compact(one["tokens"])),
    ("ms\np50", lambda one: milliseconds(one["cpu"]["p50_seconds"])),
    ("ms\np95", lambda one: milliseconds(one["cpu"]["p95_seconds"])),
    ("errors", lambda one: f"{one['errors']:,}"),
)


def main_table(budget: BudgetResult) -> Table:
    """One row per system, over the sessions in common; those set apart last, with the number of their sessions."""
    rows = []
    for run in sorted(budget["runs"], key=lambda run: run["apart"]):
        figures = run["figures"]
        if figures is None:
            rows.append((_system_name(run, 0), *(DASH for _ in _COLUMNS)))
        else:
            rows.append((_system_name(run, figures["sessions"]), *(cell(figures) for _, cell in _COLUMNS)))
    return Table(("system", *(head for head, _ in _COLUMNS)), tuple(rows))


def _system_name(run: SystemRun, sessions: int) -> str:
    front = "* " if run["figures"] is not None and run["figures"]["front"] else ""
    return f"{front}{run['system']}" + (f" [over {plural(sessions, 'session')} alone]" if run["apart"] else "")


def by_group(budget: BudgetResult) -> Table:
    """Cost and far recall by kind of work, one row per system that is compared."""
    compared = [run for run in budget["runs"] if not run["apart"]]
    names = list(dict.fromkeys(name for run in compared for name in run["groups"]))
    sizes = {name: run["groups"][name]["sessions"] for run in compared for name in run["groups"]}
    rows = [(run["system"], *(_in_group(run["groups"].get(name)) for name in names)) for run in compared]
    return Table(("cost / far", *(f"{name}\n{plural(sizes[name], 'session')}" for name in names)), tuple(rows))


def _in_group(figures: SystemFigures | None) -> str:
    return DASH if figures is None else f"{_ratio(figures)} / {_recall_cell(figures['recall']['beyond'][1])}"


def stress_table(budget: BudgetResult) -> Table | None:
    """CPU milliseconds (median / 95 %) of a request in a session of so many messages; None if none was run."""
    rows = []
    for run in budget["runs"]:
        if run["stress"] is None:
            continue
        found = {each["messages"]: each for each in run["stress"]["lengths"]}
        cells = [
            f"{milliseconds(found[size]['p50_seconds'])} / {milliseconds(found[size]['p95_seconds'])}"
            if size in found
            else DASH
            for size in SIZES
        ]
        rows.append((run["system"], *cells))
    return Table(("ms p50 / p95 at", *(f"{size:,}\nmessages" for size in SIZES)), tuple(rows)) if rows else None


_WEEK_COLUMNS: Final[tuple[tuple[str, Callable[[SessionFigures, SessionFigures], str]], ...]] = (
    ("cost", lambda one, none: share(_paid(one) / _paid(none))),
    ("bill\nlow", lambda one, none: share((_paid(one) + one["rereads"]["cost"][FRONT_RULE][0]) / _paid(none))),
    ("bill\nhigh", lambda one, none: share((_paid(one) + one["rereads"]["cost"][FRONT_RULE][1]) / _paid(none))),
    ("long", lambda one, none: share(one["cost"][LONG_RULE]["warm"] / none["cost"][LONG_RULE]["warm"])),
    ("near\nline", lambda one, _: _pair(one["recall"]["near_feasible"])),
    ("far", lambda one, _: _pair(one["recall"]["beyond"][1])),
    ("far\nline", lambda one, _: _pair(one["recall"]["line"])),
    ("reads\nhigh %", lambda one, _: f"{100 * one['rereads']['messages'][1] / one['requests']:.0f}"),
    ("pays\nfrom", lambda one, _: _size(one["pays_from"][FRONT_RULE])),
    ("long\npays from", lambda one, _: _size(one["pays_from"][LONG_RULE])),
    ("over\n%", lambda one, _: _percent(one["over_budget"] / one["requests"])),
)


def weeks_table(budget: BudgetResult, weeks: Sequence[str]) -> Table | None:
    """Rows for each week: the systems over it alone; None without one that all finished."""
    base = next((run["sessions"] for run in budget["runs"] if run["system"] == NONE), {})
    rows: list[tuple[str, ...]] = []
    for week in weeks:
        if week not in budget["common"]:
            continue
        rows.append((week, *("" for _ in _WEEK_COLUMNS)))
        for run in budget["runs"]:
            if not run["apart"]:
                cells = (cell(run["sessions"][week], base[week]) for _, cell in _WEEK_COLUMNS)
                rows.append((f"  {run['system']}", *cells))
    return Table(("by week", *(head for head, _ in _WEEK_COLUMNS)), tuple(rows)) if rows else None


def week_lines(rows: Sequence[SessionRow]) -> list[str]:
    """Say of each week what it was joined from, and what its joints leave out."""
    out = []
    for row in rows:
        if (week := row["week"]) is not None:
            joined = f"{plural(week['sessions'], 'session')}, {plural(row['requests'], 'request')}"
            left = f"{week['left_out']:,} of {week['references']:,} references left out at joints"
            size = f"{compact(row['tokens'])} tokens, {plural(week['images'], 'image')}"
            out.append(f"{row['name']}: {joined}, {size}; {plural(week['nights'], 'night')}; {left}")
    return out


def _paid(one: SessionFigures) -> float:
    return one["cost"][FRONT_RULE]["warm"]


def _pair(pair: Sequence[int]) -> str:
    kept, total = pair
    return share(kept / total) if total >= ENOUGH else DASH


def _size(tokens: int | None) -> str:
    return DASH if tokens is None else compact(tokens)


# Sources that a row of a part names, and the characters of each name.
_NAMED: Final = 3
_NAME_CHARS: Final = 24

_PART_COLUMNS: Final[tuple[tuple[str, str, Callable[[SystemFigures], str]], ...]] = (
    ("cost", "cost", _ratio),
    ("bill\nlow", "bill_low", lambda one: _median(one["rereads"]["low"]["ratio"])),
    ("bill\nhigh", "bill_high", lambda one: _median(one["rereads"]["high"]["ratio"])),
    ("near\nline", "near_line", lambda one: _recall_cell(one["recall"]["near_feasible"])),
    ("far", "far", lambda one: _recall_cell(one["recall"]["beyond"][1])),
    ("far\nline", "far_line", lambda one: _recall_cell(one["recall"]["line"])),
    ("reads\nlow", "reads_low", lambda one: share(one["rereads"]["low_share"])),
    ("reads\nhigh", "reads_high", lambda one: share(one["rereads"]["high_share"])),
    ("by\nstages", "by_stages", lambda one: _median(one["stages_bound"])),
    ("by\nalone", "by_alone", lambda one: _median(one["alone_bound"])),
)


def parts_table(budget: BudgetResult) -> Table | None:
    """Rows for each system: the mean over the parts of the sessions, then every part; None without parts."""
    parts = budget["parts"]
    if parts is None:
        return None
    rows = []
    for run in budget["runs"]:
        means = run["part_means"]
        if not means:
            continue
        rows.append((run["system"], *(_mean_cell(means[name]) for _, name, _ in _PART_COLUMNS)))
        for names, sources, figures in zip(parts["sessions"], parts["sources"], run["parts"], strict=True):
            what = f"  {plural(len(names), 'session')} of {_listed(sources)}"
            rows.append((what, *(cell(figures) for _, _, cell in _PART_COLUMNS)))
    return Table(("mean over parts", *(head for head, _, _ in _PART_COLUMNS)), tuple(rows)) if rows else None


def _listed(sources: Sequence[str]) -> str:
    """The sources by their last names, no more than fit a cell."""
    names = [name.rpartition("/")[2] or "no named source" for name in sources]
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(plain_line(name, _NAME_CHARS) for name in names[:_NAMED]) + more


def _mean_cell(found: Interval | None) -> str:
    between = _between(found)
    return _median(found) if between == DASH else f"{_median(found)} ({between})"


def notes(budget: BudgetResult) -> list[str]:
    """Notes below the figures: broken rules, unfinished sessions, workers that died, first errors."""
    out = []
    for run in budget["runs"]:
        figures = run["figures"]
        remarks = []
        if run["died"] is not None:
            remarks.append(f"its process ended early: {run['died']}")
        if run["unfinished"]:
            remarks.append(f"{plural(len(run['unfinished']), 'session')} not finished")
        if figures is not None:
            broken = {**figures["hard_rules"], **figures["soft_rules"]}
            remarks += [", ".join(f"{rule} {count:,}" for rule, count in broken.items())] if broken else []
            remarks += [f"first error: {figures['first_error']}"] if figures["first_error"] else []
            made = figures["summaries"]
            remarks += (
                [f"{plural(made['calls'], 'summary call')}, {_part(figures)} of its cost"] if made["calls"] else []
            )
        if remarks:
            out.append(f"{run['system']}: {'; '.join(remarks)}")
    return out


def _part(figures: SystemFigures) -> str:
    whole, made = figures["cost"][FRONT_RULE]["warm"]["tokens"], figures["summaries"]["cost"][FRONT_RULE]["warm"]
    return f"{made / whole:.0%}" if whole else DASH


def widths(table: Table) -> Sequence[int]:
    """The widest line of each column."""
    columns = zip(table.heads, *table.rows, strict=True)
    return [max(len(line) for cell in column for line in (cell.splitlines() or [""])) for column in columns]
