"""What the proxy refuses is an error of the client's own dialect, in words that clients know."""

from __future__ import annotations

import json
import re

import pytest

from foldline import classify
from foldline.interfaces.proxy.refusals import overflow, refused

DIALECTS = ("openai-chat", "openai-responses", "anthropic")
dialects = pytest.mark.parametrize("dialect", DIALECTS)


@dialects
def test_an_overflow_is_known_as_one_with_its_figures(dialect: str) -> None:
    refusal = overflow(dialect, tokens=210_000, limit=200_000, detail="what must stay needs 205,000 (system: 9 tokens)")
    failure = classify(refusal.status, refusal.body)
    assert (refusal.status, failure.kind, failure.limit) == (400, "prompt_overflow", 200_000)


def test_claude_code_finds_both_figures_where_it_looks_for_them() -> None:
    error = json.loads(overflow("anthropic", tokens=210_000, limit=200_000).body)
    assert error["type"] == "error"
    assert error["error"]["type"] == "invalid_request_error"
    assert re.match(r"prompt is too long[^0-9]*(\d+)\s*tokens?\s*>\s*(\d+)", error["error"]["message"])


@pytest.mark.parametrize("dialect", ["openai-chat", "openai-responses"])
def test_clients_of_openai_find_the_code(dialect: str) -> None:
    error = json.loads(overflow(dialect, tokens=9_000, limit=8_192).body)["error"]
    assert error["code"] == "context_length_exceeded"
    assert error["type"] == "invalid_request_error"
    assert "maximum context length is 8192 tokens" in error["message"]


@dialects
@pytest.mark.parametrize("status", [401, 403, 413, 429, 502, 504])
def test_other_refusals_have_the_form_of_the_dialect_and_are_no_overflow(dialect: str, status: int) -> None:
    refusal = refused(dialect, status, "the upstream\ncannot be reached", headers=[(b"retry-after", b"3")])
    error = json.loads(refusal.body)
    assert (refusal.status, error["error"]["message"]) == (status, "foldline: the upstream cannot be reached")
    assert ("type" in error) == (dialect == "anthropic")
    assert (b"retry-after", b"3") in refusal.headers
    assert dict(refusal.headers)[b"content-length"] == str(len(refusal.body)).encode()
    if status not in (413, 429):
        assert classify(status, refusal.body).kind not in ("prompt_overflow", "output_overflow")
