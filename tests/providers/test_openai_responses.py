"""The Responses dialect over HTTP: bodies that keep nothing at the provider, and items as they came."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.providers.serving import endpoint, request

from foldline.providers.base import AssembledReply, CallStarted, Piece, ReasoningDelta, TextDelta
from foldline.providers.bodies import Event, StreamedError
from foldline.providers.openai_responses import ResponsesDialect, reasons

THOUGHT = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "xx", "unknown": 1}
CALL = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "read", "arguments": "{}"}
TEXT = {
    "type": "message",
    "id": "msg_1",
    "role": "assistant",
    "content": [{"type": "output_text", "text": "Hello", "annotations": []}],
}


def played(*bodies: dict[str, Any]) -> tuple[list[Piece], AssembledReply | None]:
    assembler = ResponsesDialect().assembler()
    pieces = [piece for body in bodies for piece in assembler.feed(Event(str(body.get("type", "")), json.dumps(body)))]
    return pieces, assembler.result()


def done(*items: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"type": "response.output_item.done", "output_index": at, "item": item} for at, item in enumerate(items)]


def end(*items: dict[str, Any], kind: str = "completed", **fields: Any) -> dict[str, Any]:
    return {"type": f"response.{kind}", "response": {"status": kind, "output": list(items), **fields}}


def test_items_come_back_whole_and_unchanged() -> None:
    usage = {"input_tokens": 9, "output_tokens": 3}
    pieces, result = played(
        {"type": "response.created", "response": {}},
        {"type": "response.output_item.added", "item": {"type": "reasoning"}},
        {"type": "response.reasoning_summary_part.added", "summary_index": 0},
        {"type": "response.reasoning_summary_text.delta", "delta": "hm"},
        {"type": "response.reasoning_summary_part.added", "summary_index": 1},
        {"type": "response.reasoning_summary_text.delta", "delta": "so"},
        {"type": "response.output_item.added", "item": {**CALL, "arguments": ""}},
        *done(THOUGHT, CALL, TEXT),
        {"type": "response.output_text.delta", "delta": "Hello"},
        end(THOUGHT, CALL, TEXT, usage=usage),
    )
    assert pieces == [
        ReasoningDelta("hm"), ReasoningDelta("\n\n"), ReasoningDelta("so"), CallStarted("read"), TextDelta("Hello"),
    ]  # fmt: skip
    assert result == AssembledReply((THOUGHT, CALL, TEXT), "tool_calls", usage)


def test_items_stand_where_the_closing_event_lists_none() -> None:
    second, first = done(THOUGHT, TEXT)[::-1]
    _, result = played(second, first, end())
    assert result is not None
    assert result.messages == (THOUGHT, TEXT)


def test_a_call_without_an_id_gets_one() -> None:
    _, result = played(end({"type": "function_call", "name": "f", "arguments": "{}"}))
    assert result is not None
    assert result.messages[0]["call_id"].startswith("call_")


@pytest.mark.parametrize(
    ("closing", "reason"),
    [
        (end(TEXT), "stop"),
        (end(TEXT, CALL), "tool_calls"),
        (end(TEXT, kind="incomplete", incomplete_details={"reason": "max_output_tokens"}), "length"),
        (end(TEXT, kind="incomplete", incomplete_details={"reason": "content_filter"}), "refusal"),
        (end(TEXT, kind="incomplete"), "length"),
        (end({**TEXT, "content": [{"type": "refusal", "refusal": "No."}]}), "refusal"),
    ],
)
def test_endings_have_one_vocabulary(closing: dict[str, Any], reason: str) -> None:
    _, result = played(closing)
    assert result is not None and result.finish_reason == reason


def test_a_stream_without_ending_has_no_outcome() -> None:
    assert played(*done(TEXT))[1] is None


@pytest.mark.parametrize(
    "body",
    [
        {"type": "error", "code": "server_error", "message": "it broke"},
        {"type": "response.failed", "response": {"status": "failed", "error": {"message": "it broke"}}},
        {"error": {"message": "it broke"}},
    ],
)
def test_an_error_in_the_stream_is_raised_with_what_it_says(body: dict[str, Any]) -> None:
    with pytest.raises(StreamedError) as caught:
        played(*done(TEXT), body)
    assert "it broke" in str(caught.value.body)


def test_a_response_in_one_piece_is_taken_as_well() -> None:
    assembler = ResponsesDialect().assembler()
    body = {
        "object": "response",
        "status": "completed",
        "error": None,
        "output": [CALL, TEXT],
        "usage": {"input_tokens": 3},
    }
    assert list(assembler.feed_body(body)) == [CallStarted("read"), TextDelta("Hello")]
    assert assembler.result() == AssembledReply((CALL, TEXT), "tool_calls", {"input_tokens": 3})
    with pytest.raises(StreamedError):
        list(ResponsesDialect().assembler().feed_body({"status": "failed", "error": {"message": "no"}}))


def body(model: str, url: str = "https://api.openai.com/v1", **fields: Any) -> dict[str, Any]:
    sent = request({"role": "user", "content": "hi"}, system=[{"text": "a"}, {"text": "b"}])
    return ResponsesDialect().body(endpoint(url, "openai-responses", model=model, **fields), sent)


def test_nothing_is_kept_at_the_provider() -> None:
    made = body("gpt-5.4")
    assert made["store"] is False
    assert made["include"] == ["reasoning.encrypted_content"]
    assert made["instructions"] == "a\n\nb"
    assert made["max_output_tokens"] == 100
    assert "previous_response_id" not in made


def test_encrypted_reasoning_is_asked_only_of_models_that_reason() -> None:
    assert "include" not in body("gpt-4.1")
    refused = ResponsesDialect().adapted(body("gpt-5.4"), "Encrypted content is not supported with this model.")
    assert refused is not None and refused["include"] == []
    assert ResponsesDialect().adapted(body("gpt-5.4"), "anything else") is None


@pytest.mark.parametrize("model", ["o3-mini", "gpt-5", "openai/gpt-6.1-sol", "gpt-oss:20b", "gpt-5.3-codex"])
def test_models_that_reason_are_known_by_name(model: str) -> None:
    assert reasons(model)


@pytest.mark.parametrize("model", ["gpt-4o", "gpt-5-chat-latest", "qwen3", "claude-opus-5", ""])
def test_other_models_are_not_asked_for_it(model: str) -> None:
    assert not reasons(model)


def test_only_openai_gets_the_key_of_the_sessions_cache() -> None:
    assert body("gpt-5.4", session_id="s1")["prompt_cache_key"] == "s1"
    assert "prompt_cache_key" not in body("gpt-5.4", "http://127.0.0.1:1", session_id="s1")
