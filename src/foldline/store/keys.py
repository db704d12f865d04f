"""Keys of sessions in files: an index that several processes share.

docs/design/004-stores.md says why it is neither one JSON file, nor a file per key, nor a log.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from foldline.store.files import consume_json, read_json

__all__ = ["FileKeys"]

_FILE: Final = "keys.db"
# The file of an older version, which may still be running: its keys are newer than the index, and move into it before
# the next change.
_OLD: Final = "keys.json"

_FIRST_BATCH: Final = 64  # the likeliest keys come first; mostly the rest need no lookup


class FileKeys:
    """The keys in a folder of sessions, each with the id of a session, which may have been deleted since.

    Nothing stays open between calls, so any thread and any process may use it. All methods raise OSError (no
    permission, a full disk, a stuck writer) and InvalidInput for a file of another program.
    """

    def __init__(self, root: Path, *, fsync: bool = True) -> None:
        self._path = root / _FILE
        self._old = root / _OLD
        self._fsync = fsync

    def bound(self, keys: Sequence[str]) -> Generator[tuple[str, str], None, None]:
        """The bound keys among these, in their order, with their sessions. O(keys up to where you stop)."""
        old = self._old_keys()  # read first: it is deleted once all of it is in the index
        index = self._index() if self._path.exists() else None
        for batch in (keys[:_FIRST_BATCH], keys[_FIRST_BATCH:]):
            found: dict[str, str] = index.find(batch) if index is not None and batch else {}
            for key in batch:
                session = old.get(key) or found.get(key)
                if session is not None:
                    yield key, session

    def bind(self, keys: Iterable[str], session: str) -> None:
        """Bind keys to a session, all or none; they are on disk on return."""
        # The old keys first, in a transaction of their own: they win over the index, so a key bound before they moved
        # would lose to its own predecessor.
        bound = dict.fromkeys(keys, session)
        if bound:
            self._migrate()
            self._index().bind(bound)

    def forget(self, session: str) -> None:
        """Remove the keys of a session. O(its keys)."""
        self._migrate()
        if self._path.exists():
            self._index().remove(session)

    def all(self) -> dict[str, str]:
        """Every key and its session."""
        # In this order too, for the same reason as in `bound`.
        old = self._old_keys()
        indexed: dict[str, str] = self._index().all() if self._path.exists() else {}
        return indexed | old

    def _index(self) -> Any:
        # Imported with the first key: `sqlite3` takes several milliseconds, and a store without keys need not wait.
        return import_module("foldline.store.sqlite").KeyIndex(self._path, fsync=self._fsync)

    def _old_keys(self) -> dict[str, str]:
        return {key: session for key, session in read_json(self._old).items() if isinstance(session, str)}

    def _migrate(self) -> None:
        """Move the keys of an older version into the index. Harmless when a crash repeats it."""
        if self._old.exists():
            with consume_json(self._old) as value:
                self._index().bind({key: session for key, session in value.items() if isinstance(session, str)})
