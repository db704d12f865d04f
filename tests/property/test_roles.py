"""Roles stay in turn: what we write ourselves never breaks the alternation that chat templates want."""

from __future__ import annotations

from contextlib import suppress
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foldline.codecs.openai_chat.roles import role_faults
from foldline.engine.context import Context
from foldline.engine.one_shot import check, fit
from foldline.errors import DoesNotFit, SummaryError
from tests.property.depth import dear
from tests.property.sessions import POLICIES

Wire = dict[str, Any]


def text(seed: int, words: int) -> str:
    return " ".join(f"word{(seed * 31 + n * 7919) % 9973}" for n in range(words))


def loop(number: int, size: int) -> list[Wire]:
    """A call and its result, in a chat."""
    call = {"id": f"c{number}", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    return [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": f"c{number}", "content": text(number, size)},
    ]


@st.composite
def alternating(draw: st.DrawFn) -> list[Wire]:
    """A chat with roles in turn: perhaps system text, then turns of the user, each with calls or without."""
    out: list[Wire] = [{"role": "system", "content": "Be brief."}] if draw(st.booleans()) else []
    turns = draw(st.lists(st.tuples(st.integers(0, 6), st.integers(5, 80)), min_size=1, max_size=14))
    for number, (calls, size) in enumerate(turns):
        out.append({"role": "user", "content": f"question {number} {text(number, size)}"})
        for step in range(calls):
            out += loop(number * 10 + step, size)
        out.append({"role": "assistant", "content": f"answer {number} {text(number + 500, size)}"})
    stop = draw(st.integers(0, 2))
    out += [{"role": "user", "content": "last"}][: stop > 0] + (loop(999, 30) if stop > 1 else [])
    return out


def good(messages: list[dict[str, str]], max_output_tokens: int) -> str:
    return f"Goal: go on. {len(messages)} texts were read."


@dear
@given(alternating(), st.sampled_from(POLICIES), st.integers(150, 4_000), st.booleans())
def test_a_history_whose_roles_alternate_is_sent_so_under_every_policy(
    wires: list[Wire], policy: str, window: int, asking: bool
) -> None:
    context = Context(policy=policy, window=window, max_output_tokens=0)
    for number, wire in enumerate(wires):
        context.append(wire)
        waits = "tool_calls" in wire  # nobody asks the model then
        if not waits and (number % 4 == 3 or number == len(wires) - 1):
            try:
                request = context.prepare(good if asking else None)
            except DoesNotFit:
                continue
            assert list(role_faults(request.messages)) == []
            assert not request.repairs


@dear
@given(alternating(), st.sampled_from(POLICIES), st.booleans(), st.integers(0, 30))
def test_a_compaction_keeps_the_roles_in_turn_and_so_does_what_comes_after(
    wires: list[Wire], policy: str, asking: bool, pinned: int
) -> None:
    context = Context(policy=policy, window=200_000, max_output_tokens=0)
    context.extend(wires)
    if pinned < len(wires):
        context.pin(pinned)
    try:
        context.compact(summarize=good if asking else None)
    except SummaryError:
        return
    before = context.prepare().messages
    assert list(role_faults(before)) == []
    more = [{"role": "user", "content": "next"}] if wires[-1]["role"] == "assistant" else loop(77, 5)
    if wires[-1]["role"] != "user" or more[0]["role"] == "assistant":
        context.extend(more)
        after = context.prepare()
        assert list(role_faults(after.messages)) == []
        assert after.messages[: len(before)] == before, "the request before and new messages"


@dear
@given(alternating(), st.sampled_from(POLICIES), st.integers(200, 3_000))
def test_undoing_folds_leaves_the_roles_in_turn(wires: list[Wire], policy: str, window: int) -> None:
    context = Context(policy=policy, window=window, max_output_tokens=0)
    context.extend(wires)
    with suppress(DoesNotFit):
        context.prepare()
    while context.undo():
        assert list(role_faults(context.view.shown())) == []
    assert context.view.shown() == wires


def test_a_history_that_does_not_alternate_by_itself_is_left_as_it_is() -> None:
    wires = [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}, {"role": "assistant", "content": "c"}]
    assert fit(wires, max_tokens=1_000).messages == wires
    assert check(wires) == []
    assert [violation.rule for violation in check(wires, alternating=True)] == ["alternation"]


@pytest.mark.parametrize("dialect", ["openai-chat", "openai-responses", "anthropic"])
def test_between_a_notice_and_the_users_words_the_assistant_speaks_in_every_dialect(dialect: str) -> None:
    wires = [
        {"role": role, "content": f"{role} {text(number, 40)}"}
        for number in range(30)
        for role in ("user", "assistant")
    ]
    wires.append({"role": "user", "content": "last"})
    out = fit(wires, max_tokens=900, dialect=dialect, policy="sliding")
    roles = [message["role"] for message in out.messages]
    assert out.folds
    assert all(a != b for a, b in pairwise(roles))
    assert check(out.messages, dialect=dialect) == []
