"""Paths that name the model and the stream: Gemini, Vertex AI for both makers, Bedrock for Claude."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.doors.proxy.proxies import HEADERS, Fixed, proxied

from foldline.codecs import dialect_named
from foldline.doors.proxy.request_head import as_event_stream, dialect_of, is_streamed_at
from foldline.doors.proxy.response_watch import ResponseWatch
from foldline.failures.classification import classify
from foldline.testing import FakeProvider, session

GEMINI = "/v1beta/models/gemini-test:generateContent"
VERTEX = "/v1/projects/p/locations/global/publishers"
BEDROCK = "/model/eu.anthropic.claude-sonnet-4-5-v1%3A0"
KEY = {"x-goog-api-key": "secret"}
PLACES = [
    (GEMINI, "gemini", False),
    ("/v1beta/models/gemini-test:streamGenerateContent?alt=sse", "gemini", True),
    (f"{VERTEX}/google/models/gemini-test:generateContent", "gemini", False),
    (f"{VERTEX}/google/models/gemini-test:streamGenerateContent?alt=sse", "gemini", True),
    (f"{VERTEX}/anthropic/models/claude-test:rawPredict", "anthropic", False),
    (f"{VERTEX}/anthropic/models/claude-test:streamRawPredict", "anthropic", True),
    (f"{BEDROCK}/invoke", "anthropic", False),
    (f"{BEDROCK}/invoke-with-response-stream", "anthropic", True),
]


@dataclass
class Cloud:
    """An upstream that answers at the paths of clouds: for Claude, a body of Messages that names no model."""

    fake: FakeProvider = field(default_factory=lambda: FakeProvider("Noted.", window_tokens=8_000, repeat=True))
    paths: set[str] = field(default_factory=set)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if (
            scope["type"] != "http"
            or scope["method"] != "POST"
            or ("models/" in scope["path"] and "google" in scope["path"])
        ):
            self.paths.add(scope.get("path", ""))
            await self.fake(scope, receive, send)
            return
        self.paths.add(scope["path"])
        if re.search(r"anthropic|claude", scope["path"]) is None:
            await self.fake(scope, receive, send)
            return
        data = b""
        while True:
            message = await receive()
            data += message.get("body", b"")
            if not message.get("more_body"):
                break
        given = json.loads(data)
        assert "model" not in given
        body = {**given, "model": "claude", "stream": "tream" in scope["path"]}
        sent = False

        async def again() -> Any:
            nonlocal sent
            if sent:
                return await receive()
            sent = True
            return {"type": "http.request", "body": json.dumps(body).encode(), "more_body": False}

        await self.fake({**scope, "path": "/v1/messages"}, again, send)


def body_of(dialect: str, wires: list[Mapping[str, Any]]) -> dict[str, Any]:
    if dialect == "gemini":
        return {"contents": wires, "generationConfig": {"maxOutputTokens": 300, "temperature": 0}}
    return {"anthropic_version": "vertex-2023-10-16", "messages": wires, "max_tokens": 300}


@pytest.mark.parametrize(("path", "dialect", "streamed"), PLACES)
def test_a_long_conversation_is_folded_and_sent_where_its_client_sends_it(
    tmp_path: Path, path: str, dialect: str, streamed: bool
) -> None:
    cloud = Cloud()
    wires = session(14, result="This line of the file is in order. " * 100, dialect=dialect)
    with (
        proxied(cloud, tmp_path, window=8_000) as running,
        httpx.Client(headers=HEADERS | KEY, timeout=60) as client,
    ):
        for count in range(1, len(wires) + 1, 2):
            response = client.post(running.url + path, json=body_of(dialect, wires[:count]))
            assert response.status_code == 200, response.text
            assert ("data: " in response.text) == streamed
    assert not cloud.fake.refusals
    shown = cloud.fake.requests[-1].body[dialect_named(dialect).body.messages]
    assert len(json.dumps(shown)) < 0.8 * len(json.dumps(wires))
    assert len(cloud.paths - {"/api/show"}) <= 2
    if dialect == "gemini":
        assert cloud.fake.requests[-1].body["generationConfig"] == {"maxOutputTokens": 300, "temperature": 0}


def test_what_does_not_fit_is_refused_in_the_words_of_google(tmp_path: Path) -> None:
    wires = [{"role": "user", "parts": [{"text": "x " * 30_000}]}]
    with proxied(Cloud(), tmp_path, window=2_000) as running:
        response = httpx.post(running.url + GEMINI, json={"contents": wires}, headers=KEY)
    error = response.json()["error"]
    assert (response.status_code, error["code"], error["status"]) == (400, 400, "INVALID_ARGUMENT")
    assert classify(400, response.json()).kind == "prompt_overflow"


def test_frames_of_bedrock_pass_as_they_are(tmp_path: Path) -> None:
    frames = (b"\x00\x00\x00\x9b\x00\x00\x00\x57binary", b"\x0b:message-type\x07\x00\x05event")
    upstream = Fixed(frames, headers=((b"content-type", b"application/vnd.amazon.eventstream"),))
    wires = session(2, dialect="anthropic")
    with proxied(upstream, tmp_path) as running:
        url = f"{running.url}{BEDROCK}/invoke-with-response-stream"
        response = httpx.post(url, json=body_of("anthropic", list(wires)), headers=HEADERS)
    assert response.content == b"".join(frames)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/v1beta/models/gemini-test:countTokens", ("gemini", True)),
        ("/v1beta/models/gemini-test:embedContent", ("", False)),
        ("/v1beta/models/gemini-test:batchGenerateContent", ("", False)),
        ("/model/amazon.nova-lite-v1:0/invoke", ("", False)),
        ("/model/anthropic.claude-test/converse", ("", False)),
        (f"{VERTEX}/anthropic/models/count-tokens:rawPredict", ("anthropic", True)),
    ],
)
def test_other_methods_pass(path: str, expected: tuple[str, bool]) -> None:
    assert dialect_of("POST", path) == expected
    assert not is_streamed_at(path)


def test_a_summary_is_asked_for_as_a_stream_of_events() -> None:
    assert as_event_stream(f"{GEMINI}?key=k") == "/v1beta/models/gemini-test:streamGenerateContent?key=k&alt=sse"
    assert as_event_stream("/v1/messages?beta=true") == "/v1/messages?beta=true"


def response(text: str, **more: Any) -> dict[str, Any]:
    return {"candidates": [{"content": {"role": "model", "parts": [{"text": text}]}, **more}]}


@pytest.mark.parametrize("as_array", [False, True])
def test_a_stream_of_gemini_is_watched_in_both_forms(as_array: bool) -> None:
    last = response("two", finishReason="MAX_TOKENS") | {
        "usageMetadata": {"promptTokenCount": 9, "candidatesTokenCount": 2}
    }
    events = [json.dumps(event) for event in (response("one"), last)]
    pieces = [f"[{events[0]}", f",\r\n{events[1]}", "]"] if as_array else [f"data: {event}\r\n\r\n" for event in events]
    watch = ResponseWatch("gemini", streamed=True)
    watch.feed(pieces[0].encode())
    assert watch.begun
    for piece in pieces[1:]:
        watch.feed(piece.encode())
    watch.finish()
    assert watch.ended
    assert watch.stop_reason == "MAX_TOKENS"
    assert watch.usage is not None
    assert (watch.usage.input_tokens, watch.usage.output_tokens) == (9, 2)
    assert watch.error is None


@pytest.mark.parametrize("as_array", [False, True])
def test_an_error_instead_of_a_stream_is_one(as_array: bool) -> None:
    error = json.dumps({"error": {"code": 503, "message": "The model is overloaded.", "status": "UNAVAILABLE"}})
    watch = ResponseWatch("gemini", streamed=True)
    watch.feed((f"[{error}]" if as_array else f"data: {error}\r\n\r\n").encode())
    watch.finish()
    assert watch.error is not None
    assert not watch.begun
