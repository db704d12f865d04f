"""The real command: started, queried, stopped gracefully and at once, killed and restarted."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import httpx
import pytest
from click.testing import CliRunner
from tests.doors.http.support import events
from tests.doors.server_process import Door
from tests.serving import Served, serve

from foldline.cli.main import cli
from foldline.store.folders import FileStore
from foldline.testing import FakeProvider, FakeReply

TOKEN = "a-token-of-some-length"


class Model:
    """A model whose answers to words with "wait" in them are held back."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()

    def __call__(self, body: Mapping[str, Any]) -> FakeReply:
        waits = "wait" in str(body["messages"][-1]["content"])
        return FakeReply("First a piece, then the rest.", gate=self.gate if waits else None, piece_chars=10)


@pytest.fixture(scope="module")
def model() -> Iterator[Served]:
    with serve(FakeProvider(Model())) as served:
        yield served


@contextmanager
def door(model: Served, folder: Path, *options: str, anew: bool = False, **environ: str) -> Iterator[Door]:
    made = Door(model.url, folder, str(folder / "sessions"), options, environ, anew)
    try:
        made.start()
        yield made
    finally:
        made.close()


def log_of(made: Door) -> str:
    return (made.folder / f"serve-{made.port}.log").read_text()


def create_session(made: Door, **headers: str) -> str:
    reply = httpx.post(f"{made.url}/v1/sessions", json={}, headers=headers)
    assert reply.status_code == 201, reply.text
    return str(reply.json()["id"])


class Turn:
    """A turn that is followed in a thread until its stream ends, however that is."""

    def __init__(self, made: Door, session: str, text: str, key: str = "") -> None:
        self.received: list[tuple[str, Any]] = []
        self.accepted = threading.Event()
        head = {"accept": "text/event-stream", **({"Idempotency-Key": key} if key else {})}
        self._ask = (f"{made.url}/v1/sessions/{session}/messages", {"text": text}, head)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        assert self.accepted.wait(120)

    def _run(self) -> None:
        path, body, head = self._ask
        try:
            with httpx.stream("POST", path, json=body, headers=head, timeout=60) as reply:
                for one in events(reply):
                    self.received.append(one)
                    self.accepted.set()
        except httpx.HTTPError:
            self.received.append(("broken", None))

    def is_answered(self) -> Self:
        """It, once the model was asked and has begun to answer: before that, a stop ends it without asking."""
        until(lambda: any(name == "text" for name, _ in self.received))
        return self

    def end(self) -> tuple[str, Any]:
        self._thread.join(60)
        return self.received[-1]


def until(done: Callable[[], bool]) -> None:
    end = time.monotonic() + 120
    while not done():
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.02)


def listens(port: int) -> bool:
    with socket.socket() as to:
        return to.connect_ex(("127.0.0.1", port)) == 0


def test_it_says_where_it_listens_and_stops_in_order(model: Served, tmp_path: Path) -> None:
    with door(model, tmp_path, anew=True) as made:
        session = create_session(made)
        reply = httpx.get(f"{made.url}/v1/sessions/{session}")
        assert "server" not in reply.headers
        assert (tmp_path / "sessions" / session).is_dir()
        assert made.kill(signal.SIGTERM) == 0
    lines = log_of(made).splitlines()
    assert lines[0] == f"foldline serve: {made.url}/"
    assert lines[1].startswith("model  fake-model ")
    assert lines[2] == f"store  {tmp_path / 'sessions'}"
    assert len(lines) == 3


def test_a_turn_pauses_within_the_grace_and_streams_get_their_last_event(model: Served, tmp_path: Path) -> None:
    with door(model, tmp_path, "--grace-seconds", "1") as made:
        session = create_session(made)
        turn = Turn(made, session, "wait").is_answered()
        with httpx.stream("GET", f"{made.url}/v1/events", timeout=60) as live:
            assert made.kill(signal.SIGTERM) == 0
            assert list(events(live))[-1][0] == "stopping"
        name, ended = turn.end()
        assert (name, ended["reason"]) == ("turn_ended", "cancelled")
        made.start()
        turns = httpx.get(f"{made.url}/v1/sessions/{session}/turns").json()["turns"]
        assert [one["reason"] for one in turns] == ["cancelled"]
    assert "Stopping; 1 running" in log_of(made)


def test_a_second_signal_stops_at_once(model: Served, tmp_path: Path) -> None:
    with door(model, tmp_path, "--grace-seconds", "600") as made:
        turn = Turn(made, create_session(made), "wait").is_answered()
        assert made.process is not None
        made.process.send_signal(signal.SIGINT)
        until(lambda: "Stopping" in log_of(made))
        assert made.kill(signal.SIGINT) == 0
        assert turn.end()[1]["reason"] == "cancelled"


def test_a_second_signal_cuts_off_a_delivery_of_the_schedule_too(tmp_path: Path) -> None:
    gate, hooked = asyncio.Event(), threading.Event()

    async def hook(scope: Any, receive: Any, send: Any) -> None:
        assert scope["type"] == "http"  # not the lifespan
        hooked.set()
        await gate.wait()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    store = FileStore(tmp_path / "sessions")
    store.save_state("schedule:yearly", {"mark": "0 0 1 1 * UTC", "since": "2025-06-01T00:00:00+00:00"})
    with serve(FakeProvider("ok")) as quick, serve(hook) as hooks:
        entry = f'{{cron: "0 0 1 1 *", prompt: What is new?, deliver: [{{webhook: {hooks.url}/}}]}}'
        (tmp_path / "agents.yaml").write_text(f"schedule: {{yearly: {entry}}}\n")
        with door(quick, tmp_path, "--grace-seconds", "600", "--config", str(tmp_path / "agents.yaml")) as made:
            assert hooked.wait(120)
            assert made.process is not None
            made.process.send_signal(signal.SIGTERM)
            until(lambda: not listens(made.port))
            assert made.kill(signal.SIGTERM) == 0
        hooks.set(gate)
    run = store.load_state("schedule:yearly:run")
    assert (run["reason"], bool(run["ended"]), run["delivered"]) == ("done", True, [])


def test_what_was_accepted_before_a_kill_is_there_after_it(model: Served, tmp_path: Path) -> None:
    with door(model, tmp_path) as made:
        session = create_session(made)
        turn = Turn(made, session, "wait for me", key="mine")
        made.kill()
        assert turn.end()[0] == "broken"
        made.start()
        path = f"{made.url}/v1/sessions/{session}"
        assert httpx.get(path).json()["state"] == "idle"
        history = httpx.get(f"{path}/history").json()["messages"]
        assert history[0]["text"] == "wait for me"
        assert httpx.get(f"{path}/turns").json()["turns"][-1]["reason"] == "interrupted"
        again = httpx.post(f"{path}/messages", json={"text": "wait for me"}, headers={"Idempotency-Key": "mine"})
        assert again.json()["reason"] == "interrupted"
        assert httpx.get(path).json()["messages"] == len(history)
        assert httpx.post(f"{path}/messages", json={"text": "Go on."}).json()["reason"] == "done"


def test_a_token_from_a_file_opens_it_to_others(model: Served, tmp_path: Path) -> None:
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    options = ("--host", "0.0.0.0", "--token-file", str(tmp_path / "token"))
    with door(model, tmp_path, *options) as made:
        assert httpx.get(f"{made.url}/v1/sessions").status_code == 401
        create_session(made, authorization=f"Bearer {TOKEN}", host="any.example")
        assert made.kill(signal.SIGTERM) == 0
    assert TOKEN not in log_of(made)


def test_a_token_of_the_environment_is_hidden_from_what_the_model_runs(model: Served, tmp_path: Path) -> None:
    with door(model, tmp_path, FOLDLINE_TOKEN=TOKEN) as made:
        assert httpx.get(f"{made.url}/v1/sessions").status_code == 401
        assert "(token)" in log_of(made)


def test_a_name_of_a_proxy_is_let_in(model: Served, tmp_path: Path) -> None:
    with door(model, tmp_path, "--allow-host", "Chat.Example", "--no-page", FOLDLINE_TOKEN=TOKEN) as made:
        create_session(made, authorization=f"Bearer {TOKEN}", host="chat.example", origin="https://chat.example")
        assert httpx.get(f"{made.url}/v1/sessions", headers={"host": "other.example"}).status_code == 403
        assert httpx.get(f"{made.url}/").status_code == 404


def refused(*options: str, **environ: str) -> str:
    """The one line in which a start is refused."""
    done = CliRunner().invoke(cli, ["serve", *options], env={"FOLDLINE_TOKEN": "", **environ})
    assert done.exit_code == 2, done.output
    (line,) = done.stderr.splitlines()
    return str(line)


def test_others_are_not_let_in_without_a_token() -> None:
    assert "--token-file" in refused("--host", "0.0.0.0")
    assert "--token-file" in refused("--host", "::")
    assert "--token-file" in refused("--allow-host", "chat.example")


def test_a_bad_token_is_refused(tmp_path: Path) -> None:
    assert "FOLDLINE_TOKEN" in refused(FOLDLINE_TOKEN="short")
    assert "FOLDLINE_TOKEN" in refused(FOLDLINE_TOKEN="with a blank in the middle")
    (tmp_path / "token").write_text("\n")
    assert "--token-file" in refused("--token-file", str(tmp_path / "token"))
    assert "none" in refused("--token-file", str(tmp_path / "none"))


def test_a_taken_port_a_bad_store_and_a_bad_workspace_are_one_line_each(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert f"--port {port}: " in refused("--port", str(port))
    assert "--workspace" in refused("--port", "0", "--workspace", str(tmp_path / "none"))
    assert "mysql" in refused("--port", "0", "--store", "mysql://a:secret@b/c")
    assert "secret" not in refused("--port", "0", "--store", "mysql://a:secret@b/c")


def test_help_loads_nothing_of_the_server() -> None:
    code = (
        "import sys; from click.testing import CliRunner; from foldline.cli.main import cli; "
        "assert CliRunner().invoke(cli, ['serve', '--help']).exit_code == 0; "
        "print([m for m in ('starlette', 'uvicorn', 'prometheus_client', 'httpx') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == []
