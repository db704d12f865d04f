from __future__ import annotations

import asyncio
import json
import os
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.agent.tools.support import Person, run, scope

from foldline.agent.tools.base import CONSENT_NEEDED, PermissionRequest, ToolOutcome
from foldline.agent.tools.run_command import OUTPUT_BYTES, ProcessOutput, RunCommand, environment_of, reading
from foldline.agent.tools.toolbox import Toolbox
from foldline.messages import ToolCall

# Says that it runs, ignores SIGTERM, and would go on for ever.
STUBBORN = "trap '' TERM; echo up; while :; do sleep 0.05; done"


def allowed(tool: RunCommand, person: Person | None = None, **arguments: Any) -> ToolOutcome:
    """Run a command that a person allows, unless another person is given."""
    return run(tool, scope(person or Person()), **arguments)


def is_there(pid: int) -> bool:
    """Whether a process runs; one that has ended and was not taken up by its parent does not."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    stat = Path(f"/proc/{pid}/stat")
    return not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] != "Z"


async def gone(*pids: int) -> bool:
    """Whether they have all ended; they are given a moment to."""
    for _ in range(3_000):
        if not any(map(is_there, pids)):
            return True
        await asyncio.sleep(0.01)
    return False


def tool(folder: Path, **settings: Any) -> RunCommand:
    return RunCommand(folder, **({"grace_seconds": 0.2} | settings))


def test_output_and_errors_come_in_order_with_the_exit_code(tmp_path: Path) -> None:
    outcome = allowed(tool(tmp_path), command="echo one; echo two >&2; echo three; exit 3")
    assert outcome == ToolOutcome("one\ntwo\nthree\n[exit code 3]", is_error=True)
    assert allowed(tool(tmp_path), command="printf done") == ToolOutcome("done\n[exit code 0]")
    assert allowed(tool(tmp_path), command="true") == ToolOutcome("[exit code 0]")


def test_a_person_is_asked_each_time_with_the_whole_command(tmp_path: Path) -> None:
    person = Person()
    (tmp_path / "sub").mkdir()
    allowed(tool(tmp_path), person, command="echo a\necho b")
    allowed(tool(tmp_path), person, command="pwd", cwd="sub")
    assert person.asked == [
        PermissionRequest("run_command", "echo a\\necho b"),
        PermissionRequest("run_command", "in sub: pwd"),
    ]


def test_nothing_runs_without_consent(tmp_path: Path) -> None:
    outcome = allowed(tool(tmp_path), Person(answer=False), command="touch made")
    assert outcome == ToolOutcome(CONSENT_NEEDED, is_error=True)
    assert not (tmp_path / "made").exists()


def test_it_runs_in_the_workspace_or_a_folder_of_it(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    assert allowed(tool(tmp_path), command="pwd").text.startswith(f"{tmp_path.resolve()}\n")
    assert allowed(tool(tmp_path), command="pwd", cwd="sub").text.startswith(f"{tmp_path.resolve() / 'sub'}\n")


@pytest.mark.parametrize(
    ("cwd", "expected"),
    [("..", "outside the workspace"), ("link", "outside the workspace"), ("none", "no folder"), ("file", "no folder")],
)
def test_a_folder_that_is_none_of_the_workspace_is_refused(tmp_path: Path, cwd: str, expected: str) -> None:
    (tmp_path / "link").symlink_to("/")
    (tmp_path / "file").touch()
    person = Person()
    call = ToolCall("1", "run_command", json.dumps({"command": "pwd", "cwd": cwd}))
    outcome = asyncio.run(Toolbox([tool(tmp_path)]).run(call, scope(person)))
    assert outcome.is_error
    assert expected in outcome.text
    assert person.asked == []


def test_there_is_no_input_and_no_terminal(tmp_path: Path) -> None:
    outcome = allowed(tool(tmp_path), command="cat; test -t 0 || echo none; (: < /dev/tty) 2>/dev/null || echo no tty")
    assert outcome == ToolOutcome("none\nno tty\n[exit code 0]")


def test_output_that_is_no_text_is_made_text(tmp_path: Path) -> None:
    assert allowed(tool(tmp_path), command=r"printf 'a\000b\377c\n'").text == "a\ufffdb\ufffdc\n[exit code 0]"


def test_a_flood_of_output_is_bounded_and_says_so(tmp_path: Path) -> None:
    outcome = allowed(tool(tmp_path), command="echo first; head -c 20000000 /dev/zero | tr '\\0' x; echo; echo last")
    assert outcome.text.startswith("first\nxxx")
    assert outcome.text.endswith("xxx\nlast\n[exit code 0]")
    assert "of 20,000,012 bytes are left out here" in outcome.text
    assert len(outcome.text) < OUTPUT_BYTES + 200


def test_a_command_that_ends_by_a_signal_says_which(tmp_path: Path) -> None:
    assert allowed(tool(tmp_path), command="kill -SEGV $$") == ToolOutcome("[ended by SIGSEGV]", is_error=True)


def timed_out(folder: Path, command: str, expected: str) -> tuple[ToolOutcome, float]:
    """Run a command until its time-out; with more time if a busy machine left it too little for its output."""
    for seconds in (0.5, 2.0, 8.0, 30.0):
        outcome = allowed(tool(folder), command=command, timeout_seconds=seconds)
        if expected in outcome.text:
            return outcome, seconds
    pytest.fail(f"{outcome}")


def test_a_time_out_ends_a_child_that_ignores_the_request_and_keeps_what_it_wrote(tmp_path: Path) -> None:
    outcome, seconds = timed_out(tmp_path, f"echo $$ > pid; {STUBBORN}", "up")
    expected = f"up\n[timed out after {seconds:g} seconds; the command and what it started were ended]"
    assert outcome == ToolOutcome(expected, is_error=True)
    assert asyncio.run(gone(int((tmp_path / "pid").read_text())))


def grandchildren(folder: Path) -> str:
    """A command whose child starts two grandchildren, one of which ignores SIGTERM; all write their numbers."""
    inner = f"({STUBBORN}) & echo $! >> pids; sleep 300 & echo $! >> pids; echo ready; wait"
    return f"echo $$ > pids; cd {shlex.quote(str(folder))}; bash -c {shlex.quote(inner)}; echo never"


def pids(folder: Path) -> list[int]:
    return [int(line) for line in (folder / "pids").read_text().split()]


def test_a_time_out_ends_grandchildren_too(tmp_path: Path) -> None:
    outcome, _ = timed_out(tmp_path, grandchildren(tmp_path), "ready")
    assert "timed out" in outcome.text
    assert len(pids(tmp_path)) == 3
    assert asyncio.run(gone(*pids(tmp_path)))


@pytest.mark.parametrize("again", [False, True], ids=["once", "twice"])
def test_a_cancellation_ends_all_of_the_group(tmp_path: Path, again: bool) -> None:
    async def turn() -> None:
        # Cancelled again, it does not wait for the grace; else this would take an hour.
        settings = {"grace_seconds": 3_600.0 if again else 0.2}
        running = asyncio.create_task(
            tool(tmp_path, **settings).run({"command": grandchildren(tmp_path)}, scope(Person()))
        )
        while not ((tmp_path / "pids").exists() and len(pids(tmp_path)) == 3):
            await asyncio.sleep(0.01)
        running.cancel()
        if again:
            await asyncio.sleep(0.05)
            running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert await gone(*pids(tmp_path))

    asyncio.run(turn())


def test_what_a_command_leaves_running_is_ended_and_told(tmp_path: Path) -> None:
    outcome = allowed(tool(tmp_path), command="sleep 300 > /dev/null 2>&1 & echo $! > pids; echo done")
    assert outcome == ToolOutcome("done\n[exit code 0] What it left running was ended.")
    assert asyncio.run(gone(*pids(tmp_path)))


def test_a_child_that_left_the_group_does_not_hold_up_the_answer(tmp_path: Path) -> None:
    code = 'import os; os.setsid(); open("left", "w").close(); os.execvp("sleep", ["sleep", "300"])'
    leave = f"{shlex.quote(sys.executable)} -c {shlex.quote(code)} & echo $! > pids"
    outcome = allowed(tool(tmp_path), command=f"{leave}; until [ -e left ]; do sleep 0.01; done; echo done")
    (pid,) = pids(tmp_path)
    os.kill(pid, 9)
    assert outcome.text.startswith("done\n[exit code 0]")


def test_a_command_sees_no_secret_of_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_API_KEY", "s3cret-1")
    monkeypatch.setenv("GIT_TOKEN", "s3cret-2")
    monkeypatch.setenv("NPM_TOKEN", "s3cret-3")
    monkeypatch.setenv("PLAIN", "seen")
    text = allowed(tool(tmp_path, passed=frozenset({"NPM_TOKEN"})), command="env").text
    assert "PLAIN=seen" in text
    assert "s3cret-1" not in text
    assert "s3cret-2" not in text
    assert "NPM_TOKEN=s3cret-3" in text


def test_secrets_are_known_by_name_or_as_a_password_in_an_address() -> None:
    secret = (
        "OPENAI_API_KEY ANTHROPIC_AUTH_TOKEN AWS_SECRET_ACCESS_KEY DB_PASSWORD PGPASSWORD apikey STRIPE_KEY GITHUB_PAT "
        "GOOGLE_APPLICATION_CREDENTIALS GPG_PASSPHRASE SSH_PRIVATE_KEY MY_PWD HF_TOKEN TOKEN_OF_MINE"
    )
    plain = "PATH HOME LANG PWD OLDPWD SSH_AUTH_SOCK KEYBOARD XDG_RUNTIME_DIR PATTERN MONKEYS TOKENIZERS_PARALLELISM"
    left = dict.fromkeys(plain.split(), "x") | {"HOMEPAGE": "https://example.com/a@b", "PROXY": "http://proxy:3128"}
    dropped = dict.fromkeys(secret.split(), "x") | {"DATABASE_URL": "postgres://me:s3cret@db/x"}
    assert environment_of(dropped | left) == left


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({}, "'command' is missing"),
        ({"command": ""}, "command: must not be empty"),
        ({"command": "a\0b"}, "command: must not hold a NUL character"),
        ({"command": "ls", "timeout_seconds": 0}, "timeout_seconds: must be more than 0"),
        ({"command": "ls", "timeout_seconds": 1e9}, "timeout_seconds: must be at most 3600"),
    ],
)
def test_wrong_arguments_are_named(tmp_path: Path, arguments: dict[str, Any], expected: str) -> None:
    call = ToolCall("1", "run_command", json.dumps(arguments))
    outcome = asyncio.run(Toolbox([tool(tmp_path)]).run(call, scope(Person())))
    assert outcome.is_error
    assert expected in outcome.text


def test_a_small_output_is_kept_as_it_is() -> None:
    output = ProcessOutput(100)
    for piece in (b"one\n", b"two", b"\n"):
        output.data_received(piece)
    assert output.text == "one\ntwo\n"


def test_of_a_large_output_the_ends_are_kept_with_the_figures_of_the_rest() -> None:
    output = ProcessOutput(20)
    for number in range(1_000):
        output.data_received(f"{number:04}".encode())
    assert output.text == "0000000100\n[… 3,980 of 4,000 bytes are left out here …]\n9709980999"
    assert output.total_bytes == 4_000


def test_memory_stays_bounded() -> None:
    output = ProcessOutput(1_000)
    for _ in range(10_000):
        output.data_received(b"x" * 999)
    assert len(output._head) + len(output._tail) < 5_000


@pytest.mark.parametrize("kept", range(8, 24))
def test_no_character_is_cut_in_two(kept: int) -> None:
    output = ProcessOutput(kept)
    output.data_received("aé€😀".encode() * 20)
    assert "\ufffd" not in output.text


def test_bytes_that_are_no_text_are_replaced() -> None:
    output = ProcessOutput()
    output.data_received(b"a\xffb\0c")
    assert output.text == "a\ufffdb\ufffdc"


def test_a_pipe_is_read_until_all_its_writers_have_closed() -> None:
    async def piped() -> str:
        output = ProcessOutput()
        async with reading(output) as write_end:
            with os.fdopen(write_end, "wb") as writer:
                writer.write(b"written")
            await output.ended.wait()
        return output.text

    assert asyncio.run(piped()) == "written"
