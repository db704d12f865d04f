"""Processes that write sessions and say, line by line, what was acknowledged. Run by tests of this folder.

For each session named on standard input a child is started, so that a process to kill costs no start of Python.
"""

from __future__ import annotations

import os
import sys
from contextlib import closing

from tests.store.places import patiently, store_at

from foldline.context import Context
from foldline.errors import InvalidInput
from foldline.transcript import Entry


def write(place: str, name: str, lease_seconds: float) -> None:
    """Appends messages without end; prints the number of each once it is on the disk."""
    store = store_at(place, lease_seconds)
    with closing(store), closing(patiently(lambda: store.open(name), lease_seconds)) as session:
        context = Context.replay(session.events(), window=2_000, max_output_tokens=0, archive=session.archive)
        written = context.event_count
        number = sum(isinstance(event, Entry) for event in context.events)
        while True:
            context.append({"role": "user", "content": f"message {number} " + "word " * (number % 40)})
            context.prepare()
            session.append(context.events_after(written))
            written = context.event_count
            say(str(number))
            if number % 16 == 0:
                session.save(context)
            number += 1


def say(line: str) -> None:
    """One line, at once."""
    os.write(1, f"{line}\n".encode())


def main(place: str, lease_seconds: str = "0") -> None:
    """Starts a child for each name, and says when it is gone."""
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            try:
                write(place, line.strip(), float(lease_seconds))
            except InvalidInput as error:
                say(f"refused: {error}")
            finally:
                os._exit(1)
        say(f"pid {child}")
        os.waitpid(child, 0)
        say("gone")


if __name__ == "__main__":
    main(*sys.argv[1:])
