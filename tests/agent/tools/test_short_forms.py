"""Large tools in a small window: short forms, loaded in full, with definitions that change rarely."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from tests.agent.test_assemble import assembled

from foldline.agent.assemble import _settle_forms
from foldline.agent.settings.model import AgentSettings, ToolSettings
from foldline.agent.tools.base import CallScope, ToolOutcome
from foldline.agent.tools.short_forms import LoadTools, ShortForms
from foldline.agent.tools.toolbox import Toolbox
from foldline.display import Room
from foldline.errors import InvalidInput
from foldline.messages import Json, ToolCall
from foldline.testing import FakeProvider, FakeReply, asks_for_summary
from foldline.tokens import ESTIMATE
from foldline.tokens.sizes import tools_tokens

LONG = "It takes the place of the thing in the mill, and says what the wheel does with it at each turn. "


@dataclass(frozen=True, slots=True)
class Large:
    """A tool of a server, with a long description and many parameters."""

    name: str
    server: str = "mill"
    size: int = 12
    description: str = field(default="")
    parameters: Mapping[str, Json] = field(default_factory=dict)

    def __post_init__(self) -> None:
        text = f"Turns the wheel named {self.name}. {LONG * (self.size // 3)}"
        properties = {f"field_{n}": {"type": "string", "description": LONG} for n in range(self.size)}
        schema = {"type": "object", "properties": properties, "required": ["field_0"], "additionalProperties": False}
        object.__setattr__(self, "description", text)
        object.__setattr__(self, "parameters", schema)

    async def run(self, arguments: Mapping[str, Json], scope: CallScope) -> ToolOutcome:
        """Say what came."""
        return ToolOutcome(f"{self.name} turned by {arguments['field_0']}. " + "The wheel went round. " * 120)


def sixty() -> list[Large]:
    return [Large(f"mill_turn_{n:02}") for n in range(60)]


def names_short(body: Mapping[str, Any]) -> set[str]:
    found = (tool["function"] for tool in body["tools"])
    return {tool["name"] for tool in found if tool["description"].endswith("[…]")}


def test_sixty_large_tools_take_a_fifth_of_the_window_at_most() -> None:
    tools = sixty()
    assert tools_tokens(Toolbox(tools).wires("openai-chat")) > 32_000
    forms = ShortForms(tools, dialect="openai-chat", counter=ESTIMATE, room_tokens=6_400)
    wires = Toolbox([*tools, LoadTools(forms, ESTIMATE)], forms).wires("openai-chat")
    assert tools_tokens(wires) < 6_400 + 200
    assert len(wires) == 61
    assert 50 < len(forms.short) < 60


def test_what_fits_stays_whole_and_nothing_is_there_to_load() -> None:
    tools = sixty()[:3]
    forms = ShortForms(tools, dialect="openai-chat", counter=ESTIMATE, room_tokens=50_000)
    wires = Toolbox([*tools, LoadTools(forms, ESTIMATE)], forms).wires("openai-chat")
    assert wires == Toolbox(tools).wires("openai-chat")


@pytest.mark.parametrize("dialect", ["openai-chat", "openai-responses", "anthropic", "gemini"])
def test_a_short_form_has_the_name_and_the_first_sentence(dialect: str) -> None:
    forms = ShortForms([Large("mill_turn")], dialect=dialect, counter=ESTIMATE, room_tokens=0)
    text = json.dumps(forms.wire("mill_turn"), ensure_ascii=False)
    assert "mill_turn" in text
    assert "Turns the wheel named mill_turn […]" in text
    assert "field_0" not in text


def test_tools_that_were_used_become_whole_at_a_fold_and_only_then() -> None:
    forms = ShortForms(sixty(), dialect="openai-chat", counter=ESTIMATE, room_tokens=6_400)
    forms.use("mill_turn_59")
    assert "mill_turn_59" in forms.short
    assert not forms.settle(folded=False)
    assert forms.settle(folded=True)
    assert "mill_turn_59" in forms.whole
    assert not forms.settle(folded=True)


def test_a_server_that_holds_the_model_to_definitions_gets_them_at_once() -> None:
    forms = ShortForms(sixty(), dialect="openai-chat", counter=ESTIMATE, room_tokens=0, at_once=True)
    forms.use("mill_turn_07", loaded=True)
    assert forms.settle(folded=False)
    assert forms.whole == {"mill_turn_07"}


def scope(window: int = 32_000) -> CallScope:
    return CallScope(room=lambda: Room(window, 0))


def load(forms: ShortForms, names: Sequence[str], window: int = 32_000) -> str:
    return asyncio.run(LoadTools(forms, ESTIMATE).run({"names": list(names)}, scope(window))).text


def test_loading_shows_whole_definitions_within_a_share_of_the_window() -> None:
    forms = ShortForms(sixty(), dialect="openai-chat", counter=ESTIMATE, room_tokens=0)
    text = load(forms, ["mill_turn_00", "mill_turn_01", "nothing"])
    assert '"field_11"' in text
    assert "there are no tools in short form with these names: nothing" in text
    many = load(forms, [f"mill_turn_{n:02}" for n in range(60)])
    assert ESTIMATE.text(many) < 0.12 * 32_000 + 800
    assert "not shown for want of room, load them by themselves: " in many


def test_a_tool_larger_than_its_share_can_still_be_loaded() -> None:
    forms = ShortForms([Large("huge", size=200)], dialect="openai-chat", counter=ESTIMATE, room_tokens=0)
    assert '"field_199"' in load(forms, ["huge"], window=8_000)


def test_unknown_names_are_refused() -> None:
    with pytest.raises(InvalidInput, match="there are no tools in short form with these names: x"):
        load(ShortForms(sixty(), dialect="openai-chat", counter=ESTIMATE, room_tokens=0), ["x"])


def test_a_call_of_a_short_tool_runs_and_a_wrong_one_brings_the_definition() -> None:
    tools = sixty()
    forms = ShortForms(tools, dialect="openai-chat", counter=ESTIMATE, room_tokens=0)
    box = Toolbox([*tools, LoadTools(forms, ESTIMATE)], forms)
    good = asyncio.run(box.run(ToolCall("c", "mill_turn_03", '{"field_0": "one"}'), scope()))
    assert good.text.startswith("mill_turn_03 turned by one.")
    wrong = asyncio.run(box.run(ToolCall("c", "mill_turn_03", '{"by": 1}'), scope()))
    assert wrong.is_error
    assert "mill_turn_03 was not run: " in wrong.text
    assert 'Its parameters: {"type": "object"' in wrong.text


def loads_then_calls(body: Mapping[str, Any]) -> FakeReply | str:
    """A model that loads a tool, calls it three times, and goes on to the next."""
    messages = body["messages"]
    if asks_for_summary(body):
        return "The wheels were turned one after the other, each three times, and each went round."
    if messages[-1]["role"] == "user":
        number = sum(message["role"] == "user" for message in messages) % 40 + 20
        return FakeReply("I load it.", calls=(("load_tools", {"names": [f"mill_turn_{number:02}"]}),))
    last = next(m for m in reversed(messages) if m["role"] == "assistant" and m.get("tool_calls"))
    call = last["tool_calls"][-1]["function"]
    arguments = json.loads(call["arguments"])
    if call["name"] == "load_tools":
        return FakeReply("I turn it.", calls=((arguments["names"][0], {"field_0": "1"}),))
    times = int(arguments["field_0"])
    if times < 3:
        return FakeReply("Again.", calls=((call["name"], {"field_0": str(times + 1)}),))
    return "It was turned."


def test_sixty_large_tools_work_in_a_window_of_32_000(tmp_path: Path) -> None:
    fake = FakeProvider(loads_then_calls, window_tokens=32_000, keep=1_000)

    async def talk() -> None:
        async with assembled(fake, tmp_path, window=32_000, more_tools=sixty(), summaries=None) as agent:
            for number in range(24):
                ended = await agent.run(f"Turn wheel {number}.")
                assert ended.reason == "done", ended.message
            assert agent.toolbox.servers["mill_turn_00"] == "mill"

    asyncio.run(talk())
    assert not fake.refused
    bodies = [request.body for request in fake.requests if not asks_for_summary(request.body)]
    assert len(bodies) > 100
    assert all(len(body["tools"]) >= 61 for body in bodies)
    versions = [frozenset(names_short(body)) for body in bodies]
    changed = {at for at, (one, other) in enumerate(pairwise(versions)) if one != other}
    folded = {
        at
        for at, (one, other) in enumerate(pairwise(bodies))
        if one["messages"] != other["messages"][: len(one["messages"])]
    }
    assert changed
    assert changed <= folded
    assert len(changed) < len(bodies) / 10
    assert fake.cached_tokens > 0.6 * fake.input_tokens


def test_whole_definitions_in_the_same_window_fit_nowhere(tmp_path: Path) -> None:
    settings = AgentSettings(tools=ToolSettings(definitions="whole"))

    async def talk() -> str:
        async with assembled(FakeProvider(["Hello."]), tmp_path, settings, window=32_000, more_tools=sixty()) as agent:
            return (await agent.run("Hello")).reason

    assert asyncio.run(talk()) == "does_not_fit"


def test_a_window_that_turns_out_smaller_makes_all_tools_short(tmp_path: Path) -> None:
    fake = FakeProvider(lambda body: "Hello.", window_tokens=16_000, keep=100)

    async def talk() -> str:
        tools = [Large(f"mill_turn_{n:02}") for n in range(25)]
        async with assembled(fake, tmp_path, window=100_000, more_tools=tools) as agent:
            return (await agent.run("Hello")).reason

    assert asyncio.run(talk()) == "done"
    assert len(names_short(fake.requests[-1].body)) == 25


def test_a_tool_that_a_turn_loaded_is_whole_after_the_next_fold(tmp_path: Path) -> None:
    fake = FakeProvider(loads_then_calls, window_tokens=32_000, keep=100)

    async def talk() -> frozenset[str]:
        async with assembled(fake, tmp_path, window=32_000, more_tools=sixty()) as agent:
            await agent.run("Turn the wheel.")
            forms = agent.toolbox.forms
            assert forms is not None
            assert "mill_turn_21" in forms.short
            forms.settle(folded=True)
            return forms.whole

    assert "mill_turn_21" in asyncio.run(talk())


def test_a_session_that_is_opened_again_has_the_tools_that_it_used_whole(tmp_path: Path) -> None:
    fake = FakeProvider(loads_then_calls, window_tokens=32_000, keep=100)

    async def talk() -> None:
        async with assembled(fake, tmp_path, window=32_000, more_tools=sixty()) as agent:
            await agent.run("Turn the wheel.")
            assert agent.toolbox.forms is not None
            again = ShortForms(sixty(), dialect="openai-chat", counter=ESTIMATE, room_tokens=5_000)
            assert "mill_turn_21" in again.short
            _settle_forms(Toolbox(sixty(), again), agent.session)
            assert "mill_turn_21" in again.whole

    asyncio.run(talk())
