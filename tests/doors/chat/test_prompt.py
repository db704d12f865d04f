"""A tool call runs only with the person's consent, given after seeing all of it."""

from __future__ import annotations

import asyncio

import pytest
from tests.doors.chat.support import Typed, console, shown

from foldline.agent.tools.base import PermissionRequest
from foldline.doors.chat.prompt import Consent
from foldline.doors.chat.screen import Screen

WRITE = PermissionRequest("write_file", "write 4 bytes to a.txt")
RUN = PermissionRequest("run_command", "make")


def asked(*answers: str | BaseException, calls: tuple[PermissionRequest, ...] = (WRITE,)) -> tuple[list[bool], int]:
    typed = Typed([], answers)
    consent = Consent(Screen(console()), typed)

    async def ask() -> list[bool]:
        return [await consent.allowed(call) for call in calls]

    return asyncio.run(ask()), len(typed.questions)


@pytest.mark.parametrize("answer", ["y", "Yes", " YES ", "a", "always"])
def test_yes_is_yes(answer: str) -> None:
    assert asked(answer) == ([True], 1)


@pytest.mark.parametrize("answer", ["", "n", "no", "yess", "yes please", "ja", EOFError()])
def test_anything_else_is_no(answer: str | BaseException) -> None:
    assert asked(answer) == ([False], 1)


def test_always_holds_for_that_tool_alone() -> None:
    assert asked("a", "n", calls=(WRITE, WRITE, RUN)) == ([True, True, False], 2)


def test_calls_beside_each_other_are_asked_one_after_the_other() -> None:
    typed = Typed([], ["y", "n"])
    consent = Consent(Screen(console()), typed)

    async def ask() -> list[bool]:
        return list(await asyncio.gather(consent.allowed(WRITE), consent.allowed(RUN)))

    assert asyncio.run(ask()) == [True, False]


def test_ctrl_c_at_the_question_is_no_and_stops_the_turn() -> None:
    stopped: list[int] = []
    consent = Consent(Screen(console()), Typed([], [KeyboardInterrupt()]))
    consent.stop = lambda: stopped.append(1)
    assert asyncio.run(consent.allowed(WRITE)) is False
    assert stopped == [1]


def test_all_that_it_would_do_is_shown_line_by_line_and_inert() -> None:
    on = console(60)
    consent = Consent(Screen(on), Typed([], ["n"]))
    change = "edit a.txt\n-old\n+new \x1b[2K\u202e" + "long " * 40 + "END"
    asyncio.run(consent.allowed(PermissionRequest("edit_file", change)))
    text = shown(on)
    assert "  -old\n" in text
    assert "␛[2K<U+202E>" in text
    assert "END" in text


def test_with_nobody_to_ask_it_is_no_unless_everything_was_allowed() -> None:
    on = console()
    screen = Screen(on)
    assert asyncio.run(Consent(screen, None).allowed(RUN)) is False
    assert "run_command was not run: nobody can be asked here (--yes allows it)" in shown(on)
    assert asyncio.run(Consent(screen, None, everything=True).allowed(RUN)) is True
