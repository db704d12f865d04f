"""Tables that are never cut: where the terminal is too narrow for all columns, some are left out as a whole."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["Column", "print_table"]


@dataclass(frozen=True, slots=True)
class Column:
    """A head, the cells under it, and whether it stands to the left. Of one `group` all are shown or none."""

    head: str
    cells: Sequence[str]
    left: bool = False
    group: str = ""

    @property
    def width(self) -> int:
        """Characters of its widest line, and one between it and the next column."""
        from rich.cells import cell_len

        return 1 + max(cell_len(line) for text in (self.head, *self.cells) for line in text.split("\n"))


def print_table(console: Console, columns: Sequence[Column], spare: Sequence[str]) -> tuple[str, ...]:
    """Print as many columns as there is room for; the groups that were left out, in the order of `spare`.

    `spare` are the groups that may be left out, the first one first. What is wider even without them is printed whole.
    """
    gone = next((gone for gone in _choices(spare) if _width(columns, gone) <= console.width), tuple(spare))
    console.print(_table([column for column in columns if column.group not in gone]), crop=False)
    return gone


def _choices(spare: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Nothing, then the first group, then the first two."""
    return (tuple(spare[:count]) for count in range(len(spare) + 1))


def _width(columns: Sequence[Column], gone: Collection[str]) -> int:
    return sum(column.width for column in columns if column.group not in gone) - 1


def _table(columns: Sequence[Column]) -> object:
    from rich.table import Table

    width = _width(columns, ())
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="bold", width=width)
    for column in columns:
        table.add_column(
            column.head,
            justify="left" if column.left else "right",
            vertical="bottom",
            no_wrap=True,
            min_width=column.width - 1,
        )
    for row in zip(*(column.cells for column in columns), strict=True):
        table.add_row(*row)
    return table
