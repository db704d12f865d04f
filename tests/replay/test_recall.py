from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, combinations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foldline.codecs import codec
from foldline.replay import HitCount, RecallCounts, Rereads
from foldline.replay.recall import (
    MeasuredMessage,
    MessageReader,
    Reference,
    facts,
    met_references,
    most_near_lines,
    references,
)
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
        Reference("near_fact", 0, "near_fact", results_only=False, source=3),
        Reference("src/app.py", back[0], "mend src/app.py please", results_only=False, source=0),
        Reference("src/only_result.py", back[1], "src/only_result.py: error", results_only=True, source=1),
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


# --- what a request shows, and what has to be read again --------------------------------------------------------------

SEEN = (
    {"role": "user", "content": "mend src/app.py please"},
    {"role": "tool", "tool_call_id": "c", "content": "src/app.py: 10 lines\nlib/near.py: an error in line_seven  "},
    {"role": "assistant", "content": "lib/near.py, src/app.py and line_seven"},
)


def met(*view: dict[str, Any], feasible: int = 9) -> tuple[RecallCounts, Rereads]:
    history = seen(*SEEN)
    [found] = references(history, [range(2, 3)])
    return met_references(found, seen(*view), feasible=feasible, sizes_tokens=lambda place: 100 + place)


def test_a_request_with_all_lines_leaves_nothing_to_read_again() -> None:
    counts, rereads = met(*SEEN[:2])
    assert counts.near == counts.near_line == HitCount(3, 3)
    assert rereads == Rereads()


def test_a_name_without_its_line_is_read_again_in_the_high_figure_alone() -> None:
    counts, rereads = met(SEEN[0], {"role": "user", "content": "seen: lib/near.py, line_seven"})
    assert (counts.near, counts.near_line) == (HitCount(3, 3), HitCount(0, 3))
    assert rereads == Rereads(low=(), high=(101,))


def test_each_message_is_read_again_once_for_all_that_it_held() -> None:
    counts, rereads = met()
    assert (counts.near, counts.near_line, counts.far) == (HitCount(0, 3), HitCount(0, 3), HitCount())
    assert rereads == Rereads(low=(101,), high=(101,))


def test_near_lines_are_compared_with_what_is_feasible() -> None:
    assert met(*SEEN[:2], feasible=2)[0].near_feasible == HitCount(2, 2)  # more than feasible is over the limit
    assert met(SEEN[0], feasible=2)[0].near_feasible == HitCount(0, 2)


def test_a_far_reference_is_no_near_one() -> None:
    history = seen(*HISTORY)
    [found] = references(history, [range(5, 6)])
    counts, rereads = met_references(found, history[3:5], feasible=1, sizes_tokens=lambda _place: 7)
    assert (counts.near, counts.near_line, counts.far, counts.line) == (
        HitCount(1, 1),
        HitCount(1, 1),
        HitCount(0, 2),
        HitCount(0, 2),
    )
    assert rereads == Rereads(low=(7, 7), high=(7, 7))


def feasible(lines: Sequence[tuple[str, int]], room_tokens: int, *, system: str = "") -> int:
    """The most near references, of so many to each line, whose lines are shown in so many tokens."""
    wires = [{"role": "system", "content": system}, *({"role": "user", "content": line} for line, _ in lines)]
    asked = [
        Reference(f"{line}{number}", 0, line, results_only=False, source=place)
        for place, (line, count) in enumerate([(system, 1 if system else 0), *lines])
        for number in range(count)
    ]
    return most_near_lines(asked, seen(*wires), room_tokens, ESTIMATE)


def test_all_lines_are_feasible_where_there_is_room() -> None:
    assert feasible([("one line", 2), ("another line", 1)], 1_000) == 3


def test_lines_of_the_system_text_take_no_room() -> None:
    assert feasible([], 0, system="Be brief.") == 1
    assert feasible([("a long line " * 100, 1)], 20, system="Be brief.") == 1


def test_a_line_that_two_references_share_is_counted_once() -> None:
    line = "some words " * 20
    tokens = ESTIMATE.text(line)
    assert feasible([(line, 5)], tokens + 12) == 5
    assert feasible([(line, 5), (line, 5)], tokens + 12) == 10


def test_far_references_are_no_near_lines() -> None:
    history = seen(*HISTORY)
    [found] = references(history, [range(5, 6)])
    assert most_near_lines(found, history, 10_000, ESTIMATE) == 1


@given(
    st.lists(st.tuples(st.integers(1, 60), st.integers(1, 4)), max_size=7, unique_by=lambda line: line[0]),
    st.integers(0, 120),
)
def test_no_choice_of_lines_shows_more_than_is_feasible(sizes: list[tuple[int, int]], room_tokens: int) -> None:
    lines = [("word " * words, count) for words, count in sizes]
    most = feasible(lines, room_tokens)
    for choice in chain.from_iterable(combinations(lines, count) for count in range(len(lines) + 1)):
        if sum(ESTIMATE.text(line) for line, _ in choice) <= room_tokens - 12:
            assert sum(count for _, count in choice) <= most
