"""The command that shows the catalogue."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any, Final

import click

from foldline.catalog.models import Model, lookup
from foldline.catalog.models import models as all_models
from foldline.interfaces.cli_files import json_out, log, terminal
from foldline.report.words import DASH, compact, plural

__all__ = ["models"]


def _usd(price: float | None) -> str:
    return DASH if price is None else f"{price:,.2f}" if price >= 0.1 else f"{price:.3f}"


def _least(model: Model) -> str:
    """The shortest cached prefix; a dash where nothing is ever cached."""
    return DASH if model.cache.read_ratio >= 1 else f"{model.cache.minimum_tokens:,}"


_COLUMNS: Final[tuple[tuple[str, Callable[[Model], str]], ...]] = (
    ("model", lambda model: model.name),
    ("window", lambda model: compact(model.window_tokens)),
    ("output", lambda model: DASH if model.max_output_tokens is None else compact(model.max_output_tokens)),
    ("$ in", lambda model: _usd(model.input_usd_per_million)),
    ("$ out", lambda model: _usd(model.output_usd_per_million)),
    ("cache", lambda model: f"{model.cache.read_ratio:.3g}/{model.cache.write_ratio:.3g}"),
    ("least", _least),
    ("as of", lambda model: model.read_on.isoformat()),
)

_LEGEND: Final = """\
$ per million tokens; cache: read/write as shares of the input price; least: the
shortest beginning that is cached. Your own settings, and what a server or an
error says, go before these figures."""


@click.command()
@click.argument("name", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of the table.")
def models(*, name: str | None, as_json: bool) -> None:
    """List the models whose name contains NAME: windows, prices, cache rules.

    For a name that the catalogue does not have, what would be taken for it is shown.
    """
    wanted = (name or "").lower()
    found = [model for model in all_models() if wanted in model.name.lower()]
    if not found:
        guess = lookup(name)
        log(guess.warning or f"{name!r} stands for {guess.name}")
        found = [guess]
    if as_json:
        json_out([_plain(model) for model in found])
    else:
        _print_table(found)


def _plain(model: Model) -> dict[str, Any]:
    return {**asdict(model), "read_on": model.read_on.isoformat()}


def _print_table(found: Sequence[Model]) -> None:
    from rich.table import Table

    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="bold")
    for number, (name, _) in enumerate(_COLUMNS):
        wide = number == 0
        table.add_column(
            name, justify="left" if wide else "right", vertical="bottom", no_wrap=not wide, overflow="fold"
        )
    for model in found:
        table.add_row(*(cell(model) for _, cell in _COLUMNS))
    console = terminal()
    console.print(table)
    console.print()
    console.print(_LEGEND, style="dim")
    log(plural(len(found), "model"))
