"""A copy of a recorded message is found to be that message; what a package changed stays what it made."""

from __future__ import annotations

from copy import deepcopy

from foldline.messages import Wire
from foldline_bench.peers.originals import OriginalMessages

CALL = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"at": "a.py"}'}}
HISTORY: list[Wire] = [
    {"role": "user", "content": "look at a.py"},
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "c1", "content": "x = 1"},
]


def test_a_copy_is_the_recorded_message() -> None:
    originals = OriginalMessages()
    originals.learn(HISTORY[:1])
    originals.learn(HISTORY)
    assert all(originals.of(deepcopy(wire)) is wire for wire in HISTORY)


def test_a_changed_message_is_itself() -> None:
    originals = OriginalMessages()
    originals.learn(HISTORY)
    cut = {**HISTORY[2], "content": "x"}
    assert originals.of(cut) is cut


def test_a_message_that_was_not_recorded_yet_is_itself() -> None:
    originals = OriginalMessages()
    originals.learn(HISTORY[:2])
    copy = dict(HISTORY[2])
    assert originals.of(copy) is copy
