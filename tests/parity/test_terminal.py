"""The system with the token display, on its command line: figures, their colours, the question, /compact."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.doors.chat.support import console, hold, shown

from foldline.agent.events import ReplyFinished, TurnEnded
from foldline.doors.chat.screen import Screen
from foldline.engine.window_usage import WindowUsage
from foldline.testing import FakeProvider, FakeReply, asks_for_summary

LINE = re.compile(r"^\[tokens: ([\d,]+) / ([\d,]+) \((\d+\.\d)%\) \| response: ([\d,]+) tokens\]$", re.MULTILINE)


def numbers(text: str) -> list[tuple[int, int, float, int]]:
    found = LINE.findall(text)
    return [
        (int(a.replace(",", "")), int(b.replace(",", "")), float(c), int(d.replace(",", ""))) for a, b, c, d in found
    ]


def test_s4_01_the_figures_are_those_of_the_last_reply_and_of_the_window_that_is_set(tmp_path: Path) -> None:
    fake = FakeProvider([FakeReply("One.", output_tokens=11), FakeReply("Two.", output_tokens=22)])
    held = hold(fake, tmp_path, ["first", "second"], window=9_000)
    prompts = [request.input_tokens for request in fake.requests]
    expected = [(used, 9_000, round(100 * used / 9_000, 1), out) for used, out in zip(prompts, (11, 22), strict=True)]
    assert numbers(held.text) == expected


@pytest.mark.parametrize(
    ("used", "percent", "code"),
    [
        (12_450, "9.7", "32"),
        (89_599, "70.0", "32"),
        (89_600, "70.0", "33"),
        (115_199, "90.0", "33"),
        (115_200, "90.0", "31"),
    ],
)
def test_s4_02_the_line_after_a_reply_and_its_colour(used: int, percent: str, code: str) -> None:
    figures = WindowUsage(max_context_tokens=128_000, last_prompt_tokens=used, last_completion_tokens=850)
    on = console(terminal=True)
    screen = Screen(on)
    screen.on_event(
        ReplyFinished(
            text="",
            calls=0,
            finish_reason="stop",
            prompt_tokens=used,
            expected_tokens=used,
            completion_tokens=850,
            cached_tokens=0,
            estimated=False,
            seconds=0.1,
            figures=figures,
        )
    )
    screen.on_event(TurnEnded(reason="done"))
    line = f"[tokens: {used:,} / 128,000 ({percent}%) | response: 850 tokens]"
    assert f"\x1b[{code}m{line}\x1b[0m" in shown(on)


def summary_or_words(body: Mapping[str, Any]) -> FakeReply | str:
    if asks_for_summary(body):
        return "Goal: count. Decided: blue."
    return "one two three four five. " * 60


THRESHOLD = "defaults:\n  compact_threshold: 0.4\n"


@pytest.mark.parametrize("answer", ["", "n"])
def test_s4_03_at_the_threshold_it_asks_and_asks_again_after_the_next_reply(tmp_path: Path, answer: str) -> None:
    fake = FakeProvider(summary_or_words)
    held = hold(fake, tmp_path, ["go", "on"], answers=[answer, answer], settings=THRESHOLD, window=2_700)
    assert len(held.questions) == 2
    for question in held.questions:
        asked = re.fullmatch(
            r"⚠ Context usage at (\d+)% \(([\d,]+)/2,700 tokens\)\. Compact conversation\? \[y/N\]", question
        )
        assert asked is not None
        assert int(asked[1]) >= 40
    assert "folded" not in held.text
    assert not any(asks_for_summary(request.body) for request in fake.requests)


def test_s4_03_with_a_yes_it_is_compacted(tmp_path: Path) -> None:
    held = hold(FakeProvider(summary_or_words), tmp_path, ["go"], answers=["y"], settings=THRESHOLD, window=2_700)
    assert "Goal: count. Decided: blue." in held.text
    assert re.search(r"^Context: [\d,]+/2,700 \(\d+\.\d%\)$", held.text, re.MULTILINE)


def test_s4_05_compact_shows_figures_asks_and_then_the_summary_and_new_figures(tmp_path: Path) -> None:
    fake = FakeProvider(summary_or_words)
    lines = ["go", "on", "/compact keep the colour", "/compact"]
    held = hold(fake, tmp_path, lines, answers=["y", "n"], window=9_000)
    before = numbers(held.text)[-1]
    assert held.questions[0] == f"Context: {before[0]:,}/9,000 ({before[2]:.0f}%). Compact conversation? [y/N]"
    assert "Goal: count. Decided: blue." in held.text
    (after,) = re.findall(r"^Context: ([\d,]+)/9,000 \(\d+\.\d%\)$", held.text, re.MULTILINE)
    assert int(after.replace(",", "")) < before[0]
    (asked,) = [request for request in fake.requests if asks_for_summary(request.body)]
    assert "keep the colour" in str(asked.body["messages"])
    assert len(held.questions) == 2


def test_s4_05_without_a_model_for_it_a_digest_stands_for_what_was_said(tmp_path: Path) -> None:
    fake = FakeProvider(summary_or_words)
    settings = "defaults:\n  summariser: off\n"
    held = hold(fake, tmp_path, ["go", "on", "/compact"], answers=["y"], settings=settings, window=9_000)
    assert "tokens (digest)" in held.text
    assert re.search(r"^Context: [\d,]+/9,000 ", held.text, re.MULTILINE)
    assert not any(asks_for_summary(request.body) for request in fake.requests)


def test_s0_04_each_model_call_and_each_compaction_is_in_the_log(tmp_path: Path) -> None:
    held = hold(FakeProvider(summary_or_words), tmp_path, ["go", "on", "/compact"], answers=["y"], window=9_000)
    log = (held.home / "data" / "sessions" / held.sessions[0] / "chat.log").read_text()
    calls = re.findall(r"Calling AI with (\d+) messages \(~(\d+) bytes, ~(\d+) tokens\)$", log, re.MULTILINE)
    assert [int(messages) for messages, _, _ in calls] == [1, 3]
    assert all(int(size) // 4 == int(tokens) for _, size, tokens in calls)
    (sizes,) = re.findall(r"Context compacted: (\d+) tokens -> (\d+) tokens \(saved (\d+) tokens\)", log)
    assert int(sizes[0]) - int(sizes[1]) == int(sizes[2]) > 0
