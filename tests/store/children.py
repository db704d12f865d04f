"""Child processes for the tests of stores, to write concurrently and to be killed.

They are forked from one process that has loaded their modules: starting Python and SQLAlchemy for each takes a second.
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
    """A child process and the pipe between it and the test."""

    pid: int
    pipe: Connection
    kill: Callable[[], None]

    def receive(self, seconds: float = 60.0) -> Any:
        """Its next message. Raises EOFError once it is dead and all its messages were received."""
        assert self.pipe.poll(seconds), "it sends nothing"
        return self.pipe.recv()

    def exchange(self, what: object) -> Any:
        """Send it an object and return its answer."""
        self.pipe.send(what)
        return self.receive()

    def drain(self) -> list[Any]:
        """All messages that it sent before it was killed."""
        received = []
        with suppress(EOFError):
            while True:
                received.append(self.receive())
        return received


@contextmanager
def child(work: Callable[Concatenate[Connection, P], None], *args: P.args, **more: P.kwargs) -> Iterator[Child]:
    """A process that runs an importable function; it is killed at the end of the block."""
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
