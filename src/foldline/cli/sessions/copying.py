"""Sessions copied from one store into another, losslessly: originals, keys and sub-agents' sessions with them."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Final, TypeVar

from foldline.errors import FoldlineError, InvalidInput
from foldline.hosting.session_choice import AGENTS
from foldline.store.base import Store
from foldline.store.folders import FileStore
from foldline.text.formatting import plural
from foldline.view.archive import key_of

__all__ = ["DEEPEST", "Copied", "copy_all"]

DEEPEST: Final = 16
"""Sub-agents of sub-agents: settings allow far fewer; a folder that links to itself ends here."""

T = TypeVar("T")


@dataclass(slots=True)
class Copied:
    """What became of each session, by name (ID, or ID/agents/ID), and how much went with them."""

    copied: list[str] = field(default_factory=list)
    same: list[str] = field(default_factory=list)
    """Those that were there already, record by record."""
    refused: list[tuple[str, str]] = field(default_factory=list)
    """Those that were not copied, or not all that belongs to them, and why."""
    originals: int = 0
    keys: int = 0
    looked_at: int = 0
    """Sessions, those of sub-agents not counted."""


def copy_all(source: Store, target: Store, names: Iterable[str], done: Copied) -> None:
    """Copy sessions, named by their ids, and write down in `done` what became of them.

    Each is there whole or not at all. Of one that is being written meanwhile it is a beginning that was whole at some
    moment. Ctrl-C ends it after the session at hand; the second one raises KeyboardInterrupt at once. What concerns one
    session alone is in `done`; what ends all (a full disk, a database that is away) raises OSError.
    """
    copying = _Copying(source, target, done)
    with _stop() as stopped:
        for name in names:
            if stopped():
                return
            copying.copy(name)
            done.looked_at += 1


@contextmanager
def _stop() -> Iterator[Callable[[], bool]]:
    """Whether Ctrl-C was pressed: the session at hand is ended first. The second one stops at once."""
    pressed = False

    def press(number: int, frame: object) -> None:
        nonlocal pressed
        del number, frame
        pressed = True
        signal.signal(signal.SIGINT, before)

    before = signal.getsignal(signal.SIGINT) or signal.default_int_handler
    signal.signal(signal.SIGINT, press)
    try:
        yield lambda: pressed
    finally:
        signal.signal(signal.SIGINT, before)


class _Copying:
    """The sessions of one store, or those of the sub-agents of one session, on their way into another store."""

    def __init__(self, source: Store, target: Store, done: Copied, *, prefix: str = "", depth: int = 0) -> None:
        self._source, self._target, self._done = source, target, done
        self._prefix, self._depth = prefix, depth
        self._there = frozenset(target.names())
        self._snapshots = {one.id: one.snapshot for one in source.sessions(keep=False)}
        self._keys: dict[str, list[str]] = {}
        for key, name in source.bindings().items():
            self._keys.setdefault(name, []).append(key)

    def copy(self, session: str) -> None:
        """Copy a session, named by its id, and all that belongs to it. O(its size)."""
        name = self._prefix + session
        with self._refusing(name):
            if not self._put(session, name):
                return
            with self._refusing(name):  # a key that the other store cannot hold keeps no sub-agent back
                self._bind(session, name)
            self._copy_agents(session, name)

    # --- inside ------------------------------------------------------------------------------------------------------

    @contextmanager
    def _refusing(self, name: str) -> Iterator[None]:
        try:
            yield
        except FoldlineError as error:
            self._done.refused.append((name, str(error)))

    def _put(self, session: str, name: str) -> bool:
        """Whether the session is in the other store now."""
        done = self._done
        # The length first: whatever the records before it point to is in the archive already.
        count, updated = 0, ""
        for record in self._reading(self._source.records, session):
            count, updated = count + 1, str(record.get("at", updated))
        if session not in self._there:
            kept = 0

            def counted() -> Iterator[bytes]:
                nonlocal kept
                for original in self._reading(self._source.originals, session):
                    kept += 1
                    yield original

            own = self._snapshots.get(session)
            of_these = own if own is not None and own.updated == updated else None
            records = self._reading(self._source.records, session, stop=count)
            self._target.put(records, counted(), snapshot=of_these)
            done.copied.append(name)
            done.originals += kept
            return True
        differs = self._difference(session, count)
        if differs:
            done.refused.append((name, differs))
            return False
        done.same.append(name)
        archive = self._target.archive(session)
        for original in self._reading(self._source.originals, session):
            if key_of(original) not in archive:
                archive.put(original)
                done.originals += 1
        return True

    def _difference(self, session: str, count: int) -> str:
        """In what a session that is there already is another one; "" when it is the same. O(log)."""
        pairs = zip_longest(self._reading(self._source.records, session, stop=count), self._target.records(session))
        for number, (own, other) in enumerate(pairs):
            if own is None or other is None:
                more = plural(1 + sum(1 for _ in pairs), "record")
                return f"is there already, with {more} {'more' if own is None else 'less'}"
            if json.dumps(own) != json.dumps(other):
                return f"another one with this id is there: they differ from record {number} on"
        return ""

    def _bind(self, session: str, name: str) -> None:
        for key in self._keys.get(session, ()):
            bound = self._target.bound(key)
            if bound is None:
                self._target.bind(key, session)
                self._done.keys += 1
            elif bound != session:
                self._done.refused.append((name, f"the key {key!r} means another session there, {bound}: it stays so"))

    def _copy_agents(self, session: str, name: str) -> None:
        agents = self._source.agents(session)
        names = agents.names()
        if not names:
            return
        if self._depth == DEEPEST:
            raise InvalidInput(f"sub-agents of sub-agents, more than {DEEPEST} deep, are not copied", place=name)
        inner = _Copying(
            agents,
            self._target.agents(session),
            self._done,
            prefix=f"{name}/{AGENTS}/",
            depth=self._depth + 1,
        )
        for one in names:
            inner.copy(one)

    def _reading(self, read: Callable[..., Iterator[T]], session: str, **which: int) -> Iterator[T]:
        """What is read of a session. A file that cannot be read is a fault of its session, and of no other."""
        try:
            yield from read(session, **which)
        except OSError as error:
            if not isinstance(self._source, FileStore):
                raise
            raise InvalidInput(error.strerror or str(error), place=str(error.filename or "sessions")) from error
