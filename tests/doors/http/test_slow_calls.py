"""Slow tool calls delay no other request, and no stop of the process."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import httpx
import pytest
from tests.doors.server_process import Door
from tests.serving import Served, serve

from foldline.testing import FakeProvider, FakeReply

PATTERN = r"(.{0,100}a){6}x"
SESSIONS, CALLS = 10, 5
ANSWER_SECONDS = 60.0
"""Generous: what was held up was held up for minutes."""


def hostile_text(chars: int) -> str:
    random = Random(1)
    return "".join(random.choice("ab1 c") for _ in range(chars))


def asks(body: Mapping[str, Any]) -> FakeReply:
    """A model that searches its session or the workspace, five times at once, as its user tells it."""
    received = str(body["messages"][-1]["content"])
    if received.startswith("recall"):
        return FakeReply(calls=[("recall", {"action": "grep", "pattern": f"{PATTERN}{n}"}) for n in range(CALLS)])
    if received.startswith("search"):
        return FakeReply(calls=[("search_files", {"pattern": f"{PATTERN}{n}"}) for n in range(CALLS)])
    if received.startswith("read"):
        return FakeReply(calls=[("read_file", {"path": "small.txt"})])
    return FakeReply("Done.")


@contextmanager
def slow_calls(model: Served, folder: Path) -> Iterator[Door]:
    """A server whose sessions wait for fifty calls, half of them in their own messages and half in the workspace."""
    (folder / "hostile.txt").write_text(hostile_text(3_000_000))
    (folder / "small.txt").write_text("what another session reads\n")
    made = Door(model.url, folder, str(folder / "sessions"), ("--grace-seconds", "600", "--max-body-bytes", "4194304"))
    made.start()
    try:
        for number in range(SESSIONS):
            words = f"recall {hostile_text(60_000)}" if number % 2 else "search"
            begin(made, words)
        until(lambda: len(calls_begun(made)) >= SESSIONS // 2)
        assert running(made)  # to search the workspace takes minutes of a processor
        yield made
    finally:
        made.close()


@pytest.fixture(scope="module")
def model() -> Iterator[Served]:
    with serve(FakeProvider(asks, repeat=True, window_tokens=400_000)) as served:
        yield served


@pytest.fixture
def busy(model: Served, tmp_path: Path) -> Iterator[Door]:
    with slow_calls(model, tmp_path) as made:
        yield made


def begin(made: Door, words: str) -> str:
    name = str(httpx.post(f"{made.url}/v1/sessions", json={}, timeout=ANSWER_SECONDS).json()["id"])
    path = f"{made.url}/v1/sessions/{name}/messages"
    with httpx.stream("POST", path, json={"text": words}, headers={"accept": "text/event-stream"}) as reply:
        next(reply.iter_lines())  # it has begun, and goes on without its client
    return name


def listed(made: Door) -> list[Any]:
    return list(httpx.get(f"{made.url}/v1/sessions", timeout=ANSWER_SECONDS).json()["sessions"])


def running(made: Door) -> int:
    return sum(one["state"] == "running" for one in listed(made))


def calls_begun(made: Door) -> list[str]:
    """The sessions in which the model has answered, with calls."""
    return [one["id"] for one in listed(made) if one["messages"] >= 2]


def until(done: Callable[[], bool]) -> None:
    end = time.monotonic() + 180
    while not done():
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.02)


def test_under_fifty_slow_calls_the_door_answers_and_another_session_works(busy: Door) -> None:
    for _ in range(5):
        assert httpx.get(f"{busy.url}/health", timeout=ANSWER_SECONDS).status_code == 200
        assert len(listed(busy)) == SESSIONS
    name = str(httpx.post(f"{busy.url}/v1/sessions", json={}, timeout=ANSWER_SECONDS).json()["id"])
    path = f"{busy.url}/v1/sessions/{name}/messages"
    assert httpx.post(path, json={"text": "read"}, timeout=ANSWER_SECONDS).json()["text"] == "Done."


def test_cancelled_calls_give_back_their_threads(busy: Door) -> None:
    for one in [one for one in listed(busy) if one["state"] == "running"]:
        httpx.post(f"{busy.url}/v1/sessions/{one['id']}/cancel", timeout=ANSWER_SECONDS).raise_for_status()
    until(lambda: running(busy) == 0)
    path = f"{busy.url}/v1/sessions/{listed(busy)[0]['id']}/messages"
    assert httpx.post(path, json={"text": "read"}, timeout=ANSWER_SECONDS).json()["text"] == "Done."


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_ends_the_process_though_all_workers_are_busy(busy: Door, number: signal.Signals) -> None:
    assert busy.process is not None
    busy.process.send_signal(number)
    until(lambda: "Stopping" in (busy.folder / f"serve-{busy.port}.log").read_text())
    assert busy.kill(number) == 0
