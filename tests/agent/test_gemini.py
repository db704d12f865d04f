"""The agent over Gemini: a tool loop, its folds, and the log of its calls."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from tests.agent.support import Answers, agent_over

from foldline.agent.tools.base import ToolOutcome
from foldline.testing import FakeProvider, FakeReply
from foldline.testing.script import Body


def test_a_long_tool_loop_stays_within_the_window(tmp_path: Path) -> None:
    steps = 0

    def answer(body: Body) -> FakeReply:
        nonlocal steps
        steps += 1
        if steps % 12 == 0:
            return FakeReply("Done.")
        return FakeReply(reasoning="hm", calls=[("look", {"what": str(steps)}), ("look", {"what": "again"})])

    def found(arguments: Any) -> ToolOutcome:
        return ToolOutcome(f"{arguments['what']}: " + "a line of the file " * 60, is_error=arguments["what"] == "30")

    async def turns() -> list[str]:
        async with agent_over(fake, Answers(found), dialect="gemini", root=tmp_path, window=4_000) as agent:
            return [(await agent.run(f"Look {turn}.")).reason for turn in range(3)]

    fake = FakeProvider(answer, window_tokens=4_000, repeat=True)
    assert asyncio.run(turns()) == ["done"] * 3
    assert not fake.refusals
    shown = str([request.body for request in fake.requests])
    assert "'error'" in shown, "a failed call says so in the words of the API"
