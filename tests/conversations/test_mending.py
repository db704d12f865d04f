"""Histories that every server of a dialect refuses are repaired before the first refusal, and that is said."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.conversations.clients import Wire, body_of, run, sent_messages, turns
from tests.property.depth import dear
from tests.property.sessions import broken

from foldline.conversations.incoming_request import PlanMode
from foldline.conversations.request_plan import is_surely_refused, mended_at_once
from foldline.conversations.service import Conversations
from foldline.engine.one_shot import check
from foldline.errors import DoesNotFit, InvalidInput
from foldline.view.transcript import Repair

WIDE = 200_000
ORDER = {"user-first", "result-without-call", "call-without-result", "call-place"}
"""What Gemini says of the order of turns, calls and responses."""
ASKED: Wire = {"role": "user", "parts": [{"text": "How complex is it?"}]}


async def leaving(
    service: Conversations, wires: list[Wire], window: int = WIDE, mode: PlanMode = "fold"
) -> tuple[list[Wire], str]:
    """The contents that leave the proxy for a request, and what it says of them."""
    asked = service.incoming(body_of("gemini", wires), window, mode=mode)
    ahead = service.passes_unchanged(asked)
    hold = await service.plan(asked, sent=ahead)
    return (wires if ahead else sent_messages(hold.plan.data, "gemini")), hold.warning


def doubled(wires: list[Wire]) -> list[Wire]:
    """The history as a client has it that records each result twice, once as a content of its own."""
    out: list[Wire] = []
    for wire in wires:
        results = [part for part in wire.get("parts") or () if isinstance(part, dict) and "functionResponse" in part]
        out += [wire, {"role": "user", "parts": results}] if results else [wire]
    return out


@given(
    wires=broken("gemini"), start=st.integers(0, 8), window=st.sampled_from([2_000, 8_000, WIDE]), twice=st.booleans()
)
@dear
def test_whatever_a_client_sends_gemini_is_sent_the_user_first_and_each_call_with_its_response(
    wires: list[Wire], start: int, window: int, *, twice: bool
) -> None:
    """Request by request, from any content on as side requests do, and again as a resumed history."""
    wires = wires[min(start, len(wires) - 1) :]

    async def work(service: Conversations) -> None:
        sizes = [at for at in range(1, len(wires) + 1) if at == len(wires) or wires[at].get("role") == "model"]
        histories = [wires[:size] for size in sizes]
        histories += [doubled(history) for history in histories[-2:]] if twice else []
        for history in histories:
            try:
                sent, _ = await leaving(service, history, window)
            except (DoesNotFit, InvalidInput):
                continue
            assert sent[0].get("role") in (None, "", "user")
            assert {fault.rule for fault in check(sent, dialect="gemini")} & ORDER == set()

    run(work)


@pytest.mark.parametrize("start", range(1, 8))
def test_a_side_request_that_begins_with_a_turn_of_the_model_is_led_in(start: int) -> None:
    """Gemini CLI's router sends the last contents of a history, from any turn on that has words."""
    wires = [*turns("gemini", 3)[start:], ASKED]

    async def work(service: Conversations) -> None:
        sent, told = await leaving(service, wires)
        assert sent[0]["role"] == "user"
        assert check(sent, dialect="gemini") == []
        assert sent[-1] == ASKED
        begins = wires[0]["role"] == "user" and "text" in wires[0]["parts"][0]
        assert told == ("" if begins else f"repaired before it was sent: {rule_at(start)}")

    run(work)


def rule_at(start: int) -> str:
    """The rule of the repair: a turn of the conversation is its question, a call, the response, and the answer."""
    return {1: "user-first", 2: "orphan-result", 3: "user-first"}[start % 4]


def test_a_resumed_history_that_has_each_result_twice_is_sent_with_one() -> None:
    wires = turns("gemini", 4)

    async def work(service: Conversations) -> None:
        assert await leaving(service, wires[:-1]) == (wires[:-1], "")
        resumed = [*doubled(wires), ASKED]
        sent, told = await leaving(service, resumed)
        assert check(sent, dialect="gemini") == []
        assert told == "repaired before it was sent: orphan-result"
        again, told = await leaving(service, [*resumed, *turns("gemini", 1, mark="x")[1:3]])
        assert again[: len(sent)] == sent
        assert told == "", "it is said once"

    run(work)


@pytest.mark.parametrize("mode", ["look", "refuse"])
def test_a_proxy_that_changes_nothing_repairs_nothing(mode: PlanMode) -> None:
    wires = [*turns("gemini", 2)[1:], ASKED]

    async def work(service: Conversations) -> None:
        hold = await service.plan(service.incoming(body_of("gemini", wires), WIDE, mode=mode))
        assert hold.warning == ""

    run(work)


@pytest.mark.parametrize("dialect", ["openai-chat", "openai-responses", "anthropic"])
def test_servers_of_other_dialects_are_sent_what_the_client_sent_until_one_refuses_it(dialect: str) -> None:
    wires = turns(dialect, 2)[1:]

    async def work(service: Conversations) -> None:
        hold = await service.plan(service.incoming(body_of(dialect, wires), WIDE))
        assert (hold.plan.data, hold.warning) == (hold.plan.body.raw, "")

    run(work)
    assert not is_surely_refused(dialect, wires)
    repairs: list[Any] = [Repair(0, "user-first", ""), Repair(0, "alternation", ""), Repair(1, "alternation", "")]
    assert mended_at_once(dialect, repairs) == ("alternation",)
    assert mended_at_once("gemini", repairs) == ("user-first", "alternation")
