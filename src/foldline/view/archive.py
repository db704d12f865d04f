"""The archive of originals, content-addressed: a spilled output and a folded message are the same kind of object.

A fold over several entries is stored as a bundle of keys, so that folding a fold again adds a line per new entry and
not a second copy of the session.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Container, Iterable, Sequence
from typing import Protocol, runtime_checkable

from foldline.messages import Json
from foldline.view.transcript import Entry, Fold, Seq
from foldline.view.view import View

__all__ = ["Archive", "ManyAtOnce", "MemoryArchive", "Originals", "bundle", "encode", "key_of", "unbundle"]


class Archive(Protocol):
    """A store of bytes by the SHA-256 of their content. `put` is idempotent; nothing is ever removed."""

    def put(self, data: bytes, /) -> str:
        """Store bytes; returns their key (64 hexadecimal digits)."""

    def get(self, key: str, /) -> bytes:
        """The bytes under a key. Raises KeyError."""

    def where(self, key: str, /) -> str:
        """The location of an object, for people: a path or a name. Pure: the object need not exist."""

    def __contains__(self, key: object, /) -> bool: ...


@runtime_checkable
class ManyAtOnce(Protocol):
    """An archive that stores several objects at little more than the cost of one."""

    def put_all(self, several: Iterable[bytes], /) -> None:
        """Store all of them, or none."""


class MemoryArchive:
    """An archive that lives as long as the process."""

    def __init__(self) -> None:
        self._objects: dict[str, bytes] = {}

    def put(self, data: bytes, /) -> str:
        """Store bytes; returns their key."""
        key = key_of(data)
        self._objects.setdefault(key, data)
        return key

    def get(self, key: str, /) -> bytes:
        """The bytes under a key. Raises KeyError."""
        return self._objects[key]

    def where(self, key: str, /) -> str:
        """A name for the archive of this process."""
        return f"archive:{key[:16]}"

    def __contains__(self, key: object, /) -> bool:
        return key in self._objects


_KEY = re.compile(r"[0-9a-f]{64}")


def key_of(data: bytes) -> str:
    """The key under which an archive keeps these bytes."""
    return hashlib.sha256(data).hexdigest()


def encode(value: Json) -> bytes:
    """A JSON value as canonical bytes: equal values have one key. Lone surrogates are kept as escapes."""
    # ASCII on purpose: UTF-8 has no form for a lone surrogate, and a broken tool may print one.
    return _CANONICAL.encode(value).encode()


_CANONICAL = json.JSONEncoder(ensure_ascii=True, sort_keys=True, separators=(",", ":"), default=str)


def bundle(children: Sequence[tuple[str, bool]]) -> bytes:
    """The object of a fold over several entries: (key, whether it is a bundle) of each original, in order."""
    # What points to a bundle says that it is one, never its content: a text that looks like one stays a text.
    return encode([[key, int(inner)] for key, inner in children])


def unbundle(archive: Archive, key: str) -> list[bytes]:
    """The originals in the bundle under a key, in order, bundles within bundles opened. Raises KeyError."""
    out: list[bytes] = []
    waiting = [(key, True)]
    while waiting:  # not recursive: bundles may be nested as deep as a session is long
        child, inner = waiting.pop()
        if inner:
            waiting += [(below, bool(flag)) for below, flag in reversed(json.loads(archive.get(child)))]
        else:
            out.append(archive.get(child))
    return out


class Originals:
    """Stores what folds hide, each original once, and remembers the key of each entry."""

    # The archive is content-addressed, so that a log, a copy of it and a fork share their originals, and a fold that is
    # replayed stores nothing twice.

    def __init__(self, archive: Archive) -> None:
        self.archive = archive
        self._keys: dict[Seq, str] = {}

    def store(self, view: View, fold: Fold, form: bool) -> str:
        """Store what a fold is about to hide; returns its key. O(what is new in it)."""
        if form:
            self._store_named_texts(view.entries[fold.start], fold)
            return self._entry_key(view, fold.start)
        # By tiles, not by entries: a fold over a hundred folds stores a hundred keys, however long the session is.
        children: list[tuple[str, bool]] = []
        for tile in view.tiles[view.index(fold.start) : view.index(fold.stop - 1) + 1]:
            # A fold inside is stored already: the key of its bundle stands for all of it.
            if tile.fold is not None and tile.fold.archive is not None:
                children.append((tile.fold.archive, True))
            else:
                children += [(self._entry_key(view, entry.seq), False) for entry in tile.entries]
        return self.archive.put(bundle(children))

    def read(self, fold: Fold) -> tuple[bytes, ...]:
        """The originals behind a fold, as the JSON that came in. Raises KeyError."""
        if fold.archive is None:
            raise KeyError("this fold has no archive key")
        if fold.form:
            return (self.archive.get(fold.archive),)
        return tuple(unbundle(self.archive, fold.archive))

    def retain(self, entries: Container[Seq]) -> None:
        """Keep the keys of these entries only: the others are found through the folds over them."""
        self._keys = {seq: key for seq, key in self._keys.items() if seq in entries}

    def _store_named_texts(self, entry: Entry, fold: Fold) -> None:
        """Store the plain text of each result whose key the fold shows, so that a tool can read on from there.

        The entry itself is stored as JSON, under another key. The rule asks what a fold shows, not who made it, so it
        holds for a user's own reducer, and for a replay.
        """
        shown = "\n".join(result.text for message in fold.shown for result in message.results)
        if _KEY.search(shown) is None:
            return  # hashing every shortened result would cost more than looking for a key
        for result in entry.message.results:
            data = result.text.encode("utf-8", "surrogatepass")
            if key_of(data) in shown:
                self.archive.put(data)

    def _entry_key(self, view: View, seq: Seq) -> str:
        # An entry may be hidden several times (cut, masked, folded): it is encoded and stored once.
        if seq not in self._keys:
            self._keys[seq] = self.archive.put(encode(view.entries[seq].recorded))
        return self._keys[seq]
