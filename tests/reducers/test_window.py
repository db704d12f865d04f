"""Sliding window: the oldest turns leave."""

from __future__ import annotations

from typing import Any

import pytest
from tests.property.sessions import BUILDERS, DIALECTS
from tests.reducers.views import LINE, applied, context_of, folds_of, need_of, says, user, view_of

from foldline.reducers.window import Window
from foldline.testing import session
from foldline.view.budget import Trigger

FREE = 10**9


def turns(count: int, dialect: str = "openai-chat") -> list[Any]:
    build = BUILDERS[dialect]
    out: list[Any] = []
    for n in range(count):
        out += build.user(f"turn {n} " + "words " * 20, False)
        out += build.turn([f"c{n}"], [LINE * 4], "w" * 6, None)
        out += build.says(f"answer {n}", None)
    return [*out, *build.user("the newest request", False)]


def roles(messages: list[Any]) -> list[str]:
    return [message.get("role", message.get("type")) for message in messages]


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("target", [150, 500, 1_000])
def test_tokens_hold_after_the_oldest_turns_have_left(dialect: str, target: int) -> None:
    view = view_of(turns(10, dialect), dialect)
    shown = applied(Window(), view, need_of(view, target))
    assert view.estimated_tokens <= target
    assert roles(shown)[0] == "user"
    assert "the newest request" in str(shown[-1])


@pytest.mark.parametrize("most", [3, 8, 15, 40])
def test_messages_hold(most: int) -> None:
    view = view_of(turns(10))
    applied(Window(trigger=Trigger(messages=most)), view, need_of(view, FREE))
    assert view.message_count < most or view.message_count == 41 < most


@pytest.mark.parametrize("most", [2, 4, 8])
def test_turns_hold(most: int) -> None:
    view = view_of(turns(10))
    applied(Window(trigger=Trigger(turns=most)), view, need_of(view, FREE))
    assert view.turn_count < most


def test_what_follows_a_drop_is_a_user_message() -> None:
    for target in range(100, 1_400, 90):
        view = view_of(turns(10))
        shown = applied(Window(), view, need_of(view, target))
        assert roles(shown)[:2] in (["user", "user"], ["user", "assistant"])


def test_system_text_and_pins_stay() -> None:
    context = context_of([{"role": "system", "content": "rules"}, *turns(10)])
    context.pin(6)
    shown = applied(Window(), context.view, need_of(context.view, 1))
    assert shown[0] == {"role": "system", "content": "rules"}
    assert "'id': 'c1'" in str(shown)


def test_a_turn_longer_than_the_window_leaves_its_oldest_groups() -> None:
    view = view_of(session(30, result=LINE * 12))
    shown = applied(Window(), view, need_of(view, 900))
    assert view.estimated_tokens <= 900
    assert roles(shown)[:4] == ["user", "assistant", "user", "assistant"], "the roles go on to alternate"


def test_sliding_again_at_the_same_need_changes_nothing() -> None:
    view = view_of(turns(10))
    applied(Window(), view, need_of(view, 500))
    assert folds_of(Window(), view, need_of(view, 500)) == []


def test_a_window_that_slid_does_not_slide_with_every_message() -> None:
    context = context_of(turns(10))
    reducer = Window(trigger=Trigger(messages=20))
    applied(reducer, context.view, need_of(context.view, FREE))
    for _ in range(2):
        context.extend([says("ok"), user("and?")])
        assert folds_of(reducer, context.view, need_of(context.view, FREE)) == []


@pytest.mark.parametrize("wires", [[], [user("hi")], [{"role": "system", "content": "s"}], [says("hi")]])
def test_edge_cases_leave_a_request_as_it_is(wires: list[Any]) -> None:
    view = view_of(wires)
    applied(Window(trigger=Trigger(messages=1, turns=1)), view, need_of(view, 1))
    assert view.wires()[0] == wires


def test_why_is_said_with_figures() -> None:
    view = view_of(turns(10))
    (fold,) = folds_of(Window(trigger=Trigger(messages=20)), view, need_of(view, 600))
    assert "tokens too many" in fold.reason
    assert "messages too many" in fold.reason
