"""Processes of their own for the tests of stores, to write at the same time and to be killed.

They are forked from one process that has loaded what they need: to start Python and SQLAlchemy anew for each of them
would take a second.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from typing import Any, Concatenate, NamedTuple, ParamSpec

__all__ = ["Child", "child"]

P = ParamSpec("P")
LOADED = [
    "tests.store.children",
    "tests.store.writer",
    "foldline.store.sql.store",
    "foldline.store.call_log",
    "psycopg",
]


class Child(NamedTuple):
    """A process, and what it and the test say to each other."""

    pid: int
    pipe: Connection
    kill: Callable[[], None]

    def hear(self, seconds: float = 60.0) -> Any:
        """What it says next. Raises EOFError once it is dead and all that it had said was heard."""
        assert self.pipe.poll(seconds), "it says nothing"
        return self.pipe.recv()

    def ask(self, what: object) -> Any:
        """Its answer."""
        self.pipe.send(what)
        return self.hear()

    def rest(self) -> list[Any]:
        """All that it had said before it was killed."""
        heard = []
        with suppress(EOFError):
            while True:
                heard.append(self.hear())
        return heard


@contextmanager
def child(work: Callable[Concatenate[Connection, P], None], *args: P.args, **more: P.kwargs) -> Iterator[Child]:
    """A process that does the work, a function that can be imported, until the block ends; then it is killed."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(LOADED)
    ours, theirs = context.Pipe()
    process = context.Process(target=work, args=(theirs, *args), kwargs=more)
    process.start()
    theirs.close()
    assert process.pid is not None
    try:
        yield Child(process.pid, ours, process.kill)
    finally:
        process.kill()
        process.join()
        process.close()
        ours.close()
