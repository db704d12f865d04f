"""Turns over HTTP: as one answer, as events, repeated under a key, concurrent, and abandoned."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from http.client import HTTPConnection
from typing import Any

import httpx
import pytest
from tests.doors.http.support import Api, events, serving

from foldline.hosting.session_actor import ActorLimits
from foldline.testing import FakeReply


class Model:
    """A model that waits, calls a tool or fails, as the prompt says."""

    def __init__(self) -> None:
        self.gates: dict[str, asyncio.Event] = {}

    def __call__(self, body: Mapping[str, Any]) -> FakeReply:
        last = body["messages"][-1]
        text = last["content"] if isinstance(last["content"], str) else str(last["content"])
        gate = next((gate for words, gate in self.gates.items() if words in text), None)
        if last["role"] == "user" and "folder" in text:
            return FakeReply("Let me look.", calls=[("list_files", {})], gate=gate)
        if "fail" in text:
            return FakeReply(status=400, message="no")
        return FakeReply("First a piece, then the rest.", gate=gate, piece_chars=10)


MODEL = Model()


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    with serving(tmp_path_factory.mktemp("served"), MODEL, actor_limits=ActorLimits(queued=2)) as served:
        yield served


def until(done: Callable[[], bool]) -> None:
    end = time.monotonic() + 120
    while not done():
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.01)


@pytest.fixture
def held(api: Api, request: pytest.FixtureRequest) -> Iterator[Callable[[], None]]:
    """Words with the test's name in them are answered in part, and then only when this is called."""
    gate = MODEL.gates[request.node.name] = asyncio.Event()

    def let() -> None:
        api.model.set(gate)

    yield let
    let()


def streamed(api: Api, session: str, text: str, **headers: str) -> list[tuple[str, Any]]:
    path = f"/v1/sessions/{session}/messages"
    with api.client.stream("POST", path, json={"text": text, "stream": True}, headers=headers) as reply:
        assert reply.status_code == 200
        assert reply.headers["content-type"].startswith("text/event-stream")
        return list(events(reply))


def test_a_turn_is_told_as_it_happens(api: Api) -> None:
    session = api.create_session()
    received = streamed(api, session, "Look into the folder.")
    names = [name for name, _ in received]
    assert names[0] == "accepted"
    assert names[-1] == "turn_ended"
    assert [name for name in names if name not in ("text", "calling")] == [
        "accepted", "call_started", "reply", "tool_started", "tool_finished", "reply", "turn_ended",
    ]  # fmt: skip
    assert (
        "".join(data["text"] for name, data in received if name == "text")
        == "Let me look.First a piece, then the rest."
    )
    assert all(data["event"] == name for name, data in received)
    last = received[-1][1]
    assert (last["session"], last["reason"], last["seq"], last["iterations"]) == (session, "done", 0, 2)
    assert last["figures"] == api.get(f"/{session}")["figures"]


def test_what_is_accepted_is_on_disk(api: Api, held: Callable[[], None], request: pytest.FixtureRequest) -> None:
    session = api.create_session()
    head, body = {"accept": "text/event-stream"}, {"text": request.node.name}
    with api.client.stream("POST", f"/v1/sessions/{session}/messages", json=body, headers=head) as reply:
        received = events(reply)
        assert next(received) == ("accepted", {"event": "accepted", "seq": 0})
        log = (api.folder / "sessions" / session / "events.jsonl").read_text()
        assert request.node.name in log
        held()
        assert [name for name, _ in received][-1] == "turn_ended"


def test_a_turn_asked_for_again_does_not_run_again(api: Api) -> None:
    session = api.create_session()
    path, head = f"/v1/sessions/{session}/messages", {"Idempotency-Key": "one"}
    first = api.client.post(path, json={"text": "Hi"}, headers=head).json()
    again = api.client.post(path, json={"text": "Hi"}, headers=head).json()
    assert (again["text"], again["reason"], again["seq"]) == (first["text"], "done", first["seq"])
    received = streamed(api, session, "Hi", **head)
    assert [name for name, _ in received] == ["accepted", "turn_ended"]
    assert received[0][1]["seq"] == first["seq"]
    assert api.get(f"/{session}")["turns"] == 1


def test_a_key_of_another_message_is_refused(api: Api) -> None:
    session = api.create_session()
    path, head = f"/v1/sessions/{session}/messages", {"Idempotency-Key": "one"}
    assert api.client.post(path, json={"text": "Hi"}, headers=head).status_code == 200
    for body in ({"text": "Bye"}, {"text": "Bye", "stream": True}):
        reply = api.client.post(path, json=body, headers=head)
        problem = reply.json()
        assert (reply.status_code, problem["type"]) == (422, "/problems/key-used")
        assert problem["field"] == "Idempotency-Key"
    assert api.get(f"/{session}")["turns"] == 1


def test_turns_of_a_session_wait_for_each_other_and_too_many_are_refused(
    api: Api, held: Callable[[], None], request: pytest.FixtureRequest
) -> None:
    session, answers = api.create_session(), list[Any]()

    def say(text: str) -> threading.Thread:
        thread = threading.Thread(target=lambda: answers.append(api.say(session, text)))
        thread.start()
        return thread

    threads = [say(request.node.name)]
    until(lambda: bool(api.get(f"/{session}")["state"] == "running"))
    threads += [say("second"), say("third")]
    until(lambda: bool(api.get(f"/{session}")["queued"] == 2))
    reply = api.client.post(f"/v1/sessions/{session}/messages", json={"text": "fourth"})
    assert (reply.status_code, reply.json()["type"]) == (429, "/problems/queue")
    assert int(reply.headers["retry-after"]) > 0
    assert [one["role"] for one in api.get(f"/{session}/context")["messages"]] == ["user"]  # looks do not wait
    other = api.create_session()
    assert api.say(other, "Hi")["reason"] == "done"  # nor do other sessions
    held()
    for thread in threads:
        thread.join(120)
    assert sorted(one["seq"] for one in answers) == [0, 2, 4]


def test_a_turn_is_cancelled_and_recorded(api: Api, held: Callable[[], None], request: pytest.FixtureRequest) -> None:
    session = api.create_session()
    assert api.post(f"/{session}/cancel") == {"cancelled": False}
    body = {"text": request.node.name, "stream": True}
    with api.client.stream("POST", f"/v1/sessions/{session}/messages", json=body) as reply:
        received = events(reply)
        assert next(received)[0] == "accepted"
        assert api.post(f"/{session}/cancel") == {"cancelled": True}
        name, last = list(received)[-1]
    assert (name, last["reason"]) == ("turn_ended", "cancelled")
    assert [turn["reason"] for turn in api.get(f"/{session}/turns")["turns"]] == ["cancelled"]


@pytest.mark.parametrize("stream", [True, False], ids=["events", "answer"])
def test_a_turn_whose_client_has_left_pauses(
    api: Api, held: Callable[[], None], request: pytest.FixtureRequest, stream: bool
) -> None:
    session = api.create_session()
    text = f"{request.node.name}, look into the folder"
    leaving = HTTPConnection(api.url.removeprefix("http://"))
    with closing(leaving):
        body, head = json.dumps({"text": text, "stream": stream}), {"content-type": "application/json"}
        leaving.request("POST", f"/v1/sessions/{session}/messages", body, head)
        # A pause before the model is asked would end the turn without asking it.
        until(lambda: any(text in str(asked.body) for asked in api.fake.requests))
    until(lambda: bool(api.get(f"/{session}")["state"] == "running"))
    held()
    until(lambda: bool(api.get(f"/{session}")["state"] == "idle"))
    assert [turn["reason"] for turn in api.get(f"/{session}/turns")["turns"]] == ["paused"]
    assert [bool(one["results"]) for one in api.get(f"/{session}/history")["messages"]] == [False, False, True]
    assert api.say(session, "Go on.")["reason"] == "done"
    until(lambda: api.state.turn_streams == 0)


def test_a_message_that_waits_is_taken_back_when_its_client_leaves(
    api: Api, held: Callable[[], None], request: pytest.FixtureRequest
) -> None:
    session = api.create_session()
    path = f"/v1/sessions/{session}/messages"
    with api.client.stream("POST", path, json={"text": request.node.name, "stream": True}) as reply:
        received = events(reply)
        assert next(received)[0] == "accepted"
        with httpx.Client(timeout=0.3) as client, pytest.raises(httpx.ReadTimeout):
            client.post(f"{api.url}{path}", json={"text": "nobody waits for this"})
        until(lambda: bool(api.get(f"/{session}")["queued"] <= 1))
        held()
        assert [name for name, _ in received][-1] == "turn_ended"
    until(lambda: bool(api.get(f"/{session}")["queued"] == 0 and api.get(f"/{session}")["state"] == "idle"))
    assert "nobody waits" not in str(api.get(f"/{session}/history"))


def test_a_model_that_refuses_ends_the_turn_and_says_why(api: Api) -> None:
    session = api.create_session()
    ended = api.say(session, "fail")
    assert (ended["reason"], ended["text"]) == ("failed", "")
    assert "no" in ended["message"]
    name, last = streamed(api, session, "fail again")[-1]
    assert (name, last["reason"]) == ("turn_ended", "failed")


def test_what_is_removed_while_its_turn_runs_is_gone(
    api: Api, held: Callable[[], None], request: pytest.FixtureRequest
) -> None:
    session = api.create_session()
    body = {"text": request.node.name, "stream": True}
    with api.client.stream("POST", f"/v1/sessions/{session}/messages", json=body) as reply:
        received = events(reply)
        assert next(received)[0] == "accepted"
        assert api.client.delete(f"/v1/sessions/{session}").status_code == 204
        assert list(received)[-1][0] in {"turn_ended", "error"}
    api.get(f"/{session}", 404)


def test_a_message_that_waits_for_a_session_that_is_removed_is_told_that_there_is_none(
    api: Api, held: Callable[[], None], request: pytest.FixtureRequest
) -> None:
    session, replies = api.create_session(), list[httpx.Response]()
    path = f"/v1/sessions/{session}/messages"

    def wait() -> None:
        replies.append(api.client.post(path, json={"text": "second"}))

    with api.client.stream("POST", path, json={"text": request.node.name, "stream": True}) as running:
        received = events(running)
        assert next(received)[0] == "accepted"
        waits = threading.Thread(target=wait)
        waits.start()
        until(lambda: bool(api.get(f"/{session}")["queued"] == 1))
        assert api.client.delete(f"/v1/sessions/{session}").status_code == 204
        waits.join(120)
        list(received)
    (reply,) = replies
    problem = reply.json()
    assert (reply.status_code, problem["type"], problem["field"]) == (404, "/problems/not-found", "id")
    assert "retry-after" not in reply.headers
