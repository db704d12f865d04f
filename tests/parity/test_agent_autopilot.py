"""The autopilot system in the agent: what is logged, how it recovers, where it stops (S0.04, S0.05, S0.07 to S0.09)."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.agent.support import Answers
from tests.parity.agents import DIALECTS, agent_of, call, calls, results, sent

from foldline.agent.events import AgentEvent, Calling, Notice, ReplyFinished
from foldline.engine.events import FoldFinished, FoldStarted, call_line, log_line
from foldline.providers.exact import exact_counter
from foldline.testing import FakeProvider, FakeReply
from foldline.tokens import ESTIMATE

every_dialect = pytest.mark.parametrize("dialect", DIALECTS)

GROWTH = "SELECT id, LENGTH(request_messages) as bytes, created_at\nFROM llm_calls\nORDER BY created_at DESC\nLIMIT 20;"
"""The document's own query."""


def view(arguments: Mapping[str, Any]) -> str:
    """A file of 3,900 bytes, as the document's are."""
    return f"File: src/{arguments['what']}.rs\n" + "let x = 1; // a line of the file\n" * 117


def rows(folder: Path, query: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(folder / "home" / "llm_calls.sqlite")) as database:
        return database.execute(query).fetchall()


# --- S0.02, S0.04 -----------------------------------------------------------------------------------------------------


@every_dialect
def test_s0_04_every_call_and_every_compaction_has_its_line(dialect: str, tmp_path: Path) -> None:
    async def run() -> tuple[FakeProvider, list[AgentEvent]]:
        heard: list[AgentEvent] = []
        fake = FakeProvider([*(calls(f"file{number}") for number in range(16)), "Done."])
        async with agent_of(
            "policy: autopilot", fake, tmp_path, dialect=dialect, window=128_000, heard=heard, tools=[Answers(view)]
        ) as agent:
            await agent.run("Read them all.")
        return fake, heard

    fake, heard = asyncio.run(run())
    assert not fake.refusals
    calling = [event for event in heard if isinstance(event, Calling)]
    assert [event.iteration for event in calling] == list(range(1, 18))
    for event, request in zip(calling, fake.requests, strict=True):
        body = request.body.get("messages") or request.body["input"]
        shown = [message for message in body if dialect == "openai-responses" or message["role"] != "system"]
        assert event.messages == len(shown)
        assert call_line(event.messages, event.size_bytes) == (
            f"Calling AI with {event.messages} messages (~{event.size_bytes} bytes, ~{event.size_bytes // 4} tokens)"
        )
    lines = [line for event in heard if isinstance(event, FoldStarted | FoldFinished) and (line := log_line(event))]
    starts = [event for event in heard if isinstance(event, FoldStarted)]
    ends = [event for event in heard if isinstance(event, FoldFinished)]
    assert starts
    before, after = starts[0].size_bytes, ends[0].size_bytes
    assert before > 50_000 > after
    assert lines[:2] == [
        f"Context size {before} bytes exceeds limit 50000, compacting old tool results...",
        f"Context compacted: {before} bytes -> {after} bytes (saved {before - after} bytes)",
    ]
    shown = results(fake.requests[-1].body)
    assert shown[0] == "[Previously viewed: File: src/file0.rs]"
    assert shown[-6:] == [view({"what": f"file{number}"}) for number in range(10, 16)]


# --- S0.05 ------------------------------------------------------------------------------------------------------------


@every_dialect
def test_s0_05_a_refusal_for_length_keeps_three_cuts_to_1000_and_calls_again(dialect: str, tmp_path: Path) -> None:
    notice = "Context was compacted and truncated to fit token limits."

    async def run() -> tuple[FakeProvider, list[AgentEvent]]:
        heard: list[AgentEvent] = []
        fake = FakeProvider([*(calls(f"file{number}") for number in range(11)), "Done."], window_tokens=12_000)
        settings = "policy: autopilot\nmodel: {max_output_tokens: 20}"
        async with agent_of(
            settings, fake, tmp_path, dialect=dialect, window=128_000, heard=heard, tools=[Answers(view)]
        ) as agent:
            assert (await agent.run("Read them all.")).text == "Done."
        return fake, heard

    fake, heard = asyncio.run(run())
    assert [refused.kind for refused in fake.refused] == ["overflow"]
    refused_at = next(at for at, event in enumerate(heard) if isinstance(event, FoldStarted))
    assert "refused" in heard[refused_at].reason  # type: ignore[union-attr]
    number = sum(isinstance(event, Calling) for event in heard[:refused_at]) - 1  # results in the refused request
    shown = results(fake.requests[number].body)
    assert len(shown) == number
    assert shown[:-3] == [f"[Previously viewed: File: src/file{at}.rs]" for at in range(number - 3)]
    for at, text in enumerate(shown[-3:], number - 3):
        assert len(text) <= 1_000
        assert text.startswith(f"File: src/file{at}.rs\n")
    assert notice in sent(fake, number), "the model is told"
    assert [event.text for event in heard if isinstance(event, Notice)] == [notice], "and so is the user"


# --- S0.07 ------------------------------------------------------------------------------------------------------------


@every_dialect
def test_s0_07_the_calls_of_an_agent_are_in_the_table_and_the_growth_query_runs(dialect: str, tmp_path: Path) -> None:
    async def run() -> FakeProvider:
        fake = FakeProvider([calls("a"), calls("b"), "Done."])
        async with agent_of(
            "policy: autopilot", fake, tmp_path, dialect=dialect, window=128_000, logged=True, tools=[Answers(view)]
        ) as agent:
            await agent.run("Read them.")
        return fake

    fake = asyncio.run(run())
    grown = rows(tmp_path, GROWTH)
    assert len(grown) == 3
    assert [row[0] for row in sorted(grown, key=lambda row: row[0])] == [1, 2, 3]
    sizes = [row[1] for row in sorted(grown, key=lambda row: row[0])]
    assert sizes[1] > sizes[0] + 3_000
    assert sizes[2] > sizes[1] + 3_000
    columns = "request_messages, prompt_tokens, completion_tokens, created_at"
    logged = rows(tmp_path, f"SELECT {columns} FROM llm_calls ORDER BY id")
    for (messages, prompt, completion, created), request in zip(logged, fake.requests, strict=True):
        kept, body = json.loads(messages), request.body.get("messages") or request.body["input"]
        assert kept == body
        assert prompt == request.input_tokens > 0
        assert completion > 0
        assert created


def test_s0_07_calls_of_the_summariser_and_refused_calls_are_in_it_too(tmp_path: Path) -> None:
    async def run() -> FakeProvider:
        smaller = FakeProvider("It holds lines of the file.")
        fake = FakeProvider([*(calls(f"file{number}") for number in range(15)), FakeReply(status=401)])
        settings = "policy: {name: autopilot, describe: true}\nsummariser: small-model"
        async with agent_of(
            settings, fake, tmp_path, window=128_000, smaller=smaller, logged=True, tools=[Answers(view)]
        ) as agent:
            assert (await agent.run("Read them.")).reason == "failed"
        return smaller

    smaller = asyncio.run(run())
    assert smaller.served > 0
    asked = "request_messages LIKE '%what this tool result brought%'"
    (summaries,) = rows(tmp_path, f"SELECT COUNT(*) FROM llm_calls WHERE {asked}")
    assert summaries == (smaller.served,)
    assert rows(tmp_path, "SELECT COUNT(*) FROM llm_calls") == [(16 + smaller.served,)]


# --- S0.08 ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("settings", "most"), [("policy: autopilot", 50), ("session: {max_tool_iterations: 7}", 7)])
def test_s0_08_the_loop_stops_after_50_iterations_or_as_set(settings: str, most: int, tmp_path: Path) -> None:
    async def run() -> tuple[str, str, int]:
        fake = FakeProvider(calls("again"))
        async with agent_of(settings, fake, tmp_path, window=128_000, tools=[Answers(lambda _: "ok")]) as agent:
            ended = await agent.run("Go.")
            assert (await agent.run("go on")).reason == "iterations", "the session goes on"
        assert not fake.refusals
        return ended.reason, ended.message, fake.served

    reason, message, served = asyncio.run(run())
    assert (reason, served) == ("iterations", 2 * most)
    assert message == f'Stopped after {most} model calls in one turn. Say "go on" to continue from here.'


# --- S0.09 ------------------------------------------------------------------------------------------------------------


@every_dialect
def test_s0_09_a_smaller_model_says_what_old_results_brought(dialect: str, tmp_path: Path) -> None:
    async def run() -> tuple[FakeProvider, FakeProvider]:
        def describe(body: Mapping[str, Any]) -> str:
            return f"It sets x to 1 in {json.dumps(body).split('File: ')[1].split('.rs')[0]}.rs."

        smaller = FakeProvider(describe)
        fake = FakeProvider([*(calls(f"file{number}") for number in range(16)), "Done."])
        settings = "policy: {name: autopilot, describe: true}\nsummariser: {name: small-model}"
        async with agent_of(
            settings, fake, tmp_path, dialect=dialect, window=128_000, smaller=smaller, tools=[Answers(view)]
        ) as agent:
            await agent.run("Read them all.")
        return fake, smaller

    fake, smaller = asyncio.run(run())
    assert {request.body["model"] for request in smaller.requests} == {"small-model"}
    shown = results(fake.requests[-1].body)
    assert shown[0] == "[Previously viewed: It sets x to 1 in src/file0.rs.]"
    assert shown[-1] == view({"what": "file15"})
    assert not fake.refusals


def test_s0_09_important_files_are_kept_longer(tmp_path: Path) -> None:
    """README.md and pyproject.toml, read by the agent's own tool, outlast ten other files."""
    names = ["one.py", "two.py", "README.md", "three.py", "pyproject.toml", *(f"module{n}.py" for n in range(12))]

    async def run() -> list[str]:
        (tmp_path / "work").mkdir()
        for name in names:
            (tmp_path / "work" / name).write_text(f"This is {name}\n" + "a line of the file, and on\n" * 140)
        fake = FakeProvider([*(call("read_file", path=name) for name in names), "Done."])
        async with agent_of("policy: autopilot", fake, tmp_path, window=128_000) as agent:
            await agent.run("Read them all.")
        return next(shown for request in fake.requests if "[Previously" in str(shown := results(request.body)))

    shown = asyncio.run(run())
    older = shown[:-6]
    assert [text.startswith("[Previously viewed: This is ") for text in older[:5]] == [True, True, False, True, False]
    assert older[2].startswith("This is README.md\na line")
    assert older[4].startswith("This is pyproject.toml\na line")


@every_dialect
@pytest.mark.parametrize("reports", [True, False])
def test_s0_09_usage_of_streamed_replies_is_never_logged_as_0(reports: bool, dialect: str, tmp_path: Path) -> None:
    async def run() -> list[ReplyFinished]:
        heard: list[AgentEvent] = []
        fake = FakeProvider([calls("a"), "A whole sentence."], usage=reports)
        async with agent_of(
            "policy: autopilot", fake, tmp_path, dialect=dialect, heard=heard, logged=True, tools=[Answers(view)]
        ) as agent:
            await agent.run("Read it.")
        assert all(request.body.get("stream") is True for request in fake.requests)
        return [event for event in heard if isinstance(event, ReplyFinished)]

    replies = asyncio.run(run())
    for reply, (prompt, completion) in zip(
        replies, rows(tmp_path, "SELECT prompt_tokens, completion_tokens FROM llm_calls ORDER BY id"), strict=True
    ):
        assert reply.estimated is not reports
        assert (reply.prompt_tokens, reply.completion_tokens) == (prompt, completion)
        assert min(prompt, completion) > 0


@pytest.mark.parametrize(("counter", "exact"), [("exact", True), ("estimate", False)])
def test_s0_09_a_real_tokenizer_counts_where_it_is_set(counter: str, exact: bool, tmp_path: Path) -> None:
    text = "Donaudampfschifffahrtsgesellschaftskapitän und Überraschungsei, " * 20

    async def run() -> int:
        settings = f"policy: autopilot\ncounter: {counter}"
        async with agent_of(settings, FakeProvider("ok"), tmp_path, model="gpt-4o", window=128_000) as agent:
            before = agent.session.context.view.tokens
            agent.session.add_user_message(text)
            return agent.session.context.view.tokens - before

    counted = asyncio.run(run())
    own = exact_counter("gpt-4o").text(text) if exact else ESTIMATE.text(text)
    assert own <= counted <= own + 8
    assert exact_counter("gpt-4o").text(text) != ESTIMATE.text(text)
