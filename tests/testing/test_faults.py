"""What goes wrong by script, as clients see it: in this process, and over a real connection where it breaks."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import pytest
from tests.serving import serve
from tests.testing.fake_requests import DIALECTS, HEADERS, PATHS, ask_for, body, events

from foldline.failures.classification import classify
from foldline.testing import FakeProvider, FakeReply

every_dialect = pytest.mark.parametrize("dialect", DIALECTS)

EACH = [(dialect, streamed) for dialect in DIALECTS for streamed in (False, True)]
TEXT = "some words that take more than one piece to say"
LAST = {"openai-chat": "[DONE]", "openai-responses": "response.completed", "anthropic": "message_stop"}


@every_dialect
@pytest.mark.parametrize(
    ("status", "kind"), [(429, "rate"), (500, "other"), (502, "other"), (503, None), (529, None), (401, "auth")]
)
def test_a_status_of_the_script_is_answered(dialect: str, status: int, kind: str | None) -> None:
    app = FakeProvider([FakeReply(status=status, retry_after_seconds=1.5), "ok"])
    sent = ask_for(app, dialect, stream=True)
    assert (sent.status_code, sent.headers["retry-after"]) == (status, "1.5")
    found = classify(status, sent.text).kind
    assert found == kind if kind else found in {"rate", "other"}
    assert ask_for(app, dialect).status_code == 200
    assert (dict(app.faults), app.served, list(app.refused), len(app.requests)) == ({str(status): 1}, 1, [], 2)


@every_dialect
def test_a_script_may_choose_the_words_and_the_code(dialect: str) -> None:
    reply = FakeReply(status=429, message="You exceeded your current quota", code="insufficient_quota")
    sent = ask_for(FakeProvider(reply), dialect)
    assert "retry-after" not in sent.headers
    assert sent.json()["error"]["message"] == "You exceeded your current quota"
    assert classify(429, sent.json()).kind == "quota"
    assert "insufficient_quota" in sent.json()["error"].values()


def test_a_gateway_that_fails_answers_with_a_page() -> None:
    assert ask_for(FakeProvider(FakeReply(status=502)), "openai-chat").headers["content-type"].startswith("text/html")


@every_dialect
def test_an_error_may_stand_in_a_stream_that_has_begun(dialect: str) -> None:
    app = FakeProvider(FakeReply(TEXT, fails="error"))
    sent = ask_for(app, dialect, stream=True)
    found = events(sent.text)
    assert sent.status_code == 200
    assert TEXT[:20] in sent.text
    assert found[-1] != LAST[dialect]
    assert "error" in str(found[-1])
    assert classify(200, found[-1]).kind in {"rate", "other"}
    assert (dict(app.faults), app.served) == ({"error": 1}, 0)


@every_dialect
def test_an_overflow_may_stand_in_a_stream_that_has_begun(dialect: str) -> None:
    app = FakeProvider(FakeReply(TEXT, fails="overflow", after_events=1), window_tokens=5_000)
    sent = ask_for(app, dialect, stream=True)
    found = events(sent.text)
    assert (sent.status_code, len(found)) == (200, 2)
    failure = classify(200, found[-1])
    assert (failure.kind, failure.limit) == ("prompt_overflow", 5_000)


@every_dialect
@pytest.mark.parametrize("fails", ["error", "overflow"])
def test_an_error_may_come_with_status_200(dialect: str, fails: Any) -> None:
    sent = ask_for(FakeProvider(FakeReply(TEXT, fails=fails)), dialect)
    assert sent.status_code == 200
    assert sent.json()["error"]["message"]
    assert (classify(200, sent.json()).kind == "prompt_overflow") is (fails == "overflow")


@every_dialect
def test_a_stream_may_end_without_its_closing_events(dialect: str) -> None:
    app = FakeProvider(FakeReply(TEXT, fails="unfinished"))
    sent = ask_for(app, dialect, stream=True, stream_options={"include_usage": True})
    found = events(sent.text)
    assert TEXT[:20] in sent.text
    assert LAST[dialect] not in str(found)
    assert "stop_reason': 'end_turn" not in str(found)
    assert all(choice["finish_reason"] is None for event in found for choice in event.get("choices", ()))


@every_dialect
def test_a_whole_reply_may_be_cut(dialect: str) -> None:
    sent = ask_for(FakeProvider(FakeReply(TEXT, fails="unfinished")), dialect)
    assert (sent.status_code, len(sent.content)) == (200, int(sent.headers["content-length"]))
    with pytest.raises(json.JSONDecodeError):
        sent.json()


@every_dialect
@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("fails", ["no_answer", "broken"])
def test_a_broken_connection_is_an_error_in_this_process(dialect: str, streamed: bool, fails: Any) -> None:
    app = FakeProvider(FakeReply(TEXT, fails=fails))
    with pytest.raises(ConnectionResetError):
        ask_for(app, dialect, stream=streamed)
    assert (dict(app.faults), app.served, app.disconnected) == ({fails: 1}, 0, 0)


def test_a_connection_may_end_before_the_first_byte() -> None:
    app = FakeProvider([FakeReply(fails="no_answer"), "ok"] * len(EACH))
    with serve(app) as served, httpx.Client(base_url=served.url, headers=HEADERS) as client:
        for dialect, streamed in EACH:
            with pytest.raises(httpx.RemoteProtocolError, match="without sending a response"):
                client.post(PATHS[dialect], json=body(dialect, stream=streamed))
            assert client.post(PATHS[dialect], json=body(dialect)).status_code == 200
    assert (dict(app.faults), app.served) == ({"no_answer": len(EACH)}, len(EACH))


def test_a_connection_may_break_in_the_middle() -> None:
    app = FakeProvider([FakeReply(TEXT, fails="broken"), "ok"] * len(EACH))
    with serve(app) as served, httpx.Client(base_url=served.url, headers=HEADERS) as client:
        for dialect, streamed in EACH:
            received: list[bytes] = []
            with client.stream("POST", PATHS[dialect], json=body(dialect, stream=streamed)) as sent:
                assert sent.status_code == 200
                with pytest.raises(httpx.RemoteProtocolError, match="without sending complete message body"):
                    received.extend(sent.iter_bytes())
            assert LAST[dialect].encode() not in b"".join(received)
            assert client.post(PATHS[dialect], json=body(dialect)).status_code == 200
    assert (dict(app.faults), app.served) == ({"broken": len(EACH)}, len(EACH))


def test_what_was_sent_before_a_break_arrives() -> None:
    app = FakeProvider(FakeReply(TEXT, fails="broken"))
    with serve(app) as served, httpx.Client(base_url=served.url, headers=HEADERS) as client:
        for dialect in DIALECTS:
            with client.stream("POST", PATHS[dialect], json=body(dialect, stream=True)) as sent:
                lines = sent.iter_lines()
                assert any(TEXT[-7:] in line for line in lines)


def test_pieces_wait_for_the_test() -> None:
    gates = {dialect: asyncio.Event() for dialect in DIALECTS}
    app = FakeProvider([FakeReply(TEXT, gate=gate) for gate in gates.values()])
    with serve(app) as served, httpx.Client(base_url=served.url, headers=HEADERS) as client:
        for dialect, gate in gates.items():
            received = ""
            with client.stream("POST", PATHS[dialect], json=body(dialect, stream=True)) as sent:
                for text in sent.iter_text():
                    received += text
                    if TEXT[:20] in received and not gate.is_set():
                        assert TEXT[20:40] not in received
                        served.set(gate)
            assert TEXT[20:40] in received
            assert LAST[dialect] in received


@every_dialect
def test_a_function_may_hold_each_event(dialect: str) -> None:
    seen: list[int] = []

    async def pass_by(number: int) -> None:
        seen.append(number)

    app = FakeProvider(FakeReply(TEXT, gate=pass_by))
    found = events(ask_for(app, dialect, stream=True).text)
    assert seen == list(range(len(found)))
    seen.clear()
    ask_for(app, dialect)
    assert seen == [0]


@every_dialect
@pytest.mark.parametrize("streamed", [False, True])
def test_a_client_that_leaves_ends_its_request(dialect: str, streamed: bool) -> None:
    left, waiting = asyncio.Event(), asyncio.Event()

    async def never(number: int) -> None:
        if number == 3 or not streamed:
            waiting.set()
            try:
                await asyncio.Event().wait()
            finally:
                left.set()

    async def run() -> None:
        app = FakeProvider(FakeReply(TEXT, gate=never))
        messages: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        sent: list[Any] = []
        data = json.dumps(body(dialect, stream=streamed)).encode()
        messages.put_nowait({"type": "http.request", "body": data[:10], "more_body": True})
        messages.put_nowait({"type": "http.request", "body": data[10:]})

        async def send(message: Any) -> None:
            sent.append(message)

        headers = [(b"Anthropic-Version", b"2023-06-01")]
        scope = {"type": "http", "method": "POST", "path": PATHS[dialect], "headers": headers}
        request = asyncio.ensure_future(app(scope, messages.get, send))
        await waiting.wait()
        messages.put_nowait({"type": "http.disconnect"})
        await request
        await left.wait()
        assert (app.disconnected, app.served, len(app.requests)) == (1, 0, 1)
        assert len(sent) == (4 if streamed else 0)

    asyncio.run(run())


def test_a_client_that_leaves_before_its_request_is_whole_is_counted() -> None:
    async def run() -> FakeProvider:
        app = FakeProvider()
        told: list[dict[str, Any]] = [{"type": "http.disconnect"}]
        told.append({"type": "http.request", "body": b"{", "more_body": True})

        async def receive() -> dict[str, Any]:
            return told.pop()

        async def send(message: Any) -> None:
            raise AssertionError(f"nobody is there for {message}")

        await app({"type": "http", "method": "POST", "path": PATHS["anthropic"], "headers": []}, receive, send)
        return app

    app = asyncio.run(run())
    assert (app.disconnected, app.served, list(app.refused)) == (1, 0, [])


def test_a_send_that_fails_means_that_the_client_left() -> None:
    async def run() -> FakeProvider:
        app = FakeProvider(TEXT)
        data = json.dumps(body("openai-chat", stream=True)).encode()
        told = asyncio.Queue[dict[str, Any]]()
        told.put_nowait({"type": "http.request", "body": data})

        async def send(message: Any) -> None:
            if message["type"] == "http.response.body":
                raise OSError("closed")

        scope = {"type": "http", "method": "POST", "path": PATHS["openai-chat"], "headers": []}
        await app(scope, told.get, send)
        return app

    app = asyncio.run(run())
    assert (app.disconnected, app.served) == (1, 0)


def test_a_client_that_leaves_a_real_server_is_noticed() -> None:
    gate, left = asyncio.Event(), asyncio.Event()

    async def held(number: int) -> None:
        if number < 2:
            return
        try:
            await gate.wait()
        finally:
            left.set()

    async def until_left() -> None:
        await left.wait()

    app = FakeProvider(FakeReply(TEXT, gate=held))
    with serve(app) as served:
        request = body("openai-chat", stream=True)
        with (
            httpx.Client(base_url=served.url) as client,
            client.stream("POST", PATHS["openai-chat"], json=request) as sent,
        ):
            assert any(TEXT[:20] in line for line in sent.iter_lines())
        asyncio.run_coroutine_threadsafe(until_left(), served.loop).result(timeout=120)
    assert (app.disconnected, app.served) == (1, 0)
