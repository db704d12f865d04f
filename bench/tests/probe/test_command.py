"""The command, with a fake server that answers: what it prints and writes, what it refuses, and how it ends."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event, Timer
from typing import Any

import pytest
from bench.tests.probe.support import careful_reader, write_sessions
from click.testing import CliRunner, Result
from tests.serving import serve

from foldline.cli.main import cli
from foldline.providers.endpoint import HOSTED
from foldline.testing import FakeProvider, FakeReply

PLAN = ("--budget", "1500", "--systems", "balanced", "--probe-questions", "6", "--estimate")


@pytest.fixture(autouse=True)
def no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for hosted in HOSTED:
        for name in filter(None, (hosted.variable, hosted.base_variable)):
            monkeypatch.delenv(name, raising=False)


@pytest.fixture
def sessions(tmp_path: Path) -> Path:
    return write_sessions(tmp_path / "sessions")


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ("bench", *arguments))


def probe(script: Any, sessions: Path, *arguments: str, **settings: Any) -> Result:
    with serve(FakeProvider(script, repeat=True, **settings)) as served:
        return invoke(str(sessions), "--probe", "--probe-base-url", f"{served.url}/v1", *PLAN, *arguments)


def test_a_probe_prints_a_table_and_writes_all_answers(sessions: Path, tmp_path: Path) -> None:
    file = tmp_path / "probe.json"
    done = probe(careful_reader, sessions, "--json", str(file))
    assert done.exit_code == 0, done.output
    assert "6 questions (2 needle, 2 why, 2 next) about 1 session, answered by fake-model of custom" in done.stdout
    assert "(window 128,000 tokens)" in done.stdout
    rows = [" ".join(line.split()) for line in done.stdout.splitlines()]
    assert any(row.startswith("needle: full 2 1.00 0.34–1.00 0.25") for row in rows)
    assert any(row.startswith("needle: blind 2 0.00 0.00–0.66 0.25 -1.00 -1.00 to ") for row in rows)
    assert any(row.startswith("all: balanced 1,500 6 ") for row in rows)
    assert "fake-model by custom: as set; parts of the sessions are sent to it" in done.stderr
    result = json.loads(file.read_text("utf-8"))
    assert (result["schema"], result["partial"], result["seed"]) == (1, False, 1)
    assert len(result["questions"]) == 6
    assert [len(run["answers"]) for run in result["runs"]] == [6, 6, 6]
    assert result["judge"]["model"] == "fake-model"
    answers = [answer for run in result["runs"] for answer in run["answers"]]
    names = ("input_tokens", "cached_tokens", "output_tokens")
    read, cached, written = (sum(answer[name] for answer in answers) for name in names)
    assert f"used: {read:,} input tokens, {cached:,} of them from a cache, and {written} output tokens" in done.stdout
    assert read > cached > written > 0


def test_two_probes_ask_the_same(sessions: Path, tmp_path: Path) -> None:
    asked = []
    for name in ("a.json", "b.json"):
        assert probe("A", sessions, "--json", str(tmp_path / name)).exit_code == 0
        asked.append(json.loads((tmp_path / name).read_text("utf-8")))
    assert asked[0]["questions"] == asked[1]["questions"]
    assert asked[0]["runs"] == asked[1]["runs"]


def test_the_cost_is_printed_and_nothing_is_sent(sessions: Path, tmp_path: Path) -> None:
    file = tmp_path / "bill.json"
    options = ("--probe-cost", "--probe-model", "claude-sonnet-4-5", "--json", str(file))
    done = invoke(str(sessions), *options, *PLAN)
    assert done.exit_code == 0, done.output
    assert "to be answered by claude-sonnet-4-5 (window 200,000 tokens)" in done.stdout
    bill = json.loads(file.read_text("utf-8"))["bill"]
    assert f"18 requests: {bill['input_tokens']:,} input tokens" in done.stdout
    assert bill["high_usd"] > bill["low_usd"] > 0
    assert "without a cache and with every reply at its limit" in done.stdout


def test_the_cost_for_a_model_that_is_not_known_is_in_tokens(sessions: Path) -> None:
    done = invoke(str(sessions), "--probe-cost", "--probe-window", "32k", *PLAN)
    assert done.exit_code == 0, done.output
    assert "18 requests: " in done.stdout
    assert "the price of the model is not known" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("--probe", "--probe-provider", "openai"), 1, "openai needs a key: set OPENAI_API_KEY"),
        (("--probe", "--probe-provider", "anthropic"), 1, "anthropic needs a key: set ANTHROPIC_API_KEY"),
        (("--probe", "--probe-provider", "gemini", "--probe-key-env", "MY_KEY"), 2, "the variable MY_KEY is not set"),
        (("--probe", "--probe-provider", "nobody"), 2, "unknown provider 'nobody'"),
        (("--probe", "--probe-base-url", "ftp://there"), 2, "must begin with http:// or https://"),
        (("--probe-cost",), 2, "--probe-model: name the model whose window and price are meant"),
        (("--probe-cost", "--probe-window", "1k"), 2, "1,500 tokens do not fit into what the model has room for"),
        (("--probe-cost", "--probe-window", "32k", "--budget", "20k"), 2, "no session has a question with 24,000"),
        (("--probe-cost", "--probe-window", "32k", "--systems", "langchain"), 2, "unknown policy 'langchain'"),
        (("--probe-questions", "4"), 2, "--probe-questions is of use with --probe only"),
        (("--probe", "--probe-questions", "0"), 2, "--probe-questions"),
        (("--probe", "--parts"), 2, "--parts is of no use with --probe"),
        (("--probe", "--html", "x.html"), 2, "--html is of no use with --probe"),
        (("--probe", "--json", "no/such/folder/x.json"), 2, "there is no such folder to write to"),
    ],
)
def test_what_cannot_be_is_said_in_one_line(
    sessions: Path, arguments: tuple[str, ...], code: int, message: str
) -> None:
    given = () if "--probe-questions" in arguments else PLAN
    done = invoke(str(sessions), *given, *arguments)
    assert (done.exit_code, done.stdout) == (code, "")
    assert message in done.stderr
    assert done.stderr.count("\n") <= 2


def test_a_key_that_is_refused_ends_the_probe_and_what_was_answered_is_kept(sessions: Path, tmp_path: Path) -> None:
    file = tmp_path / "probe.json"
    done = probe(["A", "A", FakeReply(status=401, message="the key has expired")], sessions, "--json", str(file))
    assert done.exit_code == 1
    assert "the probe was ended by an error of the provider: auth: the key has expired" in done.stderr
    result = json.loads(file.read_text("utf-8"))
    assert result["partial"]
    assert "the key has expired" in result["stopped"]
    assert sum(len(run["answers"]) for run in result["runs"]) == 2
    assert "needle: full" in done.stdout


def test_a_server_that_does_not_answer_is_an_error(sessions: Path) -> None:
    options = ("--probe", "--probe-base-url", "http://127.0.0.1:9/v1", "--probe-model", "m")
    done = invoke(str(sessions), *options, *PLAN[:4], "--probe-questions", "1", "--estimate")
    assert done.exit_code == 1
    assert "waiting 0 s: http://127.0.0.1:9/v1: cannot connect" in done.stderr
    assert (
        "the probe was ended by an error of the provider: other: http://127.0.0.1:9/v1: cannot connect" in done.stderr
    )
    assert "full: 1 failed request; the first: other: http://127.0.0.1:9/v1: cannot connect" in done.stdout


def stopping_after(answers: int, stop: Callable[[], object]) -> Iterator[FakeReply]:
    """A script whose answer after so many calls `stop`, and never comes."""
    yield from [FakeReply("A")] * answers

    async def forever(_event: int) -> None:
        stop()
        await asyncio.sleep(600)

    yield FakeReply("A", gate=forever)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize(("answers", "saved"), [(5, True), (0, False)])
def test_a_probe_that_is_stopped_keeps_what_was_answered(
    sessions: Path, tmp_path: Path, number: signal.Signals, answers: int, saved: bool
) -> None:
    file, asked = tmp_path / "probe.json", Event()
    with serve(FakeProvider(stopping_after(answers, asked.set))) as served:
        command = [sys.executable, "-m", "foldline", "bench", str(sessions), "--probe", *PLAN]
        command += ["--probe-base-url", f"{served.url}/v1", "--json", str(file)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ)
        killer = Timer(240, process.kill)
        killer.start()
        assert asked.wait(200)
        process.send_signal(number)
        out, err = process.communicate()
        killer.cancel()
    assert process.returncode == 130
    assert "Traceback" not in err
    assert file.exists() == saved
    if saved:
        result = json.loads(file.read_text("utf-8"))
        assert result["partial"]
        assert sum(len(run["answers"]) for run in result["runs"]) == answers
        assert "the figures are those of the questions answered so far" in err
        assert "all: full" in out
    else:
        assert "no question had been answered, and nothing is saved" in err
        assert out == ""
