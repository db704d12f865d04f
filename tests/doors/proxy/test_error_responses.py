"""Refusals of the proxy are errors of the client's own dialect, in words that clients recognise."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from tests.serving import serve

from foldline import classify
from foldline.doors.proxy.error_responses import ErrorResponse, error_response, overflow
from foldline.doors.proxy.response_watch import ResponseWatch

DIALECTS = ("openai-chat", "openai-responses", "anthropic")
dialects = pytest.mark.parametrize("dialect", DIALECTS)

DETAILS = {
    "none": "",
    "ours": "does not fit: what must stay needs 205,000 tokens, the limit is 180,000 (system: 9 tokens)",
    "with other figures": (
        "This model's maximum context length is 8192 tokens. However, you requested 9001 tokens (8001 in the messages, "
        "1000 in the completion)."
    ),
    "of the output": "input length and `max_tokens` exceed context limit: 189136 + 20000 > 204648",
    "of a rate": "Rate limit reached for tokens per minute: Limit 30000, Requested 45000. Please try again in 2s.",
    "of a quota": "You exceeded your current quota",
    "of bytes": "Request entity too large",
    "long": "x" * 100_000,
}
details = pytest.mark.parametrize("detail", DETAILS.values(), ids=list(DETAILS))


@dialects
@pytest.mark.parametrize("streamed", [False, True])
@details
def test_an_overflow_is_known_as_one_with_its_figures_whatever_is_added(
    dialect: str, detail: str, streamed: bool
) -> None:
    refusal = overflow(dialect, tokens=210_000, limit=200_000, detail=detail, streamed=streamed)
    failure = classify(refusal.status, refusal.body)
    assert (failure.kind, failure.limit, failure.requested) == ("prompt_overflow", 200_000, 210_000)
    assert len(refusal.body) < 8_000


@dialects
def test_what_can_be_done_is_said(dialect: str) -> None:
    assert b"the limit is 180,000" in overflow(dialect, tokens=210_000, limit=200_000, detail=DETAILS["ours"]).body


def code(error: dict[str, Any]) -> bool:
    return error.get("code") == "context_length_exceeded"


def words(*patterns: str) -> Callable[[dict[str, Any]], bool]:
    return lambda error: all(re.search(pattern, error["message"], re.IGNORECASE) for pattern in patterns)


OPENAI = {
    "opencode": words(r"maximum context length is \d+ tokens"),
    "pi": words(r"reduce the length of the messages"),
    "Cline, by code": code,
    "Cline, by words": words(r"context (?:length|window)", r"^(?!.*(?:rate limit|per minute))"),
    "pydantic-ai": lambda error: code(error) and words("maximum context length")(error),
    "litellm": words(r"this model's maximum context length is"),
    "Roo": words(r"context length"),
}
LOOKED_FOR: dict[str, dict[str, Callable[[dict[str, Any]], bool]]] = {
    "anthropic": {
        "Claude Code": words(r"^prompt is too long[^0-9]*(210000)\s*tokens?\s*>\s*(200000)"),
        "LangChain, OpenHands, pi": words(r"prompt is too long"),
        "by type": lambda error: error["type"] == "invalid_request_error",
    },
    "openai-chat": OPENAI,
    "openai-responses": {**OPENAI, "langchain-openai": words("exceeds the context window")},
}


@pytest.mark.parametrize(
    ("dialect", "client"), [(d, client) for d, clients in LOOKED_FOR.items() for client in clients]
)
@details
def test_each_client_finds_what_it_looks_for(dialect: str, client: str, detail: str) -> None:
    refusal = overflow(dialect, tokens=210_000, limit=200_000, detail=detail)
    body = json.loads(refusal.body)
    assert refusal.status == 400
    assert (body.get("type") == "error") is (dialect == "anthropic")
    assert LOOKED_FOR[dialect][client](body["error"])


def test_codex_and_opencode_find_the_code_in_the_events_of_a_stream() -> None:
    refusal = overflow("openai-responses", tokens=9_000, limit=8_192, streamed=True, model="gpt-5.4")
    frames = [frame.split("\n") for frame in refusal.body.decode().strip().split("\n\n")]
    events = {name.removeprefix("event: "): json.loads(data.removeprefix("data: ")) for name, data in frames}
    assert list(events) == ["response.created", "error", "response.failed"]
    assert code(events["error"]["error"])
    assert code(events["response.failed"]["response"]["error"])
    assert events["response.failed"]["response"]["status"] == "failed"
    assert events["response.failed"]["response"]["model"] == "gpt-5.4"
    assert (refusal.status, dict(refusal.headers)[b"content-type"]) == (200, b"text/event-stream; charset=utf-8")


@dialects
def test_a_proxy_behind_this_one_takes_it_for_a_refusal_that_came_before_anything(dialect: str) -> None:
    refusal = overflow(dialect, tokens=9_000, limit=8_192, streamed=True)
    watch = ResponseWatch(dialect, streamed=refusal.status == 200)
    watch.feed(refusal.body)
    watch.finish()
    assert not watch.begun
    assert watch.error is not None
    assert classify(refusal.status, watch.error).kind == "prompt_overflow"


def answering(refusal: ErrorResponse) -> Any:
    """An application that answers everything with this refusal."""

    async def answer(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            await send({"type": "http.response.start", "status": refusal.status, "headers": list(refusal.headers)})
            await send({"type": "http.response.body", "body": refusal.body})

    return answer


def test_other_refusals_can_be_read_as_json_by_an_http_client() -> None:
    with serve(answering(error_response("openai-chat", 502, "gone"))) as served:
        answer = httpx.post(f"{served.url}/v1/chat/completions")
    assert (answer.status_code, answer.json()["error"]["code"]) == (502, "upstream_unreachable")


@dialects
@pytest.mark.parametrize("status", [401, 403, 413, 429, 502, 504])
def test_other_refusals_have_the_form_of_the_dialect_and_are_no_overflow(dialect: str, status: int) -> None:
    refusal = error_response(dialect, status, "the upstream\ncannot be reached", headers=[(b"retry-after", b"3")])
    error = json.loads(refusal.body)
    assert (refusal.status, error["error"]["message"]) == (status, "foldline: the upstream cannot be reached")
    assert ("type" in error) == (dialect == "anthropic")
    assert (b"retry-after", b"3") in refusal.headers
    assert dict(refusal.headers)[b"content-length"] == str(len(refusal.body)).encode()
    assert classify(status, refusal.body).kind not in ("prompt_overflow", "output_overflow")


def test_without_a_dialect_it_is_plain_json() -> None:
    assert json.loads(error_response("", 404, "nothing here").body)["error"]["message"] == "foldline: nothing here"
