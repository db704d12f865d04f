"""The fake as Gemini: its paths, its streams, its counts, and its errors."""

from __future__ import annotations

import json
from base64 import b64decode
from typing import Any

import pytest
from tests.testing.fake_requests import ask

from foldline.failures.classification import classify
from foldline.testing import FakeProvider, FakeReply, count_body
from foldline.view.usage import usage_of

PATH = "/v1beta/models/gemini-test:{}"
ASKED: dict[str, Any] = {"contents": [{"role": "user", "parts": [{"text": "Hello"}]}]}
CALLS = FakeReply(reasoning="hm", calls=[("read", {"path": "a.py"}), ("read", {"path": "b.py"})])


def events(text: str) -> list[Any]:
    return [json.loads(frame.removeprefix("data: ")) for frame in text.split("\r\n\r\n") if frame]


def test_a_reply_is_one_candidate_with_its_usage() -> None:
    body = ask(FakeProvider("Hi."), PATH.format("generateContent"), ASKED).json()
    (candidate,) = body["candidates"]
    assert candidate["content"]["parts"][0]["text"] == "Hi."
    assert candidate["finishReason"] == "STOP"
    assert usage_of(body["usageMetadata"]).input_tokens == count_body(ASKED)


def test_the_first_of_parallel_calls_is_signed() -> None:
    body = ask(FakeProvider(CALLS), PATH.format("generateContent"), ASKED).json()
    thought, first, second = body["candidates"][0]["content"]["parts"]
    assert thought == {"text": "hm", "thought": True}
    assert b64decode(first["thoughtSignature"], validate=True)  # bytes in the API
    assert "thoughtSignature" not in second


def test_a_stream_is_made_of_whole_responses() -> None:
    sent = ask(FakeProvider("one two three"), PATH.format("streamGenerateContent?alt=sse"), ASKED)
    found = events(sent.text)
    texts = [part["text"] for event in found for part in event["candidates"][0].get("content", {}).get("parts", [])]
    assert "".join(texts) == "one two three"
    assert found[-1]["candidates"][0]["finishReason"] == "STOP"
    assert all("usageMetadata" not in event for event in found[:-1])


def test_tokens_are_counted() -> None:
    app = FakeProvider()
    assert ask(app, PATH.format("countTokens"), ASKED).json() == {"totalTokens": count_body(ASKED)}
    assert app.counted == 1


def test_the_key_stands_in_its_own_header() -> None:
    app = FakeProvider(api_key="secret")
    assert ask(app, PATH.format("generateContent"), ASKED).status_code == 403
    assert ask(app, PATH.format("generateContent"), ASKED, headers={"x-goog-api-key": "secret"}).status_code == 200


@pytest.mark.parametrize("method", ["generateContent", "streamGenerateContent"])
def test_what_is_larger_than_the_window_is_refused_with_its_figures(method: str) -> None:
    given = {"contents": [{"role": "user", "parts": [{"text": "x" * 5_000}]}]}
    sent = ask(FakeProvider(window_tokens=1_000), PATH.format(method), given)
    failure = classify(sent.status_code, sent.json())
    assert (failure.kind, failure.limit, failure.requested) == ("prompt_overflow", 1_000, count_body(given))


def test_a_second_request_is_found_in_the_cache() -> None:
    app = FakeProvider("ok", repeat=True)
    ask(app, PATH.format("generateContent"), ASKED)
    usage = ask(app, PATH.format("generateContent"), ASKED).json()["usageMetadata"]
    assert usage["cachedContentTokenCount"] == usage["promptTokenCount"]
