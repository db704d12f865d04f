"""A failure is found in whatever shape it comes: dict, text, stream event, another provider's body, or an exception."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.property.depth import costly

from foldline.failures.classification import classify
from foldline.failures.evidence import SEARCHED_CHARS, read_body, read_error
from foldline.text.redaction import redact

WORDS = "This model's maximum context length is 8192 tokens. However, your messages resulted in 9001 tokens."
INNER = {"message": WORDS, "type": "invalid_request_error", "code": "context_length_exceeded"}

SHAPES: dict[str, object] = {
    "error object": {"error": INNER},
    "error itself": INNER,
    "json text": json.dumps({"error": INNER}),
    "json bytes": json.dumps({"error": INNER}).encode(),
    "plain text": WORDS,
    "prefixed json": "litellm.BadRequestError: OpenAIException - " + json.dumps({"error": INNER}),
    "printed object": f"Error code: 400 - {{'error': {INNER}}}",
    "json in a message": {"error": {"message": json.dumps({"error": INNER}), "code": 400}},
    "provider body as a string": {
        "error": {"message": "Provider returned error", "metadata": {"raw": json.dumps({"error": INNER})}}
    },
    "list": [{"error": {"code": 400, "message": WORDS, "status": "INVALID_ARGUMENT"}}],
    "response.failed": {"type": "response.failed", "response": {"status": "failed", "error": INNER}},
    "error event": {"type": "error", "error": INNER},
    "flat error event": {"type": "error", **INNER},
    "recorded stream": f"event: error\ndata: {json.dumps({'error': INNER})}\n\ndata: [DONE]\n",
    "fastapi": {"detail": [{"loc": ["body"], "msg": WORDS, "type": "value_error"}]},
    "vllm": {"object": "error", "message": WORDS, "type": "BadRequestError", "param": None, "code": 400},
    "field that is not the message": {"error": {"message": "Param Incorrect", "param": WORDS, "code": "400"}},
}


class BadRequestError(Exception):
    """As the clients of two providers raise it."""

    def __init__(self, message: str, *, body: object = None, status_code: int | None = 400) -> None:
        super().__init__(message)
        self.body = body
        self.status_code = status_code


class Response:
    """As of an HTTP client."""

    def __init__(self, status_code: int, text: str, headers: Mapping[str, str] | None = None) -> None:
        self.status_code = status_code
        self.text = text
        self.headers = headers or {}


class UnreadResponse:
    """A streamed response whose body was not read: asking for it is an error."""

    status_code = 429

    @property
    def text(self) -> str:
        raise RuntimeError("attempted to access streaming response content")


class HTTPStatusError(Exception):
    """Carries a response instead of a body."""

    def __init__(self, response: object) -> None:
        super().__init__("Client error '400 Bad Request' for url 'https://api.example/v1'")
        self.response = response


class ContextWindowExceededError(Exception):
    """Says what it is by its name alone."""


@pytest.mark.parametrize("body", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("status", [400, 200, None])
def test_every_shape_gives_the_same_kind_and_figures(status: int | None, body: object) -> None:
    failure = classify(status, body)
    assert (failure.kind, failure.limit, failure.requested) == ("prompt_overflow", 8192, 9001)


@pytest.mark.parametrize("body", SHAPES.values(), ids=SHAPES)
def test_every_shape_can_come_with_an_exception(body: object) -> None:
    assert classify(error=BadRequestError("", body=body)).kind == "prompt_overflow"
    assert classify(error=ValueError(body)).kind == "prompt_overflow"


def test_a_reply_that_speaks_of_failures_is_none() -> None:
    reply = {"choices": [{"message": {"role": "assistant", "content": WORDS}, "finish_reason": "stop"}]}
    assert classify(200, reply).kind == "other"
    assert classify(200, {"type": "message", "content": [{"type": "text", "text": WORDS}]}).kind == "other"
    assert classify(200, f"data: {json.dumps({'choices': [{'delta': {'content': WORDS}}]})}\n\n").kind == "other"


def test_what_a_body_echoes_of_the_request_is_not_read() -> None:
    body = {"error": {"message": "Invalid value for temperature"}, "input": WORDS, "messages": [{"content": WORDS}]}
    assert classify(400, body).kind == "other"


def test_a_link_is_not_a_wording() -> None:
    body = "Invalid value for temperature. See https://example.org/docs/rate-limits#context-length-exceeded"
    assert classify(400, body).kind == "other"


def test_the_status_in_a_stream_event_is_the_one_of_the_failure() -> None:
    failure = classify(200, {"error": {"code": 429, "message": "no more"}})
    assert (failure.kind, failure.status) == ("rate", 429)
    assert classify(503, {"error": {"code": 429, "message": "no more"}}).status == 503


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"error": INNER}, "context_length_exceeded"),
        ({"type": "error", "error": {"type": "invalid_request_error", "message": "x"}}, "invalid_request_error"),
        ({"error": {"code": 400, "message": "x", "status": "INVALID_ARGUMENT"}}, "INVALID_ARGUMENT"),
        ({"error": {"code": "1261", "message": "x"}}, "1261"),
        ({"base_resp": {"status_code": 2013, "status_msg": "context window exceeds limit"}}, "2013"),
        ({"Error": {"Code": "ThrottlingException", "Message": "x"}}, "ThrottlingException"),
        ("x", None),
    ],
)
def test_the_most_telling_code_is_kept(body: object, code: str | None) -> None:
    assert classify(400, body).code == code


def test_an_exception_tells_by_its_response() -> None:
    failure = classify(error=HTTPStatusError(Response(400, json.dumps({"error": INNER}))))
    assert (failure.kind, failure.status, failure.limit) == ("prompt_overflow", 400, 8192)
    aws = {"Error": {"Code": "ThrottlingException", "Message": "slow"}, "ResponseMetadata": {"HTTPStatusCode": 429}}
    assert (classify(error=HTTPStatusError(aws)).kind, classify(error=HTTPStatusError(aws)).status) == ("rate", 429)


def test_a_response_that_cannot_be_read_leaves_its_status() -> None:
    assert classify(error=HTTPStatusError(UnreadResponse())).kind == "rate"


@pytest.mark.parametrize("body", ["", "  \n"])
def test_an_exception_whose_response_is_empty_tells_by_its_message(body: str) -> None:
    """As those of LiteLLM are, which makes a response of its own for each."""
    error = BadRequestError("This model's maximum context length is 800 tokens, you requested 6008 tokens.")
    error.response = Response(400, body)  # type: ignore[attr-defined]
    failure = classify(error=error)
    assert (failure.kind, failure.limit, failure.status) == ("prompt_overflow", 800, 400)


def test_an_exception_tells_by_its_name() -> None:
    assert classify(error=ContextWindowExceededError("no")).kind == "prompt_overflow"


def test_an_exception_tells_by_its_message() -> None:
    assert classify(error=RuntimeError(f"Error code: 400 - {{'error': {INNER}}}")).status == 400


def test_the_chain_of_causes_is_followed_until_something_tells() -> None:
    outer, middle = RuntimeError("the agent stopped"), RuntimeError("the call failed")
    outer.__cause__ = middle
    middle.__context__ = BadRequestError("", body=INNER)
    assert classify(error=outer).kind == "prompt_overflow"
    middle.__suppress_context__ = True
    assert classify(error=outer).kind == "other"


def test_an_inner_failure_does_not_overrule_the_outer_one() -> None:
    overflow = BadRequestError("", body=INNER)
    overflow.__context__ = BadRequestError("Rate limit reached", status_code=429)
    assert classify(error=overflow).kind == "prompt_overflow"


def test_a_chain_that_bites_its_tail_ends() -> None:
    one, two = RuntimeError("one"), RuntimeError("two")
    one.__cause__, two.__cause__ = two, one
    assert classify(error=one).kind == "other"


def test_a_group_of_exceptions_is_looked_into() -> None:
    group = ExceptionGroup("tasks failed", [RuntimeError("x"), BadRequestError("", body=INNER)])
    assert classify(error=group).kind == "prompt_overflow"


def test_a_status_given_wins_over_the_one_of_the_exception() -> None:
    assert classify(500, error=BadRequestError("nothing known")).status == 500


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [({"retry-after": "7"}, 7.0), ({"Retry-After": "1.5"}, 1.5), ({"retry-after-ms": "250"}, 0.25), ({}, None)],
)
def test_the_header_says_how_long_to_wait(headers: Mapping[str, str], seconds: float | None) -> None:
    assert classify(error=HTTPStatusError(Response(429, "slow down", headers))).retry_after_seconds == seconds


def test_a_date_in_the_header_is_left_alone() -> None:
    headers = {"retry-after": "Wed, 21 Oct 2026 07:28:00 GMT"}
    assert classify(error=HTTPStatusError(Response(429, "slow down", headers))).retry_after_seconds is None


@pytest.mark.parametrize(
    "secret",
    [
        "sk-proj-abcDEF1234567890",
        "sk-ant-api03-abcDEF1234567890",
        "gsk_abcDEF1234567890",
        "Bearer abcDEF1234567890",
        "AIzaSyabcDEF1234567890",
        "AKIAABCDEFGHIJKLMNOP",
        "eyJhbGciOiJI.eyJzdWIiOiIx.abcDEF123",
        "api_key=abcDEF1234567890",
        "https://user:abcDEF1234567890@proxy.example/",
        "https://api.example/v1?key=abcDEF1234567890",
    ],
)
def test_no_secret_is_left_in_a_message(secret: str) -> None:
    message = classify(401, {"error": {"message": f"Incorrect API key provided: {secret}. Look it up."}}).message
    assert "abcDEF123" not in message
    assert "AKIAABCD" not in message
    assert "[redacted]" in message
    assert "[redacted]" in redact(secret)


def test_a_secret_behind_the_cut_is_not_half_shown() -> None:
    message = classify(401, "x" * 490 + " sk-abcdefghijklmnopqrstuvwxyz").message
    assert len(message) == 500
    assert "sk-abc" not in message


@given(text=st.text())
def test_nothing_else_is_redacted_twice(text: str) -> None:
    assert redact(redact(text)) == redact(text)


@costly
@given(text=st.text(min_size=1))
def test_the_text_searched_is_bounded(text: str) -> None:
    assert len(read_body(text * 20_000).text) <= 2 * SEARCHED_CHARS
    assert len(read_error(ValueError(text * 20_000)).text) <= 2 * SEARCHED_CHARS
