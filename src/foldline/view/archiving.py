"""Puts what a fold hides into the archive, each original once."""

from __future__ import annotations

from collections.abc import Container

from foldline.view.archive import Archive, bundle, encode, unbundle
from foldline.view.transcript import Fold, Seq
from foldline.view.view import View

__all__ = ["Originals"]


class Originals:
    """The way into an archive; remembers under which key each entry is kept."""

    def __init__(self, archive: Archive) -> None:
        self.archive = archive
        self._keys: dict[Seq, str] = {}

    def keep(self, view: View, fold: Fold, form: bool) -> str:
        """Keep what a fold is about to hide; the key under which it is read. O(what is new in it)."""
        if form:
            if fold.reducer == "spill":
                for result in view.entries[fold.start].message.results:
                    self.archive.put(result.text.encode("utf-8", "surrogatepass"))
            return self._entry_key(view, fold.start)
        children: list[tuple[str, bool]] = []
        for tile in view.tiles[view.index(fold.start) : view.index(fold.stop - 1) + 1]:
            if tile.fold is not None and tile.fold.archive is not None:
                children.append((tile.fold.archive, True))
            else:
                children += [(self._entry_key(view, entry.seq), False) for entry in tile.entries]
        return self.archive.put(bundle(children))

    def read(self, fold: Fold) -> tuple[bytes, ...]:
        """The originals behind a fold, as the JSON they came in as. Raises KeyError."""
        if fold.archive is None:
            raise KeyError("this fold has no archive key")
        if fold.form:
            return (self.archive.get(fold.archive),)
        return tuple(unbundle(self.archive, fold.archive))

    def forget(self, entries: Container[Seq]) -> None:
        """Remember the keys of these entries only; the others are reached by the folds over them."""
        self._keys = {seq: key for seq, key in self._keys.items() if seq in entries}

    def _entry_key(self, view: View, seq: Seq) -> str:
        if seq not in self._keys:
            self._keys[seq] = self.archive.put(encode(view.entries[seq].recorded))
        return self._keys[seq]
