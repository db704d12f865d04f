"""The real command: started, asked through the providers' own paths, stopped in order and at once."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
from click.testing import CliRunner
from tests.interfaces.doors import free_port
from tests.serving import Served, serve

from foldline.interfaces.cli import cli
from foldline.testing import FakeProvider, FakeReply

TOKEN = "a-token-of-some-length"
START_SECONDS = 60
BODY: dict[str, Any] = {"model": "fake-model", "messages": [{"role": "user", "content": "Hello."}]}


class Model:
    """A model whose answers to words with "wait" in them are held back."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()

    def __call__(self, body: Mapping[str, Any]) -> FakeReply:
        waits = "wait" in str(body["messages"][-1]["content"])
        return FakeReply("First a piece, then the rest.", gate=self.gate if waits else None, piece_chars=10)


@dataclass
class Held:
    served: Served
    model: Model


@pytest.fixture
def held() -> Iterator[Held]:
    model = Model()
    with serve(FakeProvider(model)) as served:
        yield Held(served, model)


@dataclass
class Process:
    """A proxy process."""

    upstream: str
    folder: Path
    options: tuple[str, ...]
    environ: Mapping[str, str]
    port: int = field(default_factory=free_port)
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def log(self) -> str:
        return (self.folder / "proxy.log").read_text()

    def start(self) -> None:
        command = [sys.executable, "-m", "foldline.interfaces.cli", "proxy", "--port", str(self.port), *self.options]
        environ = {**os.environ, "FOLDLINE_HOME": str(self.folder / "home"), "FOLDLINE_UPSTREAM": self.upstream}
        with (self.folder / "proxy.log").open("ab") as log:
            self.process = subprocess.Popen(
                command, env={**environ, **self.environ}, cwd=self.folder, stdout=log, stderr=log
            )
        until(lambda: "store " in self.log or self._has_ended())
        assert not self._has_ended(), self.log

    def _has_ended(self) -> bool:
        return self.process is not None and self.process.poll() is not None

    def end(self, number: int = signal.SIGKILL) -> int:
        """Its exit code."""
        if self.process is None:
            return 0
        self.process.send_signal(number)
        code = self.process.wait(START_SECONDS)
        self.process = None
        return code


@contextmanager
def proxy(upstream: str, folder: Path, *options: str, **environ: str) -> Iterator[Process]:
    made = Process(upstream, folder, options, environ)
    try:
        made.start()
        yield made
    finally:
        made.end()


def until(done: Callable[[], bool]) -> None:
    end = time.monotonic() + START_SECONDS
    while not done():
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.02)


class Stream:
    """A streamed answer that is read in a thread until it ends, however that is."""

    def __init__(self, url: str) -> None:
        self.text, self.failure = "", ""
        self.began = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(url,), daemon=True)
        self._thread.start()
        assert self.began.wait(START_SECONDS)

    def _run(self, url: str) -> None:
        body = {**BODY, "messages": [{"role": "user", "content": "wait"}], "stream": True}
        try:
            with httpx.stream("POST", f"{url}/v1/chat/completions", json=body, timeout=START_SECONDS) as reply:
                for piece in reply.iter_text():
                    self.text += piece
                    self.began.set()
        except httpx.HTTPError as error:
            self.failure = type(error).__name__

    def end(self) -> None:
        self._thread.join(START_SECONDS)


def test_it_says_where_it_listens_passes_on_and_stops_in_order(held: Held, tmp_path: Path) -> None:
    with proxy(held.served.url, tmp_path) as made:
        direct = httpx.post(f"{held.served.url}/v1/chat/completions", json=BODY)
        reply = httpx.post(f"{made.url}/v1/chat/completions", json=BODY)
        assert reply.json()["choices"] == direct.json()["choices"]
        assert int(reply.headers["x-foldline-tokens"]) > 0
        assert "server" not in direct.headers or reply.headers["server"] == direct.headers["server"]
        assert httpx.get(f"{made.url}/foldline").status_code == 200
        assert "foldline_" in httpx.get(f"{made.url}/metrics").text
        assert httpx.get(f"{made.url}/v1/models").status_code == httpx.get(f"{held.served.url}/v1/models").status_code
        assert made.end(signal.SIGTERM) == 0
    assert made.log.splitlines() == [
        f"foldline proxy: {made.url}/",
        f"upstream  {held.served.url}",
        f"page      {made.url}/foldline",
        f"store     {tmp_path / 'home' / 'data' / 'conversations'}",
    ]


def test_a_stop_lets_a_stream_end(held: Held, tmp_path: Path) -> None:
    with proxy(held.served.url, tmp_path) as made:
        stream = Stream(made.url)
        assert made.process is not None
        made.process.send_signal(signal.SIGTERM)
        until(lambda: "Stopping; 1 under way" in made.log)
        held.served.set(held.model.gate)
        stream.end()
        assert (stream.failure, "[DONE]" in stream.text) == ("", True)
        assert made.process.wait(START_SECONDS) == 0


def test_a_second_signal_stops_at_once(held: Held, tmp_path: Path) -> None:
    with proxy(held.served.url, tmp_path, "--grace-seconds", "600") as made:
        stream = Stream(made.url)
        assert made.process is not None
        made.process.send_signal(signal.SIGINT)
        until(lambda: "Stopping" in made.log)
        assert made.end(signal.SIGINT) == 0
        stream.end()
        assert (stream.failure, "[DONE]" in stream.text) == ("RemoteProtocolError", False)
    held.served.set(held.model.gate)
    assert "Traceback" not in made.log


def test_a_stop_does_not_wait_for_a_summary(tmp_path: Path) -> None:
    asked, never = threading.Event(), asyncio.Event()

    def answer(body: Mapping[str, Any]) -> FakeReply:
        if body["model"] != "slow":
            return FakeReply("Noted.")
        asked.set()
        return FakeReply("never", gate=never)

    turn = [{"role": "user", "content": "words of a long story " * 80}, {"role": "assistant", "content": "Noted."}]
    body = {**BODY, "messages": [*(turn * 15), {"role": "user", "content": "And now?"}]}
    options = ("--window", "3000", "--summary-model", "slow", "--grace-seconds", "0.5")
    with serve(FakeProvider(answer)) as upstream, proxy(upstream.url, tmp_path, *options) as made:

        def ask() -> None:
            with suppress(httpx.HTTPError):
                httpx.post(f"{made.url}/v1/chat/completions", json=body, timeout=START_SECONDS)

        client = threading.Thread(target=ask, daemon=True)
        client.start()
        assert asked.wait(START_SECONDS)
        assert made.end(signal.SIGTERM) == 0
        client.join(START_SECONDS)
    assert "Stopping; 1 under way" in made.log
    assert "Traceback" not in made.log


def test_a_store_that_is_away_at_the_start_is_waited_for(held: Held, tmp_path: Path) -> None:
    away = f"postgresql://foldline:secret@127.0.0.1:{free_port()}/folds"
    body = {**BODY, "messages": [*BODY["messages"], {"role": "assistant", "content": "Yes?"}, *BODY["messages"]]}
    with proxy(held.served.url, tmp_path, "--store", away) as made:
        reply = httpx.post(f"{made.url}/v1/chat/completions", json=body)
        assert (reply.status_code, "store" in reply.headers["x-foldline-warning"]) == (200, True)
        assert "foldline_proxy_store_up 0.0" in httpx.get(f"{made.url}/metrics").text
        assert made.end(signal.SIGTERM) == 0
    assert "until it can, requests pass" in made.log
    assert "secret" not in made.log


def test_a_token_opens_it_to_others_and_is_seen_nowhere(held: Held, tmp_path: Path) -> None:
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    options = ("--host", "0.0.0.0", "--token-file", str(tmp_path / "token"))
    with proxy(held.served.url, tmp_path, *options) as made:
        assert httpx.post(f"{made.url}/v1/chat/completions", json=BODY).status_code == 401
        for base, headers in ((f"{made.url}/~{TOKEN}", {}), (made.url, {"x-foldline-token": TOKEN})):
            reply = httpx.post(f"{base}/v1/chat/completions", json=BODY, headers={**headers, "host": "any.example"})
            assert reply.status_code == 200
        assert TOKEN not in httpx.get(f"{made.url}/foldline/state", headers={"x-foldline-token": TOKEN}).text
        assert made.end(signal.SIGTERM) == 0
    assert "(token)" in made.log
    assert TOKEN not in made.log


def test_without_a_store_conversations_stay_in_memory(held: Held, tmp_path: Path) -> None:
    with proxy(held.served.url, tmp_path, "--no-store") as made:
        assert httpx.get(f"{made.url}/foldline").status_code == 200
        assert made.end(signal.SIGTERM) == 0
    assert "store     none: in memory only" in made.log


def test_options_reach_the_proxy(held: Held, tmp_path: Path) -> None:
    password = "postgresql://user:secret@127.0.0.1/x"
    options = ("--dry-run", "--window", "5000", "--store", f"sqlite:///{tmp_path / 'folds.db'}", "--no-summaries")
    with proxy(held.served.url, tmp_path, *options, "--max-request-bytes", "2000", FOLDLINE_STORE=password) as made:
        reply = httpx.post(f"{made.url}/v1/chat/completions", json=BODY)
        assert (reply.headers["x-foldline-window"], reply.headers["x-foldline-mode"]) == ("5000", "dry-run")
        assert httpx.post(f"{made.url}/v1/chat/completions", content=b" " * 3_000).status_code == 413
    assert "(dry-run)" in made.log
    assert f"store     sqlite:///{tmp_path / 'folds.db'}" in made.log


def refused(*options: str, **environ: str) -> str:
    """The last line in which a start is refused."""
    given = {"FOLDLINE_TOKEN": "", "FOLDLINE_STORE": "", "FOLDLINE_UPSTREAM": "http://127.0.0.1:1", **environ}
    done = CliRunner().invoke(cli, ["proxy", *options], env=given)
    assert done.exit_code == 2, done.output
    assert "Traceback" not in done.output
    return str(done.stderr.splitlines()[-1])


def test_a_start_that_cannot_be_is_refused_in_words(tmp_path: Path) -> None:
    assert "--upstream" in refused(FOLDLINE_UPSTREAM="")
    assert "base_url" in refused("--upstream", "nowhere", "--port", "0")
    assert "password" in refused("--upstream", "https://a:secret@b.example", "--port", "0")
    assert "--strict" in refused("--strict", "--dry-run")
    assert "--token-file" in refused("--host", "0.0.0.0")
    assert "--token-file" in refused("--allow-host", "llm.example")
    assert "FOLDLINE_TOKEN" in refused(FOLDLINE_TOKEN="short")
    assert "none" in refused("--token-file", str(tmp_path / "none"))
    assert "nonsense" in refused("--policy", "nonsense", "--port", "0")
    assert "mysql" in refused("--store", "mysql://a:secret@b/c", "--port", "0")
    assert "secret" not in refused("--store", "mysql://a:secret@b/c", "--port", "0")
    with socket.socket() as at:
        at.bind(("127.0.0.1", 0))
        at.listen()
        port = at.getsockname()[1]
        assert f"--port {port}: " in refused("--port", str(port))


def test_help_loads_nothing_of_the_server() -> None:
    code = (
        "import sys; from click.testing import CliRunner; from foldline.interfaces.cli import cli; "
        "assert CliRunner().invoke(cli, ['proxy', '--help']).exit_code == 0; "
        "print([m for m in ('aiohttp', 'starlette', 'uvicorn', 'uvloop', 'httpx') if m in sys.modules])".replace(
            "'", '"'
        )
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == []
