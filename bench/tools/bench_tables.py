"""Prints results of `foldline bench --json` as tables in Markdown: python bench/tools/bench_tables.py RESULT.json…

docs/bench-figures.md has what it printed. One table for each budget, ours and those of other people in the order in
which they ran; then rules that were broken and first errors, and the time of a request in a long session.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from foldline_bench.table import Table, main_table, notes, parts_table, stress_table
from foldline_bench.values import BenchResult, BudgetResult

# Heads of the bench's table that are printed. An interval stands in brackets behind its figure.
COLUMNS = (
    "cost",
    "bill low",
    "bill high",
    "cold",
    "openai",
    "by best",
    "by needs",
    "by stages",
    "by alone",
    "near line",
    "far",
    "far line",
    "tool",
    "2k",
    "32k",
    "reads low %",
    "reads high %",
    "hard %",
    "over %",
    "worst",
    "ms p95",
    "errors",
)


def chosen(table: Table) -> Table:
    """The columns that are printed, each with its interval."""
    heads = [head.replace("\n", " ") for head in table.heads]
    places = [heads.index(name) for name in COLUMNS]

    def cell(row: Sequence[str], place: int) -> str:
        spread = row[place + 1] if heads[place + 1 : place + 2] == ["95 %"] else ""
        return f"{row[place]} ({spread})" if spread.strip("–") else row[place]

    return Table(("system", *COLUMNS), tuple((row[0], *(cell(row, place) for place in places)) for row in table.rows))


def lines(table: Table) -> Iterator[str]:
    """The table in Markdown; names of systems as code, stars before them."""
    yield f"| {' | '.join(head.replace(chr(10), ' ') for head in table.heads)} |"
    yield f"| {' | '.join('---' for _ in table.heads)} |"
    for name, *cells in table.rows:
        if name.startswith(" "):  # a part of the system above
            yield f"| {name.strip()} | {' | '.join(cells)} |"
            continue
        star = "* " if name.startswith("* ") else ""
        yield f"| {star.replace('*', chr(92) + '*')}`{name.removeprefix('* ')}` | {' | '.join(cells)} |"


def section(result: BenchResult, budget: BudgetResult) -> Iterator[str]:
    """All that there is to say of one budget."""
    requests = sum(row["requests"] for row in result["sessions"] if row["name"] in set(budget["common"]))
    own = ", each system by its own counter" if result["own_counter"] else ""
    yield f"## {budget['budget_tokens']:,} tokens{own}\n"
    yield f"{len(budget['common'])} sessions, {requests:,} requests.\n"
    yield from lines(chosen(main_table(budget)))
    if (parts := parts_table(budget)) is not None and budget["parts"] is not None:
        yield f"\n{budget['parts']['about'].capitalize()}. The mean over the parts, and each of them:\n"
        yield from lines(parts)
    if said := notes(budget):
        yield ""
        yield from (f"- {note}" for note in said)
    if (stress := stress_table(budget)) is not None:
        yield "\n"
        yield from lines(stress)
    yield ""


def main(paths: Sequence[str]) -> None:
    """Print the sections of all results."""
    for path in paths:
        result: BenchResult = json.loads(Path(path).read_text("utf-8"))
        for budget in result["budgets"]:
            print("\n".join(section(result, budget)))


if __name__ == "__main__":
    main(sys.argv[1:])
