"""An upstream that fails in every way behind the real `foldline proxy`: no crash, no mix-up, no open connection."""

from __future__ import annotations

import asyncio
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import httpx
import pytest
from tests.doors.proxy.storm import DIALECTS, FAULTS, LEFT, WINDOW, Client, Storm
from tests.doors.server_process import START_SECONDS
from tests.serving import Breaking, serve

from foldline.testing import FakeProvider

COMMAND = (sys.executable, "-m", "foldline.cli.main", "proxy")


@dataclass(slots=True)
class Connections:
    """The connections that an upstream has open."""

    open: set[int] = field(default_factory=set)
    most: int = 0
    made: int = 0

    def protocol(self) -> type[Breaking]:
        """A protocol of uvicorn that keeps count here."""
        counted = self

        class Counted(Breaking):
            def connection_made(self, transport: Any) -> None:
                super().connection_made(transport)
                counted.open.add(id(self))
                counted.made += 1
                counted.most = max(counted.most, len(counted.open))

            def connection_lost(self, exc: Exception | None) -> None:
                super().connection_lost(exc)
                counted.open.discard(id(self))

        return Counted


@dataclass(slots=True)
class Running:
    """The proxy as a process."""

    url: str
    process: subprocess.Popen[bytes]
    log: Path

    def open_files(self) -> int:
        """How many files and sockets it has open."""
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def rss_mib(self) -> float:
        """Memory it holds."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        line = next(one for one in status.splitlines() if one.startswith("VmRSS"))
        return int(line.split()[1]) / 1024


@contextmanager
def proxy(upstream: str, folder: Path, *options: str) -> Iterator[Running]:
    """`foldline proxy` over an upstream, until the end of the block; it must stop in good order."""
    log = folder / "proxy.log"
    command = [*COMMAND, "--upstream", upstream, "--port", "0", *options]
    environ = {**os.environ, "FOLDLINE_HOME": str(folder / "home")}
    with log.open("wb") as out:
        process = subprocess.Popen(command, env=environ, cwd=folder, stdout=out, stderr=out)
    try:
        until = time.monotonic() + START_SECONDS
        while (where := re.search(r"^foldline proxy: (http://.+)/$", log.read_text(), re.MULTILINE)) is None:
            assert process.poll() is None and time.monotonic() < until, log.read_text()[-3_000:]
            time.sleep(0.02)
        made = Running(where[1], process, log)
        assert _answers(made.url)
        yield made
        process.send_signal(signal.SIGTERM)
        assert process.wait(120) == 0, log.read_text()[-3_000:]
    finally:
        process.kill()
        process.wait()


def _answers(url: str) -> bool:
    try:
        return httpx.get(f"{url}/foldline/state", timeout=START_SECONDS).status_code == 200
    except httpx.HTTPError:
        return False


async def storming(url: str, storm: Storm, requests: int, at_once: int) -> tuple[Counter[str], list[str]]:
    """Conversations, so many at once, until so many requests have gone out."""
    counts, wrong, left = Counter[str](), list[str](), [requests]
    kinds = list(DIALECTS)
    timeout, connector = aiohttp.ClientTimeout(total=120), aiohttp.TCPConnector(limit=at_once)
    async with aiohttp.ClientSession(timeout=timeout, connector=connector) as session:

        async def users() -> None:
            while left[0] > 0:
                number = next(storm.names)
                dialect, streamed = kinds[number % 3], number % 4 != 3
                client = Client(url, f"c{number}", dialect, streamed, storm, counts, wrong)
                await client.run(session, left)

        await asyncio.gather(*(users() for _ in range(at_once)))
    return counts, wrong


async def resumed(url: str, numbers: Iterable[int]) -> None:
    """Conversations that are too large from their first request on, one after the other."""
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=60)) as session:
        for number in numbers:
            turns = [("user", f"Step {turn} of job {number}. " + "Look at it. " * 120) for turn in range(12)]
            messages = [message for turn in turns for message in (turn, ("assistant", "Done."))]
            said = [{"role": role, "content": text} for role, text in (*messages, ("user", "Go on."))]
            body = {"model": "fake-model", "messages": said}
            async with session.post(f"{url}{DIALECTS['openai-chat']}", json=body) as answer:
                assert answer.status == 200, await answer.text()
                assert int(answer.headers["x-foldline-folds"]) > 0


def settled(connections: Connections, seconds: float, most: int) -> bool:
    """Whether the connections go down to `most` within some time."""
    until = time.monotonic() + seconds
    while len(connections.open) > most and time.monotonic() < until:
        time.sleep(0.05)
    return len(connections.open) <= most


def weather(tmp_path: Path, requests: int, at_once: int) -> tuple[Counter[str], Storm, FakeProvider]:
    """So many requests through a proxy; all that must hold is asserted."""
    storm, connections = Storm(random.Random(requests)), Connections()
    fake = FakeProvider(storm, window_tokens=WINDOW)
    with serve(fake, http=connections.protocol()) as upstream:
        with proxy(upstream.url, tmp_path) as made:
            before, wrong = asyncio.run(storming(made.url, storm, requests // 4, at_once))
            files, size = made.open_files(), made.rss_mib()
            after, wrong_after = asyncio.run(storming(made.url, storm, requests - requests // 4, at_once))
            counts = before + after
            assert wrong + wrong_after == []
            assert storm.mixed == []
            assert made.process.poll() is None
            assert _answers(made.url)
            text = made.log.read_text()
            assert "Traceback" not in text, text[-3_000:]
            # What is left are connections that are kept for the next request, none of which is in use.
            assert settled(connections, 10, at_once)
            assert made.open_files() <= files + at_once
            print(  # noqa: T201
                f"\n{requests} requests, {connections.made} connections made, {connections.most} at most; "
                f"{files} → {made.open_files()} files, {size:.0f} → {made.rss_mib():.0f} MiB; "
                f"{storm.summaries} summaries; {dict(counts.most_common())}"
            )
        assert settled(connections, 10, 0), "connections stayed open after the proxy had ended"
    return counts, storm, fake


@pytest.mark.skipif(sys.platform != "linux", reason="open files are counted in /proc")
class TestFaults:
    def test_two_hundred_requests_over_a_failing_upstream(self, tmp_path: Path) -> None:
        counts, storm, fake = weather(tmp_path, 200, 12)
        assert set(storm.planned.values()) == {*FAULTS, LEFT}
        assert counts["recovered"] > 0
        assert counts["folded"] > 0
        assert fake.disconnected == counts[LEFT] > 0

    def test_folded_conversations_keep_no_files_open(self, tmp_path: Path) -> None:
        options = (tmp_path, "--no-summaries")
        with serve(FakeProvider(window_tokens=WINDOW)) as upstream, proxy(upstream.url, *options) as made:
            asyncio.run(resumed(made.url, range(4)))
            files = made.open_files()
            asyncio.run(resumed(made.url, range(4, 34)))
            assert made.open_files() < files + 20

    @pytest.mark.soak
    def test_ten_thousand_requests_over_a_failing_upstream(self, tmp_path: Path) -> None:
        counts, storm, fake = weather(tmp_path, 10_000, 48)
        assert set(storm.planned.values()) == {*FAULTS, LEFT}
        assert counts["recovered"] > 100
        assert counts["folded"] > 1_000
        assert fake.disconnected == counts[LEFT] > 50
