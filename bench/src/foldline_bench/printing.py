"""What the commands of this distribution print and write: tables on a terminal, numbers and provenance in JSON."""

from __future__ import annotations

import os
import platform
from datetime import datetime
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from foldline_bench.table import Table
from foldline_bench.values import Provenance

__all__ = ["draw", "provenance", "rounded"]


def rounded(value: Any) -> Any:
    """Round all numbers to seven digits: the rest is noise, and doubles the file."""
    match value:
        case float():
            return float(f"{value:.7g}")
        case dict():
            return {key: rounded(each) for key, each in value.items()}
        case list() | tuple():
            return [rounded(each) for each in value]
        case _:
            return value


def draw(console: Any, table: Table) -> None:
    """Print a table and an empty line, the first column to the left and figures to the right."""
    from rich.table import Table as Drawn

    drawn = Drawn(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="bold")
    for number, head in enumerate(table.heads):
        drawn.add_column(head, justify="right" if number else "left", vertical="bottom", no_wrap=True)
    for row in table.rows:
        drawn.add_row(*row)
    console.print(drawn)
    console.print()


def provenance(date: datetime, seconds: float) -> Provenance:
    """Describe a run: when, how long, with what, and where."""
    try:
        own = version("foldline")
    except PackageNotFoundError:
        own = "?"
    return Provenance(
        date=date.isoformat(timespec="seconds"),
        foldline=own,
        python=platform.python_version(),
        platform=platform.platform(),
        cores=os.cpu_count() or 1,
        seconds=round(seconds, 1),
    )
