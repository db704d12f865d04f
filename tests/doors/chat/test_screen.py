"""The display of each event, at any width, on any kind of terminal."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest
from rich.cells import cell_len
from tests.doors.chat.support import console, shown

from foldline.agent.events import AgentEvent, Calling, Notice, ReplyFinished, ToolFinished, ToolStarted, TurnEnded
from foldline.doors.chat.screen import Screen
from foldline.engine.events import FoldFinished, FoldStarted, LimitLearned
from foldline.engine.window_usage import WindowUsage
from foldline.providers.base import CallStarted, ReasoningDelta, Retrying, TextDelta
from foldline.view.transcript import Fold

EVIL = "\x1b]52;c;aGVsbG8=\x07\x1b[2J\u202e"
ARGUMENTS = (
    '{"path": "src/foldline/a_rather_long_name_of_a_file_that_goes_on_and_on.py", "start_line": 3, "end_line": 9}'
)
FOLD = Fold(start=2, stop=14, shown=(), tokens=300, before_tokens=5_000, reducer="digest", reason="full", id=3)


def reply(used: int = 12_450, *, estimated: bool = False) -> ReplyFinished:
    figures = WindowUsage(max_context_tokens=128_000, last_prompt_tokens=used, last_completion_tokens=850)
    return ReplyFinished(
        text="Done.",
        calls=0,
        finish_reason="stop",
        prompt_tokens=used,
        expected_tokens=used,
        completion_tokens=850,
        cached_tokens=0,
        estimated=estimated,
        seconds=1.0,
        figures=figures,
    )


def result(text: str = "x" * 4_300, *, is_error: bool = False) -> ToolFinished:
    return ToolFinished(call_id="1", tool="read_file", text=text, is_error=is_error, tokens=1_000, seconds=0.31)


TURN: tuple[AgentEvent, ...] = (
    Calling(messages=3, size_bytes=100, tokens=40, iteration=1),
    ReasoningDelta("I wonder about this. " * 20),
    TextDelta("Let me **look**"),
    TextDelta(" at it.\n"),
    CallStarted("read_file"),
    ToolStarted("1", "read_file", ARGUMENTS),
    result(),
    ToolStarted("1", "run_command", '{"command": "make test"}'),
    result("exit code 2\nmore", is_error=True),
    FoldStarted("the window is full", 6_120, 20),
    FoldFinished((FOLD,), 1_204, 9, tokens_before=6_120),
    Retrying(1, 2.0, "rate: slow down"),
    Notice("The request was refused (prompt_overflow); sent again."),
    LimitLearned(8_192, "window", "http://x"),
    TextDelta("All done."),
    reply(),
    TurnEnded(reason="done", text="All done."),
)


def hear(events: Sequence[AgentEvent], width: int = 100, *, terminal: bool = False, encoding: str = "utf-8") -> str:
    on = console(width, terminal=terminal, encoding=encoding)
    screen = Screen(on)
    with screen.working("starting"):
        for event in events:
            screen.on_event(event)
            screen.tick()
    return shown(on)


@pytest.mark.parametrize("width", [60, 100])
def test_a_turn_is_told_line_by_line(width: int) -> None:
    lines = hear(TURN, width).splitlines()
    assert max(map(cell_len, lines)) <= width
    text = "\n".join(lines)
    assert sum("I wonder" in line for line in lines) == 1
    assert "Let me **look** at it." in lines
    (read,) = [line for line in lines if line.startswith("• read_file src/foldline/a_rather")]
    assert read.endswith("→ 4.2 KB, 0.3 s")
    assert "✗ run_command make test → exit code 2" in lines
    assert "folded 12 messages: 6,120 → 1,204 tokens (digest) · /why 2" in text
    assert "⟲ rate: slow down; trying again in 2.0 s (attempt 1)" in lines
    assert "The request was refused (prompt_overflow); sent again." in text
    assert "the server named its limit (window): 8,192 tokens" in lines
    assert lines[-2:] == ["All done.", "[tokens: 12,450 / 128,000 (9.7%) | response: 850 tokens]"]


@pytest.mark.parametrize("width", [60, 100])
def test_on_a_terminal_answers_are_drawn_and_the_spinner_leaves_nothing(width: int) -> None:
    text = hear(TURN, width, terminal=True)
    assert "\x1b[1mlook\x1b[0m" in text
    assert "**look**" not in text.rpartition("\x1b[2K")[2]
    assert "calling the model (~40 tokens)" in text
    assert text.count("\x1b[?25l") == text.count("\x1b[?25h")
    assert text.rstrip().endswith("response: 850 tokens]\x1b[0m")


@pytest.mark.parametrize(("used", "code"), [(12_450, "32"), (89_600, "33"), (115_200, "31")])
def test_the_line_of_figures_has_its_colour(used: int, code: str) -> None:
    text = hear([reply(used), TurnEnded(reason="done")], terminal=True)
    assert f"\x1b[{code}m[tokens: {used:,} / 128,000" in text


def test_figures_of_our_own_count_are_marked() -> None:
    text = hear([reply(estimated=True), TurnEnded(reason="done")])
    assert "[tokens: ~12,450 / 128,000 (9.7%) | response: ~850 tokens]" in text


@pytest.mark.parametrize("terminal", [False, True])
def test_nothing_foreign_moves_the_cursor_or_sets_the_clipboard(terminal: bool) -> None:
    events: list[AgentEvent] = [
        ReasoningDelta(EVIL),
        TextDelta(f"{EVIL}\n\n```\n{EVIL}\n```\n"),
        CallStarted(EVIL),
        ToolStarted("1", f"x{EVIL}", f'{{"path": "{EVIL}"}}'),
        ToolFinished(call_id="1", tool=EVIL, text=EVIL, is_error=True, tokens=1, seconds=0.0),
        Retrying(1, 1.0, EVIL),
        Notice(EVIL),
        FoldStarted(EVIL, 1, 1),
        FoldFinished((), 1, 1, error=EVIL),
        TurnEnded(reason="failed", message=EVIL),
    ]
    text = hear(events, terminal=terminal)
    assert "\x1b]" not in text
    assert "\x1b[2J" not in text
    assert "\x07" not in text
    assert "\u202e" not in text
    assert "]52;c;aGVsbG8=" in text


def test_markup_of_ours_in_a_foreign_text_is_only_text() -> None:
    assert "[red]x[/red] :smile:" in hear([Notice("[red]x[/red] :smile:")], terminal=True)


def test_a_terminal_without_these_characters_gets_others() -> None:
    text = hear(TURN, encoding="ascii")
    assert "* read_file" in text
    assert "->" in text
    text.encode("ascii")


def test_calls_that_were_stopped_are_told() -> None:
    events: list[AgentEvent] = [
        ToolStarted("1", "run_command", '{"command": "sleep 9"}'),
        TurnEnded(reason="cancelled", message="Stopped."),
    ]
    assert "✗ run_command sleep 9 → stopped\nStopped.\n" in hear(events)


def test_an_answer_longer_than_the_screen_is_shown_whole_and_once() -> None:
    lines = [f"line number {number} of the code" for number in range(200)]
    pieces: list[AgentEvent] = [TextDelta(f"{line}\n") for line in ["```", *lines, "```"]]
    text = hear([*pieces, reply(), TurnEnded(reason="done")], terminal=True)
    words = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)
    assert len(re.findall(r"\s+".join(lines), words)) == 1


def test_a_question_takes_the_display_away_and_gives_it_back() -> None:
    on = console(terminal=True)
    screen = Screen(on)
    with screen.working("run_command x"):
        screen.tick()
        with screen.paused():
            before = len(shown(on))
            screen.tick()
            assert len(shown(on)) == before
        screen.tick()
        assert len(shown(on)) > before


@pytest.mark.parametrize("terminal", [False, True])
def test_what_happens_while_a_person_is_asked_is_shown_after_the_answer(terminal: bool) -> None:
    on = console(terminal=terminal)
    screen = Screen(on)
    with screen.working("two calls"):
        screen.on_event(ToolStarted("1", "read_file", ARGUMENTS))
        with screen.paused():
            screen.line("Allow?")
            before = shown(on)
            screen.on_event(result())
            screen.on_event(Notice("Meanwhile."))
            assert shown(on) == before
        assert re.search("Allow.*• read_file.*Meanwhile", shown(on), re.DOTALL)


def test_an_answer_stands_apart_from_the_calls_before_it() -> None:
    on = console(terminal=True)
    screen = Screen(on)
    for event in (ToolStarted("1", "list_files", "{}"), result(), TextDelta("One.\n\nTwo."), reply()):
        screen.on_event(event)
    words = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown(on))
    assert [line.rstrip() for line in words.splitlines()] == [
        "• list_files → 4.2 KB, 0.3 s",
        "",
        "One.",
        "",
        "Two.",
        "",
    ]


def test_a_field_wraps_beside_its_name() -> None:
    on = console(60)
    screen = Screen(on)
    screen.field("model", "a-model by some provider: no key is set and no local server answers")
    screen.field("", "a note \x1b[2J")
    assert shown(on).splitlines() == [
        "model    a-model by some provider: no key is set and no",
        "         local server answers",
        "         a note ␛[2J",
    ]


def test_where_nobody_looks_a_line_stays_a_line() -> None:
    on = console(60)
    on.soft_wrap = True
    Screen(on).error("other: http://127.0.0.1:1/v1: " + "cannot connect " * 9 + "END")
    (line,) = shown(on).splitlines()
    assert line.startswith("http://127.0.0.1:1/v1: cannot connect")
    assert line.endswith("END")
