"""Bills as people read them: in a table, and as two bars on one scale."""

from __future__ import annotations

from foldline.report.spend import Spend
from foldline.text.formatting import compact, money

__all__ = ["bill", "price", "ratio"]


def price(spend: Spend) -> str:
    """A bill in a few characters: money, or its input in tokens at the full price where the catalogue has none."""
    about = "~" if spend.estimated else ""
    return about + (f"{compact(spend.paid_tokens)} tokens" if spend.usd is None else money(spend.usd))


def ratio(managed: Spend, unmanaged: Spend) -> float | None:
    """The one by the other: money where both have it, else input at its full price; None where there is nothing."""
    one, other = _amounts(managed, unmanaged)
    return one / other if other else None


def bill(managed: Spend, unmanaged: Spend, *, replayed: bool, fitted: bool) -> str:
    """Both bills as bars, one under the other; without `fitted` the second is of what would have been refused."""
    amounts = _amounts(managed, unmanaged)
    largest = max(*amounts, 1e-12)
    in_money = managed.usd is not None and unmanaged.usd is not None
    rows = (
        ("with Foldline", "with", amounts[0], managed, "replayed" if replayed else ""),
        ("without", "without", amounts[1], unmanaged, "estimate" if fitted else "estimate, had it fitted"),
    )
    drawn = "".join(
        f'<div><dt>{name}</dt><dd><span class="track"><span class="{kind}" style="--share:{amount / largest:.4f}">'
        f"</span></span></dd><dd><b>{_written(amount, spend.estimated, in_money)}</b></dd><dd>{note}</dd></div>"
        for name, kind, amount, spend, note in rows
    )
    unit = "" if in_money else '<p class="faint">Input, in tokens at its full price: the catalogue has no price.</p>'
    return f'<dl class="bills">{drawn}</dl>{unit}'


def _amounts(managed: Spend, unmanaged: Spend) -> tuple[float, float]:
    if managed.usd is None or unmanaged.usd is None:
        return managed.paid_tokens, unmanaged.paid_tokens
    return managed.usd, unmanaged.usd


def _written(amount: float, estimated: bool, in_money: bool) -> str:
    return f"{'~' if estimated else ''}{money(amount) if in_money else compact(amount)}"
