"""What a session has cost: tokens by model, and money by the catalogue's prices."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from foldline.catalog.models import lookup

__all__ = ["Call", "Spent", "cost_lines", "spent_on"]


@dataclass(frozen=True, slots=True)
class Call:
    """Tokens of one model call; `prompt_tokens` with the cached ones in it."""

    model: str
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    estimated: bool = False


@dataclass(frozen=True, slots=True)
class Spent:
    """Sums over calls of one model; `usd` is None where the catalogue has no price.

    Money is by list price, cached tokens at what the provider charges for reading them; what writing a cache costs
    more is not in it.
    """

    model: str
    calls: int
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    estimated: bool
    usd: float | None


def spent_on(calls: Iterable[Call]) -> list[Spent]:
    """The sums, model by model in the order of their first call."""
    by_model: dict[str, list[Call]] = {}
    for call in calls:
        by_model.setdefault(call.model, []).append(call)
    return [_sum(model, made) for model, made in by_model.items()]


def _sum(model: str, calls: list[Call]) -> Spent:
    prompt = sum(call.prompt_tokens for call in calls)
    cached = sum(call.cached_tokens for call in calls)
    answered = sum(call.completion_tokens for call in calls)
    known = lookup(model)
    usd = None
    if known.known and known.input_usd_per_million is not None and known.output_usd_per_million is not None:
        read = known.input_usd_per_million * known.cache.read_ratio
        usd = ((prompt - cached) * known.input_usd_per_million + cached * read) / 1e6
        usd += answered * known.output_usd_per_million / 1e6
    return Spent(model, len(calls), prompt, cached, answered, any(call.estimated for call in calls), usd)


def cost_lines(spent: Iterable[Spent]) -> list[str]:
    """One line for each model, and one for the sum where there are several; `~` marks what is not all reported."""
    rows = list(spent)
    lines = [_line(row) for row in rows]
    priced = [row.usd for row in rows if row.usd is not None]
    if len(rows) > 1 and priced:
        about = "~" if any(row.estimated for row in rows) else ""
        without = "" if len(priced) == len(rows) else ", models without a price left out"
        lines.append(f"together {about}${sum(priced):,.4f}{without}")
    return lines


def _line(row: Spent) -> str:
    about = "~" if row.estimated else ""
    share = f"{row.cached_tokens / row.prompt_tokens:.0%}" if row.prompt_tokens else "0%"
    money = "no price in the catalogue" if row.usd is None else f"{about}${row.usd:,.4f}"
    calls = "1 call" if row.calls == 1 else f"{row.calls:,} calls"
    return (
        f"{row.model or 'unnamed model'}: {calls}, {about}{row.prompt_tokens:,} prompt tokens "
        f"({row.cached_tokens:,} cached, {share}), {about}{row.completion_tokens:,} answered; {money}"
    )
