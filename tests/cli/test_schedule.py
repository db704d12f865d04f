"""The real command: listed, run at once, run by itself, stopped in order, killed in the middle of a run."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import chdir, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TextIO

import pytest
from click.testing import CliRunner, Result
from tests.doors.server_process import door
from tests.forked import Forked, run
from tests.serving import Served, serve

from foldline.cli.main import cli
from foldline.store.folders import FileStore
from foldline.testing import FakeProvider, FakeReply

YAML = """
schedule:
  yearly: {cron: "0 0 1 1 *", prompt: What is new?, deliver: [{file: out.md, mode: append}]}
  never: {cron: "0 7 * * *", prompt: What is old?, timezone: Europe/Berlin, enabled: false}
"""
LONG_AGO = "2025-06-01T00:00:00+00:00"
WAIT_SECONDS = 120


class Model:
    """Answers at once, or holds its answer back while `held`."""

    def __init__(self) -> None:
        self.held = False
        self.asked = 0
        self.gate = asyncio.Event()

    def __call__(self, body: Mapping[str, Any]) -> FakeReply:
        self.asked += 1
        return FakeReply("All is well.", gate=self.gate if self.held else None)


class Place:
    """A folder with its settings, and the command in it."""

    def __init__(self, folder: Path, served: Served, model: Model) -> None:
        self.folder, self.served, self.model = folder, served, model
        (folder / "agents.yaml").write_text(YAML)
        self.store = FileStore(folder / "sessions")

    def known_since_long_ago(self) -> None:
        """As if it had run before, and was off since."""
        self.store.save_state("schedule:yearly", {"mark": "0 0 1 1 * UTC", "since": LONG_AGO})

    def command(self, *arguments: str) -> list[str]:
        own = ["--config", "agents.yaml", "--store", str(self.folder / "sessions")]
        own += ["--base-url", f"{self.served.url}/v1", "--model", "fake-model"]
        return ["schedule", *arguments, *own]

    @property
    def environ(self) -> dict[str, str]:
        return {**os.environ, "FOLDLINE_HOME": str(self.folder / "home")}

    def done(self, *arguments: str, code: int = 0, anew: bool = False) -> subprocess.CompletedProcess[str]:
        """Run to its end, in a process of its own; with `anew` in a Python of its own."""
        if anew:
            command = [sys.executable, "-m", "foldline.cli.main", *self.command(*arguments)]
            found = subprocess.run(
                command, cwd=self.folder, env=self.environ, capture_output=True, text=True, check=False
            )
        else:
            found = run(*self.command(*arguments), cwd=self.folder, env=self.environ)
        assert found.returncode == code, found.stderr
        return found

    def told(self, *arguments: str, code: int = 0) -> Result:
        """What only reads, in this process."""
        with chdir(self.folder):
            found = CliRunner().invoke(cli, self.command(*arguments), env={"FOLDLINE_HOME": str(self.folder / "home")})
        assert found.exit_code == code, found.stderr
        return found

    def listed(self) -> dict[str, Any]:
        rows = json.loads(self.told("list", "--json").stdout)["schedule"]
        return {row["name"]: row for row in rows}

    @contextmanager
    def running(self, grace_seconds: int = 5) -> Iterator[tuple[Forked, TextIO]]:
        """`foldline schedule run`, killed at the end of the block if it still runs; and what it says."""
        command = self.command("run", "--grace-seconds", str(grace_seconds))
        outlet, inlet = os.pipe()
        process = Forked(*command, cwd=self.folder, env=self.environ, stderr=inlet)
        os.close(inlet)
        with open(outlet, encoding="utf-8") as said, process:
            yield process, said

    def until_asked(self, times: int) -> None:
        until = time.monotonic() + WAIT_SECONDS
        while self.model.asked < times:
            assert time.monotonic() < until, "the model was not asked"
            time.sleep(0.02)

    @property
    def delivered(self) -> int:
        path = self.folder / "out.md"
        return path.read_text().count("All is well.") if path.exists() else 0


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    model = Model()
    with serve(FakeProvider(model)) as served:
        yield Place(tmp_path, served, model)
        served.set(model.gate)


def lines_until(said: TextIO, words: str) -> list[str]:
    found = []
    for line in said:
        found.append(line)
        if words in line:
            return found
    raise AssertionError("".join(found))


def test_a_list_says_what_comes_and_how_it_went(place: Place) -> None:
    rows = place.listed()
    assert (rows["yearly"]["last"], rows["yearly"]["left_out"]) == (None, None)
    following = datetime.fromisoformat(rows["yearly"]["next"])
    assert following > datetime.now(UTC)
    assert (following.minute, following.second) == (0, 0)
    assert (rows["never"]["next"], rows["never"]["enabled"], rows["never"]["timezone"]) == (
        None,
        False,
        "Europe/Berlin",
    )
    told = place.done("now", "never", anew=True)
    assert "Schedule never: done in " in told.stderr
    last = place.listed()["never"]["last"]
    assert (last["reason"], last["asked"], last["failed"]) == ("done", True, [])
    table = place.told("list").stdout
    assert "never run" in table
    assert " done" in table
    assert " off " in table


def test_what_cannot_be_is_refused_before_a_model_is_asked(place: Place) -> None:
    assert "there is no entry 'nope'; known are never, yearly" in place.done("now", "nope", code=2).stderr
    (place.folder / "agents.yaml").write_text('schedule: {a: {cron: "0 7 * *", prompt: x}}')
    assert "agents.yaml: line 1: schedule.a.cron: must have five fields" in place.told("list", code=2).stderr
    (place.folder / "agents.yaml").write_text("model: fake-model")
    assert "there is no entry that is enabled" in place.done("run", code=2).stderr
    assert "there is no schedule in agents.yaml" in place.told("list").stderr
    assert place.model.asked == 0


def test_a_run_or_a_delivery_that_fails_is_in_the_exit_code_and_the_list(place: Place) -> None:
    (place.folder / "out.md").mkdir()
    assert "not delivered to file out.md: out.md: is a folder" in place.done("now", "yearly", code=1).stderr
    [failed] = place.listed()["yearly"]["last"]["failed"]
    assert failed.startswith("file out.md: ")


def test_a_missed_run_is_run_once_at_the_start_and_the_process_stops_in_order(place: Place) -> None:
    place.known_since_long_ago()
    for _ in range(2):
        with place.running() as (process, said):
            lines_until(said, "yearly: next ")
            place.until_asked(1)
            process.send_signal(signal.SIGTERM)
            assert process.wait(WAIT_SECONDS) == 0
    assert (place.model.asked, place.delivered) == (1, 1)
    assert place.listed()["yearly"]["last"]["reason"] == "done"


def test_a_stop_in_the_middle_of_a_run_pauses_it_and_says_so(place: Place) -> None:
    place.known_since_long_ago()
    place.model.held = True
    with place.running() as (process, _):
        place.until_asked(1)
        process.send_signal(signal.SIGTERM)
        assert process.wait(WAIT_SECONDS) == 0
    assert place.listed()["yearly"]["last"]["reason"] in ("paused", "cancelled")


def test_a_run_that_was_killed_is_not_run_again_and_is_listed_as_interrupted(place: Place) -> None:
    place.known_since_long_ago()
    place.model.held = True
    with place.running() as (process, said):
        place.until_asked(1)
        assert place.listed()["yearly"]["last"]["reason"] == "running"
        process.kill()
        process.wait()
    place.model.held = False
    assert place.listed()["yearly"]["last"]["reason"] == "interrupted"
    with place.running() as (process, said):
        lines_until(said, "yearly: next ")
        process.send_signal(signal.SIGTERM)
        assert process.wait(WAIT_SECONDS) == 0
    assert (place.model.asked, place.delivered) == (1, 0)
    assert place.listed()["yearly"]["last"]["reason"] == "interrupted"
    place.done("now", "yearly")
    assert place.delivered == 1, "its session goes on"


def test_a_server_runs_the_schedule_too_and_two_processes_on_one_store_run_it_once(place: Place) -> None:
    place.known_since_long_ago()
    store = str(place.folder / "sessions")
    with door(place.served.url, place.folder, store, "--config", "agents.yaml"), place.running() as (process, said):
        lines_until(said, "yearly: next ")
        place.until_asked(1)
        until = time.monotonic() + WAIT_SECONDS
        while not place.delivered:
            assert time.monotonic() < until, "nothing was delivered"
            time.sleep(0.02)
        process.send_signal(signal.SIGTERM)
        assert process.wait(WAIT_SECONDS) == 0
    assert (place.model.asked, place.delivered) == (1, 1)
    assert place.listed()["yearly"]["last"]["reason"] == "done"


def test_a_second_signal_ends_a_run_at_once(place: Place) -> None:
    place.known_since_long_ago()
    place.model.held = True
    with place.running(grace_seconds=600) as (process, said):
        place.until_asked(1)
        process.send_signal(signal.SIGTERM)
        lines_until(said, "again: at once")
        process.send_signal(signal.SIGTERM)
        assert process.wait(WAIT_SECONDS) == 0
    with place.store.open("latest") as session:
        assert not session.tally.running
