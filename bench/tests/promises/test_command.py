"""`foldline conformance` as a user meets it: targets of every kind, files, exit codes, one line for what is wrong."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from foldline.cli.main import cli
from foldline_bench.promises.command import conformance_command

FREE_PORT = "a free port"
"""Stands for one in the arguments of a test."""

ONE = ("--only", "fits,valid", "--case", "tools/openai-chat/4000")

TRIMMER = """\
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    messages = asked["messages"]
    kept = messages if len(messages) < 20 else [*messages[:2], messages[-1]]
    print(json.dumps({"messages": kept}), flush=True)
"""

TOOL = """\
import foldline

class Tool:
    def __init__(self, window):
        self.context = foldline.Context(window=window)
    def append(self, message):
        self.context.append(message)
    def prepare(self):
        return self.context.prepare().messages

def whole(messages, window):
    return messages

def slow(messages, window):
    import time
    time.sleep(1 if len(messages) > 3 else 0)
    return messages

LIST = []
"""


@pytest.fixture
def tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "tool_under_test.py").write_text(TOOL, "utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    sys.modules.pop("tool_under_test", None)
    return "tool_under_test"


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(conformance_command, arguments, standalone_mode=False)


def test_a_class_is_held_to_the_promises_and_a_badge_is_written(tool: str, tmp_path: Path) -> None:
    done = invoke(f"{tool}:Tool", *ONE, "--badge", "badge")
    assert done.return_value == 0, done.output
    assert "tool_under_test:Tool (class): 2 of 2 promises kept over 1 session and 51 requests" in done.output
    assert json.loads((tmp_path / "badge.json").read_text("utf-8"))["message"] == "2 of 2 promises"
    assert (tmp_path / "badge.svg").read_text("utf-8").startswith("<svg")


def test_a_broken_promise_is_exit_code_1_with_a_line_that_shows_it_again(tool: str) -> None:
    done = invoke(f"{tool}:whole", *ONE)
    assert done.return_value == 1
    assert "failed 1 of 1" in done.output
    assert (
        f"foldline conformance {tool}:whole --window 4000 --only fits --case tools/openai-chat/4000 --seed 0"
        in done.output
    )


def test_json_has_every_row(tool: str) -> None:
    report = json.loads(invoke(f"{tool}:whole", *ONE, "--json").stdout)
    assert (report["passed"], report["applicable"], report["kind"], report["schema"]) == (1, 2, "function", 1)
    fits, valid = report["rows"]
    assert (fits["status"], fits["first_case"], valid["status"]) == ("failed", "tools/openai-chat/4000", "passed")


def test_a_command_that_speaks_lines_of_json_is_a_target(tmp_path: Path) -> None:
    script = tmp_path / "trimmer.py"
    script.write_text(TRIMMER, "utf-8")
    done = invoke(f"run:{sys.executable} {script}", *ONE)
    assert done.return_value == 1
    assert "result-without-call" in done.output
    assert "tokens in a window" not in done.output


def test_another_interpreter_loads_a_target_with_all_that_it_has(tool: str) -> None:
    arguments = ("--only", "fits,kept,ends,long", "--case", "tools/openai-chat/4000,ends/openai-chat/4000")
    here, there = (
        json.loads(invoke("foldline", "--dialect", "openai-chat", *arguments, "--json", *more).stdout)
        for more in ((), ("--python", sys.executable))
    )
    assert here["rows"] == [
        {**row, "reproduce": row["reproduce"].replace(f" --python {sys.executable}", "")} for row in there["rows"]
    ]
    assert (there["passed"], there["applicable"]) == (3, 3)


def test_a_proxy_that_is_started_here_gets_the_upstream_of_the_suite() -> None:
    cases = "small/openai-chat/4000,small/anthropic/4000,streams/openai-chat/4000"
    done = invoke(
        "foldline:proxy", "--dialect", "openai-chat,anthropic", "--only", "fits,valid,words,streams", "--case", cases
    )
    assert done.return_value == 0, done.output
    assert "foldline:proxy (proxy): 4 of 4 promises kept" in done.output


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("no_such_module_here:f",), "no_such_module_here: cannot be imported: ModuleNotFoundError"),
        (("json:nothing",), "json: has no nothing"),
        (("json",), "json: names no target"),
        (("json:decoder",), "json:decoder: is a module, not a function or a class"),
        (("bench.tests.promises.broken:one",), "does not take (messages, window)"),
        (("bench.tests.promises.broken:Unprepared",), "the class has no method prepare"),
        (("bench.tests.promises.broken:NUMBER",), "is a int, not a function or a class"),
        (("adapter:nothing",), "adapter:nothing: there is no adapter of that name; there are "),
        (("peer:nothing/x",), "peer:nothing: there is no such peer"),
        (("peer:plain/x",), "peer:plain: has no such setting; there are: mask"),
        (("run:no-such-command-here",), "no-such-command-here: cannot be started"),
        (("run:",), "run:: names no command"),
        ((f"run:{sys.executable} -c pass",), "ended with code 0 and no answer"),
        (("http://127.0.0.1:1", "--upstream-port", FREE_PORT), "did not come through to the upstream"),
        (("http://", "--upstream-port", FREE_PORT), "is no URL of a server"),
        (("foldline", "--only", "nothing"), "--only: no such promise: nothing; there are fits"),
        (("foldline", "--case", "nothing"), "--case: no such case"),
        (("foldline", "--dialect", "morse"), "--dialect: no such dialect: morse"),
        (("foldline", "--window", "100"), "--window: 100 tokens hold no history"),
        (("foldline", "--start", "x"), "--start: starts a proxy"),
        (("foldline", "--badge", "x.png"), "--badge: ends in .json or .svg"),
        (("foldline", "--badge", "no/such/folder/x"), "no/such/folder"),
        (("foldline", "--sessions", "no-such-file.json"), "no-such-file.json"),
        (
            ("http://127.0.0.1:1", "--start", "false {nothing}", "--upstream-port", FREE_PORT),
            "--start: only {upstream}",
        ),
        (
            ("http://127.0.0.1:1", "--start", "false", "--upstream-port", FREE_PORT),
            "--start: the proxy ended with code 1",
        ),
    ],
)
def test_a_bad_target_or_setting_is_one_line_and_exit_code_2(arguments: tuple[str, ...], line: str) -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        port = str(held.getsockname()[1])
    done = CliRunner().invoke(cli, ("conformance", *(port if one == FREE_PORT else one for one in arguments)))
    assert done.exit_code == 2, done.output
    lines = [one for one in done.stderr.splitlines() if "must be http" not in one]
    assert len(lines) == 1
    assert line in lines[0]


def test_ctrl_c_prints_what_is_done(tool: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "foldline", "conformance", f"{tool}:slow", "--json", "--only", "fits"]
    path = os.pathsep.join(one for one in sys.path if one)
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": path}
    ) as process:
        assert process.stderr is not None
        assert "sessions" in process.stderr.readline()
        time.sleep(1.5)
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    report = json.loads(out)
    assert report["partial"]
    assert report["rows"][0]["status"] in {"not run", "failed"}
