"""Long runs: 10,000 turns in each dialect, and a real model through twenty windows. By `make soak`; minutes each."""

from __future__ import annotations

import asyncio
import resource
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from time import process_time
from typing import Any

import httpx
import pytest
from examples.demo_agent import Score, calls_only, explore
from tests.agent.support import DIALECTS, Answers, agent_over
from tests.serving import serve

from foldline.agent.events import AgentEvent
from foldline.providers.embedded import EmbeddedServer, weights
from foldline.providers.endpoint import Endpoint
from foldline.testing import FakeProvider, FakeReply

pytestmark = pytest.mark.soak

TURNS = 10_000
TENTH = TURNS // 10


class Deaf(list[AgentEvent]):
    """Keeps nothing of what it hears."""

    def append(self, event: AgentEvent, /) -> None:
        """Forget it."""


def say(line: str) -> None:
    """Tell whoever waits how far it is."""
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


def resident_mib() -> float:
    """Memory of this process, now (Linux), or its peak."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except FileNotFoundError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return pages * resource.getpagesize() / 2**20


@pytest.mark.parametrize("dialect", DIALECTS)
def test_ten_thousand_turns_are_all_taken_in_flat_memory_at_a_flat_cost(dialect: str, tmp_path: Path) -> None:
    """Each turn is a question, a tool call, its result and an answer: 40,000 messages in a window of 8,000 tokens."""
    replies = Counter[str]()

    def script(body: Mapping[str, Any]) -> FakeReply:
        del body
        replies["all"] += 1
        number = replies["all"]
        if number % 2:
            return FakeReply(text=f"Step {number}.", calls=(("look", {"what": f"file_{number}.py"}),))
        return FakeReply(text=f"Answer number {number}: " + "some words about it " * 10)

    async def run() -> tuple[FakeProvider, list[float], list[float]]:
        fake = FakeProvider(script, window_tokens=8_000, keep=2)
        tool = Answers(lambda arguments: f"{arguments['what']}: " + "a line of the result\n" * 30)
        memory, seconds = [], []
        async with agent_over(fake, tool, dialect=dialect, window=8_000, root=tmp_path, heard=Deaf()) as agent:
            start = process_time()
            for turn in range(1, TURNS + 1):
                ended = await agent.run(f"Question {turn}: what about module number {turn}?")
                assert ended.reason == "done", ended
                if turn % TENTH == 0:
                    memory.append(resident_mib())
                    seconds.append((process_time() - start) / TENTH)
                    start = process_time()
                    line = f"{dialect} {turn:,} turns: {seconds[-1] * 1000:.1f} ms a turn, {memory[-1]:.0f} MiB"
                    say(line)
        return fake, memory, seconds

    fake, memory, seconds = asyncio.run(run())
    assert fake.served == 2 * TURNS
    assert not fake.refusals
    assert memory[-1] - memory[1] < 8, memory  # MiB over 8,000 turns: less than 1 KiB a turn
    assert min(seconds[-3:]) < 1.5 * max(seconds[1:4]), seconds


class CountingDoor:
    """Stands before a server, passes everything on, and counts what the server answered, by status."""

    def __init__(self, upstream: str) -> None:
        self.statuses = Counter[int]()
        self._upstream = upstream

    async def __call__(self, scope: Mapping[str, Any], receive: Any, send: Any) -> None:
        """Pass one request on, and its answer back as it comes."""
        if scope["type"] != "http":
            return
        body = b""
        while True:
            message = await receive()
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        headers = [(name, value) for name, value in scope["headers"] if name not in (b"host", b"content-length")]
        async with (
            httpx.AsyncClient(timeout=600) as client,
            client.stream(scope["method"], f"{self._upstream}{scope['path']}", headers=headers, content=body) as answer,
        ):
            self.statuses[answer.status_code] += 1
            kept = [(name, value) for name, value in answer.headers.raw if name.lower() == b"content-type"]
            await send({"type": "http.response.start", "status": answer.status_code, "headers": kept})
            async for piece in answer.aiter_raw():
                await send({"type": "http.response.body", "body": piece, "more_body": True})
            await send({"type": "http.response.body", "body": b""})


def test_a_real_model_reads_through_twenty_windows_without_a_refused_request(tmp_path: Path) -> None:
    """200 tool calls by schema over this repository's own files, in a window of 2,048 tokens."""
    window, calls = 2_048, 200

    async def run() -> tuple[Score, CountingDoor]:
        server = EmbeddedServer(weights(), window_tokens=window)
        score = Score(say=say)
        try:
            door = CountingDoor(await server.address())
            with serve(door) as outside:
                endpoint = Endpoint(
                    name="embedded",
                    dialect="openai-chat",
                    base_url=f"{outside.url}/v1",
                    model="smollm2-135m-instruct",
                    api_key=server.api_key,
                )
                provider = calls_only(endpoint)
                await explore(provider, score, window_tokens=window, calls=calls, seconds=7_200, sessions=tmp_path)
                await provider.aclose()
        finally:
            server.close()
        return score, door

    score, door = asyncio.run(run())
    say(f"{score.calls} calls, {score.result_tokens:,} tokens of results, {score.folds} folds, {dict(door.statuses)}")
    assert score.calls >= calls
    assert score.result_tokens >= 20 * window
    assert score.folds > 0
    assert set(door.statuses) == {200}
    assert score.refused == 0
    assert max(score.theirs) <= window
