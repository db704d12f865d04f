"""Replies that end without an answer: continued, requested again, or reported as a failure; never "done"."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import pytest
from tests.agent.support import Answers, agent_over

from foldline.agent.events import AgentEvent, Notice, TurnEnded
from foldline.messages import Json
from foldline.testing import FakeProvider, FakeReply, session


def one_turn(
    fake: FakeProvider,
    *tools: Any,
    dialect: str = "openai-chat",
    before: int = 0,
    heard: list[AgentEvent] | None = None,
) -> TurnEnded:
    async def turn() -> TurnEnded:
        async with agent_over(fake, *tools, dialect=dialect, window=16_000, heard=heard) as agent:
            if before:
                agent.session.record(session(before, result="a line that was read\n" * 20, dialect=dialect))
            return await agent.run("What is in the report?")

    return asyncio.run(turn())


def test_a_paused_reply_is_sent_back_as_it_is_and_goes_on() -> None:
    # gsd-build/gsd-2#2869
    fake = FakeProvider([FakeReply(text="I will search", finish_reason="pause_turn")] * 3 + ["The whole answer."])
    ended = one_turn(fake, dialect="anthropic")
    assert (ended.reason, ended.text) == ("done", "The whole answer.")
    assert [request.body["messages"][-1]["role"] for request in fake.requests] == ["user", *["assistant"] * 3]
    assert not fake.refusals


def test_a_pause_without_end_ends_with_the_limit_of_calls() -> None:
    fake = FakeProvider([FakeReply(text="I will search", finish_reason="pause_turn")], repeat=True)
    ended = one_turn(fake, dialect="anthropic")
    assert ended.reason == "iterations"
    assert ended.iterations == 50


@pytest.mark.parametrize("dialect", ["anthropic", "openai-chat"])
@pytest.mark.parametrize(
    "finish_reason",
    ["MALFORMED_FUNCTION_CALL", "unexpected_tool_call", "tool_calls", "network_error", "abort", "unheard_of"],
)
def test_a_reply_that_was_thrown_away_is_asked_for_again(dialect: str, finish_reason: str) -> None:
    # langchain-ai/langgraph#6574
    heard: list[AgentEvent] = []
    fake = FakeProvider([FakeReply(text="", finish_reason=finish_reason), "The whole answer."])
    ended = one_turn(fake, dialect=dialect, heard=heard)
    assert (ended.reason, ended.text) == ("done", "The whole answer.")
    assert fake.requests[0].body["messages"] == fake.requests[1].body["messages"]
    assert any(isinstance(event, Notice) and "asked again" in event.text for event in heard)


@pytest.mark.parametrize("finish_reason", ["MALFORMED_FUNCTION_CALL", "network_error", "tool_calls"])
def test_asking_again_ends_and_is_told_as_a_failure(finish_reason: str) -> None:
    fake = FakeProvider([FakeReply(text="", finish_reason=finish_reason)], repeat=True)
    ended = one_turn(fake)
    assert ended.reason == "failed"
    assert ended.message
    assert len(fake.requests) == 3


def test_calls_of_a_reply_that_was_thrown_away_are_never_run() -> None:
    ran: list[object] = []

    def look(arguments: Mapping[str, Json]) -> str:
        ran.append(arguments)
        return "seen"

    tool = Answers(look)
    fake = FakeProvider(
        [FakeReply(calls=(("look", {"what": "x"}),), finish_reason="MALFORMED_FUNCTION_CALL")] * 3 + ["Fine."]
    )

    async def turns() -> list[TurnEnded]:
        async with agent_over(fake, tool) as agent:
            return [await agent.run("Look."), await agent.run("Go on.")]

    first, second = asyncio.run(turns())
    assert (first.reason, second.reason, second.text) == ("failed", "done", "Fine.")
    assert ran == []
    assert not fake.refusals


@pytest.mark.parametrize(
    "finish_reason",
    [
        "network_error",
        "insufficient_system_resource",
        "abort",
        "repetition",
        "unheard_of",
        "tool_calls",  # the words before calls that the server lost are no answer
        "function_call",
    ],
)
def test_words_that_broke_off_are_kept_and_told_as_a_failure(finish_reason: str) -> None:
    fake = FakeProvider([FakeReply(text="The report says that the", finish_reason=finish_reason), "Fine."])
    ended = one_turn(fake)
    assert (ended.reason, ended.text) == ("failed", "The report says that the")
    assert ended.message
    assert len(fake.requests) == 1


@pytest.mark.parametrize("finish_reason", ["sensitive", "content_filter", "RECITATION", "safety"])
def test_a_filter_is_told_as_a_refusal(finish_reason: str) -> None:
    ended = one_turn(FakeProvider([FakeReply(text="The report", finish_reason=finish_reason)]))
    assert (ended.reason, ended.message) == ("refusal", "The model refused to answer.")


@pytest.mark.parametrize("dialect", ["anthropic", "openai-chat"])
def test_a_full_window_is_told_folded_and_asked_again(dialect: str) -> None:
    # turnstonelabs/turnstone#1162
    heard: list[AgentEvent] = []
    cut = FakeReply(text="The report says that the", finish_reason="model_context_window_exceeded")
    fake = FakeProvider([cut, "The whole answer."])
    ended = one_turn(fake, dialect=dialect, before=30, heard=heard)
    assert (ended.reason, ended.text) == ("done", "The whole answer.")
    first, second = (len(json.dumps(request.body["messages"])) for request in fake.requests)
    assert second < 0.8 * first
    assert "The report says that the" not in json.dumps(fake.requests[1].body)
    assert any(isinstance(event, Notice) and "context window is full" in event.text for event in heard)


def test_a_full_window_with_nothing_to_fold_is_a_failure_that_keeps_the_words() -> None:
    cut = FakeReply(text="The report says that the", finish_reason="model_context_window_exceeded")
    ended = one_turn(FakeProvider([cut], repeat=True))
    assert (ended.reason, ended.text) == ("failed", "The report says that the")
    assert "context window" in ended.message
