"""What is sent beside the messages."""

from __future__ import annotations

from typing import Any

import pytest

from foldline.codecs import codec
from foldline.engine.context import Context
from foldline.engine.one_shot import count
from foldline.errors import DoesNotFit, InvalidInput
from foldline.messages import Message
from foldline.tokens import ESTIMATE, system_tokens, tools_tokens, wire_bytes
from foldline.view.budget import TokenLimits
from foldline.view.system_and_tools import System, SystemAndTools
from foldline.view.transcript import Limited

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
    beside = SystemAndTools(given, TOOLS, counter)
    for seq, words in ((3, "one"), (7, "two")):
        beside.append_text(seq, moved(words))
        assert beside.tokens == system_tokens(beside.system, counter) + tools_tokens(TOOLS, counter)
    assert beside.system == sent
    assert beside.size_bytes == wire_bytes({"system": sent, "tools": TOOLS, "messages": []})
    beside.drop_from(7)
    assert beside.tokens == system_tokens(beside.system, counter) + tools_tokens(TOOLS, counter)
    beside.drop_from(0)
    assert beside.system == given
    assert beside.tokens == system_tokens(given, counter) + tools_tokens(TOOLS, counter)


def test_the_size_by_parts_is_never_below_that_of_the_whole() -> None:
    beside = SystemAndTools("Be brief.", None, ESTIMATE)
    for seq in range(20):
        beside.append_text(seq, moved(f"Note {seq}: the build of module_{seq} has failed."))
        assert beside.tokens >= system_tokens(beside.system, ESTIMATE)


def test_one_more_text_is_counted_alone() -> None:
    counter = Counting()
    beside = SystemAndTools("mine " * 100, TOOLS, counter)
    for seq in range(100):
        before = counter.read
        beside.append_text(seq, moved("words of it"))
        assert counter.read - before == len("\n\nwords of it")


def test_the_text_is_as_before_until_more_is_moved_or_left() -> None:
    beside = SystemAndTools("mine", None, ESTIMATE)
    assert beside.render() == ("mine", True)
    beside.append_text(1, moved("one"))
    assert beside.render() == ("mine\n\none", False)
    assert beside.render() == ("mine\n\none", True)
    beside.drop_from(1)
    assert beside.render() == ("mine", False)
    beside.drop_from(0)
    assert beside.render() == ("mine", True)


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


@pytest.mark.parametrize("before", [None, "", "mine", [{"type": "text", "text": "mine"}]])
@pytest.mark.parametrize(
    "after", [None, "", "other", [{"type": "text", "text": "other"}, {"type": "text", "text": "o"}]]
)
def test_another_text_takes_the_place_of_what_was_given_before_what_was_moved(before: System, after: System) -> None:
    counter = Counting()
    beside, fresh = SystemAndTools(before, None, counter), SystemAndTools(after, TOOLS, counter)
    for seq, words in ((3, "one"), (7, "two")):
        beside.append_text(seq, moved(words))
        fresh.append_text(seq, moved(words))
    assert beside.update(after, TOOLS)
    assert (beside.system, beside.tools, beside.tokens) == (fresh.system, fresh.tools, fresh.tokens)
    assert beside.size_bytes == fresh.size_bytes
    for start in (7, 3):
        beside.drop_from(start)
        fresh.drop_from(start)
        assert (beside.system, beside.tokens) == (fresh.system, fresh.tokens)
    assert beside.system == after


def test_giving_the_same_again_weighs_nothing() -> None:
    counter = Counting()
    beside = SystemAndTools("mine", TOOLS, counter)
    read = counter.read
    assert not beside.update("mine", [dict(tool) for tool in TOOLS])
    assert counter.read == read
    assert beside.render() == ("mine", True)
    assert beside.update("mine", None) and beside.tools is None
    assert beside.render() == ("mine", True), "the text is what it was"
    assert beside.update("other", None) and beside.render() == ("other", False)


@pytest.mark.parametrize("dialect", ["openai-chat", "openai-responses", "anthropic"])
def test_what_is_sent_beside_may_change_with_every_request(dialect: str) -> None:
    context = Context(dialect=dialect, window=3_000, max_output_tokens=0)
    for number in range(40):
        context.append({"role": "user", "content": f"Step {number}: go on with the build of the module. " * 4})
        context.append({"role": "assistant", "content": f"Step {number} is done, and all tests pass. " * 4})
        context.append({"role": "user", "content": "And now?"})
        tools = TOOLS * (1 + number % 3)
        system = f"It is {number} o'clock."
        context.set_system_and_tools(system=system, tools=tools)
        request = context.prepare()
        assert (request.system, request.tools) == (system, tools)
        assert request.tokens == count(request.messages, dialect=dialect, system=system, tools=tools)
        assert request.tokens <= context.limits.input_tokens
    before = context.prepare()
    context.set_system_and_tools(system=before.system, tools=before.tools)
    assert context.prepare().stable_until == len(before.messages)


def test_larger_tools_fold_more_and_too_large_ones_are_named() -> None:
    context = Context(window=3_000, max_output_tokens=0)
    for number in range(12):
        context.append({"role": "user", "content": f"Step {number}: go on with the build of the module. " * 8})
        context.append({"role": "assistant", "content": f"Step {number} is done, and all tests pass. " * 8})
    context.append({"role": "user", "content": "And now?"})
    small = context.prepare()
    context.set_system_and_tools(system=None, tools=[{"name": "f", "description": "does f " * 500}])
    large = context.prepare()
    assert not small.folds and large.folds and large.tokens <= context.limits.input_tokens
    context.set_system_and_tools(system="x " * 9_000, tools=None)
    with pytest.raises(DoesNotFit) as caught:
        context.prepare()
    assert caught.value.floor_tokens > caught.value.limit
    context.set_system_and_tools(system=None, tools=None)
    assert context.prepare().tokens <= context.limits.input_tokens


@pytest.mark.parametrize(("system", "tools"), [(5, None), (None, "f"), (None, [5]), (["text"], None)])
def test_what_cannot_stand_beside_is_refused_and_changes_nothing(system: Any, tools: Any) -> None:
    context = Context(dialect="anthropic", window=10_000, system="mine", tools=TOOLS)
    context.append({"role": "user", "content": "Mend it."})
    before = context.prepare()
    with pytest.raises(InvalidInput):
        context.set_system_and_tools(system=system, tools=tools)
    after = context.prepare()
    assert (after.system, after.tools, after.tokens) == (before.system, before.tools, before.tokens)


def test_a_smaller_window_folds_what_was_settled_and_a_larger_one_takes_nothing_back() -> None:
    context = Context(window=100_000, max_output_tokens=0, model="one")
    for number in range(40):
        context.append({"role": "user", "content": f"Step {number}: go on with the build of the module. " * 4})
        context.append({"role": "assistant", "content": f"Step {number} is done, and all tests pass. " * 4})
    context.append({"role": "user", "content": "And now?"})
    whole = context.prepare()
    count_before = context.event_count
    context.switch_model("two", TokenLimits(2_000, 200))
    small = context.prepare()
    assert not whole.folds and small.folds and small.tokens <= context.limits.input_tokens
    assert small.max_output_tokens == 200 and context.model == "two"
    assert not any(isinstance(event, Limited) for event in context.events_after(count_before))
    context.switch_model("one", TokenLimits(100_000, 0))
    again = context.prepare()
    assert again.messages == small.messages and not again.folds
