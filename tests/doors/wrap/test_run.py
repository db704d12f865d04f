"""A client runs behind a proxy that lives exactly as long as it does, in its own terminal."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import socket
import struct
import sys
import time
from pathlib import Path

import pytest
from tests.doors.wrap.programs import CAP, START_SECONDS, TALKING, Place, provider

from foldline.testing import FakeProvider

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals and terminals of POSIX")

WORDS = [f"part {number} of it " for number in range(14)]
# Says where its proxy is, and waits to be ended.
WAITING = """
    import os, signal, sys, time
    if "tidy" in sys.argv:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(9))
    print(os.environ["ANTHROPIC_BASE_URL"], os.getpid(), flush=True)
    time.sleep(100)
"""


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def port_of(url: str) -> int:
    found = re.search(r":(\d+)", url)
    assert found is not None
    return int(found[1])


def is_listening(port: int) -> bool:
    with socket.socket() as asking:
        return asking.connect_ex(("127.0.0.1", port)) == 0


def ends_listening(port: int) -> bool:
    until = time.monotonic() + START_SECONDS
    while is_listening(port) and time.monotonic() < until:
        time.sleep(0.02)
    return not is_listening(port)


def test_a_client_holds_many_windows_and_its_exit_code_and_output_are_its_own(place: Place) -> None:
    place.program("claude", TALKING + "    sys.exit(7)\n")
    with provider(place) as fake:
        done = place.run("claude", "--", *WORDS)
    assert (done.returncode, done.stdout) == (7, f"{2 * len(WORDS)} messages\n"), done.stderr
    assert not fake.refused
    assert fake.largest_tokens <= 4_000
    assert done.stderr.count("\n") == 2, done.stderr
    first, second = done.stderr.splitlines()
    assert first.startswith(f"foldline: {len(WORDS)} requests, ")
    given, sent = (int(text.replace(",", "")) for text in re.findall(r"([\d,]+)(?: tokens| \()", first)[-2:])
    assert re.fullmatch(r"foldline: \d+ requests were larger than the window; none refused", second)
    assert sent > 0
    assert given > 0


def test_a_conversation_that_the_client_resumes_is_sent_on_as_it_was_folded(place: Place) -> None:
    place.program("claude", TALKING)
    with provider(place) as fake:
        place.run("--quiet", "claude", "--", *WORDS)
        before = conversation_in(fake)
        place.run("--quiet", "claude", "--", "And then?")
        after = conversation_in(fake)
    assert before[-1].startswith("part 13")
    assert after[-1] == "And then?"
    assert after[: len(before)] == before


def conversation_in(fake: FakeProvider) -> list[str]:
    """The texts of the newest request of the client: not of one that asks for a summary.

    Whether they are marked for the cache is no matter of folds.
    """
    bodies = [request.body for request in fake.requests if request.body.get("max_tokens") == CAP]
    contents = (message["content"] for message in bodies[-1]["messages"])
    return [content if isinstance(content, str) else content[0]["text"] for content in contents]


def test_quiet_says_nothing(place: Place) -> None:
    place.program("claude", TALKING)
    with provider(place):
        done = place.run("claude", "--quiet", "--", "Hello.")
    assert (done.returncode, done.stderr) == (0, "")


def test_nothing_of_the_user_is_changed_and_no_file_of_the_run_is_left(place: Place) -> None:
    place.program("claude", "import sys")
    (place.home / ".claude").mkdir()
    settings = json.dumps({"env": {"ANTHROPIC_BASE_URL": "http://127.0.0.1:9"}})
    (place.home / ".claude" / "settings.json").write_text(settings, "utf-8")
    assert place.run("claude").returncode == 0
    assert (place.home / ".claude" / "settings.json").read_text("utf-8") == settings
    assert sorted(path.name for path in place.home.rglob("*")) == [".claude", "settings.json"]
    assert list((place.folder / "foldline" / "state" / "wrap").iterdir()) == []


def test_the_client_gets_a_server_that_reads_its_own_conversation(place: Place) -> None:
    place.program(
        "claude",
        TALKING
        + """
    import stat, subprocess
    config = sys.argv.pop(1).partition("=")[2]
    assert stat.S_IMODE(os.stat(config).st_mode) == 0o600
    server = json.load(open(config))["mcpServers"]["foldline"]
    pipe = subprocess.PIPE
    process = subprocess.Popen([server["command"], *server["args"]], stdin=pipe, stdout=pipe, text=True)
    def send(method, **more):
        process.stdin.write(json.dumps({"jsonrpc": "2.0", "method": method, **more}) + "\\n")
        process.stdin.flush()
    who = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
    send("initialize", id=1, params=who)
    process.stdout.readline()
    send("notifications/initialized")
    arguments = {"action": "grep", "pattern": "part 0"}
    send("tools/call", id=2, params={"name": "recall", "arguments": arguments})
    print(json.loads(process.stdout.readline())["result"]["content"][0]["text"][:200])
    process.stdin.close()
    process.wait()
""",
    )
    with provider(place):
        done = place.run("--quiet", "claude", "--mcp", "--", *WORDS)
    assert "lines of the conversation match 'part 0':\nentry 0, line 1: " in done.stdout, done.stderr


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 128 + 15), (signal.SIGINT, 128 + 2)])
def test_a_signal_to_the_wrapper_alone_reaches_the_client(place: Place, number: int, code: int) -> None:
    place.program("claude", WAITING)
    with place.start("claude") as process:
        assert process.stdout is not None
        url, _ = process.stdout.readline().split()
        process.send_signal(number)
        assert process.wait(START_SECONDS) == code
    assert ends_listening(port_of(url))


def test_a_client_that_handles_a_signal_ends_in_its_own_way(place: Place) -> None:
    place.program("claude", WAITING)
    with place.start("claude", "--", "tidy") as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        assert process.wait(START_SECONDS) == 9


def test_a_killed_client_takes_its_proxy_with_it(place: Place) -> None:
    place.program("claude", WAITING)
    with place.start("claude") as process:
        assert process.stdout is not None
        url, pid = process.stdout.readline().split()
        assert is_listening(port_of(url))
        os.kill(int(pid), signal.SIGKILL)
        assert process.wait(START_SECONDS) == 128 + 9
    assert not is_listening(port_of(url))


def test_a_killed_wrapper_leaves_no_proxy_and_its_files_are_removed_by_the_next(place: Place) -> None:
    place.program("pi", WAITING.replace("ANTHROPIC_BASE_URL", "HOME"))
    left = place.folder / "foldline" / "state" / "wrap"
    with place.start("pi") as process:
        assert process.stdout is not None
        _, pid = process.stdout.readline().split()
        (folder,) = left.iterdir()
        port = port_of((folder / "foldline.ts").read_text("utf-8"))
        assert is_listening(port)
        process.kill()
        process.wait(START_SECONDS)
        assert ends_listening(port)
        os.kill(int(pid), signal.SIGKILL)
    assert list(left.iterdir()) == [folder]
    place.program("pi", "import sys")
    assert place.run("pi").returncode == 0
    assert list(left.iterdir()) == []


def test_the_client_has_the_terminal_and_ctrl_c_reaches_it_once(place: Place) -> None:
    place.program(
        "claude",
        """
        import os, signal, sys, time
        heard = []
        signal.signal(signal.SIGINT, lambda *_: heard.append(1))
        print("size", os.get_terminal_size().columns, sys.stdin.isatty(), flush=True)
        while not heard:
            time.sleep(0.05)
        time.sleep(0.5)
        print("heard", len(heard), os.get_terminal_size().columns, flush=True)
        sys.exit(3)
        """,
    )
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(place.folder / "work")
        command = [sys.executable, "-m", "foldline", "wrap", "claude"]
        os.execve(sys.executable, command, place.environ)
    _resize(terminal, 90)
    said = _read_until(terminal, "size")
    _resize(terminal, 70)
    os.write(terminal, b"\x03")
    said += _read_until(terminal, "heard")
    _, status = os.waitpid(pid, 0)
    os.close(terminal)
    assert re.search(r"foldline: http://127\.0\.0\.1:\d+/foldline shows what is folded", said)
    assert "size 90 True" in said
    assert "heard 1 70" in said
    assert os.waitstatus_to_exitcode(status) == 3


def test_a_client_that_stops_itself_gives_the_shell_its_terminal_back(place: Place) -> None:
    place.program(
        "claude",
        """
        import os, signal, sys
        print("before", flush=True)
        os.kill(os.getpid(), signal.SIGSTOP)
        print("after", flush=True)
        """,
    )
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(place.folder / "work")
        command = [sys.executable, "-m", "foldline", "wrap", "--quiet", "claude"]
        os.execve(sys.executable, command, place.environ)
    _read_until(terminal, "before")
    _, status = os.waitpid(pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status)
    os.killpg(pid, signal.SIGCONT)  # as the shell does
    _read_until(terminal, "after")
    _, status = os.waitpid(pid, 0)
    os.close(terminal)
    assert os.waitstatus_to_exitcode(status) == 0


def _resize(terminal: int, columns: int) -> None:
    import fcntl
    import termios

    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))


def _read_until(terminal: int, word: str) -> str:
    """What is written to the terminal, up to the end of the line with this word."""
    said = ""
    while not re.search(rf"{word}[^\n]*\n", said):
        said += os.read(terminal, 4_096).decode()
    return said
