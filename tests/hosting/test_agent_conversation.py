"""A conversation over its sessions: nothing stored is thrown away, and a full disk loses no answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from tests.hosting.pools import nobody
from tests.serving import serve

from foldline.agent.events import AgentEvent, Notice
from foldline.hosting.agent_conversation import AgentConversation
from foldline.hosting.runtime import Options, Runtime, settings_for
from foldline.store.folders import FileStore
from foldline.testing import FakeProvider


@asynccontextmanager
async def talking(url: str, folder: Path, tell: Callable[[AgentEvent], None]) -> AsyncIterator[AgentConversation]:
    """A conversation in `folder`, with its sessions in `folder`/sessions."""
    environ = {"FOLDLINE_HOME": str(folder / "home")}
    loaded = settings_for(Options(base_url=f"{url}/v1", model="fake-model"), environ, folder=folder)
    runtime = await Runtime.start(
        loaded.settings, environ, workspace=folder, learned={}, calls=None, notice=lambda line: tell(Notice(line))
    )
    conversation = AgentConversation(
        runtime, store=FileStore(folder / "sessions", fsync=False), emit=tell, allowed=nobody
    )
    try:
        yield conversation
    finally:
        conversation.close()
        await runtime.aclose()


def test_a_session_that_was_taken_up_is_never_removed_however_little_is_in_it(tmp_path: Path) -> None:
    """As after `kill -9` in the first write: what was torn off was set aside, and may hold a person's words."""
    store = FileStore(tmp_path / "sessions", fsync=False)
    with store.create(dialect="openai-chat", model="fake-model") as stored:
        name, log = stored.id, stored.folder / "events.jsonl"
    with log.open("ab") as file:
        file.write(b'{"type":"entry","wire":{"role":"user","content":"precious wor')

    async def look() -> None:
        with serve(FakeProvider("ok")) as served:
            async with talking(served.url, tmp_path, lambda _: None) as conversation:
                conversation.resume(name)
                assert (await conversation.agent()).session.empty

    asyncio.run(look())
    assert list(log.parent.glob("events.torn-*"))


def test_a_session_without_a_word_leaves_nothing(tmp_path: Path) -> None:
    async def look() -> None:
        with serve(FakeProvider("ok")) as served:
            async with talking(served.url, tmp_path, lambda _: None) as conversation:
                await conversation.agent()

    asyncio.run(look())
    assert list((tmp_path / "sessions").iterdir()) == []


def test_a_snapshot_that_cannot_be_written_is_told_and_takes_no_answer(tmp_path: Path) -> None:
    heard: list[AgentEvent] = []

    async def turn() -> str:
        with serve(FakeProvider("Here I am.")) as served:
            async with talking(served.url, tmp_path, heard.append) as conversation:
                await conversation.agent()
                assert conversation.stored is not None
                state = Path(conversation.stored.place) / "state.yaml"
                state.unlink()
                state.mkdir()  # nothing can take its place
                return (await conversation.run_turn("Hello?")).text

    assert asyncio.run(turn()) == "Here I am."
    assert any(isinstance(event, Notice) and "snapshot" in event.text for event in heard)
