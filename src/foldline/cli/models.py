"""The command `foldline models`: the catalogue of windows, prices and cache rules."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from difflib import get_close_matches
from typing import Any, Final

import click

from foldline.catalog.models import Model, lookup
from foldline.catalog.models import models as all_models
from foldline.catalog.prices import PriceStep
from foldline.cli.console import Column, json_out, log, print_table, terminal
from foldline.text.formatting import DASH, compact, plural

__all__ = ["models", "nearest"]


def _usd(price: float | None) -> str:
    if price is None:
        return DASH
    return f"{price:,.0f}" if price >= 100 else f"{price:.2f}" if price >= 0.1 else f"{price:.3f}"


def _least(model: Model) -> str:
    """Return the shortest prefix that is cached; a dash if none is."""
    # A read ratio of 1 means no discount: for the bill that is no cache, whatever the provider calls it.
    return DASH if model.cache.read_ratio >= 1 else f"{model.cache.minimum_tokens:,}"


def _lifetime(model: Model) -> str:
    """Return how long an unused prefix stays by default."""
    return DASH if model.cache.read_ratio >= 1 else _duration(model.cache.lifetime_seconds)


def _duration(seconds: int) -> str:
    return f"{seconds // 60}m" if seconds < 3_600 else f"{seconds // 3_600}h"


def _cache(model: Model) -> str:
    """Return the prices of cache reads and writes, without the zero before the point."""
    return "/".join(f"{ratio:.3g}".removeprefix("0") for ratio in (model.cache.read_ratio, model.cache.write_ratio))


_COLUMNS: Final[tuple[tuple[str, Callable[[Model], str]], ...]] = (
    ("model", lambda model: model.name),
    ("window", lambda model: compact(model.window_tokens)),
    ("reply", lambda model: DASH if model.max_output_tokens is None else compact(model.max_output_tokens)),
    ("$ in", lambda model: _usd(model.input_usd_per_million)),
    ("$ out", lambda model: _usd(model.output_usd_per_million)),
    ("cache", _cache),
    ("least", _least),
    ("stays", _lifetime),
    ("as of", lambda model: model.read_on.isoformat()),
)

# Columns that a narrow terminal leaves out, the first one first: figures of detail go before those that
# decide between models, and the two prices always stay.
_SPARE: Final = ("least", "as of", "stays", "reply", "cache", "window")

_MEANING: Final = {
    "cache": "cache: read/write as shares of the input price",
    "least": "least: the shortest beginning that is cached",
    "stays": "stays: how long, unused",
}


def nearest(name: str) -> str | None:
    """Return the catalogue's name most like an unknown one; None if none is close."""
    names = [model.name for model in all_models()]
    # Without the prefix of a router, such as "openai/": the catalogue has bare names.
    return next(iter(get_close_matches(name.lower().rpartition("/")[2], names, 1)), None)


@click.command()
@click.argument("name", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of the table.")
def models(*, name: str | None, as_json: bool) -> None:
    """List the models whose name contains NAME: windows, prices, cache rules.

    For a name that is not in the catalogue, the command shows what Foldline would assume.
    """
    query = (name or "").lower()
    found = [model for model in all_models() if query in model.name.lower()]
    if not found:
        # Not an error: a model that came out today runs, and this shows under which assumptions.
        guess = lookup(name)
        near = None if guess.known else nearest(name or "")
        log(
            (guess.warning or f"{name!r} stands for {guess.name}") + (f"; the nearest name is {near!r}" if near else "")
        )
        found = [guess]
    if as_json:
        json_out([_plain(model) for model in found])
    else:
        _print_table(found)


def _plain(model: Model) -> dict[str, Any]:
    return {**asdict(model), "read_on": model.read_on.isoformat()}


def _print_table(found: Sequence[Model]) -> None:
    columns = [
        Column(name, [cell(model) for model in found], left=number == 0, group=name if name in _SPARE else "")
        for number, (name, cell) in enumerate(_COLUMNS)
    ]
    console = terminal()
    dropped = print_table(console, columns, _SPARE)
    console.print()
    meanings = "; ".join(meaning for name, meaning in _MEANING.items() if name not in dropped)
    console.print(f"$ per million tokens{'; ' if meanings else ''}{meanings}.", style="dim")
    console.print("Your own settings, and what a server or an error says, go before these figures.", style="dim")
    if dropped:
        console.print(f"No room here for {', '.join(dropped)}: a wider terminal or --json has them.", style="dim")
    for line in (*_long_requests(found), *_other_caches(found)):
        console.print(line, style="dim")
    log(plural(len(found), "model"))


def _long_requests(found: Sequence[Model]) -> Iterator[str]:
    """Yield a sentence for each set of price steps, with its models."""
    names: dict[tuple[PriceStep, ...], list[str]] = {}
    for model in found:
        names.setdefault(model.cache.steps, []).append(model.name)
    # Most models have one price for all sizes.
    names.pop((), None)
    for steps, priced in names.items():
        dearer = ", ".join(
            f"over {compact(step.above_tokens)} tokens {step.input_ratio:.3g}x in, {step.output_ratio:.3g}x out"
            for step in steps
        )
        yield f"A whole request {dearer}: {', '.join(priced)}."


def _other_caches(found: Sequence[Model]) -> Iterator[str]:
    """Yield a sentence for each cache on request, with its models."""
    names: dict[str, list[str]] = {}
    for model in found:
        for rule in model.caches:
            terms = f"{_duration(rule.lifetime_seconds)} at {rule.read_ratio:.3g}/{rule.write_ratio:.3g}"
            names.setdefault(terms, []).append(model.name)
    for terms, offered in names.items():
        yield f"Cache on request {terms}: {', '.join(offered)}."
