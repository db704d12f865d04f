"""A store that a test can disconnect."""

from __future__ import annotations

from typing import Any

from foldline.store.base import Store

__all__ = ["LossyStore"]


class LossyStore:
    """A real store behind a connection that a test may cut: every call raises OSError then.

    `calls` are the names of the called methods, in order. With `only` set, no other method fails.
    """

    def __init__(self, store: Store) -> None:
        self.store = store
        self.lost = False
        self.only: set[str] = set()
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return _checked(self, self.store, name)


class _Session:
    """A session of such a store."""

    def __init__(self, line: LossyStore, session: Any) -> None:
        self._line, self._session = line, session

    def __getattr__(self, name: str) -> Any:
        return _checked(self._line, self._session, name)


def _checked(line: LossyStore, behind: Any, name: str) -> Any:
    value = getattr(behind, name)
    if not callable(value) or name in ("close", "release"):
        return value

    def call(*args: Any, **kwargs: Any) -> Any:
        line.calls.append(name)
        if line.lost and (not line.only or name in line.only):
            raise OSError(f"the line was cut: {name}")
        result = value(*args, **kwargs)
        return _Session(line, result) if name in ("create", "open") else result

    return call
