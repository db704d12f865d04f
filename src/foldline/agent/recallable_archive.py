"""The archive of an agent's session: its places name the tool recall, and its writes can be buffered."""

from __future__ import annotations

from foldline.view.archive import Archive, ManyAtOnce, key_of

__all__ = ["RecallableArchive"]


class RecallableArchive:
    """An archive whose places name the tool that reads them, since file tools do not see outside the workspace.

    While `buffering`, `put` keeps the data in memory until `write`, which may run in a thread: folds are made on the
    event loop, which must not wait for a disk.
    """

    def __init__(self, inner: Archive) -> None:
        self._inner = inner
        self._buffered: dict[str, bytes] = {}
        self.buffering = False

    def put(self, data: bytes, /) -> str:
        """Store the bytes. Returns their key."""
        if not self.buffering:
            return self._inner.put(data)
        key = key_of(data)
        self._buffered[key] = data
        return key

    def get(self, key: str, /) -> bytes:
        """Return the bytes under a key. Raises KeyError."""
        buffered = self._buffered.get(key)
        return self._inner.get(key) if buffered is None else buffered

    def where(self, key: str, /) -> str:
        """Return the place of a key, and the tool that reads it."""
        return f"{self._inner.where(key)} (the tool recall reads it)"

    def __contains__(self, key: object, /) -> bool:
        return key in self._buffered or key in self._inner

    def write(self) -> None:
        """Write the buffer. Raises OSError; the next call then writes the rest."""
        # A copy: the event loop may add more while a thread writes.
        buffered = dict(self._buffered)
        if buffered and isinstance(self._inner, ManyAtOnce):
            self._inner.put_all(buffered.values())
        for key, data in buffered.items():
            if not isinstance(self._inner, ManyAtOnce):
                self._inner.put(data)
            del self._buffered[key]
