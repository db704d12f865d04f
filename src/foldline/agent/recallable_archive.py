"""The archive of a session as its agent has it: with places that it can reach, and no disk that its loop waits for."""

from __future__ import annotations

from foldline.view.archive import Archive, ManyAtOnce, key_of

__all__ = ["RecallableArchive"]


class RecallableArchive:
    """An archive whose places say how the agent gets there: they are outside the folder that its file tools see.

    While it is `held`, what is put stays in memory until `write`, which may be called in another thread: a fold is made
    in the loop, and the loop answers others.
    """

    def __init__(self, inner: Archive) -> None:
        self._inner = inner
        self._waiting: dict[str, bytes] = {}
        self.held = False

    def put(self, data: bytes, /) -> str:
        """Keep the bytes; returns their key."""
        if not self.held:
            return self._inner.put(data)
        key = key_of(data)
        self._waiting[key] = data
        return key

    def get(self, key: str, /) -> bytes:
        """The bytes under a key. Raises KeyError."""
        waiting = self._waiting.get(key)
        return self._inner.get(key) if waiting is None else waiting

    def where(self, key: str, /) -> str:
        """The place, and how to get there."""
        return f"{self._inner.where(key)} (the tool recall reads it)"

    def __contains__(self, key: object, /) -> bool:
        return key in self._waiting or key in self._inner

    def write(self) -> None:
        """Put in place what is held. Raises OSError: what was not put is put with the next call."""
        waiting = dict(self._waiting)
        if waiting and isinstance(self._inner, ManyAtOnce):
            self._inner.put_all(waiting.values())
        for key, data in waiting.items():
            if not isinstance(self._inner, ManyAtOnce):
                self._inner.put(data)
            del self._waiting[key]
