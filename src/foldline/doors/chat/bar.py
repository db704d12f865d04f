"""How the window is filled, part by part: figures out of a context, and a bar of any width."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from rich.text import Text

from foldline.engine.context import Context
from foldline.tokens import ESTIMATE, system_tokens

__all__ = ["Share", "bar_lines", "cells", "shares_of"]

_LABELS: Final = ("system", "tools", "pinned", "folded", "live", "free")
_STYLES: Final = ("blue", "cyan", "yellow", "magenta", "green", "dim")
_MARKS: Final = "█▓■▒▆·"
_ASCII_MARKS: Final = "STPFL."
_MOST_COLUMNS: Final = 80


@dataclass(frozen=True, slots=True)
class Share:
    """One part of the window and its size."""

    label: str
    tokens: int


def shares_of(context: Context, system: str | None) -> tuple[Share, ...]:
    """The parts of the next request as it stands, and what is free; together they are the window, if it fits.

    Parts are by our own count, scaled so that their sum is the size that the server's reports make likely. O(units).
    """
    view = context.view
    own = system_tokens(system, ESTIMATE) if system else 0
    sizes = dict.fromkeys(_LABELS[:-1], 0)
    sizes["system"], sizes["tools"] = own, max(0, view.base_tokens - own)
    for unit in view.units:
        shortened = sum(fold.tokens for fold in unit.forms.values())
        if unit.fold is not None:
            sizes["folded"] += unit.tokens
        elif unit.pinned:
            sizes["pinned"] += unit.tokens
        elif unit.system:
            sizes["system"] += unit.tokens
        else:
            sizes["folded"] += shortened
            sizes["live"] += max(0, unit.tokens - shortened)
    counted = sum(sizes.values())
    scaled = _apportioned([*sizes.values()], view.tokens) if counted else [0] * len(sizes)
    free = max(0, context.limits.window_tokens - sum(scaled))
    return tuple(Share(label, tokens) for label, tokens in zip(_LABELS, [*scaled, free], strict=True))


def cells(shares: Sequence[Share], width: int) -> list[int]:
    """How many of `width` cells each part gets: by size, and one at least where there is anything."""
    counts = _apportioned([share.tokens for share in shares], width)
    for at, share in enumerate(shares):
        if share.tokens and not counts[at]:
            widest = max(range(len(counts)), key=counts.__getitem__)
            if counts[widest] > 1:
                counts[at], counts[widest] = 1, counts[widest] - 1
    return counts


def bar_lines(shares: Sequence[Share], window_tokens: int, *, width: int, ascii_only: bool = False) -> list[Text]:
    """The bar, and a line for each part with its tokens and its share of the window."""
    marks = _ASCII_MARKS if ascii_only else _MARKS
    bar = Text()
    for mark, style, count in zip(marks, _STYLES, cells(shares, min(width, _MOST_COLUMNS)), strict=True):
        bar.append(mark * count, style)
    digits = max(len(f"{share.tokens:,}") for share in shares)
    lines = [bar]
    for mark, style, share in zip(marks, _STYLES, shares, strict=True):
        part = share.tokens / window_tokens if window_tokens else 0.0
        line = Text(f"{mark} ", style)
        line.append(f"{share.label:<7} {share.tokens:>{digits},} tokens {part:>6.1%}", "")
        lines.append(line)
    return lines


def _apportioned(sizes: Sequence[int], total: int) -> list[int]:
    """Whole numbers in proportion to the sizes whose sum is `total` (largest remainders)."""
    whole = sum(sizes)
    if whole <= 0:
        return [0] * len(sizes)
    exact = [size * total / whole for size in sizes]
    out = [int(each) for each in exact]
    by_rest = sorted(range(len(sizes)), key=lambda at: exact[at] - out[at], reverse=True)
    for at in by_rest[: total - sum(out)]:
        out[at] += 1
    return out
