"""Reads what has come before a fold needs it, so that a fold mostly selects.

Much of what a fold took was to read the texts since the last one: their tokens and names. What is read is kept by the
view (`TextMemory`). What is shown does not depend on whether it was read. Lines are left to the fold: in recorded
sessions, to read those ahead too took 0.2 ms more of each turn and saved nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from foldline.reducers.digest import labelled_texts
from foldline.view.transcript import Entry, Seq
from foldline.view.view import View

__all__ = ["ReadAhead"]

# What comes is read in batches: few turns read.
_BATCH_TOKENS = 2_000

# Characters read in one turn, about 1 ms of work. A longer text is left to the fold.
_MOST_CHARS = 20_000

# Of a larger view the memory would let go of what was read first before a fold comes.
_MOST_VIEW_BYTES = 262_144


@dataclass(slots=True)
class ReadAhead:
    """How far a session has been read. A session that stays short is not read at all."""

    to: Seq = 0
    """Entries before this have been read, or are not read ahead."""

    def go_on(self, view: View, limit_tokens: int) -> None:
        """Read a batch of what the view shows, once half of the limit is used. O(what is read), bounded."""
        if 2 * view.tokens < limit_tokens:
            return
        first = max(0, view.index(self.to))
        if view.between(first, len(view.tiles)) < _BATCH_TOKENS:
            return
        stop = view.tiles[-1].stop
        if view.content_bytes > _MOST_VIEW_BYTES:
            self.to = stop
            return
        entries = [entry for tile in view.tiles[first:] if tile.fold is None for entry in tile.entries]
        self.to = _read(view, [entry for entry in entries if entry.seq >= self.to], stop)


def _read(view: View, entries: Sequence[Entry], stop: Seq) -> Seq:
    """Read entries as a digest reads them; returns where to go on: at `stop` when all have been read."""
    left, texts = _MOST_CHARS, view.texts
    for entry in entries:
        if entry.message.role == "system" or not entry.message.agent_visible:
            continue
        found = [each for each in labelled_texts(entry.message, view) if len(each[1]) <= _MOST_CHARS]
        size = sum([len(text) for _, text in found])
        if size > left < _MOST_CHARS:
            return entry.seq
        left -= size
        for label, text in found:
            texts.tokens(label + text)
            texts.names(text)
    return stop
