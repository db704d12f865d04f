from __future__ import annotations

import re
from random import Random
from typing import Any

import pytest
from bench.tests.probe.support import messages_of, recording_of
from hypothesis import given, settings
from hypothesis import strategies as st

from foldline.recorded.sessions import Session
from foldline.replay import MeasuredSession
from foldline.tokens import ESTIMATE
from foldline_bench.probe.questions import KINDS, Derivation, Question, choose_questions, derive_question, shares

FAR, LEAST = 600, 1_500


def chosen(*recordings: MeasuredSession, count: int = 30, seed: int = 1) -> tuple[Question, ...]:
    found = [Derivation(recording) for recording in recordings]
    return choose_questions(found, count=count, least_tokens=LEAST, far_tokens=FAR, seed=seed)


@pytest.fixture(scope="module")
def recording() -> MeasuredSession:
    return recording_of()


@pytest.fixture(scope="module")
def questions(recording: MeasuredSession) -> tuple[Question, ...]:
    return chosen(recording)


def test_there_are_as_many_of_each_kind(questions: tuple[Question, ...]) -> None:
    assert [sum(question.kind == kind for question in questions) for kind in KINDS] == [10, 10, 10]
    assert [sum(shares(count).values()) for count in range(1, 9)] == [*range(1, 9)]


def test_the_same_seed_asks_the_same_and_another_one_does_not(recording: MeasuredSession) -> None:
    assert chosen(recording) == chosen(recording)
    assert chosen(recording) != chosen(recording, seed=2)


def test_a_needle_is_a_recorded_line_and_no_wrong_option_fits_it(
    recording: MeasuredSession, questions: tuple[Question, ...]
) -> None:
    needles = [question for question in questions if question.kind == "needle"]
    for question in needles:
        [cloze] = re.findall(r"^    (.*____.*)$", question.text, re.MULTILINE)
        before = {line for message in recording.history[: question.point] for line in message.lines}
        fitting = [number for number, each in enumerate(question.options) if cloze.replace("____", each) in before]
        assert fitting == [question.right]
        assert question.evidence == cloze.replace("____", question.options[question.right])
        assert question.back_tokens >= FAR


def test_a_needle_is_used_by_a_later_reply(recording: MeasuredSession, questions: tuple[Question, ...]) -> None:
    for question in questions:
        if question.kind == "needle":
            later = [message for message in recording.history[question.point :] if message.role == "assistant"]
            assert any(question.options[question.right] in message.text for message in later)


def test_what_stood_before_a_call_is_the_message_before_it(
    recording: MeasuredSession, questions: tuple[Question, ...]
) -> None:
    asked = [question for question in questions if question.kind == "why"]
    for question in asked:
        [path] = re.findall(r"read_file\(path=(\S+)\)", question.text)
        [place] = [at for at, message in enumerate(recording.history) if f'"{path}"' in message.text]
        assert question.options[question.right] in recording.history[place - 1].text
        assert place < question.point
        assert question.back_tokens >= FAR
    assert {question.about for question in asked} == {"error", "wish"}


def test_what_comes_next_is_the_call_of_the_recorded_reply(
    recording: MeasuredSession, questions: tuple[Question, ...]
) -> None:
    for question in questions:
        if question.kind == "next":
            [path] = re.findall(r"read_file\(path=(\S+)\)", question.options[question.right])
            assert f'"{path}"' in recording.history[question.point].text


def test_no_option_stands_twice_and_the_right_one_stands_anywhere(questions: tuple[Question, ...]) -> None:
    assert all(len(set(question.options)) == len(question.options) >= 3 for question in questions)
    assert len({question.right for question in questions}) == 4
    assert len({question.id for question in questions}) == len(questions)


def test_a_line_that_stands_there_with_several_values_is_no_needle() -> None:
    told = messages_of(40)
    for wire in told:
        if wire["role"] == "tool":
            wire["content"] = re.sub(r"of the .* queue", "of this one queue", wire["content"])
    recording = MeasuredSession(Session(name="s", dialect="openai-chat", messages=tuple(told)), ESTIMATE)
    asked = [question.kind for question in chosen(recording)]
    assert "needle" not in asked
    assert "why" in asked


def test_a_line_that_also_stands_there_with_a_short_value_is_no_needle() -> None:
    told = messages_of(40)
    for wire in told:
        if wire["role"] == "tool":
            wire["content"] += "\n" + re.sub(r" is \d+ entries", " is 7 entries", wire["content"].splitlines()[1])
    recording = MeasuredSession(Session(name="s", dialect="openai-chat", messages=tuple(told)), ESTIMATE)
    assert "needle" not in {question.kind for question in chosen(recording)}


def test_sessions_take_turns() -> None:
    questions = chosen(recording_of(40, "one"), recording_of(80, "two"), count=12)
    assert [sum(question.session == name for question in questions) for name in ("one", "two")] == [6, 6]


def test_a_session_without_calls_and_errors_has_no_why_and_no_next() -> None:
    talk: list[dict[str, str]] = [
        {"role": ("user", "assistant")[turn % 2], "content": f"We met at the harbour_{turn // 8} of town {'so ' * 60}"}
        for turn in range(80)
    ]
    recording = MeasuredSession(Session(name="talk", dialect="openai-chat", messages=tuple(talk)), ESTIMATE)
    assert {question.kind for question in chosen(recording)} <= {"needle"}


@pytest.mark.parametrize(
    ("line", "is_error"),
    [
        ("ValueError: no such queue", True),
        ("pkg.errors.QueueError(3)", True),
        ("src/a.ts(16,58): error TS2305: no exported member", True),
        ("/bin/sh: 1: foo: command not found", True),
        ("fatal: not a git repository", True),
        ("43: throw new Error('upstream faulted')", False),
        ("raise ValueError(f'{name} is unknown')", False),
        ("The test for errors is in tests/test_errors.py", False),
    ],
)
def test_code_about_errors_is_no_error(line: str, is_error: bool) -> None:
    call = {"id": "c", "type": "function", "function": {"name": "run", "arguments": "{}"}}
    told: list[dict[str, Any]] = [
        {"role": "user", "content": "Go."},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": f"some output\n{line}\nmore output"},
    ]
    recording = MeasuredSession(Session(name="s", dialect="openai-chat", messages=tuple(told)), ESTIMATE)
    found = [cause.words for cause in Derivation(recording).causes if cause.about == "error"]
    assert found == ([line] if is_error else [])


NASTY = st.text(alphabet="ab_/.:{}\n\\ \u4e2d\u6587$^(1234", max_size=60)


@settings(max_examples=60)
@given(st.lists(NASTY, min_size=8, max_size=20), st.integers(0, 5))
def test_any_session_gives_questions_with_one_right_option(texts: list[str], seed: int) -> None:
    told = messages_of(14)
    chance = Random(seed)
    for wire in told:
        if wire["role"] == "tool":
            wire["content"] += "\n" + "\n".join(chance.choices(texts, k=2))
    recording = MeasuredSession(Session(name="s", dialect="openai-chat", messages=tuple(told)), ESTIMATE)
    found = Derivation(recording)
    for reply in range(len(recording.replies)):
        for kind in KINDS:
            question = derive_question(found, reply, kind, far_tokens=100, seed=seed)
            if question is not None:
                assert len(set(question.options)) == len(question.options) >= 3
                assert 0 <= question.right < len(question.options)
