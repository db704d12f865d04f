"""The Anthropic dialect over HTTP: bodies, and streams put together block by block."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.providers.serving import endpoint, request

from foldline.providers.anthropic import AnthropicDialect
from foldline.providers.base import AssembledReply, CallStarted, Piece, ReasoningDelta, TextDelta
from foldline.providers.bodies import Event, StreamedError

START = {"type": "message_start", "message": {"role": "assistant", "usage": {"input_tokens": 9, "output_tokens": 1}}}
STOP = {"type": "message_stop"}


def played(*bodies: dict[str, Any]) -> tuple[list[Piece], AssembledReply | None]:
    assembler = AnthropicDialect().assembler()
    pieces = [piece for body in bodies for piece in assembler.feed(Event(str(body.get("type", "")), json.dumps(body)))]
    return pieces, assembler.result()


def block(index: int, start: dict[str, Any], *deltas: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {"type": "content_block_start", "index": index, "content_block": start},
        *({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": index},
    ]


def ended(reason: str = "end_turn", **usage: Any) -> list[dict[str, Any]]:
    return [{"type": "message_delta", "delta": {"stop_reason": reason}, "usage": usage}, STOP]


def content_of(*bodies: dict[str, Any]) -> list[dict[str, Any]]:
    _, result = played(START, *bodies, *ended())
    assert result is not None
    [message] = result.messages
    content = message["content"]
    assert isinstance(content, list)
    return content


def test_every_kind_of_block_comes_together_in_its_place() -> None:
    thinking = {"type": "thinking", "thinking": "", "signature": ""}
    call = {"type": "tool_use", "id": "toolu_1", "name": "read", "input": {}}
    pieces, result = played(
        START,
        {"type": "ping"},
        *block(
            0,
            thinking,
            {"type": "thinking_delta", "thinking": "h"},
            {"type": "thinking_delta", "thinking": "m"},
            {"type": "signature_delta", "signature": "sig"},
        ),
        *block(1, {"type": "redacted_thinking", "data": "xx"}),
        *block(2, {"type": "text", "text": ""}, {"type": "text_delta", "text": "so"}),
        *block(
            3,
            call,
            {"type": "input_json_delta", "partial_json": ""},
            {"type": "input_json_delta", "partial_json": '{"p":'},
            {"type": "input_json_delta", "partial_json": '"x"}'},
        ),
        *ended("tool_use", output_tokens=40),
    )
    assert pieces == [ReasoningDelta("h"), ReasoningDelta("m"), TextDelta("so"), CallStarted("read")]
    content = [
        {"type": "thinking", "thinking": "hm", "signature": "sig"},
        {"type": "redacted_thinking", "data": "xx"},
        {"type": "text", "text": "so"},
        {**call, "input": {"p": "x"}},
    ]
    usage = {"input_tokens": 9, "output_tokens": 40}
    assert result == AssembledReply(({"role": "assistant", "content": content},), "tool_calls", usage)


def test_server_tools_and_blocks_that_are_not_known_here_stay_whole() -> None:
    search = {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {}}
    found = {"type": "web_search_tool_result", "tool_use_id": "s1", "content": [{"encrypted_content": "e"}]}
    new = {"type": "yet_to_come", "field": [1]}
    content = content_of(
        *block(0, search, {"type": "input_json_delta", "partial_json": '{"query":"q"}'}),
        *block(1, found),
        *block(2, new, {"type": "yet_delta", "more": "a"}, {"type": "yet_delta", "more": "b", "n": 2}),
    )
    assert content == [{**search, "input": {"query": "q"}}, found, {**new, "more": "ab", "n": 2}]


def test_citations_are_gathered_in_their_text() -> None:
    cited = {"type": "char_location", "cited_text": "x"}
    content = content_of(
        *block(
            0,
            {"type": "text", "text": ""},
            {"type": "text_delta", "text": "a"},
            {"type": "citations_delta", "citation": cited},
        )
    )
    assert content == [{"type": "text", "text": "a", "citations": [cited]}]


def test_a_whole_call_without_pieces_keeps_its_input_and_gets_an_id() -> None:
    [call] = content_of(*block(0, {"type": "tool_use", "name": "f", "input": {"a": 1}}))
    assert call["input"] == {"a": 1}
    assert call["id"].startswith("toolu_")


def test_input_that_was_cut_off_is_kept_as_text() -> None:
    start = {"type": "tool_use", "id": "1", "name": "f", "input": {}}
    [call] = content_of(*block(0, start, {"type": "input_json_delta", "partial_json": '{"a": "unfin'}))
    assert call["input"] == {"_invalid_arguments": '{"a": "unfin'}


def test_blank_text_which_the_api_refuses_is_no_block() -> None:
    text = block(1, {"type": "text", "text": "x"})
    assert content_of(*block(0, {"type": "text", "text": ""}, {"type": "text_delta", "text": "\n\n"}), *text) == [
        {"type": "text", "text": "x"}
    ]


def test_a_reply_that_says_nothing_is_no_message() -> None:
    _, result = played(START, *ended())
    assert result is not None and result.messages == ()


@pytest.mark.parametrize(
    ("first", "last", "whole"),
    [
        ({"input_tokens": 9, "cache_read_input_tokens": 5}, {"output_tokens": 3}, (9, 5, 3)),
        ({"input_tokens": 0, "output_tokens": 0}, {"input_tokens": 9, "output_tokens": 3}, (9, None, 3)),
        ({"input_tokens": 9, "output_tokens": 1}, {"input_tokens": 0, "output_tokens": 3}, (9, None, 3)),
        ({"input_tokens": 9}, {"input_tokens": None, "output_tokens": 3}, (9, None, 3)),
    ],
)
def test_counts_of_both_events_become_one_report(first: Any, last: Any, whole: tuple[Any, ...]) -> None:
    _, result = played({"type": "message_start", "message": {"usage": first}}, *ended(**last))
    assert result is not None and result.usage is not None
    found = tuple(result.usage.get(name) for name in ("input_tokens", "cache_read_input_tokens", "output_tokens"))
    assert found == whole


def test_a_server_that_does_not_count_reports_nothing_rather_than_zero() -> None:
    _, result = played({"type": "message_start", "message": {}}, *ended(output_tokens=0))
    assert result is not None and result.usage is None


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("max_tokens", "length"),
        ("refusal", "refusal"),
        ("pause_turn", "pause"),
        ("model_context_window_exceeded", "context_window"),
    ],
)
def test_endings_have_one_vocabulary(said: str, reason: str) -> None:
    _, result = played(START, *ended(said))
    assert result is not None and result.finish_reason == reason


def test_a_stream_without_ending_has_no_outcome() -> None:
    assert played(START, *block(0, {"type": "text", "text": "x"}))[1] is None


def test_an_error_in_the_stream_is_raised_with_what_it_says() -> None:
    with pytest.raises(StreamedError) as caught:
        played(START, {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}})
    assert "Overloaded" in str(caught.value.body)


def test_a_message_in_one_piece_is_taken_as_well() -> None:
    assembler = AnthropicDialect().assembler()
    content = [{"type": "text", "text": "hi"}, {"type": "tool_use", "id": "1", "name": "f", "input": {}}]
    body = {"type": "message", "content": content, "stop_reason": "tool_use", "usage": {"input_tokens": 3}}
    assert list(assembler.feed_body(body)) == [TextDelta("hi"), CallStarted("f")]
    expected = AssembledReply(({"role": "assistant", "content": content},), "tool_calls", {"input_tokens": 3})
    assert assembler.result() == expected
    with pytest.raises(StreamedError):
        list(AnthropicDialect().assembler().feed_body({"type": "error", "error": {"message": "no"}}))


def test_a_small_request_is_sent_as_it_is() -> None:
    user = {"role": "user", "content": "hi"}
    sent = request(user, system=[{"type": "text", "text": "s"}], tools=[{"name": "f", "input_schema": {}}])
    body = AnthropicDialect().body(endpoint(dialect="anthropic", extra={"max_tokens": 7, "top_k": 3}), sent)
    assert body["messages"][0] is user
    assert body == {
        "model": "m",
        "system": [{"type": "text", "text": "s"}],
        "tools": [{"name": "f", "input_schema": {}}],
        "messages": [user],
        "stream": True,
        "max_tokens": 7,
        "top_k": 3,
    }


def test_a_cache_point_of_the_whole_request_leaves_the_others_to_the_server() -> None:
    sent = request(tokens=50_000)
    point = {"type": "ephemeral"}
    given = endpoint(dialect="anthropic", extra={"cache_control": point})
    assert AnthropicDialect().body(given, sent)["messages"] == sent.messages
    assert AnthropicDialect().body(endpoint(dialect="anthropic"), sent)["messages"] != sent.messages


def test_a_question_that_is_asked_once_has_room_to_think_before_it_answers() -> None:
    thinks = endpoint(dialect="anthropic", extra={"thinking": {"type": "enabled", "budget_tokens": 4_000}})
    question = {"role": "user", "content": "Sum up."}
    body = AnthropicDialect().body(thinks, request(question, once=1))
    assert (body["max_tokens"], body["thinking"]["budget_tokens"]) == (4_100, 4_000)
    assert AnthropicDialect().body(thinks, request(question))["max_tokens"] == 100


@pytest.mark.parametrize(
    ("budget_tokens", "tokens", "expected_tokens"),
    [
        (63_000, 60_000, 64_000),  # the most that the model writes
        (50_000, 148_000, 52_000),  # the room in its window
        (64_000, 60_000, 66_048),  # refused either way, and the refusal says of what
    ],
)
def test_room_to_think_is_no_more_than_the_model_has(budget_tokens: int, tokens: int, expected_tokens: int) -> None:
    extra = {"thinking": {"type": "enabled", "budget_tokens": budget_tokens}}
    thinks = endpoint(dialect="anthropic", model="claude-sonnet-4-5", extra=extra)
    question = request({"role": "user", "content": "Sum up."}, once=1, tokens=tokens, max_output_tokens=2_048)
    assert AnthropicDialect().body(thinks, question)["max_tokens"] == expected_tokens
