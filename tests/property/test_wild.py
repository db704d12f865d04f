"""The promises on what real histories hold: provider-run tools, pauses, approvals, compactions, late results, files."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
from hypothesis import given
from hypothesis import strategies as st

from foldline.codecs.dialect import dialect_named
from foldline.engine.context import Context, Request
from foldline.engine.one_shot import check, count, fit
from foldline.errors import DoesNotFit
from foldline.testing import FakeProvider
from tests.property import wild
from tests.property.depth import dear
from tests.property.oracle import separated
from tests.property.sessions import BUILDERS, DIALECTS, POLICIES, Wire, broken, legal, sessions, text

policies = st.sampled_from(POLICIES)
windows = st.integers(200, 6_000)
PATHS = {
    "gemini": "/v1beta/models/m:generateContent",
    "openai-chat": "/v1/chat/completions",
    "openai-responses": "/v1/responses",
    "anthropic": "/v1/messages",
}


def good(messages: list[dict[str, str]], max_output_tokens: int) -> str:
    """A summariser that answers briefly."""
    return f"Goal: go on. {len(messages)} texts were read."


def requests_of(dialect: str, wires: list[Wire], policy: str, window: int, **extra: Any) -> list[Request]:
    """The requests of a session that is asked for one after each message, those that fit."""
    context = Context(dialect=dialect, policy=policy, window=window, max_output_tokens=0, **extra)
    out: list[Request] = []
    for wire in wires:
        context.append(wire)
        try:
            out.append(context.prepare(good if len(out) % 2 else None))
        except DoesNotFit as no:
            assert no.floor_tokens > no.limit
    return out


async def refusals(dialect: str, requests: list[Request]) -> list[str]:
    """What a provider with no limit of tokens says against requests."""
    server = FakeProvider("ok", window_tokens=10**9, repeat=True)
    transport = httpx.ASGITransport(server)
    async with httpx.AsyncClient(transport=transport, base_url="http://fake") as client:
        for request in requests:
            body: dict[str, Any] = {"model": "m"}
            body[dialect_named(dialect).body.messages] = request.messages
            if dialect == "anthropic":
                body["max_tokens"] = 10
                if request.system is not None:
                    body["system"] = request.system
            headers = {"content-type": "application/json", "anthropic-version": "2023-06-01"}
            await client.post(PATHS[dialect], content=json.dumps(body), headers=headers)
    return [refused.message for refused in server.refused]


@dear
@given(st.sampled_from(DIALECTS), policies, windows, st.data())
def test_what_a_provider_would_take_stays_what_it_takes(
    dialect: str, policy: str, window: int, data: st.DataObject
) -> None:
    """No half of a pair is sent without the other, in a session that held both."""
    wires = data.draw(legal(dialect, 14))
    assert check(wires, dialect=dialect) == [] and separated(wires, dialect) == []
    for request in requests_of(dialect, wires, policy, window):
        assert check(request.messages, dialect=dialect, system=request.system) == []
        assert separated(request.messages, dialect) == []


@dear
@given(st.sampled_from(DIALECTS), policies, windows, st.data())
def test_whatever_came_in_no_pair_is_separated(dialect: str, policy: str, window: int, data: st.DataObject) -> None:
    """Histories that lost a half are repaired."""
    wires = data.draw(broken(dialect, 12))
    for request in requests_of(dialect, wires, policy, window):
        assert check(request.messages, dialect=dialect, system=request.system) == []
        assert separated(request.messages, dialect) == []


@dear
@given(sessions(), policies, windows)
def test_the_fake_provider_takes_every_request(session: tuple[str, list[Wire], bool], policy: str, window: int) -> None:
    dialect, wires, _ = session
    requests = requests_of(dialect, wires, policy, window)
    assert asyncio.run(refusals(dialect, requests)) == []


@dear
@given(st.sampled_from(("openai-responses", "anthropic")), policies, windows, st.data())
def test_the_newest_compaction_of_the_provider_stays_as_it_came(
    dialect: str, policy: str, window: int, data: st.DataObject
) -> None:
    wires = [*data.draw(legal(dialect, 6)), *wild.compacted(dialect, 77, data.draw(text(30)), data.draw(text(60)))]
    newest = next(message for message in reversed(wires) if '"compaction"' in json.dumps(message))
    wires += BUILDERS[dialect].user("go on", False)
    for number in range(data.draw(st.integers(1, 8))):
        wires += BUILDERS[dialect].turn([f"z{number}"], [data.draw(text(200))], "w", None)
    at = next(number for number, wire in enumerate(wires) if wire is newest)
    for request in requests_of(dialect, wires, policy, window)[at + 1 :]:
        parts = newest["content"] if dialect == "anthropic" else [newest]
        sealed = next(part for part in parts if part["type"] == "compaction")
        assert json.dumps(sealed) in json.dumps(request.messages)


@dear
@given(st.sampled_from(DIALECTS), policies, windows, st.data())
def test_a_result_that_comes_late_is_shown(dialect: str, policy: str, window: int, data: st.DataObject) -> None:
    """The call may have been folded meanwhile, between any other turns, with any number of parallel ones."""
    names = [f"pay_{number}" for number in range(data.draw(st.integers(1, 3)))]
    build = BUILDERS[dialect]
    begun = [*data.draw(legal(dialect, 3)), *build.turn(names, [], "the invoice", None)]
    context = Context(dialect=dialect, policy=policy, window=window, max_output_tokens=0)
    for wire in [*begun, *build.user("meanwhile", False), *build.says("Yes.", None), *data.draw(legal(dialect, 8))]:
        context.append(wire)
        try:
            context.prepare()
        except DoesNotFit:
            continue
    late = data.draw(st.sampled_from(names))
    results = build.turn([late], [f"MARK-{late} paid"], "w", None)[1:]
    context.extend(results)
    try:
        request = context.prepare()
    except DoesNotFit:
        return
    assert f"MARK-{late} paid" in json.dumps(request.messages)
    assert check(request.messages, dialect=dialect, system=request.system) == []
    again = Context.replay(context.events, dialect=dialect, policy=policy, window=window, max_output_tokens=0)
    assert again.view.wires()[0] == context.view.wires()[0]


@dear
@given(policies, windows, st.data())
def test_a_paused_message_goes_back_as_it_came(policy: str, window: int, data: st.DataObject) -> None:
    """Anthropic docs, "Handling stop reasons": after pause_turn the paused message is sent back as it is, last."""
    paused = wild.paused(5, data.draw(text(60)), data.draw(text(30)))[0]
    wires = [*data.draw(legal("anthropic", 8)), *BUILDERS["anthropic"].user("search for it", False), paused]
    requests = requests_of("anthropic", wires, policy, window)
    try:
        fitted = fit(wires, max_tokens=window, dialect="anthropic", policy=policy)
    except DoesNotFit:
        return
    if fitted.messages[-1] is not paused:  # it is too large as it came: its blocks stay, with less text
        blocks = [block for block in paused["content"] if block["type"] != "text"]
        assert [block for block in fitted.messages[-1]["content"] if block["type"] != "text"] == blocks
        assert count([wires[-2], paused], dialect="anthropic") > window - 60  # a notice and a digest stand before it
        return
    assert not requests or len(requests) < len(wires) or requests[-1].messages[-1] is paused
