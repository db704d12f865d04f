"""Turns read from records, with messages that strict JSON cannot hold."""

from __future__ import annotations

import math
from pathlib import Path

from foldline.codecs import codec
from foldline.engine.context import Context
from foldline.hosting.turns import TurnRecord, recorded_turn, turns_of
from foldline.store.folders import FileStore
from foldline.store.records import Record

CHAT = codec("openai-chat")


def talked(folder: Path) -> list[Record]:
    """Records of a turn that is done, one without a message, and one that was cut off; odd arguments in the first."""
    store, context = FileStore(folder, fsync=False), Context(dialect="openai-chat", window=8_000)
    call = {"id": "c", "type": "function", "function": {"name": "look", "arguments": "{}"}, "odd": math.nan}
    with store.create(dialect="openai-chat") as session:
        session.turn("begun", key="a")
        context.append({"role": "user", "content": "First?"})
        context.append({"role": "assistant", "content": None, "tool_calls": [call]})
        context.append({"role": "tool", "tool_call_id": "c", "content": "seen"})
        context.observe({"prompt_tokens": 30, "completion_tokens": 4})
        context.append({"role": "assistant", "content": "Seen."})
        context.observe({"prompt_tokens": 40, "completion_tokens": 5})
        session.append(context.events_after(0))
        session.turn("ended", reason="done")
        session.turn("begun", key="b")
        session.turn("begun", key="c")
        before = context.event_count
        context.append({"role": "user", "content": "Second?"})
        session.append(context.events_after(before))
    return list(store.records("latest"))


def test_a_turn_has_its_messages_its_size_and_its_end(tmp_path: Path) -> None:
    records = talked(tmp_path)
    assert any("json" in record for record in records), "one of them is sealed"
    first, second = turns_of(records)
    assert (first.number, first.start, first.stop, first.reason) == (1, 0, 4, "done")
    assert (first.prompt_tokens, first.completion_tokens) == (40, 9)
    assert (second.number, second.start, second.stop, second.reason) == (2, 4, 5, "")
    assert second == TurnRecord(number=2, began=second.began, start=4, stop=5, folds=[])


def test_an_earlier_turn_is_told_with_its_words_and_its_answer(tmp_path: Path) -> None:
    records = talked(tmp_path)
    said, ended = recorded_turn(records, 0, CHAT)
    assert (said, ended.text, ended.reason) == ("First?", "Seen.", "done")
    said, ended = recorded_turn(records, 4, CHAT)
    assert (said, ended.text, ended.reason) == ("Second?", "", "interrupted")
    assert ended.message
