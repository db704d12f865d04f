"""Lists and tables of the page: the systems beside the charts, and all figures below."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

from foldline.text.formatting import DASH, escaped, foreign, plural, share
from foldline_bench.page.charts import Spot
from foldline_bench.prices import FRONT_RULE
from foldline_bench.table import LEGEND, Table, by_group, main_table, notes, parts_table, stress_table
from foldline_bench.values import BenchResult, BudgetResult, Interval, SystemFigures, SystemRun

__all__ = ["key", "listed", "state", "systems", "tables"]

_BOUNDS: Final = (
    " By best: the bill by that of the cheapest folds in hindsight, median session (worst). By needs: by the least at "
    "the same far recall for one who knows what all replies will refer to, which nobody can. By stages: the bill with "
    "re-reads by the least if each fold left whole what is used again. By alone: if each message was shortened at its "
    "own best time."
)


def listed(budget: BudgetResult) -> list[SystemRun]:
    """The systems in order: the front, sound ones, others, those not compared; cheapest first in each."""

    def place(run: SystemRun) -> tuple[int, float]:
        figures = run["figures"]
        if figures is None or run["apart"]:
            return 3, 0.0
        ratio = figures["cost"][FRONT_RULE]["warm"]["ratio"]
        return ("front", "sound", "wrong").index(state(figures)), ratio["value"] if ratio is not None else 0.0

    return sorted(budget["runs"], key=place)


def state(figures: SystemFigures) -> Literal["front", "sound", "wrong"]:
    """Whether a system is on the front, sound but beaten, or not sound."""
    return "front" if figures["front"] else "sound" if figures["sound"] else "wrong"


def key(spots: Sequence[Spot], budget: BudgetResult) -> str:
    """Every system by its number in the chart, with both figures and its faults."""
    kinds = {spot.number: spot for spot in spots}
    bounded = any(any(_bounds(run["figures"])) for run in budget["runs"])
    rows = []
    for number, run in enumerate(listed(budget), 1):
        spot = kinds.get(number)
        kind = "out" if spot is None else f"{spot.state}{' own' if spot.ours else ''}"
        cost, far = (DASH, DASH) if spot is None else (share(spot.cost["value"]), share(spot.far["value"]))
        bound = "".join(f"<td>{one or DASH}</td>" for one in _bounds(run["figures"])) if bounded else ""
        rows.append(
            f'<tr class="{kind}"><td>{number}</td><th scope="row">{foreign(run["system"], 60)}</th><td>{cost}</td>'
            f'<td>{far}</td>{bound}<td class="text">{_wrong(run)}</td></tr>'
        )
    heads = ("", "system", "cost", "far", *(("by best", "by needs", "by stages", "by alone") if bounded else ()))
    head = "".join(f'<th scope="col">{name}</th>' for name in heads)
    legend = (
        '<p class="faint">On the front (joined by the stair): no other one is as cheap and keeps as much. ◆ ours, '
        "● others, ○ sound but beaten, ✕ not sound: it breaks requests, goes over the budget or fails."
        + (_BOUNDS if bounded else "")
        + "</p>"
    )
    return (
        f'<div>{legend}<div class="scroll list" role="region" tabindex="0" aria-label="Systems"><table><thead>'
        f'<tr>{head}<th scope="col" class="text">what is wrong</th></tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div></div>"
    )


def _bounds(figures: SystemFigures | None) -> tuple[str, ...]:
    """The bill by each bound: the median session and the worst; "" where they were not computed."""
    if figures is None:
        return ("",) * 4
    return (
        _bound(figures["bound"], figures["worst_bound"]),
        _bound(figures["needs_bound"], figures["worst_needs_bound"]),
        _bound(figures["stages_bound"], figures["worst_stages_bound"]),
        _bound(figures["alone_bound"], figures["worst_alone_bound"]),
    )


def _bound(median: Interval | None, worst: float | None) -> str:
    if median is None:
        return ""
    return share(median["value"]) + (f" ({share(worst)})" if worst is not None else "")


def _wrong(run: SystemRun) -> str:
    figures = run["figures"]
    words = []
    if run["died"] is not None:
        words.append(f"ended early: {foreign(run['died'], 160)}")
    if run["apart"] or (figures is None and run["died"] is None):
        words.append(f"not compared: {plural(len(run['unfinished']), 'session')} not finished")
    if figures is not None:
        shares = (
            (figures["hard_share"], "refused by every provider"),
            (figures["over_share"], f"over the budget, up to {figures['worst_ratio']:.1f} times"),
        )
        words += [f"{part:.1%} {what}" for part, what in shares if part]
        words += [plural(figures["errors"], "error")] if figures["errors"] else []
        words += [f"{plural(figures['refused'], 'request')} not sent"] if figures["refused"] else []
    return "; ".join(words)


def tables(budget: BudgetResult) -> str:
    """All figures, by kind of work, times, and notes."""
    stress, parts = stress_table(budget), parts_table(budget)
    remarks = "".join(f"<li>{foreign(line, 600)}</li>" for line in notes(budget))
    return "\n".join(
        (
            _table(main_table(budget), "All figures"),
            f"<details><summary>What the columns mean</summary><pre>{escaped(LEGEND)}</pre></details>",
            _table(by_group(budget), "Cost and far recall by kind of work"),
            _table(parts, f"Five parts of the sessions ({_about(budget)})") if parts is not None else "",
            _table(stress, "CPU time over length") if stress is not None else "",
            f"<details><summary>Remarks</summary><ul>{remarks}</ul></details>" if remarks else "",
        )
    )


def _about(budget: BudgetResult) -> str:
    return budget["parts"]["about"] if budget["parts"] is not None else ""


def _table(table: Table, caption: str) -> str:
    names = (name.replace("-\n", "").split("\n") for name in table.heads)  # words are broken for a terminal only
    head = "".join(f'<th scope="col">{"<br>".join(map(escaped, lines))}</th>' for lines in names)
    rows = "".join(
        f'<tr><th scope="row">{foreign(row[0], 80)}</th>{"".join(f"<td>{escaped(cell)}</td>" for cell in row[1:])}</tr>'
        for row in table.rows
    )
    return (
        f'<div class="scroll" role="region" tabindex="0" aria-label="{caption}"><table><caption>{caption}</caption>'
        f"<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>"
    )


def systems(result: BenchResult) -> str:
    """Every system with the versions of its packages."""
    rows = "".join(
        f'<tr><th scope="row">{foreign(one["name"], 80)}</th><td class="text">{foreign(one["peer"] or "Foldline")}</td>'
        f'<td class="text">{foreign(", ".join(map(" ".join, one["packages"].items())), 400)}</td></tr>'
        for one in result["systems"]
    )
    head = '<th scope="col">system</th><th scope="col" class="text">of</th><th scope="col" class="text">packages</th>'
    return (
        '<details><summary>Systems and their versions</summary><div class="scroll" role="region" tabindex="0" '
        f'aria-label="Systems and versions"><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>'
        "</details>"
    )
