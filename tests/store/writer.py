"""A process that writes a session and reports each acknowledged message until it is killed."""

from __future__ import annotations

from contextlib import closing
from multiprocessing.connection import Connection

from tests.store.places import retry_while_taken, store_at

from foldline.engine.context import Context
from foldline.errors import InvalidInput
from foldline.view.transcript import Entry

__all__ = ["write"]


def write(pipe: Connection, place: str, name: str, lease_seconds: float = 10.0, patience_seconds: float = 30.0) -> None:
    """Append messages endlessly; send the number of each once it is on disk."""
    try:
        store = store_at(place, lease_seconds)
        with closing(store), closing(retry_while_taken(lambda: store.open(name), patience_seconds)) as session:
            context = Context.replay(session.events(), window=2_000, max_output_tokens=0, archive=session.archive)
            written = context.event_count
            number = sum(isinstance(event, Entry) for event in context.events)
            while True:
                context.append({"role": "user", "content": f"message {number} " + "word " * (number % 40)})
                context.prepare()
                session.append(context.events_after(written))
                written = context.event_count
                pipe.send(number)
                if number % 16 == 0:
                    session.save(context)
                number += 1
    except InvalidInput as error:
        pipe.send(f"refused: {error}")
