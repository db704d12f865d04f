from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from foldline.cli.main import cli, stream_encoding
from foldline.errors import DoesNotFit, FoldlineError, InvalidInput, MissingExtra, SummaryError

LIST = json.dumps([{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}]).encode()


def invoke(*arguments: str, stdin: bytes | None = None) -> Result:
    return CliRunner().invoke(cli, arguments, input=stdin)


def process(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "foldline.cli.main", *arguments]


def test_the_version_is_that_of_the_package() -> None:
    result = invoke("--version")
    assert result.exit_code == 0
    assert result.stdout.startswith("foldline, version ")


def test_the_package_runs_as_the_command() -> None:
    command = [sys.executable, "-m", "foldline", "--version"]
    assert subprocess.run(command, capture_output=True, check=True).stdout.startswith(b"foldline, version ")


@pytest.mark.parametrize("command", sorted(cli.commands))
def test_the_help_of_each_command_fits_a_terminal_of_80_columns(command: str) -> None:
    lines = invoke(command, "--help").stdout.splitlines()
    assert lines[0].startswith(f"Usage: foldline {command}")
    assert max(map(len, lines)) <= 80


def test_help_lists_the_commands() -> None:
    for flag in ("--help", "-h"):
        result = invoke(flag)
        assert result.exit_code == 0
        assert all(name in result.stdout for name in ("fit", "check", "count", "replay", "models"))


# Runs the command as if no other distribution offered commands: this environment has one.
ALONE = """
import importlib.metadata, sys
found = importlib.metadata.entry_points
none = importlib.metadata.EntryPoints()
importlib.metadata.entry_points = lambda **group: none if group.get("group") == "foldline.commands" else found(**group)
from foldline.cli.main import main
main()
"""


@pytest.mark.parametrize("command", ["bench", "tune"])
@pytest.mark.parametrize("arguments", [[], ["--help"], ["a", "--json", "b"]], ids=["bare", "help", "options"])
def test_without_foldline_bench_one_line_says_how_to_install_it(command: str, arguments: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", ALONE, command, *arguments], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        f"foldline: `foldline {command}` needs the package foldline-bench: "
        "pip install foldline-bench (from a checkout: pip install ./bench)\n"
    )


def test_without_foldline_bench_the_help_says_where_its_commands_come_from() -> None:
    done = subprocess.run([sys.executable, "-c", ALONE, "--help"], capture_output=True, text=True, check=True)
    lines = {line.split()[0]: line for line in done.stdout.splitlines() if line.startswith("  ") and line.split()}
    assert "foldline-bench" in lines["bench"]
    assert "foldline-bench" in lines["tune"]


# Runs the command as if only what `foldline` itself depends on was installed.
BARE = """
import sys
sys.modules.update(dict.fromkeys(("aiohttp", "apscheduler", "platformdirs", "pydantic", "telegram", "yaml")))
from foldline.cli.main import main
main()
"""


@pytest.mark.parametrize(
    ("arguments", "extra"),
    [
        (["chat"], "chat"),
        (["serve"], "serve"),
        (["proxy", "--upstream", "http://127.0.0.1:9"], "proxy"),
        (["telegram"], "telegram"),
        (["schedule", "run"], "schedule"),
        (["schedule", "list"], "schedule"),
    ],
)
def test_a_command_names_its_own_extra_and_not_one_that_is_a_part_of_it(arguments: list[str], extra: str) -> None:
    done = subprocess.run([sys.executable, "-c", BARE, *arguments], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    package = f"'foldline[{extra}]'"
    other_ways = f"(uv: uvx {package} {arguments[0]}; pipx: pipx install --force {package})"
    assert done.stderr.endswith(f" needs an extra: pip install {package} {other_ways}\n")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("platform", "is_terminal", "environ", "encoding"),
    [
        ("win32", False, {}, "utf-8"),
        ("win32", True, {}, None),
        ("win32", False, {"PYTHONIOENCODING": "cp850"}, None),
        ("linux", False, {}, None),
        ("darwin", False, {}, None),
    ],
)
def test_results_in_a_file_are_utf_8_on_windows_too_unless_the_user_says_otherwise(
    platform: str, is_terminal: bool, environ: dict[str, str], encoding: str | None
) -> None:
    assert stream_encoding(platform, is_terminal, environ) == encoding


def test_no_command_shows_the_help() -> None:
    result = invoke()
    assert result.exit_code == 2
    assert "Commands:" in result.stderr


BAD_FILES: dict[str, tuple[bytes, str]] = {
    "not-json.json": (
        b'[{"role": "user",\n "content": hi}]',
        "not-json.json: line 2 column 13: not JSON: expecting value",
    ),
    "number.json": (b"42", "number.json: not a message list: a number"),
    "object.json": (b'{"rows": []}', 'object.json: not a message list: "messages" is missing'),
    "text.json": (b'["hi"]', "text.json: message 0: not a message: text"),
    "empty.json": (b"", "empty.json: is empty"),
    "none.json": (b"[]", "none.json: holds an empty list, no messages"),
    "cut.json.gz": (gzip.compress(LIST, mtime=0)[:-6], "cut.json.gz: the gzip data is cut off after"),
    "latin.json": (b'[{"role": "user", "content": "\xe9"}]', "latin.json: byte 30: not UTF-8 text"),
    "lines.jsonl": (
        b'{"role": "user", "content": "a"}\n{"role": 1}',
        'lines.jsonl: line 2: "role" is a number, not text',
    ),
}


READ_IN_PART = ("cut.json.gz", "latin.json", "lines.jsonl")
"""Of these a replay reads what is whole."""


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (command, name)
        for command in (("count",), ("check",), ("fit", "--max-tokens", "500"), ("replay",))
        for name in BAD_FILES
        if command != ("replay",) or name not in READ_IN_PART
    ],
)
def test_bad_files_are_refused_in_one_line_with_file_and_place(
    tmp_path: Path, command: tuple[str, ...], name: str
) -> None:
    data, said = BAD_FILES[name]
    path = tmp_path / name
    path.write_bytes(data)
    page = tmp_path / "page.html"
    result = invoke(*command, str(path), *(["--html", str(page)] if command == ("replay",) else []))
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.startswith(f"foldline: {tmp_path}{os.sep}{said}")
    assert result.stderr.count("\n") == 1
    assert not page.exists()


@pytest.mark.parametrize("name", READ_IN_PART)
def test_a_replay_names_what_it_leaves_out_of_a_damaged_file(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(BAD_FILES[name][0])
    result = invoke("replay", str(path))
    assert result.exit_code == 0
    assert f"left out: {path}: " in result.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["count", "none/such.json"], "foldline: none/such.json: no such file or directory"),
        (["count", "."], "foldline: .: is a directory"),
        (["count"], "foldline count: missing argument 'FILE' (see 'foldline count --help')"),
        (["fit", "x.json"], "foldline fit: missing option '--max-tokens'"),
        (
            ["fit", "x.json", "--max-tokens", "-5"],
            "foldline fit: invalid value for '--max-tokens': -5 is not in the range",
        ),
        (["fit", "x.json", "--max-tokens", "many"], "foldline fit: invalid value for '--max-tokens': 'many' is not"),
        (
            ["fit", "x.json", "--max-tokens", "5", "--policy", "best"],
            "foldline fit: invalid value for '--policy': 'best' is not one of 'autopilot', ",
        ),
        (
            ["count", "x.json", "--dialect", "cohere"],
            "foldline count: invalid value for '--dialect': 'cohere' is not one of 'openai-chat', 'openai-responses', ",
        ),
        (["replay", "x.json", "--policy", "a,b"], "foldline: policy: unknown policy 'a'; known are none, autopilot, "),
        (["replay", "x.json", "--policy", ","], "foldline: policy: none given; known are none, autopilot, "),
        (
            ["replay", "x.json", "--window", "-1"],
            "foldline replay: invalid value for '--window': '-1' is not a size such as 16000 or 16k",
        ),
        (
            ["replay", "x.json", "--prices", "acme"],
            "foldline replay: invalid value for '--prices': 'acme' is not one of",
        ),
        (
            ["replay", "x.json", "--window", "10", "--max-output-tokens", "10"],
            "foldline replay: --max-output-tokens 10 leaves no room in --window 10",
        ),
        (["replay", "x.json", "--html", "no/page.html"], "foldline: no: there is no such folder to write to"),
        (["replay", "x.json", "--html", "."], "foldline: .: is a directory"),
        (["replay"], "foldline replay: missing argument 'FILES...'"),
        (["fold"], "foldline: no such command 'fold'"),
        (["--loud"], "foldline: no such option '--loud'"),
    ],
)
def test_bad_usage_is_one_line_and_exit_code_two(
    arguments: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.json").write_bytes(LIST)
    result = invoke(*arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.startswith(said), result.stderr
    assert result.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == [tmp_path / "x.json"]


def raising(error: Exception) -> Callable[[], None]:
    def command() -> None:
        raise error

    return command


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (InvalidInput("is odd", place="x.json"), 2),
        (MissingExtra("exact", "counting"), 2),
        (DoesNotFit(10, 5, ()), 1),
        (SummaryError("no text"), 1),
        (FoldlineError("something"), 1),
        (OSError("the disk is gone"), 2),
    ],
)
def test_each_error_has_its_exit_code_and_one_line(error: Exception, code: int) -> None:
    group = type(cli)(name="foldline", commands={"go": click.Command("go", callback=raising(error))})
    result = CliRunner().invoke(group, ["go"])
    assert result.exit_code == code
    before = "cannot read or write: " if isinstance(error, OSError) else ""
    assert result.stderr == f"foldline: {before}{error}\n"


def test_a_bug_stays_visible() -> None:
    group = type(cli)(name="foldline", commands={"go": click.Command("go", callback=raising(RuntimeError("bug")))})
    result = CliRunner().invoke(group, ["go"])
    assert isinstance(result.exception, RuntimeError)


def test_ctrl_c_ends_with_130() -> None:
    def command() -> None:
        raise KeyboardInterrupt

    group = type(cli)(name="foldline", commands={"go": click.Command("go", callback=command)})
    assert CliRunner().invoke(group, ["go"]).exit_code == 130


# ------------------------------------------------------------------ as processes


@pytest.mark.parametrize("name", ["not-json.json", "cut.json.gz"])
def test_a_process_refuses_a_bad_file_in_one_line(tmp_path: Path, name: str) -> None:
    data, said = BAD_FILES[name]
    (tmp_path / name).write_bytes(data)
    done = subprocess.run(process("count", name), cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"foldline: {said}")
    assert done.stderr.count("\n") == 1


def test_a_process_reads_standard_input() -> None:
    done = subprocess.run(process("count", "-"), input=gzip.compress(LIST, mtime=0), capture_output=True, check=True)
    assert int(done.stdout) > 0
    done = subprocess.run(process("count", "-"), input=b"[", capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr.startswith(b"foldline: standard input: line 1 column 2: not JSON")


def test_a_reader_that_stops_is_no_fault(tmp_path: Path) -> None:
    path = tmp_path / "long.json"
    path.write_text(json.dumps([{"role": "user", "content": "words " * 50_000}]))
    with subprocess.Popen(
        process("fit", str(path), "--max-tokens", "10000000"), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        running.stdout.read(10)
        running.stdout.close()
        said = running.stderr.read().decode()
        assert running.wait() == 141
    assert "Traceback" not in said
    assert "BrokenPipe" not in said


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="a full device of Linux")
@pytest.mark.parametrize("arguments", [("models",), ("models", "--json"), ("--help",)])
def test_a_full_output_is_one_line(arguments: tuple[str, ...]) -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(process(*arguments), stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line == "foldline: cannot read or write: No space left on device"


@pytest.mark.skipif(os.name == "nt", reason="a shell of POSIX")
def test_a_closed_output_is_refused_before_anything_is_done() -> None:
    closed = ["sh", "-c", '"$@" >&-', "sh", *process("models")]
    done = subprocess.run(closed, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (2, "foldline: standard output is closed: there is nowhere to write to\n")


@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
def test_ctrl_c_in_the_middle_of_a_replay_is_clean(tmp_path: Path) -> None:
    words = "some words that are said and said again " * 20
    talk = [{"role": role, "content": f"{n} {words}"} for n in range(1_000) for role in ("user", "assistant")]
    path, page = tmp_path / "talk.json", tmp_path / "page.html"
    path.write_text(json.dumps(talk))
    arguments = process("replay", str(path), "--policy", "all", "--window", "4000", "--html", str(page))
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        assert running.stderr is not None
        assert "replaying" in running.stderr.readline()
        running.send_signal(signal.SIGINT)
        out, said = running.communicate()
    assert running.returncode == 130
    assert out == ""
    assert "Traceback" not in said
    assert list(tmp_path.iterdir()) == [path]
