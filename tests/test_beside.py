"""What is sent beside the messages."""

from __future__ import annotations

from typing import Any

import pytest

from foldline.beside import Beside, System
from foldline.codecs import codec
from foldline.context import Context
from foldline.messages import Message
from foldline.tokens import ESTIMATE, system_tokens, tools_tokens, wire_bytes

TOOLS = [{"name": "f", "description": "does f", "input_schema": {"type": "object"}}]


def moved(words: str) -> Message:
    return codec("anthropic").read({"role": "user", "content": words})


class Counting:
    """A counter by characters that notes how many it has read."""

    name = "characters"
    scaled = True

    def __init__(self) -> None:
        self.read = 0

    def text(self, text: str, /) -> int:
        self.read += len(text)
        return len(text)


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        (None, "one\n\ntwo"),
        ("", "one\n\ntwo"),
        ("mine", "mine\n\none\n\ntwo"),
        ([], [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]),
        ([{"type": "text", "text": "mine"}], [{"type": "text", "text": word} for word in ("mine", "one", "two")]),
    ],
)
def test_what_was_moved_follows_what_was_given(given: System, sent: System) -> None:
    counter = Counting()
    beside = Beside(given, TOOLS, counter)
    for seq, words in ((3, "one"), (7, "two")):
        beside.move(seq, moved(words))
        assert beside.tokens == system_tokens(beside.system, counter) + tools_tokens(TOOLS, counter)
    assert beside.system == sent
    assert beside.size_bytes == wire_bytes({"system": sent, "tools": TOOLS, "messages": []})
    beside.leave(7)
    assert beside.tokens == system_tokens(beside.system, counter) + tools_tokens(TOOLS, counter)
    beside.leave(0)
    assert beside.system == given
    assert beside.tokens == system_tokens(given, counter) + tools_tokens(TOOLS, counter)


def test_the_size_by_parts_is_never_below_that_of_the_whole() -> None:
    beside = Beside("Be brief.", None, ESTIMATE)
    for seq in range(20):
        beside.move(seq, moved(f"Note {seq}: the build of module_{seq} has failed."))
        assert beside.tokens >= system_tokens(beside.system, ESTIMATE)


def test_one_more_text_is_counted_alone() -> None:
    counter = Counting()
    beside = Beside("mine " * 100, TOOLS, counter)
    for seq in range(100):
        before = counter.read
        beside.move(seq, moved("words of it"))
        assert counter.read - before == len("\n\nwords of it")


def test_the_text_is_as_before_until_more_is_moved_or_left() -> None:
    beside = Beside("mine", None, ESTIMATE)
    assert beside.send() == ("mine", True)
    beside.move(1, moved("one"))
    assert beside.send() == ("mine\n\none", False)
    assert beside.send() == ("mine\n\none", True)
    beside.leave(1)
    assert beside.send() == ("mine", False)
    beside.leave(0)
    assert beside.send() == ("mine", True)


@pytest.mark.parametrize("system", [None, "Be brief.", [{"type": "text", "text": "Be brief."}]])
def test_no_message_is_as_before_once_the_system_text_has_changed(system: Any) -> None:
    context = Context(dialect="anthropic", window=100_000, system=system)
    context.append({"role": "user", "content": "Mend it."})
    assert context.prepare().stable_until == 0
    context.append({"role": "assistant", "content": "Done."})
    assert context.prepare().stable_until == 1
    context.append({"role": "system", "content": "Answer in French."})
    context.append({"role": "user", "content": "And now?"})
    request = context.prepare()
    assert request.stable_until == 0
    assert "French" in str(request.system)
    assert context.prepare().stable_until == len(request.messages) == 3
