"""The whole program in a terminal: what a person types, sees and interrupts."""

from __future__ import annotations

import asyncio
import re
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.doors.chat.terminals import Terminal, terminal
from tests.serving import Served, serve

from foldline.testing import FakeProvider, FakeReply

RESUME = "To go on: foldline chat --resume "


@contextmanager
def chatting(
    folder: Path, fake: FakeProvider, *arguments: str, width: int = 100, cursor: bool = False, **environ: str
) -> Iterator[tuple[Terminal, Served]]:
    """A chat with a fake model, its prompt on screen."""
    with serve(fake) as served:
        given = ("--base-url", f"{served.url}/v1", "--model", "fake-model", *arguments)
        with terminal(folder, *given, width=width, cursor=cursor, **environ) as run:
            run.expect("model    fake-model by custom: as set")
            yield run, served


@pytest.mark.parametrize(("width", "cursor"), [(60, True), (100, False)])
def test_a_line_is_answered_and_the_figures_follow(tmp_path: Path, width: int, cursor: bool) -> None:
    with chatting(tmp_path, FakeProvider("It is **blue**, I think."), width=width, cursor=cursor) as (run, _):
        run.line("Which colour?")
        run.expect("It is blue, I think.")
        run.expect("[tokens: ")
        run.expect("›")
        run.line("/quit")
        run.expect(RESUME)
        assert run.ended() == 0
        assert run.is_as_before


def test_ctrl_c_stops_an_answer_and_the_session_goes_on(tmp_path: Path) -> None:
    gate = asyncio.Event()
    fake = FakeProvider([FakeReply("The first words of a long answer. " * 9, gate=gate), "The second answer."])
    with chatting(tmp_path, fake) as (run, served):
        run.line("Begin.")
        run.expect("The first words")
        run.send("\x03")
        run.expect("Stopped.")
        run.expect("›")
        run.line("Go on.")
        run.expect("The second answer.")
        assert run.leave() == 0
        assert RESUME in run.words
        assert run.is_as_before
        served.set(gate)
    assert set(fake.refusals) <= {"route"}
    assert "[stopped before it was finished]" in str(fake.requests[-1].body["messages"])


def test_ctrl_c_twice_leaves_in_order(tmp_path: Path) -> None:
    gate = asyncio.Event()
    with chatting(tmp_path, FakeProvider(FakeReply("Words " * 50, gate=gate))) as (run, served):
        run.line("Begin.")
        run.expect("Words")
        run.send("\x03")
        run.expect("›")
        run.send("\x03\x03")  # at least two of the three are near enough to each other on a slow machine
        run.expect(RESUME)
        assert run.ended() == 0
        assert run.is_as_before
        served.set(gate)


def test_ctrl_c_on_an_empty_line_leaves_when_pressed_twice(tmp_path: Path) -> None:
    with chatting(tmp_path, FakeProvider()) as (run, _):
        run.send("\x03")
        run.expect("Ctrl-C again leaves")
        run.expect("›")
        run.send("\x03\x03")
        assert run.ended() == 0
        assert run.is_as_before
    assert not list((tmp_path / "home" / "data" / "sessions").glob("*"))


@pytest.mark.parametrize("answering", [False, True])
def test_a_signal_to_end_leaves_in_order(tmp_path: Path, answering: bool) -> None:
    gate = asyncio.Event()
    fake = FakeProvider(["Hello.", FakeReply("Words " * 50, gate=gate)])
    with chatting(tmp_path, fake) as (run, served):
        run.line("Begin.")
        run.expect("[tokens: ")
        if answering:
            run.line("More.")
            run.expect("Words")
        run.process.send_signal(signal.SIGTERM)
        run.expect(RESUME)
        assert run.ended() == 128 + signal.SIGTERM
        assert run.is_as_before
        served.set(gate)


def writes(body: Mapping[str, Any]) -> FakeReply | str:
    if body["messages"][-1]["role"] == "tool":
        return "So be it."
    return FakeReply(calls=(("write_file", {"path": "a.txt", "content": "x"}),))


def test_what_was_typed_before_a_question_does_not_answer_it(tmp_path: Path) -> None:
    gate = asyncio.Event()

    def script(body: Mapping[str, Any]) -> FakeReply | str:
        made = writes(body)
        return made if isinstance(made, str) else FakeReply("Let me write. " * 3, calls=made.calls, gate=gate)

    with chatting(tmp_path, FakeProvider(script), "--allow", "write_file") as (run, served):
        run.line("Write it.")
        run.expect("Let me write.")
        run.line("y")
        served.set(gate)
        run.expect("Allow? [y]es / [n]o / [a]lways in this session:")
        run.line("")
        run.expect("The user did not allow this call.")
        run.expect("So be it.")
        run.leave()
    assert not (tmp_path / "work" / "a.txt").exists()


def test_always_is_always_for_the_rest_of_the_session(tmp_path: Path) -> None:
    with chatting(tmp_path, FakeProvider(writes), "--allow", "write_file") as (run, _):
        run.line("Go.")
        run.expect("Allow? [y]es / [n]o / [a]lways in this session:")
        run.line("a")
        run.expect("• write_file a.txt → ")
        run.expect("›")
        run.line("Go on.")
        run.expect("• write_file a.txt → ")
        run.expect("So be it.")
        assert run.leave() == 0
        assert run.words.count("wants to run:") == 1
        assert run.is_as_before


def test_a_dumb_terminal_gets_plain_lines(tmp_path: Path) -> None:
    with chatting(tmp_path, FakeProvider(writes), "--allow", "write_file", TERM="dumb") as (run, _):
        run.expect("> ")
        run.line("Write it.")
        run.expect("Allow? [y]es / [n]o / [a]lways in this session:")
        run.line("y")
        run.expect("• write_file a.txt → ")
        run.expect("So be it.")
        run.expect("[tokens: ")
        run.line("/context")
        run.expect("free")
        run.send("\x04")
        run.expect(f"> \r\n{RESUME}")
        assert run.ended() == 0
        assert "\x1b" not in run.text
        assert "s\r\n\r\nSo be it." in run.text  # "… bytes": the answer stands apart
    assert (tmp_path / "work" / "a.txt").read_text() == "x"


def test_without_colours_there_are_none(tmp_path: Path) -> None:
    with chatting(tmp_path, FakeProvider("`code` and [a](b)"), NO_COLOR="1") as (run, _):
        run.line("Hello.")
        run.expect("[tokens: ")
        run.leave()
        codes = {code for found in re.findall(r"\x1b\[([0-9;]*)m", run.text) for code in found.split(";")}
    assert {code for code in codes if code[:1] in ("3", "4", "9") and len(code) > 1} <= {"39", "49"}


def test_commands_are_completed(tmp_path: Path) -> None:
    with chatting(tmp_path, FakeProvider()) as (run, _):
        run.send("/cont")
        run.expect("show what fills the window")
        run.send("\t")
        run.expect("ext")
        run.send("\r")
        run.expect("answers get up to")
        assert run.leave() == 0
    assert (tmp_path / "home" / "state" / "history").stat().st_mode & 0o777 == 0o600
