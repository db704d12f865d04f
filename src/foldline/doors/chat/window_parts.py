"""What fills the window: the parts of the next request with their sizes, as a bar and as lines."""

from __future__ import annotations

from collections import Counter as Counts
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Final

from rich.text import Text

from foldline.engine.context import Context
from foldline.text.formatting import plain_line, plural
from foldline.tokens import ESTIMATE, system_tokens
from foldline.view.standing_rules import StandingRule, rules_tokens
from foldline.view.tool_sizes import ToolSize, by_server

__all__ = ["WindowShare", "bar_lines", "cells", "rule_sources", "shares_of", "tool_sources"]

_LABELS: Final = ("system", "rules", "tools", "pinned", "folded", "live", "free")
_STYLES: Final = ("blue", "red", "cyan", "yellow", "magenta", "green", "dim")
_MARKS: Final = "█▚▓■▒▆·"
_ASCII_MARKS: Final = "SRTPFL."
_MOST_COLUMNS: Final = 80


@dataclass(frozen=True, slots=True)
class WindowShare:
    """One part of the window and its size."""

    label: str
    tokens: int


def shares_of(context: Context, system: str | None, project: StandingRule | None = None) -> tuple[WindowShare, ...]:
    """The parts of the next request as it stands, and what is free; together they are the window, if it fits.

    Parts are by our own count, scaled so that their sum is the size that the server's reports make likely. O(tiles).
    """
    view = context.view
    own = system_tokens(system, ESTIMATE) if system else 0
    sizes = dict.fromkeys(_LABELS[:-1], 0)
    folds = [tile.fold for tile in view.tiles if tile.fold is not None]
    sizes["rules"] = rules_tokens(folds, view.counter)
    sizes["folded"] -= sizes["rules"]
    sizes["system"], sizes["tools"] = own, max(0, view.base_tokens - own)
    if project is not None:
        sizes["system"], sizes["rules"] = max(0, own - project.tokens), sizes["rules"] + min(own, project.tokens)
    for tile in view.tiles:
        # A group may hold shortened and whole messages side by side, so its tokens are split between two parts.
        shortened = sum(fold.tokens for fold in tile.forms.values())
        if tile.fold is not None:
            sizes["folded"] += tile.tokens
        elif tile.pinned:
            sizes["pinned"] += tile.tokens
        elif tile.system:
            sizes["system"] += tile.tokens
        else:
            sizes["folded"] += shortened
            sizes["live"] += max(0, tile.tokens - shortened)
    # Estimates by part, calibrated as a whole: providers report the size of a request, not of its parts.
    counted = sum(sizes.values())
    scaled = _apportioned([*sizes.values()], view.tokens) if counted else [0] * len(sizes)
    free = max(0, context.limits.window_tokens - sum(scaled))
    return tuple(WindowShare(label, tokens) for label, tokens in zip(_LABELS, [*scaled, free], strict=True))


def cells(shares: Sequence[WindowShare], width: int) -> list[int]:
    """The share of each part in `width` cells: by size, and at least one for any tokens."""
    counts = _apportioned([share.tokens for share in shares], width)
    for at, share in enumerate(shares):
        # A part that exists must not vanish in rounding; the widest part gives up the cell.
        if share.tokens and not counts[at]:
            widest = max(range(len(counts)), key=counts.__getitem__)
            if counts[widest] > 1:
                counts[at], counts[widest] = 1, counts[widest] - 1
    return counts


def bar_lines(shares: Sequence[WindowShare], window_tokens: int, *, width: int, ascii_only: bool = False) -> list[Text]:
    """The bar, and a line for each part with its tokens and its share of the window."""
    marks = _ASCII_MARKS if ascii_only else _MARKS
    bar = Text()
    # A mark of its own for each part: colours alone say nothing without colour, or to the colour-blind.
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
    """Whole numbers in proportion to the sizes, with the sum `total` (largest remainders)."""
    whole = sum(sizes)
    if whole <= 0:
        return [0] * len(sizes)
    exact = [size * total / whole for size in sizes]
    out = [int(each) for each in exact]
    # Rounding each share by itself could miss the total; the largest remainders get what is left (Hamilton's method).
    by_rest = sorted(range(len(sizes)), key=lambda at: exact[at] - out[at], reverse=True)
    for at in by_rest[: total - sum(out)]:
        out[at] += 1
    return out


# Tools that are named one by one: the largest.
_NAMED: Final = 6


def tool_sources(sizes: Sequence[ToolSize], servers: Mapping[str, str], short: Set[str]) -> str:
    """Servers and the largest tools with their tokens: "docs (12 tools, 9 short) 3,400, read_file 210, 4 more 320"."""
    known = [replace(size, server=servers.get(size.name, size.server)) for size in sizes]
    pieces = []
    for server, count, tokens in by_server(known):
        if server:
            shortened = sum(size.server == server and size.name in short for size in known)
            also = f", {shortened:,} short" if shortened else ""
            pieces.append(f"{plain_line(server)} ({plural(count, 'tool')}{also}) {tokens:,}")
    own = sorted((size for size in known if not size.server), key=lambda size: -size.tokens)
    pieces += [f"{plain_line(size.name)} {size.tokens:,}" for size in own[:_NAMED]]
    if rest := own[_NAMED:]:
        pieces.append(f"{len(rest)} more {sum(size.tokens for size in rest):,}")
    return ", ".join(pieces)


def rule_sources(found: Sequence[StandingRule], project: StandingRule | None) -> str:
    """The sources of rules with their tokens, "" for none: "AGENTS.md 120, user 24"."""
    sizes: Counts[str] = Counts()
    for rule in (*([project] if project else []), *found):
        sizes[plain_line(rule.source)] += rule.tokens
    return ", ".join(f"{source} {tokens:,}" for source, tokens in sizes.items())
