"""What commands write: JSON, log lines, files, and for people text, tables and bar plots as wide as the terminal."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from foldline.errors import InvalidInput
from foldline.text.formatting import compact, plain

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["Column", "TextPrinter", "json_out", "log", "plot", "print_bytes", "print_table", "terminal", "write_whole"]


def json_out(value: Any) -> None:
    """Print JSON on standard output as UTF-8. A text with half a surrogate pair makes all of it ASCII with escapes."""
    text = json.dumps(value, ensure_ascii=False, indent=2)
    try:
        data = text.encode()
    except UnicodeEncodeError:
        # A recorded message may hold half a surrogate pair. UTF-8 has no bytes for it; a report must not fail on it.
        data = json.dumps(value, indent=2).encode()
    print_bytes(data + b"\n")


def print_bytes(data: bytes) -> None:
    """Write all bytes to standard output, whatever the encoding of the terminal."""
    rest = memoryview(data)
    # With PYTHONUNBUFFERED the stream is raw: a single write may take a part only, and would drop the rest unnoticed.
    while rest:
        rest = rest[sys.stdout.buffer.write(rest) :]


def terminal(*, to_stderr: bool = False) -> Console:
    """The console for tables and progress bars: as wide as the terminal, 80 columns without one."""
    from rich.console import Console

    # rich swallows a broken pipe and exits with 1; the exit code of this program is 141.
    class Terminal(Console):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError  # handled in one place for all commands: `main`

    console = Terminal(stderr=to_stderr, highlight=False, markup=False)
    # rich assumes 80 columns for a dumb terminal, such as that of Emacs, however wide it is.
    if console.is_dumb_terminal:
        with suppress(OSError, ValueError):
            size = os.get_terminal_size(console.file.fileno())
            console.size = (size.columns or console.width, size.lines or console.height)
    return console


def log(line: str) -> None:
    """Print one line for people on standard error: standard output carries results alone."""
    click.echo(f"foldline: {line}", err=True)


def write_whole(path: str, text: str) -> None:
    """Write a file atomically: a concurrent reader sees the old one. Raises InvalidInput."""
    folder = os.path.dirname(path) or "."
    try:
        # In the same folder: a rename is atomic within one file system only.
        handle, name = tempfile.mkstemp(prefix=f".{os.path.basename(path)}.", dir=folder)
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(text)
            # mkstemp makes it private. A page that a user asked for gets the rights of any other new file.
            os.chmod(name, 0o666 & ~_mask())
            os.replace(name, path)
        finally:
            # Only after an error: once replaced, the name is gone.
            Path(name).unlink(missing_ok=True)
    except OSError as error:
        raise InvalidInput(f"cannot be written: {error.strerror or error}", place=path) from None


def _mask() -> int:
    """The umask of this process."""
    # POSIX has no call that only reads it. No thread of a command creates files meanwhile.
    mask = os.umask(0)
    os.umask(mask)
    return mask


_ASCII: Final = str.maketrans({"→": ">", "←": "<", "…": "~", "–": "-", "·": "-", "█": "#", "░": "."})


class TextPrinter:
    """Prints to standard output, line by line. Recorded text is stripped of control characters here."""

    def __init__(self) -> None:
        self.console: Console = terminal()
        self.width = self.console.width
        self._ascii_only = self.console.options.ascii_only

    def line(self, text: str = "", style: str | None = None) -> None:
        """Print one line, cut at the end of the terminal."""
        from rich.cells import cell_len, set_cell_size

        # Recorded text may hold escape sequences and line breaks: a terminal obeys them, and the table breaks.
        text = " ".join(plain(text).splitlines())
        if cell_len(text) > self.width:
            text = set_cell_size(text, self.width - 1).rstrip() + "…"
        self._print(text.rstrip(), style)

    def words(self, text: str, style: str | None = None) -> None:
        """Print a text that wraps."""
        self.console.print(self._fit(plain(text)), style=style)

    def path(self, text: str) -> None:
        """Print a path in full; a narrow terminal wraps it."""
        # A path cut with "…" could not be copied.
        self.console.print(plain(text), soft_wrap=True)

    def block(self, text: str, indent: str = "  ") -> None:
        """Print a text of many lines, indented; long lines wrap."""
        from rich.cells import chop_cells

        for line in plain(text).expandtabs(4).split("\n"):
            # Wrapped here and not by rich, which breaks at words and so changes code and tables.
            for piece in chop_cells(line, max(8, self.width - len(indent))) or [""]:
                self._print(f"{indent}{piece}".rstrip(), None)

    def whole(self, text: str, indent: str = "  ") -> None:
        """Print a text of many lines at their full length: a terminal wraps them, a file keeps them."""
        for line in plain(text).expandtabs(4).split("\n"):
            self._print(f"{indent}{line}".rstrip(), None)

    def _print(self, text: str, style: str | None) -> None:
        self.console.print(self._fit(text), style=style, no_wrap=True, crop=False, overflow="ignore")

    def _fit(self, text: str) -> str:
        return text.translate(_ASCII) if self._ascii_only else text


_EIGHTHS: Final = " ▁▂▃▄▅▆▇█"
# A session of few calls gets wider bars, up to a width at which they still read as bars.
_WIDEST_BAR: Final = 4
# Narrower than this a plot shows no shape; the terminal wraps it instead.
_FEWEST_COLUMNS: Final = 8


class _Column(NamedTuple):
    low: float
    high: float
    marked: bool


def plot(values: Sequence[float], marked: Sequence[bool], *, width: int, height: int, ascii_only: bool) -> list[str]:
    """Return a bar plot as lines of at most `width` characters (at least 8 columns are drawn).

    Bars start at 0, as a truncated axis would exaggerate growth. With more values than columns, a column is solid up to
    the least of its values and shaded up to the greatest, so that drops stay visible. A mark is drawn below its column.
    O(values).
    """
    top = max(values, default=0) or 1
    labels = _labels(top, height)
    margin = max(map(len, labels)) + 2
    columns = _columns(values, marked, max(width - margin, _FEWEST_COLUMNS))
    lines = []
    for row in range(height):
        floor = height - 1 - row
        cells = "".join(_cell(column, top / height, floor, ascii_only) for column in columns)
        edge = ("|" if ascii_only else "│") if not labels[row] else "+" if ascii_only else "┤"
        lines.append(f"{labels[row]:>{margin - 2}} {edge}{cells}".rstrip())
    corner, line, mark = ("+", "-", "v") if ascii_only else ("┼", "─", "▼")
    lines.append(f"{'0':>{margin - 2}} {corner}{line * len(columns)}")
    if any(column.marked for column in columns):
        lines.append((" " * margin + "".join(mark if column.marked else " " for column in columns)).rstrip())
    return lines


def _labels(top: float, height: int) -> list[str]:
    """Return the scale: the maximum beside the top row, half of it beside the middle row."""
    labels = [""] * height
    labels[0] = compact(top)
    if height >= 4 and height % 2 == 0:
        labels[height // 2] = compact(top / 2)
    return labels


def _columns(values: Sequence[float], marked: Sequence[bool], room: int) -> list[_Column]:
    count = len(values)
    if count <= room:
        wide = min(room // max(count, 1), _WIDEST_BAR)
        return [
            _Column(value, value, mark and not place)
            for value, mark in zip(values, marked, strict=True)
            for place in range(wide)
        ]
    # Integer bounds give each column at least one value, and differ by one at most.
    bounds = [at * count // room for at in range(room + 1)]
    spans = [slice(start, stop) for start, stop in pairwise(bounds)]
    return [_Column(min(values[span]), max(values[span]), any(marked[span])) for span in spans]


def _cell(column: _Column, step: float, floor: int, ascii_only: bool) -> str:
    """One cell: `step` is the height of a row, `floor` the number of rows below it."""
    solid = min(max(column.low / step - floor, 0.0), 1.0)
    reached = column.high / step - floor
    if ascii_only:
        return "#" if solid >= 0.5 else ":" if reached >= 0.5 else " "
    eighths = round(solid * 8)
    if floor == 0 and column.high > 0:
        # A small value must not look like none.
        eighths = max(eighths, 1)
    if eighths:
        return _EIGHTHS[eighths]
    return "░" if reached >= 0.5 else " "


@dataclass(frozen=True, slots=True)
class Column:
    """A header, its cells, and their alignment. The columns of one `group` are shown or left out together."""

    head: str
    cells: Sequence[str]
    left: bool = False
    group: str = ""

    @property
    def width(self) -> int:
        """Cells of the widest line, plus one for the gap to the next column."""
        from rich.cells import cell_len

        return 1 + max(cell_len(line) for text in (self.head, *self.cells) for line in text.split("\n"))


def print_table(console: Console, columns: Sequence[Column], spare: Sequence[str]) -> tuple[str, ...]:
    """Print as many columns as fit; return the groups left out, in the order of `spare`.

    `spare` names the groups that may be left out, in that order. A table that is too wide even without them is printed
    in full.
    """
    dropped = next((dropped for dropped in _choices(spare) if _width(columns, dropped) <= console.width), tuple(spare))
    console.print(_table([column for column in columns if column.group not in dropped]), crop=False)
    return dropped


def _choices(spare: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """What to leave out: nothing, then the first group, then the first two, and so on."""
    return (tuple(spare[:count]) for count in range(len(spare) + 1))


def _width(columns: Sequence[Column], dropped: Collection[str]) -> int:
    return sum(column.width for column in columns if column.group not in dropped) - 1


def _table(columns: Sequence[Column]) -> object:
    from rich.table import Table

    width = _width(columns, ())
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="bold", width=width)
    for column in columns:
        # The minimum width keeps rich from shrinking a column of figures, which would cut digits off.
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
