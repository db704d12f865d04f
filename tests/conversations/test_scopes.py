"""Clients whose system text or tools change between requests: one conversation, one cached prefix."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from tests.conversations.clients import Wire, body_of, plan_request, run, sent_messages, turns

from foldline.conversations.service import Conversations
from foldline.engine.context import Request
from foldline.messages import Json


class Writer:
    """A model that writes the same summary each time, and counts its calls."""

    model = "some-model"

    def __init__(self) -> None:
        self.asked: list[str] = []

    def __call__(self, messages: list[dict[str, str]], max_output_tokens: int, /) -> str:
        self.asked.append("by itself")
        return "Goal: mend the build. Done: all files were looked into, and none was wrong."

    def as_client(self, request: Request, fields: Mapping[str, Json], /) -> str:
        self.asked.append("as client")
        return "Goal: mend the build. Done: all files were looked into, and none was wrong."


def _tools(number: int) -> list[dict[str, Any]]:
    made = {"description": "Looks around.", "parameters": {"type": "object"}}
    return [{"type": "function", "function": {"name": f"look{at}", **made}} for at in range(1 + number % 3)]


@pytest.mark.parametrize("changes", ["nothing", "system", "tools", "both"])
def test_what_stands_beside_may_change_with_each_request(changes: str) -> None:
    wires = turns("openai-chat", 16, mark="x", words=200)
    writer = Writer()
    sessions, broken, sent = list[str](), 0, list[Wire]()

    async def work(service: Conversations) -> None:
        nonlocal broken, sent
        for number in range(14):
            time = f" It is {number}:00." if changes in ("system", "both") else ""
            said = [{"role": "system", "content": f"You help.{time}"}, *wires[: 4 * number + 1]]
            tools = _tools(number if changes in ("tools", "both") else 0)
            body = body_of("openai-chat", said, tools=tools)
            hold = await plan_request(service, body, 6_000, summarize=writer, client=b"k")
            messages = sent_messages(hold.plan.data, "openai-chat")[1:]
            broken += messages[: len(sent)] != sent
            sent = messages
            sessions.append(hold.session)

    run(work)
    assert broken <= 2 and len(set(sessions[1:])) == 1  # as often as where nothing changes
    assert 1 <= len(writer.asked) <= 6
