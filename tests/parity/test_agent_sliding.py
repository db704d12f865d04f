"""The sliding system in the agent, as settings give it: thresholds, what leaves first, what stays (S1.01 to S1.05)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.agent.support import Answers
from tests.parity.agents import DIALECTS, agent_of, calls, sent

from foldline.testing import FakeProvider, FakeReply
from foldline.view.transcript import Fold

every_dialect = pytest.mark.parametrize("dialect", DIALECTS)

SUMMARY = "Goal: look at the modules. So far nothing was wrong in any of them; go on with the next."


def questions(body: Mapping[str, Any]) -> FakeReply | str:
    last = (body.get("messages") or body["input"])[-1]
    return calls("a", "b") if "Question" in str(last) else "Nothing is wrong there. " * 6


def messages(body: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [m for m in body.get("messages") or body["input"] if m.get("role") != "system"]


async def talk(settings: str, folder: Path, dialect: str) -> tuple[FakeProvider, FakeProvider, list[Fold]]:
    fake, smaller = FakeProvider(questions, keep=500), FakeProvider(SUMMARY, keep=100)
    tool = Answers(lambda a: f"result {a['what']}: " + "a line of what was found. " * 10)
    settings = f"{settings}\nsummariser: small-model"
    async with agent_of(
        settings,
        fake,
        folder,
        dialect=dialect,
        window=64_000,
        smaller=smaller,
        tools=[tool],
    ) as agent:
        for number in range(20):
            assert (await agent.run(f"Question {number}")).reason == "done"
        assert agent.session.stored is not None
        folds = [event for event in agent.session.stored.events() if isinstance(event, Fold)]
    assert not fake.refusals
    return fake, smaller, folds


@every_dialect
@pytest.mark.parametrize("threshold", ["tokens: 5000", "messages: 30", "turns: 8"])
def test_s1_01_s1_02_any_threshold_makes_it_act_and_summarising_comes_first(
    threshold: str, dialect: str, tmp_path: Path
) -> None:
    fake, smaller, folds = asyncio.run(talk(f"policy: {{name: sliding, {threshold}}}", tmp_path, dialect))
    assert smaller.served > 0
    assert {request.body["model"] for request in smaller.requests} == {"small-model"}
    assert {fold.reducer for fold in folds} == {"summarize"}
    assert SUMMARY in sent(fake)
    assert "Question 0" not in sent(fake)
    assert "Question 19" in sent(fake)
    figure = int(threshold.split(": ")[1])
    for request in fake.requests:
        if threshold.startswith("messages"):
            assert len(messages(request.body)) <= figure
        if threshold.startswith("turns"):
            assert str(messages(request.body)).count("Question ") <= figure


@every_dialect
def test_s1_03_s1_04_where_nothing_can_be_summarised_the_window_slides_to_a_user_message(
    dialect: str, tmp_path: Path
) -> None:
    """With so much retained there is nothing to summarise: whole turns leave, and the system text stays."""
    settings = "policy: {name: sliding, messages: 16, retention_messages: 1000}\nsystem: You are a reviewer."
    fake, smaller, folds = asyncio.run(talk(settings, tmp_path, dialect))
    assert smaller.served == 0
    assert {fold.reducer for fold in folds} == {"window"}
    for request in fake.requests:
        shown = messages(request.body)
        assert shown[0]["role"] == "user"
        assert len(shown) <= 17
        assert "You are a reviewer." in str(request.body)
    assert "Question 19" in sent(fake)


def test_s1_05_one_turn_longer_than_its_threshold_goes_on_and_ends(tmp_path: Path) -> None:
    """Parallel calls and their results go together; the newest user message stays; nothing loops."""

    async def run() -> FakeProvider:
        fake = FakeProvider([*(calls("a", "b", "c") for _ in range(20)), "Done."], keep=100)
        settings = "policy: {name: sliding, messages: 12}\nsummariser: off"
        tool = Answers(lambda _: "found it " * 30)
        async with agent_of(settings, fake, tmp_path, window=64_000, tools=[tool]) as agent:
            assert (await agent.run("Look everywhere.")).text == "Done."
        return fake

    fake = asyncio.run(run())
    assert not fake.refusals
    assert fake.served == 21
    assert all("Look everywhere." in str(request.body) for request in fake.requests)
    assert max(len(messages(request.body)) for request in fake.requests) <= 16
