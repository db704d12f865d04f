"""Sessions that this server cannot write: taken, of another dialect, being compacted; and stores that fail."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.doors.http.support import Api, serving

from foldline.hosting.session_actor import ActorLimits
from foldline.store.folders import FileStore
from foldline.testing import FakeReply, asks_for_summary


def looks(api: Api, session: str) -> list[int]:
    """The statuses of all that can be looked at."""
    rests = ("", "/context", "/history", "/history/0", "/folds", "/turns")
    return [api.client.get(f"/v1/sessions/{session}{rest}").status_code for rest in rests]


def test_a_session_of_another_process_can_be_looked_at_and_not_written(tmp_path: Path) -> None:
    with serving(tmp_path, "Hi.", actor_limits=ActorLimits(acquire_seconds=0.1)) as api:
        session = api.create_session()
        api.say(session, "Hello")
        other = FileStore(tmp_path / "sessions", fsync=False)
        with other.open(session):
            assert looks(api, session) == [200] * 6
            shown = api.get(f"/{session}/context")
            assert [one["role"] for one in shown["messages"]] == ["user", "assistant"]
            assert shown["parts"]["system"] > 0
            for rest, body in (("messages", {"text": "Hi"}), ("undo", {}), ("pin", {"seq": 0})):
                assert api.post(f"/{session}/{rest}", 409, **body)["type"] == "/problems/taken"
            reply = api.client.delete(f"/v1/sessions/{session}")
            assert (reply.status_code, reply.json()["type"]) == (409, "/problems/taken")
        assert api.say(session, "Again")["reason"] == "done"


def test_a_session_of_another_dialect_can_be_looked_at_and_gone_on_with_in_a_new_one(tmp_path: Path) -> None:
    with serving(tmp_path, "Hi.") as api:
        old = api.create_session()
        api.say(old, "The word is zephyr.")
    model = "{provider: anthropic, dialect: anthropic, base_url: '{url}', name: fake-model, api_key_env: KEY}"
    of_file: dict[str, Any] = {"base_url": None, "model": None, "environ": {"KEY": "k"}}
    with serving(tmp_path, "Hi.", yaml=f"model: {model}\n", **of_file) as api:
        assert looks(api, old) == [200] * 6
        assert api.post(f"/{old}/messages", 409, text="Hi")["type"] == "/problems/another-dialect"
        new = api.create_session(**{"from": old})
        assert api.say(new, "What is it?")["reason"] == "done"
        assert "zephyr" in str(api.fake.requests[-1].body["messages"])


def test_a_session_is_looked_at_while_it_is_compacted(tmp_path: Path) -> None:
    gate = asyncio.Event()

    def script(body: Mapping[str, Any]) -> FakeReply:
        return FakeReply("## Goal\nThe user says hello.", gate=gate) if asks_for_summary(body) else FakeReply("Noted.")

    with serving(tmp_path, script) as api:
        session = api.create_session()
        for number in range(3):
            api.say(session, f"Town {number}. " + "It lies at a river. " * 200)
        done: list[Any] = []
        thread = threading.Thread(target=lambda: done.append(api.post(f"/{session}/compact")))
        thread.start()
        end = time.monotonic() + 120
        while not any(asks_for_summary(one.body) for one in api.fake.requests) and time.monotonic() < end:
            time.sleep(0.01)
        assert looks(api, session) == [200] * 6
        assert done == []
        api.model.set(gate)
        thread.join(120)
        assert done[0]["folds"]


class Broken(FileStore):
    """A store whose disk fails, and which has a fault besides."""

    def sessions(self, *, save: bool = True, allow_stale: bool = False, running: Collection[str] = ()) -> Any:
        raise RuntimeError(f"a fault that names a secret {save}")

    def names(self) -> list[str]:
        raise OSError(28, "No space left on device")

    def session_of(self, key: str) -> str | None:
        raise OSError(5, "Input/output error")


def test_a_store_that_is_away_and_a_fault_are_told_apart(tmp_path: Path) -> None:
    with serving(tmp_path, store=Broken(tmp_path / "sessions")) as api:
        away = api.client.get("/v1/sessions/20260101-000000-00000000")
        assert (away.status_code, away.json()["type"]) == (503, "/problems/store")
        assert away.headers["retry-after"]
        ready = api.client.get("/ready")  # it needs no token, so it says no more than this
        assert (ready.status_code, ready.json()["detail"]) == (503, "the sessions cannot be reached now")
        fault = httpx.get(f"{api.url}/v1/sessions")
        assert (fault.status_code, fault.headers["content-type"]) == (500, "application/problem+json")
        assert fault.json()["type"] == "/problems/internal"
        assert "secret" not in fault.text


@pytest.mark.parametrize("path", ["/health", "/v1/sessions"])
def test_a_server_that_stops_begins_nothing_and_says_so(tmp_path: Path, path: str) -> None:
    with serving(tmp_path) as api:
        asyncio.run_coroutine_threadsafe(api.state.stop(1.0), api.served.loop).result(120)
        reply = api.client.get(path)
        assert reply.status_code == 503
        stops = {"status": "stopping", "version": "0"} if path == "/health" else {"type": "/problems/stopping"}
        assert stops.items() <= reply.json().items()
