"""What a session has cost: tokens by model, and money by the catalogue's prices."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from foldline.catalog.models import lookup

__all__ = ["Call", "Spent", "cost_lines", "spent_on"]


@dataclass(frozen=True, slots=True)
class Call:
    """Tokens of one model call; `prompt_tokens` with those in it that were read from a cache and written to one."""

    model: str
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    estimated: bool = False
    written_tokens: int = 0
    written_long_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Spent:
    """Sums over calls of one model; `usd` is None where the catalogue has no price.

    Money is by list price: each call at the price step of its own size, tokens from the cache at what the provider
    charges for reading them, and those that it reported as written at what it charges for that.
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
    paid = [
        known.usd(
            call.prompt_tokens,
            call.cached_tokens,
            call.completion_tokens,
            call.written_tokens,
            call.written_long_tokens,
        )
        for call in calls
    ]
    usd = None if None in paid else sum(each or 0.0 for each in paid)
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
