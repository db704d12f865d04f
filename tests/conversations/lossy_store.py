"""A store that can be lost, by order of a test."""

from __future__ import annotations

from typing import Any

from foldline.store.base import Store

__all__ = ["LossyStore"]


class LossyStore:
    """A real store behind a line that a test may cut: then everything that is asked of it raises OSError.

    `asked` are the names of what was asked of it, in order. With `only` set, no more than those are lost.
    """

    def __init__(self, store: Store) -> None:
        self.store = store
        self.lost = False
        self.only: set[str] = set()
        self.asked: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return _asked(self, self.store, name)


class _Session:
    """A session of such a store."""

    def __init__(self, line: LossyStore, session: Any) -> None:
        self._line, self._session = line, session

    def __getattr__(self, name: str) -> Any:
        return _asked(self._line, self._session, name)


def _asked(line: LossyStore, behind: Any, name: str) -> Any:
    value = getattr(behind, name)
    if not callable(value) or name in ("close", "release"):
        return value

    def call(*given: Any, **named: Any) -> Any:
        line.asked.append(name)
        if line.lost and (not line.only or name in line.only):
            raise OSError(f"the line was cut: {name}")
        made = value(*given, **named)
        return _Session(line, made) if name in ("create", "open") else made

    return call
