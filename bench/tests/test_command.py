from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from foldline.cli.main import cli
from foldline_bench.measure.speed import session as long_session
from foldline_bench.workers.processes import worker_folder

NOBODY = ("--peers", "no such folder")


@pytest.fixture
def sessions(tmp_path: Path) -> Path:
    folder = tmp_path / "sessions"
    folder.mkdir()
    messages = [wire for wires in long_session(80) for wire in wires]
    (folder / "loop.json").write_text(json.dumps({"messages": messages, "source": "someone/SWE-agent"}), "utf-8")
    (folder / "notes.txt").write_text("not a session", "utf-8")
    return folder


def unbroken(text: str) -> str:
    """A text without its white space: where a line is broken depends on how long the path in it is."""
    return "".join(text.split())


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ("bench", *arguments))


def test_a_bench_prints_tables_and_writes_all_figures(sessions: Path, tmp_path: Path) -> None:
    file, page = tmp_path / "bench.json", tmp_path / "bench.html"
    options = ("--budget", "2k", "--systems", "balanced,*+summary", "--no-stress", "--repeat", "1", "--parts")
    done = invoke(str(sessions), *options, "--json", str(file), "--html", str(page), *NOBODY)
    assert done.exit_code == 0
    assert "budget 2,000 tokens by cl100k_base; 1 session of 1 that all finished" in done.stdout
    assert "balanced" in done.stdout
    assert "issue solving" in done.stdout
    assert "parts by source: 1 source in 1 part, none torn apart" in done.stdout
    assert "  1 session of SWE-agent" in done.stdout
    assert "left out" not in done.stdout
    assert "foldline: 2,000 tokens, none: 1 of 1 session" in done.stderr
    result = json.loads(file.read_text("utf-8"))
    assert (result["schema"], result["partial"]) == (1, False)
    assert [run["system"] for run in result["budgets"][0]["runs"]] == ["none", "balanced", "balanced+summary"]
    assert result["made"]["cores"] >= 1
    assert "balanced" in page.read_text("utf-8")
    assert "Five parts of the sessions" in page.read_text("utf-8")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--budget", "16q"), "'16q' is not a size such as 16000 or 16k"),
        (("--budget", "8k,"), "'--budget': '' is not a size"),
        (("--budget", "0"), "'0' is too small: 1 or more"),
        (("--budget", "1m"), "no session is 1.2 times 1,000,000 tokens"),
        (("--budget", "9000k"), "no session is 1.2 times 9,000,000 tokens"),
        (("--systems", "best", "--budget", "2k"), "unknown policy 'best'"),
        (("--systems", "balanced,langchain", "--budget", "2k"), "`python bench/tools/bench_peers.py langchain`"),
        (("--systems", "strands*", "--budget", "2k"), "strands is not installed"),
        (("--json", "no/such/folder/bench.json"), "there is no such folder to write to"),
        (("--repeat", "0"), "--repeat"),
        (("--time-cap", "0"), "--time-cap"),
    ],
)
def test_what_cannot_be_is_said_in_one_line(sessions: Path, arguments: tuple[str, ...], message: str) -> None:
    done = invoke(str(sessions), *NOBODY, *arguments)
    assert done.exit_code == 2
    assert message in done.stderr
    assert done.stderr.count("\n") <= 2
    assert done.stdout == ""


def test_a_folder_without_sessions_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "holds no session" in invoke(str(tmp_path)).stderr
    monkeypatch.chdir(tmp_path)
    assert "there are no examples here" in invoke().stderr


def test_a_bad_file_is_left_out_of_a_folder_and_an_error_where_it_is_named(sessions: Path, tmp_path: Path) -> None:
    (sessions / "deep").mkdir()
    bad = sessions / "deep" / "bad.json"
    bad.write_text("{", "utf-8")
    short = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yes"}]
    (sessions / "small.json").write_text(json.dumps({"messages": short}), "utf-8")
    options = ("--budget", "2k", "--systems", "none", "--no-stress", "--repeat", "1", *NOBODY)
    file = tmp_path / "bench.json"
    done = invoke(str(sessions), *options, "--json", str(file), "--html", str(tmp_path / "bench.html"))
    assert done.exit_code == 0, done.output
    assert "left out as too small: small" in done.stdout
    assert unbroken(f"{bad} left out: ") in unbroken(done.stdout)
    result = json.loads(file.read_text("utf-8"))
    assert [each["file"] for each in result["left_out"]] == [str(bad)]
    assert "Sessions left out (2)" in (tmp_path / "bench.html").read_text("utf-8")
    named = invoke(str(sessions), str(bad), *options)
    assert (named.exit_code, named.stdout) == (2, "")
    assert "bad.json" in named.stderr


def test_a_session_without_a_reply_is_left_out_of_a_folder_and_an_error_where_it_is_named(sessions: Path) -> None:
    notes = sessions / "notes.json"
    words = {"role": "user", "content": "Nobody answered this. " * 2_000}
    notes.write_text(json.dumps({"messages": [words], "source": "my notes"}), "utf-8")
    options = ("--budget", "2k", "--systems", "none", "--no-stress", "--repeat", "1", *NOBODY)
    done = invoke(str(sessions), *options)
    assert done.exit_code == 0, done.output
    left_out = f"{notes} left out: no reply is recorded in it, and so no request"
    assert unbroken(left_out) in unbroken(done.stdout)
    assert "1 session of 1 that all finished" in done.stdout
    named = invoke(str(notes), *options)
    assert (named.exit_code, named.stdout) == (2, "")
    assert "notes.json: no reply is recorded in it" in named.stderr


def peer(folder: Path, source: str) -> None:
    """Put a system of other people there: a Python, which is this one, and its module."""
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "python").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n', "utf-8")
    (folder / "bin" / "python").chmod(0o700)
    (folder / "peer.py").write_text(source, "utf-8")


def test_systems_are_named_as_a_table_shows_them(sessions: Path, tmp_path: Path) -> None:
    peer(
        tmp_path / "peers" / "mine",
        "class Mine:\n"
        "    def __init__(self, budget_tokens, count, summarise): pass\n"
        "    def prepare(self, history): pass\n"
        "    def view(self, history): return list(history)\n"
        "    def finish(self, out): return out\n"
        "NAMES = ('mine (strict, own counter)', 'mine (\"\" for null, fast)', 'mine, at once', 'mine [old]')\n"
        "SYSTEMS, PACKAGES = dict.fromkeys(NAMES, Mine), ()\n",
    )
    file = tmp_path / "bench.json"
    given = 'mine ("" for null, fast), "mine, at once" ,mine [old],mine (strict, own counter)'
    again = '"mine ("" for null, fast)",mine (s*'  # who is named twice runs once
    options = ("--budget", "2k", "--no-stress", "--repeat", "1", "--peers", str(tmp_path / "peers"))
    done = invoke(str(sessions), *options, "--systems", f"{given},{again}", "--json", str(file))
    assert done.exit_code == 0, done.output
    result = json.loads(file.read_text("utf-8"))
    assert [each["system"] for each in result["budgets"][0]["runs"]] == [
        "none",
        'mine ("" for null, fast)',
        "mine, at once",
        "mine [old]",
        "mine (strict, own counter)",
    ]


def test_a_folder_of_bad_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "bad.json").write_text("{", "utf-8")
    done = invoke(str(tmp_path), *NOBODY)
    assert done.exit_code == 2
    assert "bad.json: no session can be used, of 1; " in done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_stopped_it_ends_the_workers_and_keeps_what_was_finished(
    number: int, sessions: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "bench.json"
    peer(
        tmp_path / "peers" / "waiting",
        "import os, time\n"
        "class Waiting:\n"
        "    def __init__(self, budget_tokens, count, summarise): pass\n"
        "    def prepare(self, history): pass\n"
        "    def view(self, history):\n"
        f"        open({str(tmp_path / 'worker')!r}, 'w').write(str(os.getpid()))\n"
        f"        os.rename({str(tmp_path / 'worker')!r}, {str(tmp_path / 'worker.pid')!r})\n"
        "        time.sleep(600)\n"
        "    def finish(self, out): return out\n"
        "SYSTEMS, PACKAGES = {'waiting': Waiting}, ()\n",
    )
    command = [sys.executable, "-m", "foldline.cli.main", "bench", str(sessions), "--budget", "2k"]
    command += ["--systems", "waiting", "--peers", str(tmp_path / "peers"), "--json", str(file)]
    command += ["--no-stress", "--repeat", "1"]
    (tmp_path / "temporary").mkdir()
    surroundings = {**os.environ, "TMPDIR": str(tmp_path / "temporary")}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=surroundings)
    pid_file = tmp_path / "worker.pid"
    while not pid_file.exists() and process.poll() is None:
        time.sleep(0.01)
    worker = int(pid_file.read_text("utf-8"))
    process.send_signal(number)
    out, said = (text.decode() for text in process.communicate(timeout=120))
    assert process.returncode == (-number if number == signal.SIGKILL else 130)
    deadline = time.monotonic() + 60
    while Path(f"/proc/{worker}/cmdline").exists() and Path(f"/proc/{worker}/cmdline").read_bytes():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    kept = [] if number == signal.SIGKILL else ["bench.json"]
    assert sorted(path.name for path in tmp_path.iterdir()) == [*kept, "peers", "sessions", "temporary", "worker.pid"]
    if kept:
        result = json.loads(file.read_text("utf-8"))
        assert result["partial"]
        assert [run["system"] for each in result["budgets"] for run in each["runs"]] == ["none"]
        assert "none" in out
        assert said.splitlines()[-1].startswith("foldline: stopped; the figures are those of the systems")
    left = list((tmp_path / "temporary").iterdir())
    assert len(left) == (1 if number == signal.SIGKILL else 0)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    with worker_folder() as place:
        assert [str(path) for path in (tmp_path / "temporary").iterdir()] == [place.path]
