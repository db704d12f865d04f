"""Where each message of a request comes from: the entries that it shows, or those that it stands for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from foldline.view.tiles import JOINT, Tile
from foldline.view.transcript import Fold, Seq

__all__ = ["OURS", "Origin", "origins_of", "shown_origins"]


@dataclass(frozen=True, slots=True)
class Origin:
    """Where one message of a request comes from, by the numbers of entries in the log.

    `entries` are those that the message shows, whole, shortened or repaired: one as a rule, several where results of a
    turn are merged. `stands_for` are those that a fold has taken away and that the message stands for, together with
    the other messages of that fold. `folds` are the folds in effect on the message. A message without any of them is
    one that Foldline has written: a stand-in for a missing result, or words between two messages of one role.
    """

    entries: Sequence[Seq] = ()
    stands_for: Sequence[Seq] = ()
    folds: tuple[Fold, ...] = ()


OURS: Final = Origin()
"""Of a message that Foldline has written and that stands for nothing."""


def origins_of(tile: Tile, first: int = 0) -> Iterator[Origin]:
    """The origins of the messages of a tile, from number `first` on. O(those messages)."""
    if (fold := tile.fold) is not None:
        away = Origin(stands_for=_numbers(tile.covers, tile.shown_sources), folds=(fold,))
        for message, sources in zip(tile.messages[first:], tile.sources[first:], strict=True):
            yield Origin(sources) if sources else OURS if message.kind == JOINT else away
        return
    for sources in tile.sources[first:]:
        if not sources:
            yield OURS
        elif tile.forms:
            yield Origin(sources, folds=tuple(tile.forms[seq] for seq in sources if seq in tile.forms))
        else:
            yield Origin(sources)


def shown_origins(tiles: Iterable[Tile], *, lead: bool) -> list[Origin]:
    """The origins of the messages that `View.shown` returns, with or without a first one of ours. O(messages)."""
    return [*([OURS] if lead else []), *(origin for tile in tiles for origin in origins_of(tile))]


def _numbers(runs: Sequence[range], shown: Sequence[Sequence[Seq]]) -> Sequence[Seq]:
    """The numbers of these runs without those that are shown; a range where nothing is missing between them."""
    without = {seq for sources in shown for seq in sources}
    if len(runs) == 1 and not without:
        return runs[0]
    return tuple(seq for run in runs for seq in run if seq not in without)
