"""One session on disk."""

from __future__ import annotations

from pathlib import Path

from foldline.context import Context
from foldline.store import SessionStore


def test_a_session_goes_on_where_it_was(tmp_path: Path) -> None:
    store = SessionStore(tmp_path / "sessions")
    with store.create(dialect="openai-chat", window=4_000) as session:
        context = Context(window=4_000, archive=session.archive)
        session.turn("begun")
        context.append({"role": "user", "content": "hello there"})
        session.append(context.events)
        context.append({"role": "assistant", "content": "hi"})
        session.append(context.events[1:])
        session.turn("ended", reason="done")
        session.save(context)
        assert store.sessions()[0].snapshot is not None
    with store.open("latest") as session:
        again = Context.replay(session.events(), window=4_000, archive=session.archive)
        assert again.events == context.events
