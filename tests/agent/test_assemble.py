"""An agent out of settings: its tools, its sub-agents, its summariser, and its log of calls."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest

from foldline.agent.assemble import Parts, assemble
from foldline.agent.events import AgentEvent, Notice, ToolFinished
from foldline.agent.loop import Agent
from foldline.agent.settings.model import AgentSettings, ModelSettings, PolicySettings, SubagentSettings, ToolSettings
from foldline.agent.tools.base import PermissionRequest
from foldline.agent.tools.workspace import Workspace
from foldline.engine.drivers import Continues
from foldline.providers.endpoint import Endpoint
from foldline.providers.http import provider_for
from foldline.store.call_log import CallLog
from foldline.store.folders import FileStore
from foldline.testing import FakeProvider, FakeReply


async def nobody(ask: PermissionRequest) -> bool:
    del ask
    return False


@asynccontextmanager
async def assembled(
    fake: FakeProvider,
    folder: Path,
    settings: AgentSettings | None = None,
    *,
    model: str = "fake-model",
    window: int = 16_000,
    heard: list[AgentEvent] | None = None,
    **more: Any,
) -> AsyncIterator[Agent]:
    """An agent in `folder`, its sessions and its log of calls in `folder`/home."""
    (folder / "work").mkdir(exist_ok=True)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=fake)) as client:
        endpoint = Endpoint(name="fake", dialect="openai-chat", base_url="http://fake/v1", model=model, api_key="k")
        with CallLog(folder / "home" / "llm_calls.sqlite") as calls:
            stored = FileStore(folder / "home" / "sessions", fsync=False).create(dialect="openai-chat", model=model)
            parts = Parts(
                settings=settings or AgentSettings(),
                provider=provider_for(endpoint, client=client),
                workspace=Workspace(folder / "work"),
                window_tokens=window,
                allowed=more.pop("allowed", nobody),
                calls=more.pop("calls", calls),
                **more,
            )
            agent = assemble(parts, tell=(heard if heard is not None else []).append, stored=stored)
            try:
                yield agent
            finally:
                agent.session.close()


@pytest.mark.parametrize("shared", [True, False])
def test_model_calls_are_written_down_in_a_thread_where_others_share_the_loop(tmp_path: Path, shared: bool) -> None:
    threads: list[threading.Thread] = []

    def clock() -> datetime:
        threads.append(threading.current_thread())
        return datetime.now(UTC)

    async def turn(log: CallLog) -> None:
        async with assembled(FakeProvider("Hi."), tmp_path, calls=log, writes_in_thread=shared) as agent:
            assert (await agent.run("Hello?")).text == "Hi."
            assert len(threads) == 1  # it is there when the turn has ended

    with CallLog(tmp_path / "calls.sqlite", clock=clock) as log:
        asyncio.run(turn(log))
    assert (threads == [threading.main_thread()]) is not shared


def by_task(body: Any) -> FakeReply | str:
    """The agent delegates; a sub-agent reads and answers; the agent repeats its answer."""
    said = [message for message in body["messages"] if message["role"] != "system"]
    last = said[-1]
    if last["role"] == "user" and last["content"].startswith("Delegate"):
        return FakeReply(calls=(("spawn_agent", {"task": "Find the secret word in notes.txt."}),))
    if last["role"] == "user" and last["content"].startswith("Find"):
        return FakeReply(calls=(("read_file", {"path": "notes.txt"}),))
    if last["role"] == "tool" and "zephyr" in last["content"] and len(said) == 3 and said[0]["content"][:4] == "Find":
        return "The word is zephyr."
    return f"It said: {last['content']}"


def test_s4_12_a_sub_agent_has_a_window_of_its_own_and_only_its_result_comes_back(tmp_path: Path) -> None:
    async def turn() -> None:
        (tmp_path / "work").mkdir()
        (tmp_path / "work" / "notes.txt").write_text("the secret word is zephyr\n" + "more\n" * 100)
        fake = FakeProvider(by_task)
        heard: list[AgentEvent] = []
        async with assembled(fake, tmp_path, heard=heard) as agent:
            ended = await agent.run("Delegate this.")
            assert ended.text == "It said: The word is zephyr."
            own = str((await agent.session.prepare()).messages)
            assert "the secret word is" not in own
            assert "The word is zephyr." in own
            child = next(request for request in fake.requests if "Find the secret" in str(request.body["messages"][1]))
            assert "Delegate" not in str(child.body["messages"])
            assert "spawn_agent" not in str(child.body["tools"])
            assert agent.session.stored is not None
            kept = agent.session.stored.agents().sessions()
            assert [one.snapshot.parent for one in kept if one.snapshot] == [agent.session.stored.id]
        assert any(isinstance(event, Notice) and event.text.startswith("agent 1: read_file") for event in heard)
        assert not fake.refusals

    asyncio.run(turn())


def test_sub_agents_are_limited_in_number(tmp_path: Path) -> None:
    async def turn() -> list[str]:
        spawn = FakeReply(calls=(("spawn_agent", {"task": "Say hi."}),))

        def script(body: Any) -> FakeReply | str:
            if "Say hi." in str(body["messages"][1]["content"]):
                return "hi"
            return spawn if len(body["messages"]) < 8 else "Done."

        heard: list[AgentEvent] = []
        settings = AgentSettings(subagents=SubagentSettings(max_number=2))
        async with assembled(FakeProvider(script), tmp_path, settings, heard=heard) as agent:
            await agent.run("Go.")
        return [event.text for event in heard if isinstance(event, ToolFinished)]

    first, second, third = asyncio.run(turn())
    assert (first, second) == ("hi", "hi")
    assert "no more are allowed" in third


def test_sub_agents_are_counted_by_the_session_whatever_the_agent_is_assembled_anew_for(tmp_path: Path) -> None:
    """As after `/policy`, `/model` and `--resume`: the limit is one of the session."""

    async def turn() -> list[str]:
        spawn = FakeReply(calls=(("spawn_agent", {"task": "Say hi."}),))

        def script(body: Any) -> FakeReply | str:
            if "Say hi." in str(body["messages"][1]["content"]):
                return "hi"
            return spawn if body["messages"][-1]["role"] == "user" else "Done."

        heard: list[AgentEvent] = []
        settings = AgentSettings(subagents=SubagentSettings(max_number=1))
        async with assembled(FakeProvider(script), tmp_path, settings, heard=heard) as agent:
            await agent.run("Go.")
            parts = Parts(
                settings=settings,
                provider=agent.provider,
                workspace=Workspace(tmp_path / "work"),
                window_tokens=16_000,
                allowed=nobody,
            )
            again = assemble(parts, tell=heard.append, session=agent.session)
            await again.run("Go on.")
        return [event.text for event in heard if isinstance(event, ToolFinished)]

    first, second = asyncio.run(turn())
    assert first == "hi"
    assert "1 agents were started in this session" in second


def test_tools_that_change_things_are_off_unless_allowed_and_asked_for_each_time(tmp_path: Path) -> None:
    asked: list[PermissionRequest] = []

    async def yes_once(ask: PermissionRequest) -> bool:
        asked.append(ask)
        return len(asked) == 1

    async def turn(settings: AgentSettings) -> list[ToolFinished]:
        write = FakeReply(calls=(("write_file", {"path": "a.txt", "content": "new"}),))
        heard: list[AgentEvent] = []
        fake = FakeProvider([write, write, "Done."])
        async with assembled(fake, tmp_path, settings, heard=heard, allowed=yes_once) as agent:
            await agent.run("Write it.")
        return [event for event in heard if isinstance(event, ToolFinished)]

    for done in asyncio.run(turn(AgentSettings())):
        assert done.is_error
        assert "write_file" in done.text
    assert asked == []
    first, second = asyncio.run(turn(AgentSettings(tools=ToolSettings(allow=frozenset({"write_file"})))))
    assert not first.is_error
    assert second.is_error
    assert (tmp_path / "work" / "a.txt").read_text() == "new"
    assert [ask.tool for ask in asked] == ["write_file", "write_file"]


def test_s0_07_every_call_of_a_turn_is_in_the_log(tmp_path: Path) -> None:
    async def turn() -> None:
        look = FakeReply(calls=(("list_files", {}),))
        async with assembled(FakeProvider([look, FakeReply(status=401)]), tmp_path) as agent:
            assert (await agent.run("What is here?")).reason == "failed"

    asyncio.run(turn())
    with sqlite3.connect(tmp_path / "home" / "llm_calls.sqlite") as database:
        query = "SELECT request_messages, prompt_tokens, completion_tokens FROM llm_calls ORDER BY id"
        rows = database.execute(query).fetchall()
    database.close()
    assert len(rows) == 2
    assert "What is here?" in rows[0][0]
    assert rows[0][1] > 0
    assert rows[0][2] > 0
    assert len(rows[1][0]) > len(rows[0][0])


@pytest.mark.parametrize(
    ("extra", "goes_on"),
    [({"temperature": 0.2}, True), ({"mcp_servers": [{"type": "url", "url": "https://x.example/mcp"}]}, False)],
)
def test_a_session_whose_requests_may_act_by_themselves_is_not_gone_on_from(
    extra: dict[str, Any], goes_on: bool, tmp_path: Path
) -> None:
    async def summarises() -> object:
        settings = AgentSettings(model=ModelSettings(extra=extra))
        async with assembled(FakeProvider("ok"), tmp_path, settings) as agent:
            return agent.summarize

    found = asyncio.run(summarises())
    assert found is not None
    assert isinstance(found, Continues) is goes_on


@pytest.mark.parametrize(
    ("point", "seconds"), [({"type": "ephemeral"}, 300), ({"type": "ephemeral", "ttl": "1h"}, 3_600)]
)
def test_a_cache_that_is_to_live_for_an_hour_is_cold_after_an_hour(
    point: dict[str, Any], seconds: int, tmp_path: Path
) -> None:
    async def cold_after(idle_seconds: float) -> bool:
        settings = AgentSettings(model=ModelSettings(extra={"cache_control": point}))
        async with assembled(FakeProvider("ok"), tmp_path, settings, model="claude-sonnet-4-5") as agent:
            return agent.session.context._engine.cached_summary.is_cold(idle_seconds)

    assert asyncio.run(cold_after(seconds))
    assert not asyncio.run(cold_after(seconds - 1))


def test_a_model_too_small_to_be_trusted_is_not_asked_for_summaries(tmp_path: Path) -> None:
    async def turn(model: str, settings: AgentSettings) -> bool:
        async with assembled(FakeProvider("ok"), tmp_path, settings, model=model) as agent:
            return agent.summarize is not None

    assert asyncio.run(turn("fake-model", AgentSettings()))
    assert not asyncio.run(turn("smollm2-135m-instruct.q4_1", AgentSettings()))
    assert not asyncio.run(turn("fake-model", AgentSettings(summaries=False)))


def test_a_file_that_fits_its_budget_is_seen_whole_under_the_default_policy(tmp_path: Path) -> None:
    """`read_file` says how to read a large file in parts: such a part must not be cut once more on its way."""
    (tmp_path / "work").mkdir()
    lines = [f"line {number}: value_{number} = {number}" for number in range(400)]
    (tmp_path / "work" / "table.txt").write_text("\n".join(lines))

    async def turn() -> str:
        read = FakeReply(calls=(("read_file", {"path": "table.txt", "start_line": 101, "end_line": 200}),))
        async with assembled(FakeProvider([read, "Done."]), tmp_path, window=16_000) as agent:
            await agent.run("Read it.")
            return str((await agent.session.prepare()).messages[-2])

    seen = asyncio.run(turn())
    assert [line for line in lines[100:200] if line not in seen] == []


def test_settings_reach_the_session(tmp_path: Path) -> None:
    async def turn() -> None:
        settings = AgentSettings(
            model=ModelSettings(max_output_tokens=123), system="Speak like a pirate.", compact_threshold=0.5
        )
        async with assembled(FakeProvider("Arr."), tmp_path, settings, window=9_000) as agent:
            await agent.run("Hello")
            request = await agent.session.prepare()
            assert (request.system, request.max_output_tokens) == ("Speak like a pirate.", 123)
            assert agent.session.context.limits.window_tokens == 9_000
            assert agent.session.context.policy.name == "confirm"
            assert agent.scope.max_context_tokens == 9_000
            assert agent.scope.current_context_tokens == agent.session.context.view.tokens

    asyncio.run(turn())


def test_what_a_summary_cost_is_in_the_log_as_such(tmp_path: Path) -> None:
    """The model itself sums up, by going on from the session: nearly all of it is read from the cache."""

    def said(body: Any) -> str:
        return "Goal: to talk. Done: much was said." if "[A checkpoint is due]" in str(body) else "word " * 900

    async def talk() -> None:
        settings = AgentSettings(policy=PolicySettings(name="sliding"))
        async with assembled(FakeProvider(said), tmp_path, settings) as agent:
            for number in range(14):
                await agent.run(f"Say something, {number}.")

    asyncio.run(talk())
    with sqlite3.connect(tmp_path / "home" / "llm_calls.sqlite") as database:
        query = "SELECT prompt_tokens, cached_tokens, estimated FROM calls JOIN lanes ON lane = lanes.id"
        rows = database.execute(f"{query} WHERE purpose = 'summary'").fetchall()
    database.close()
    assert rows
    for prompt_tokens, cached_tokens, estimated in rows:
        assert cached_tokens > 0.9 * prompt_tokens
        assert not estimated
