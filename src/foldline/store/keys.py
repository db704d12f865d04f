"""The keys by which sessions in files are found: an index beside them that several processes share.

The design note on stores says why it is neither one JSON file, nor a file per key, nor a log.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from foldline.store.files import consume_json, read_json

__all__ = ["FileKeys"]

_FILE: Final = "keys.db"
_OLD: Final = "keys.json"
"""Where an older version keeps them. What is in it is newer than the index: it is taken over before the next change."""

_FIRST_ASKED: Final = 64
"""Who looks for a session by many keys begins with the likeliest: then the others are not looked up."""


class FileKeys:
    """The keys under a root, and the id of the session that each was bound to; whether that is there still, it does not
    know. Nothing is held open between calls, so any thread and any process may use it.

    All raise OSError (no right, a full disk, another writer is stuck) and InvalidInput for a file that is none of ours.
    """

    def __init__(self, root: Path, *, fsync: bool = True) -> None:
        self._path = root / _FILE
        self._old = root / _OLD
        self._fsync = fsync

    def bound(self, keys: Sequence[str]) -> Generator[tuple[str, str], None, None]:
        """Those of the keys that are bound, in their order, with their sessions. O(keys up to where you stop)."""
        old = self._in_old_form()  # first: it is removed once all of it is in the index
        index = self._index() if self._path.exists() else None
        for some in (keys[:_FIRST_ASKED], keys[_FIRST_ASKED:]):
            found: dict[str, str] = index.found(some) if index is not None and some else {}
            for key in some:
                session = old.get(key) or found.get(key)
                if session is not None:
                    yield key, session

    def bind(self, keys: Iterable[str], session: str) -> None:
        """Bind keys to a session, all or none; they are on the disk when it returns."""
        bound = dict.fromkeys(keys, session)
        if bound:
            self._take_over()
            self._index().put(bound)

    def forget(self, session: str) -> None:
        """Remove the keys of a session. O(its keys)."""
        self._take_over()
        if self._path.exists():
            self._index().forget(session)

    def all(self) -> dict[str, str]:
        """Every key and its session."""
        old = self._in_old_form()
        known: dict[str, str] = self._index().all() if self._path.exists() else {}
        return known | old

    def _index(self) -> Any:
        # Loaded with the first key: a store of files without any must not wait for a database.
        return import_module("foldline.store.sqlite").KeyIndex(self._path, fsync=self._fsync)

    def _in_old_form(self) -> dict[str, str]:
        return {key: session for key, session in read_json(self._old).items() if isinstance(session, str)}

    def _take_over(self) -> None:
        """Have what an older version wrote in the index. A crash in between does no harm: it is done again."""
        if self._old.exists():
            with consume_json(self._old) as value:
                self._index().put({key: session for key, session in value.items() if isinstance(session, str)})
