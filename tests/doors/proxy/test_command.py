"""The real command: started, queried at the providers' paths, stopped gracefully and at once."""

from __future__ import annotations

import asyncio
import gc
import io
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from click.testing import CliRunner
from tests.serving import Served, serve

from foldline.cli.main import cli
from foldline.testing import FakeProvider, FakeReply

TOKEN = "a-token-of-some-length"
START_SECONDS = 120
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
    """A proxy process, on a port that the system gives it."""

    process: subprocess.Popen[bytes]
    file: Path
    url: str = ""

    @property
    def log(self) -> str:
        return self.file.read_text()

    def end(self, number: int) -> int:
        """Its exit code."""
        self.process.send_signal(number)
        return self.process.wait(START_SECONDS)


@contextmanager
def proxy(upstream: str, folder: Path, *options: str) -> Iterator[Process]:
    """The command in a process of its own, until the end of the block."""
    command = [sys.executable, "-m", "foldline.cli.main", "proxy", "--port", "0", *options]
    environ = {**os.environ, "FOLDLINE_HOME": str(folder / "home"), "FOLDLINE_UPSTREAM": upstream}
    file = folder / "proxy.log"
    with file.open("wb") as log:
        made = Process(subprocess.Popen(command, env=environ, cwd=folder, stdout=log, stderr=log), file)
    try:
        until(lambda: "\nstore  " in made.log or made.process.poll() is not None)
        assert made.process.poll() is None, made.log
        made.url = address_in(made.log)
        yield made
    finally:
        made.process.kill()
        made.process.wait(START_SECONDS)


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


def address_in(log: str) -> str:
    """Where a proxy says that it listens, by this machine's own address."""
    found = re.search(r"^foldline proxy: http://[^:]+:(\d+)/", log, re.MULTILINE)
    assert found is not None, log
    return f"http://127.0.0.1:{found[1]}"


class Said(io.StringIO):
    """What the command writes; `at_once` is called with its first words before anything else is done."""

    def __init__(self, at_once: Callable[[str], object]) -> None:
        super().__init__()
        self._at_once = at_once

    def write(self, text: str) -> int:
        first = not self.getvalue()
        size = super().write(text)
        if first:
            self._at_once(text)
        return size


@dataclass
class Here:
    """The command in this process."""

    said: Said

    @property
    def log(self) -> str:
        return self.said.getvalue()

    @property
    def url(self) -> str:
        return address_in(self.log)


def _nothing(_: str) -> None:
    """When the first words are of no interest."""


def ran(*options: str, act: Callable[[Here], object], at_once: Callable[[str], object] = _nothing) -> str:
    """What the command writes while it runs in this process: `act` is called once it serves, then it is stopped.

    The environment says for which upstream and where it keeps its files.
    """
    made, ended = Here(Said(at_once)), threading.Event()

    def ask() -> None:
        try:
            until(lambda: "\nstore  " in made.log or ended.is_set())
            if not ended.is_set():
                httpx.get(f"{made.url}/foldline", timeout=START_SECONDS)  # it hears signals once it answers
                act(made)
        finally:
            while not ended.is_set():
                os.kill(os.getpid(), signal.SIGTERM)
                ended.wait(START_SECONDS)  # again only where it came too early to be heard

    threshold, term = gc.get_threshold(), signal.signal(signal.SIGTERM, lambda *_: None)  # a late one ends no test
    try:
        with ThreadPoolExecutor(1) as beside, redirect_stdout(made.said), redirect_stderr(made.said):
            asking = beside.submit(ask)
            try:
                cli.main(["proxy", "--port", "0", *options], standalone_mode=False)
            finally:
                ended.set()
            asking.result(START_SECONDS)
    finally:
        signal.signal(signal.SIGTERM, term)
        gc.unfreeze()
        gc.set_threshold(*threshold)
    return made.log


def test_it_says_where_it_listens_passes_on_and_lets_streams_end_when_it_stops(held: Held, tmp_path: Path) -> None:
    with proxy(held.served.url, tmp_path) as made:
        direct = httpx.post(f"{held.served.url}/v1/chat/completions", json=BODY)
        reply = httpx.post(f"{made.url}/v1/chat/completions", json=BODY)
        assert reply.json()["choices"] == direct.json()["choices"]
        assert int(reply.headers["x-foldline-tokens"]) > 0
        assert "server" not in direct.headers or reply.headers["server"] == direct.headers["server"]
        assert httpx.get(f"{made.url}/foldline").status_code == 200
        assert "foldline_" in httpx.get(f"{made.url}/metrics").text
        assert httpx.get(f"{made.url}/v1/models").status_code == httpx.get(f"{held.served.url}/v1/models").status_code
        stream = Stream(made.url)
        made.process.send_signal(signal.SIGTERM)
        until(lambda: "Stopping; 1 under way" in made.log)
        held.served.set(held.model.gate)
        stream.end()
        assert (stream.failure, "[DONE]" in stream.text) == ("", True)
        assert made.process.wait(START_SECONDS) == 0
    assert made.log.splitlines() == [
        f"foldline proxy: {made.url}/",
        f"upstream  {held.served.url}",
        f"page      {made.url}/foldline",
        f"store     {tmp_path / 'home' / 'data' / 'conversations'}",
        "foldline: Stopping; 1 under way, at most 30 s more (again: at once)",
    ]


class Slow:
    """A model that never ends its summaries; the test learns when the first one is requested."""

    def __init__(self) -> None:
        self.asked, self.never = threading.Event(), asyncio.Event()

    def __call__(self, body: Mapping[str, Any]) -> FakeReply:
        if body["model"] == "slow":
            self.asked.set()
            return FakeReply("never", gate=self.never)
        waits = "wait" in str(body["messages"][-1]["content"])
        return FakeReply("First a piece, then the rest.", gate=self.never if waits else None, piece_chars=10)


SUMMING = ("--window", "3000", "--summary-model", "slow")


def waiting_for_a_summary(url: str, model: Slow) -> threading.Thread:
    """A client whose answer waits for a summary that does not come."""
    turn = [{"role": "user", "content": "words of a long story " * 80}, {"role": "assistant", "content": "Noted."}]
    body = {**BODY, "messages": [*(turn * 15), {"role": "user", "content": "And now?"}]}

    def ask() -> None:
        with suppress(httpx.HTTPError):
            httpx.post(f"{url}/v1/chat/completions", json=body, timeout=START_SECONDS)

    client = threading.Thread(target=ask, daemon=True)
    client.start()
    assert model.asked.wait(START_SECONDS)
    return client


def test_a_second_signal_stops_at_once_whatever_is_waited_for(tmp_path: Path) -> None:
    model = Slow()
    with (
        serve(FakeProvider(model)) as upstream,
        proxy(upstream.url, tmp_path, *SUMMING, "--grace-seconds", "600") as made,
    ):
        client, stream = waiting_for_a_summary(made.url, model), Stream(made.url)
        made.process.send_signal(signal.SIGINT)
        until(lambda: "Stopping; 2 under way" in made.log)
        assert made.end(signal.SIGINT) == 0
        stream.end()
        assert (stream.failure, "[DONE]" in stream.text) == ("RemoteProtocolError", False)
        client.join(START_SECONDS)
        assert not client.is_alive()
    assert "Traceback" not in made.log


def test_a_stop_does_not_wait_for_a_summary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FOLDLINE_HOME", str(tmp_path))
    model = Slow()
    with serve(FakeProvider(model)) as upstream:
        monkeypatch.setenv("FOLDLINE_UPSTREAM", upstream.url)
        log = ran(*SUMMING, "--grace-seconds", "0.1", act=lambda made: waiting_for_a_summary(made.url, model))
    assert log.splitlines()[4:] == [  # and nothing that the server says when it has to end the request itself
        "foldline: Stopping; 1 under way, at most 0.1 s more (again: at once)",
        "foldline: Cutting off 1 that did not end",
    ]


@pytest.fixture
def upstream(held: Held, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The surroundings of a command in this process."""
    monkeypatch.setenv("FOLDLINE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("FOLDLINE_UPSTREAM", held.served.url)


@pytest.mark.usefixtures("upstream")
def test_who_asks_as_soon_as_it_says_where_is_answered_and_without_a_store_all_stays_in_memory(tmp_path: Path) -> None:
    answers: list[bytes] = []

    def at_once(text: str) -> None:
        port = int(address_in(text).rpartition(":")[2])
        asking = socket.create_connection(("127.0.0.1", port), START_SECONDS)
        asking.sendall(b"GET /foldline HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
        waiting.append(asking)

    def act(made: Here) -> None:
        with waiting[0] as asking:
            answers.append(asking.recv(100))

    waiting: list[socket.socket] = []
    log = ran("--no-store", act=act, at_once=at_once)
    assert answers[0].startswith(b"HTTP/1.1 200 ")
    assert "store     none: in memory only" in log
    assert not (tmp_path / "home" / "data" / "conversations").exists()


@pytest.mark.usefixtures("upstream")
def test_a_store_that_is_away_at_the_start_is_waited_for() -> None:
    body = {**BODY, "messages": [*BODY["messages"], {"role": "assistant", "content": "Yes?"}, *BODY["messages"]]}

    def act(made: Here) -> None:
        reply = httpx.post(f"{made.url}/v1/chat/completions", json=body, timeout=START_SECONDS)
        assert (reply.status_code, "store" in reply.headers["x-foldline-warning"]) == (200, True)
        assert "foldline_proxy_store_up 0.0" in httpx.get(f"{made.url}/metrics").text

    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # kept, and not listened at: whoever connects is refused
        port = nobody.getsockname()[1]
        log = ran("--store", f"postgresql://foldline:secret@127.0.0.1:{port}/folds", act=act)
    assert "until it can, requests pass" in log
    assert "secret" not in log


@pytest.mark.usefixtures("upstream")
def test_a_token_opens_it_to_others_and_is_seen_nowhere(tmp_path: Path) -> None:
    (tmp_path / "token").write_text(f"{TOKEN}\n")

    def act(made: Here) -> None:
        assert httpx.post(f"{made.url}/v1/chat/completions", json=BODY).status_code == 401
        for base, headers in ((f"{made.url}/~{TOKEN}", {}), (made.url, {"x-foldline-token": TOKEN})):
            reply = httpx.post(f"{base}/v1/chat/completions", json=BODY, headers={**headers, "host": "any.example"})
            assert reply.status_code == 200
        assert TOKEN not in httpx.get(f"{made.url}/foldline/state", headers={"x-foldline-token": TOKEN}).text

    log = ran("--host", "0.0.0.0", "--token-file", str(tmp_path / "token"), act=act)
    assert "(token)" in log
    assert TOKEN not in log


@pytest.mark.usefixtures("upstream")
def test_options_reach_the_proxy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def act(made: Here) -> None:
        reply = httpx.post(f"{made.url}/v1/chat/completions", json=BODY)
        assert (reply.headers["x-foldline-window"], reply.headers["x-foldline-mode"]) == ("5000", "dry-run")
        assert httpx.post(f"{made.url}/v1/chat/completions", content=b" " * 3_000).status_code == 413

    monkeypatch.setenv("FOLDLINE_STORE", "postgresql://user:secret@127.0.0.1/x")
    options = ("--dry-run", "--window", "5000", "--store", f"sqlite:///{tmp_path / 'folds.db'}", "--no-summaries")
    log = ran(*options, "--max-request-bytes", "2000", act=act)
    assert "(dry-run)" in log
    assert f"store     sqlite:///{tmp_path / 'folds.db'}" in log


def refused(*options: str, **environ: str) -> str:
    """The last line in which a start is refused."""
    given = {"FOLDLINE_TOKEN": "", "FOLDLINE_STORE": "", "FOLDLINE_UPSTREAM": "http://127.0.0.1:1", **environ}
    done = CliRunner().invoke(cli, ["proxy", *options], env=given)
    assert done.exit_code == 2, done.output
    assert "Traceback" not in done.output
    return str(done.stderr.splitlines()[-1])


def test_a_start_that_cannot_be_is_refused_in_words(tmp_path: Path) -> None:
    assert "--upstream" in refused(FOLDLINE_UPSTREAM="")
    assert "--upstream: must" in refused("--upstream", "nowhere", "--port", "0")
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
        "import sys; from click.testing import CliRunner; from foldline.cli.main import cli; "
        "assert CliRunner().invoke(cli, ['proxy', '--help']).exit_code == 0; "
        "print([m for m in ('aiohttp', 'starlette', 'uvicorn', 'uvloop', 'httpx') if m in sys.modules])".replace(
            "'", '"'
        )
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == []
