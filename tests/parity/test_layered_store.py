"""The three-layer system, on disk: what its first layer bounds, and what it keeps whole (S3.02)."""

from __future__ import annotations

from pathlib import Path

import yaml

from foldline.engine.context import Context
from foldline.engine.settings import memory_limit
from foldline.store import FileStore
from foldline.view.transcript import Entry


def test_s3_02_the_snapshot_is_bounded_and_the_log_holds_everything(tmp_path: Path) -> None:
    """More messages than the limit: the newest stand in `state.yaml`, all of them in `events.jsonl`."""
    window, turns = 20_000, 400
    limit = memory_limit(window)
    assert limit == 200
    store = FileStore(tmp_path, fsync=False)
    sizes = []
    with store.create(dialect="openai-chat", policy="layered", window=window) as session:
        context = Context(policy="layered", window=window, archive=session.archive)
        written = 0
        for number in range(turns):
            context.append({"role": "user", "content": f"question {number}"})
            context.append({"role": "assistant", "content": f"answer {number}"})
            session.append(context.events_after(written))
            written = context.event_count
            if number % 50 == 49:
                session.save(context)
                sizes.append((session.folder / "state.yaml").stat().st_size)
    state = yaml.safe_load((session.folder / "state.yaml").read_bytes())
    assert len(state["shown"]) == limit
    assert state["shown"][-1] == {"role": "assistant", "text": f"answer {turns - 1}"}
    assert state["messages"] == 2 * turns
    assert max(sizes[2:]) - min(sizes[2:]) < 0.05 * max(sizes), "it no longer grows"
    kept = [event.recorded["content"] for event in store.read(session.id).events if isinstance(event, Entry)]
    assert kept == [f"{what} {number}" for number in range(turns) for what in ("question", "answer")]


def test_s3_02_a_released_session_holds_the_shown_messages_only(tmp_path: Path) -> None:
    """In memory stays what is shown; what folds stand for is on the disk, and comes back from there."""
    with FileStore(tmp_path, fsync=False).create(dialect="openai-chat", window=2_000) as session:
        context = Context(window=2_000, max_output_tokens=0, archive=session.archive)
        written, most = 0, 0
        for number in range(300):
            context.append({"role": "user", "content": f"question {number} " + "word " * 30})
            context.append({"role": "assistant", "content": f"answer {number}"})
            context.prepare()
            session.append(context.events_after(written))
            written = context.event_count
            context.release()
            most = max(most, len(context.view.entries))
        assert most <= memory_limit(2_000)
        whole = Context.replay(session.events(), window=2_000, max_output_tokens=0)
        assert len(whole.view.entries) == 600
        assert whole.view.wires()[0] == context.view.wires()[0]
