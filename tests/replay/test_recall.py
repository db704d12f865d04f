from __future__ import annotations

from typing import Any

import pytest

from foldline.codecs import codec
from foldline.replay.recall import MeasuredMessage, MessageReader, Reference, facts, references
from foldline.tokens import ESTIMATE

FAR_TEXT = "plain words of no note " * 3_000  # over 8,000 tokens, and no fact in it


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("see src/foldline/view/view.py:12", {"src/foldline/view/view.py"}),
        ("in ./docs/ or ~/notes/today", {"~/notes/today"}),
        ("call os.path.join here", {"os.path.join"}),
        ("the keep_recent_tokens setting", {"keep_recent_tokens"}),
        ("parseHeader and HttpError", {"parseHeader", "HttpError"}),
        ("commit deadbeef1 of 20261", {"deadbeef1", "20261"}),
        ("fix JIRA-4711, flight HAT136", {"JIRA-4711", "HAT136"}),
        ("no facts in here, 42 of them", set()),
        ("abcd 1234", set()),
        ("下雨天路滑", {"下雨天路滑"}),
        ("", set()),
    ],
)
def test_facts_are_strings_that_stand_for_one_thing(text: str, found: set[str]) -> None:
    assert facts(text) == found


def test_a_very_long_run_without_a_slash_is_no_trap() -> None:
    assert facts("a" * 1_000_000) == set()
    assert len(facts("x/" * 200_000 + "y")) == 1


def reader(dialect: str = "openai-chat") -> MessageReader:
    return MessageReader(codec(dialect), ESTIMATE)


def seen(*wires: dict[str, Any], dialect: str = "openai-chat") -> list[MeasuredMessage]:
    reading = reader(dialect)
    return [reading.read(wire) for wire in wires]


def test_a_message_is_seen_with_its_calls_and_results() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "read_file", "arguments": '{"path": "a/b.py"}'}}
    said, answered = seen(
        {"role": "assistant", "content": "Reading.", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": "line one\n  line two  "},
    )
    assert said.text == 'Reading.\nread_file {"path": "a/b.py"}'
    assert (said.role, answered.role) == ("assistant", "tool")
    assert (answered.text, answered.spoken) == ("line one\n  line two  ", "")
    assert answered.lines == {"line one", "line two"}
    assert said.facts == {"read_file", "a/b.py"}


def test_text_in_a_message_with_results_is_spoken() -> None:
    [both] = seen(
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "c", "content": "result_text"},
                {"type": "text", "text": "spoken_text"},
            ],
        },
        dialect="anthropic",
    )
    assert both.text == "result_text\nspoken_text"
    assert both.spoken == "spoken_text"


def test_a_message_is_read_once() -> None:
    reading = reader()
    wire = {"role": "user", "content": "hello"}
    assert reading.read(wire) is reading.read(wire)
    assert reading.copy().read(wire) is reading.read(wire)


def test_a_copy_shares_nothing_that_it_measures_later() -> None:
    reading = reader()
    wire = {"role": "user", "content": "hello"}
    other = reading.copy()
    assert other.read(wire) is not reading.read(wire)


HISTORY = (
    {"role": "user", "content": "mend src/app.py please"},
    {"role": "tool", "tool_call_id": "c", "content": "  first_name = 1\nsrc/only_result.py: error  "},
    {"role": "user", "content": FAR_TEXT},
    {"role": "user", "content": "near_fact"},
    {"role": "user", "content": "go on"},
    {"role": "assistant", "content": "src/app.py and src/only_result.py and near_fact and never_said"},
)


def test_a_reply_refers_to_facts_that_occurred_before_it() -> None:
    history = seen(*HISTORY)
    [found] = references(history, [range(5, 6)])
    back = [sum(message.tokens for message in history[start:5]) for start in (1, 2)]
    assert found == (
        Reference("near_fact", back_tokens=0, line="", results_only=False),
        Reference("src/app.py", back_tokens=back[0], line="mend src/app.py please", results_only=False),
        Reference("src/only_result.py", back_tokens=back[1], line="src/only_result.py: error", results_only=True),
    )
    assert [reference.far for reference in found] == [False, True, True]


def test_far_needs_the_tokens_and_the_messages() -> None:
    near_by_messages = (HISTORY[0], HISTORY[2], HISTORY[5])
    near_by_tokens = (HISTORY[0], *(HISTORY[3:5] * 3), HISTORY[5])
    for history in (near_by_messages, near_by_tokens):
        [found] = references(seen(*history), [range(len(history) - 1, len(history))])
        assert "src/app.py" in {reference.fact for reference in found}
        assert not any(reference.far for reference in found)


def test_the_last_place_counts() -> None:
    again = {"role": "tool", "tool_call_id": "d", "content": "src/app.py is open"}
    [found] = references(seen(*HISTORY[:4], again, HISTORY[5]), [range(5, 6)])
    assert [reference.far for reference in found if reference.fact == "src/app.py"] == [False]


def test_a_reply_of_several_items_refers_as_one() -> None:
    items = seen(
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "src/a.py or src/b.py"}]},
        {"type": "function_call", "call_id": "c", "name": "read", "arguments": '{"path": "src/a.py"}'},
        {"type": "function_call", "call_id": "d", "name": "read", "arguments": '{"path": "src/b.py"}'},
        dialect="openai-responses",
    )
    [found] = references(items, [range(1, 3)])
    assert {reference.fact for reference in found} == {"src/a.py", "src/b.py"}
