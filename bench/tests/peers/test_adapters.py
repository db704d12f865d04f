from __future__ import annotations

import asyncio
from copy import deepcopy

import pytest

from foldline.messages import Wire
from foldline_bench.peers.adapters import Loop, OriginalMessages, text_counter


def test_a_text_is_counted_once_and_without_what_a_message_adds() -> None:
    counted: list[str] = []

    def count(wire: Wire) -> int:
        counted.append(wire["content"])
        return 4 + len(wire["content"].split())

    tokens = text_counter(count)
    assert [tokens("a b c"), tokens("a b c"), tokens("d"), tokens("")] == [3, 3, 1, 0]
    assert sorted(counted) == ["", "", "a b c", "d"]


async def running() -> asyncio.AbstractEventLoop:
    return asyncio.get_running_loop()


async def failing() -> None:
    raise LookupError("of the package")


def test_all_calls_run_on_one_loop() -> None:
    loop = Loop()
    assert loop.run(running()) is loop.run(running())


def test_what_a_call_raises_comes_out() -> None:
    with pytest.raises(LookupError, match="of the package"):
        Loop().run(failing())


def test_the_loop_is_closed_with_its_system() -> None:
    loop = Loop()
    inner = loop.run(running())
    del loop
    assert inner.is_closed()


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
